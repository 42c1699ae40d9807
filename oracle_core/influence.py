"""The smallest set of things whose removal changes an outcome: bounds that are proved, and an example.

A search over sets that knows nothing of decisions: it asks a function which sets change the outcome. What it
has not tried it does not claim. Removing more may change an outcome back, so nothing is inferred from one set
about another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb

import numpy as np

from oracle_core.inputs import Bool, Float, Int

Tried = Callable[[Bool], tuple[Bool, Float]]
"""Takes one row per set, true where a thing is removed; gives which sets change the outcome, and scores.

The scores have one column per way of coming closer to a change, the lower the closer.
"""


@dataclass(frozen=True, slots=True)
class Influence:
    """How many things have to go for the outcome to change.

    No set of fewer than ``lower`` things changes it, and ``example``, of ``upper`` things, does. Both are
    equal where the answer is exact. ``upper`` is None where no set was found; ``impossible`` says that none
    exists, because all were tried.
    """

    things: int
    lower: int
    upper: int | None
    example: tuple[int, ...]
    impossible: bool
    tried: int

    @property
    def exact(self) -> bool:
        """Whether the answer is proved."""
        return self.impossible or self.lower == self.upper


class _Search:
    def __init__(self, things: int, tried: Tried, budget: int, batch: int) -> None:
        self.things = things
        self._tried = tried
        self.left = budget
        self._batch = max(1, batch)
        self.best: tuple[int, ...] | None = None
        self.done = 0

    def look(self, removed: Bool) -> tuple[Bool, Float]:
        """Try sets, batch by batch, and remember the smallest that changes the outcome."""
        changed, scores = [], []
        for first in range(0, len(removed), self._batch):
            part = removed[first : first + self._batch]
            found, score = self._tried(part)
            changed.append(found)
            scores.append(score)
            for row in np.flatnonzero(found).tolist():
                self._remember(part[row])
        self.left -= len(removed)
        self.done += len(removed)
        return np.concatenate(changed), np.concatenate(scores)

    def _remember(self, removed: Bool) -> None:
        example = tuple(np.flatnonzero(removed).tolist())
        if self.best is None or len(example) < len(self.best):
            self.best = example

    def without(self, sets: Sequence[Sequence[int]]) -> Bool:
        """One row per set."""
        removed = np.zeros((len(sets), self.things), np.bool_)
        for row, members in enumerate(sets):
            removed[row, list(members)] = True
        return removed

    def along(self, order: Int) -> None:
        """Try the beginnings of an order, up to those that are no better than what is known."""
        most = len(order) if self.best is None else len(self.best) - 1
        most = min(most, self.left)
        if most > 0:
            self.look(np.tril(np.ones((most, len(order)), np.bool_))[:, np.argsort(order)])

    def thin_out(self) -> None:
        """Leave members out of the best set as long as the rest still changes the outcome."""
        while self.best is not None and 1 < len(self.best) <= self.left:
            before = self.best
            self.look(self.without([[m for m in before if m != out] for out in before]))
            if self.best == before:
                return

    def step_by_step(self, column: int) -> None:
        """Remove one thing at a time, always the one after which the score is lowest."""
        gone: list[int] = []
        while (self.best is None or len(gone) + 1 < len(self.best)) and len(gone) < self.things:
            rest = [thing for thing in range(self.things) if thing not in gone]
            if len(rest) > self.left:
                return
            _, scores = self.look(self.without([[*gone, thing] for thing in rest]))
            gone.append(rest[int(np.argmin(scores[:, column]))])

    def all_of(self, members: int) -> bool:
        """Try every set of so many things; False where that is more than the budget allows."""
        if comb(self.things, members) > self.left:
            return False
        sets: Iterator[tuple[int, ...]] = combinations(range(self.things), members)
        while part := list(islice(sets, self._batch)):
            changed, _ = self.look(self.without(part))
            if bool(changed.any()):
                return True
        return True


def smallest_change(
    things: int,
    tried: Tried,
    *,
    budget: int,
    batch: int,
    proved: int = 0,
    hints: Sequence[Int] = (),
) -> Influence:
    """Search for the smallest set whose removal changes the outcome.

    First a good set by following the scores, then every smaller set, smallest first, as far as the budget
    allows. A third of the budget is for the first part.

    Args:
        things: how many there are.
        tried: says of sets whether they change the outcome.
        budget: sets that may be tried.
        batch: sets tried at once.
        proved: no set of so many things or fewer changes the outcome, as is known otherwise.
        hints: orders of all things whose beginnings are worth trying.

    """
    search = _Search(things, tried, max(1, budget // 3), batch)
    lower = 1
    if 0 < things <= search.left:
        _, scores = search.look(np.eye(things, dtype=np.bool_))
        for order in hints:
            search.along(order)
        for column in range(scores.shape[1]):
            search.along(np.argsort(scores[:, column], kind="stable"))
        search.thin_out()
        for column in range(scores.shape[1]):
            search.step_by_step(column)
        search.thin_out()
        lower = 1 if search.best is not None and len(search.best) == 1 else 2
    search.left = budget - search.done
    lower = max(lower, proved + 1)
    while lower <= things and (search.best is None or lower < len(search.best)):
        if not search.all_of(lower):
            break
        if search.best is None or len(search.best) > lower:
            lower += 1
    impossible = search.best is None and lower > things
    return Influence(
        things=things,
        lower=lower,
        upper=None if search.best is None else len(search.best),
        example=() if search.best is None else search.best,
        impossible=impossible,
        tried=search.done,
    )
