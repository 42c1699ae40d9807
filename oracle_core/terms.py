"""A sum as an object: its terms, each a weight times a quantity, so that what adds up can also be shown.

What the terms of a quantity are belongs in the module of its rule.
"""

from __future__ import annotations

from dataclasses import dataclass

from oracle_core.inputs import Float


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """``weight * quantity``, one row per key; what is taken off has a negative weight."""

    name: str
    weight: Float | float
    quantity: Float

    def value(self) -> Float:
        """What the term adds to the sum."""
        result: Float = self.weight * self.quantity
        return result


def summed(terms: tuple[Term, ...]) -> Float:
    """The sum of at least one term, added in their order."""
    total = terms[0].value()
    for term in terms[1:]:
        total = total + term.value()
    return total
