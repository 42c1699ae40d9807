"""A threshold as an object: what is compared with what, whether it holds, and by how much.

A rule that asks several such questions hands them out as gates, so that what decided can also be shown. Which
questions there are belongs in the module of the rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from oracle_core.inputs import Bool, Float


class Relation(StrEnum):
    """How a value has to stand to its threshold."""

    AT_LEAST = ">="
    AT_MOST = "<="
    ABOVE = ">"
    BELOW = "<"


_UPWARD = (Relation.AT_LEAST, Relation.ABOVE)


@dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """One comparison, one row per key.

    A value that is NaN does not hold. Where ``applies`` is false the question is not asked, so it cannot
    fail; None means that it is always asked.
    """

    name: str
    value: Float
    relation: Relation
    threshold: Float | float
    applies: Bool | None = None

    def holds(self) -> Bool:
        """Whether the comparison is true, asked or not."""
        compare = {
            Relation.AT_LEAST: np.greater_equal,
            Relation.AT_MOST: np.less_equal,
            Relation.ABOVE: np.greater,
            Relation.BELOW: np.less,
        }[self.relation]
        result: Bool = compare(self.value, self.threshold)
        return result

    def failed(self) -> Bool:
        """Whether the question is asked and answered with no."""
        fails = ~self.holds()
        return fails if self.applies is None else fails & self.applies

    def margin(self) -> Float:
        """Distance to the threshold in the value's unit, positive on the side that holds."""
        difference = self.value - self.threshold
        return difference if self.relation in _UPWARD else -difference


def failures(gates: tuple[Gate, ...]) -> Bool:
    """One column per gate, true where it fails."""
    return np.column_stack([gate.failed() for gate in gates])
