"""Which of two decisions is the stronger one, and how a cycle's decisions moved; the one home of that order.

Pure: no database, no orchestrator.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from oracle_core.enums import Action, Mode

if TYPE_CHECKING:
    from collections.abc import Iterable

ACTIONS: Final = (Action.OBSERVE.value, Action.MONITOR.value, Action.DEFER.value, Action.ACT.value)
"""Weakest first: how much of a person's attention an action asks for."""
MODES: Final = (Mode.INFORMATIONAL.value, Mode.SIMULATION_ELIGIBLE.value, Mode.PRODUCTION_ELIGIBLE.value)
"""Weakest first; it decides between equal actions."""
ESCALATED: Final = "escalated"
DE_ESCALATED: Final = "de-escalated"


class Told(NamedTuple):
    """A decision as far as people are told of it."""

    action: str
    mode: str
    confidence: float


def level(decision: Told) -> tuple[int, int]:
    """The place of a decision in the order; equal where action and mode are."""
    return ACTIONS.index(decision.action), MODES.index(decision.mode)


def kind(before: Told, after: Told) -> str | None:
    """Escalated or de-escalated; None where neither action nor mode changed.

    >>> kind(Told("observe", "informational", 0.2), Told("act", "informational", 0.7))
    'escalated'
    """
    if level(before) == level(after):
        return None
    return ESCALATED if level(after) > level(before) else DE_ESCALATED


def summary(moves: Iterable[tuple[Told | None, Told]]) -> str:
    """How decisions moved, in one line.

    >>> quiet, loud = Told("monitor", "informational", 0.4), Told("act", "informational", 0.7)
    >>> summary([(quiet, loud), (loud, quiet), (quiet, loud), (None, quiet), (loud, loud)])
    '2 escalated, 1 de-escalated, 1 new, 1 unchanged'
    """
    counts = Counter(
        "new" if before is None else kind(before, after) or "unchanged" for before, after in moves
    )
    return ", ".join(
        f"{counts[name]} {name}" for name in (ESCALATED, DE_ESCALATED, "new", "unchanged") if counts[name]
    )


def table(moves: Iterable[tuple[Told | None, Told]]) -> list[dict[str, object]]:
    """How often each decision became which, unchanged ones left out; the strongest rise first.

    Returns:
        Rows of ``before``, ``after``, ``moved`` and ``keys``.

    """
    counts: Counter[tuple[tuple[str, str] | None, tuple[str, str]]] = Counter()
    for before, after in moves:
        if before is None or kind(before, after) is not None:
            counts[None if before is None else before[:2], after[:2]] += 1

    def rise(entry: tuple[tuple[str, str] | None, tuple[str, str]]) -> tuple[bool, int, int]:
        before, after = entry
        ups = [
            order.index(after[at]) - (0 if before is None else order.index(before[at]))
            for at, order in enumerate((ACTIONS, MODES))
        ]
        return before is None, -ups[0], -ups[1]

    return [
        {
            "before": "-" if before is None else " / ".join(before),
            "after": " / ".join(after),
            "moved": "new" if before is None else kind(Told(*before, 0.0), Told(*after, 0.0)),
            "keys": counts[before, after],
        }
        for before, after in sorted(counts, key=lambda entry: (*rise(entry), str(entry)))
    ]
