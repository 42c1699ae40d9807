"""When an outcome changes if nothing happens but time passing: found by asking at chosen moments.

A search over moments that knows nothing of decisions, and the moments at which something can leave or settle.
A change that is undone between two neighbouring moments that were asked is not seen; everything else is exact
to the microsecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from oracle_core.config import OracleConfig
from oracle_core.inputs import US_PER_DAY, CycleInputs, Int, Keys
from oracle_core.windows import LOOKBACKS_US

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """At ``at_us`` the outcome is ``after``; one microsecond before it is ``before``."""

    at_us: int
    before: T
    after: T


def changes(outcome: Callable[[int], T], moments: Int, start_us: int) -> Iterator[Change[T]]:
    """Changes of an outcome, in order.

    Args:
        outcome: asked for a moment.
        moments: when to ask, any order; those up to ``start_us`` are left out.
        start_us: where the search starts.

    Yields:
        One change per moment at which the outcome differs from a microsecond before.

    """
    last, now = start_us, outcome(start_us)
    for moment in np.unique(moments[moments > start_us]).tolist():
        found = outcome(moment)
        while found != now:
            low, high = last, moment
            while high - low > 1:
                middle = (low + high) // 2
                if outcome(middle) == now:
                    low = middle
                else:
                    high = middle
            last, after = high, outcome(high)
            yield Change(high, now, after)
            now = after
        last = moment


def turning_points(inputs: CycleInputs, key: Keys, as_of_us: int, until_us: int, config: OracleConfig) -> Int:
    """Moments after ``as_of_us`` at which something leaves the window, settles or is too old to learn from.

    Of each the moment itself and the microsecond before. Documents and events leave the window; returns
    after a document settle and get too old for a pattern, returns after a bar for the expected value.

    Args:
        inputs: the world, cut at what is known.
        key: one key.
        as_of_us: where the search starts.
        until_us: where it ends, included.
        config: the horizons.

    """
    own = int(key.entity[0])
    published, days = inputs.documents.published_us, inputs.bars.day[inputs.bars.entity == own]
    mine = published[inputs.documents.entity == own]
    lookback = int(LOOKBACKS_US[key.window[0]])
    patterns, expected = config.competitive, config.eligibility
    parts = (
        published + lookback,
        inputs.events.occurred_us,
        inputs.events.occurred_us + lookback,
        mine + round(patterns.pattern_settle_days * US_PER_DAY),
        mine + round(patterns.pattern_lookback_days * US_PER_DAY) + 1,
        (days + 1) * US_PER_DAY + round(expected.ev_horizon_days * US_PER_DAY),
        days * US_PER_DAY + round(expected.ev_lookback_days * US_PER_DAY) + 1,
    )
    moments = np.concatenate(parts)
    moments = np.unique(np.concatenate((moments - 1, moments)))
    return moments[(moments > as_of_us) & (moments <= until_us)]
