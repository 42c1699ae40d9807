"""The memory limit of a run: blocks of entities shrink until they fit in it, and the system enforces it.

Before each block the run looks at what the process holds and at what the blocks before took per entity. An
allocation beyond the limit fails like any other error of a block: the block is computed again in halves. What
does not even hold one entity fails at once. Results do not depend on the size of blocks.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import resource
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger(__name__)

MEMORY_VARIABLE: Final = "ORACLE_RUN_MEMORY_MB"
MEGABYTE: Final = 1 << 20
FIRST_BLOCK: Final = 50
"""Entities of the first block under a limit, from which the others are sized."""
_USED: Final = 0.8  # of what is free: blocks differ, and the allocators keep what they had
_STATUS: Final = Path("/proc/self/status")


class MemoryLimitError(RuntimeError):
    """The limit leaves no room for a single entity, or is no number; the message says what would do."""


def limit_bytes() -> int | None:
    """The limit of a run's process, from ``ORACLE_RUN_MEMORY_MB``; None where there is none.

    Raises:
        MemoryLimitError: not a whole number of at least 1.

    """
    text = os.environ.get(MEMORY_VARIABLE, "")
    if text == "":
        return None
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise MemoryLimitError(
            f"{MEMORY_VARIABLE} is {text!r}; set it to a whole number of megabytes from 1, or unset it for "
            "no limit"
        )
    return int(text) * MEGABYTE


@dataclass
class Blocks:
    """How many entities the next block may have, from what those before took.

    ``limit`` and all measures are bytes of this process; ``sizes`` are the blocks so far.
    """

    largest: int
    limit: int | None = None
    sizes: list[int] = field(default_factory=list)
    per_entity: float = 0.0
    _before: int = 0
    _peak: int = 0

    def next(self) -> int:
        """The number of entities of the next block.

        Raises:
            MemoryLimitError: not even one fits.

        """
        if self.limit is None:
            return self.largest
        held = held_bytes()
        self._learn()
        free = self.limit - held
        if free <= 0 or free * _USED < self.per_entity:
            enough = math.ceil((held + self.per_entity / _USED) / MEGABYTE) + 1
            raise MemoryLimitError(
                f"{MEMORY_VARIABLE} is {self.limit // MEGABYTE:,} but the process holds "
                f"{held / MEGABYTE:,.0f} MB before its next block, and an entity takes "
                f"{self.per_entity / MEGABYTE:,.1f} MB. Set it to at least {enough:,}, or "
                "more for larger blocks; what was computed is written, so `oracle run` may be repeated."
            )
        fits = int(free * _USED / self.per_entity) if self.per_entity > 0.0 else FIRST_BLOCK
        size = max(1, min(self.largest, fits))
        if self.sizes and size < min(self.largest, self.sizes[-1]):
            _log.info("blocks of %d entities instead of %d keep the limit of memory", size, self.sizes[-1])
        self.sizes.append(size)
        self._before, self._peak = held, peak_bytes()
        return size

    def _learn(self) -> None:
        """What an entity of the block before took; told only by a block that reached a new peak."""
        if self.sizes and peak_bytes() > self._peak:
            self.per_entity = max(0.0, peak_bytes() - self._before) / self.sizes[-1]


def held_bytes() -> int:
    """What this process holds now."""
    return int(psutil.Process().memory_info().rss)


def peak_bytes() -> int:
    """The most that it ever held."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@contextlib.contextmanager
def limited(largest: int) -> Iterator[Blocks]:
    """Sizes of blocks under the limit of the environment, which the system enforces meanwhile.

    Counted are the writable pages of this process beyond what it holds already (on Linux; elsewhere the
    sizes of the blocks alone keep the limit).

    Args:
        largest: entities of a block where memory sets no bound.

    Raises:
        MemoryLimitError: the limit is no number.

    """
    limit = limit_bytes()
    if limit is None or not _STATUS.exists():
        yield Blocks(largest, limit)
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = _data_bytes() + max(0, limit - held_bytes())
    ceiling = before[1]
    bound = wanted if ceiling == resource.RLIM_INFINITY else min(wanted, ceiling)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, ceiling))
    try:
        yield Blocks(largest, limit)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _data_bytes() -> int:
    """The writable pages that count towards the system's limit, whether used or not."""
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmData:"))
    return int(line.split()[1]) * 1024
