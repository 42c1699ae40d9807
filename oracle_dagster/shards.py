"""How a cycle is split into runs: blocks of entities, each an ordinary run that any run launcher can place.

A run of up to :func:`shard_entities` entities stays one run. More become runs of contiguous blocks of the
sorted entities, as even as possible. What a run computes does not depend on which others there are: all look
from the same moment, read the same transactions and use the same accuracy of the sources, which is measured
once, before them. Pure but for the size, which comes from the environment.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oracle_dagster.partitions import Key

T = TypeVar("T")

SHARD_VARIABLE: Final = "ORACLE_SHARD_ENTITIES"
DEFAULT_SHARD_ENTITIES: Final = 10_000
"""Small installations keep one run; one of 50,000 keys lasts minutes, beside which its start is nothing."""
SHARD_TAG: Final = "oracle/shard"
"""Which part of how many a run is, like ``2/7``."""
CYCLE_TAG: Final = "oracle/cycle_of_shards"
"""The same on all runs of one launch: the batch of its first part, or the moment of a schedule."""


class ShardError(ValueError):
    """The size of a run cannot be used; the message says which setting and how."""


@dataclass(frozen=True)
class Shard:
    """Part ``number`` (from 0) of ``count``."""

    number: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        """Refuse a part that does not exist."""
        if not 0 <= self.number < self.count:
            raise ShardError(
                f"there is no part {self.number} of {self.count}; parts are counted from 0, so `shard` must "
                "be less than `shards`"
            )

    def part(self, ordered: Sequence[T]) -> Sequence[T]:
        """The contiguous part of a sequence; all parts make it up, and their sizes differ by at most one."""
        size = len(ordered)
        return ordered[size * self.number // self.count : size * (self.number + 1) // self.count]

    @property
    def text(self) -> str:
        """As in the tag: ``2/7``."""
        return f"{self.number + 1}/{self.count}"


WHOLE: Final = Shard()


def shard_entities() -> int:
    """The largest number of entities of one run, from ``ORACLE_SHARD_ENTITIES``.

    Raises:
        ShardError: not a whole number of at least 1.

    """
    text = os.environ.get(SHARD_VARIABLE, "")
    if text == "":
        return DEFAULT_SHARD_ENTITIES
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ShardError(
            f"{SHARD_VARIABLE} is {text!r}; set it to a whole number of entities from 1, or unset it for "
            f"{DEFAULT_SHARD_ENTITIES:,}"
        )
    return int(text)


def shards_of(entities: int, size: int | None = None) -> list[Shard]:
    """The parts that so many entities are computed in; one where there are none."""
    largest = shard_entities() if size is None else size
    count = max(1, -(-entities // largest))
    return [Shard(number, count) for number in range(count)]


def keys_of(keys: Sequence[Key], shard: Shard) -> list[Key]:
    """The keys of a part, in the order given; an entity is never divided."""
    if shard.count == 1:
        return list(keys)
    mine = set(shard.part(sorted({entity for entity, _ in keys})))
    return [key for key in keys if key[0] in mine]


def split_keys(keys: Sequence[Key], size: int | None = None) -> list[list[Key]]:
    """The keys by part, in the order given."""
    entities = sorted({entity for entity, _ in keys})
    parts = shards_of(len(entities), size)
    if len(parts) == 1:
        return [list(keys)]
    place = {entity: shard.number for shard in parts for entity in shard.part(entities)}
    split: list[list[Key]] = [[] for _ in parts]
    for key in keys:
        split[place[key[0]]].append(key)
    return split


def batch_id(first: uuid.UUID, number: int) -> uuid.UUID:
    """The batch of a part, of the batch of part 0; the same whenever the same set is split again."""
    return first if number == 0 else uuid.uuid5(first, f"part {number}")


def tags(group: str, shard: Shard) -> Mapping[str, str]:
    """What marks a run as a part; nothing where it is the whole."""
    return {} if shard.count == 1 else {SHARD_TAG: shard.text, CYCLE_TAG: group}
