"""How much of a change each of its causes made: Shapley's value, which no order of the causes can bend.

Knows nothing of decisions: it asks a function for the value under every set of causes. Its parts add up to
the whole change; a cause that changes nothing in any company gets exactly 0; so a change with one cause is
attributed to it alone.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import factorial, fsum

import numpy as np

from oracle_core.inputs import Float


def shapley(value: Callable[[tuple[bool, ...]], Float], causes: int) -> Float:
    """Each cause's mean difference over all orders in which the causes may come.

    Args:
        value: the values (a vector) when the causes that are true have happened; asked once per set.
        causes: how many there are; 2 to this power sets are asked.

    Returns:
        One row per cause, one column per value.

    """
    known = {happened: value(happened) for happened in product((False, True), repeat=causes)}
    width = len(known[(False,) * causes])
    parts = np.zeros((causes, width))
    for cause in range(causes):
        terms: list[Float] = []
        for happened, before in known.items():
            if happened[cause]:
                continue
            others = sum(happened)
            share = factorial(others) * factorial(causes - others - 1) / factorial(causes)
            after = known[(*happened[:cause], True, *happened[cause + 1 :])]
            terms.append(share * (after - before))
        for column in range(width):
            parts[cause, column] = fsum(float(term[column]) for term in terms)
    return parts
