"""What is not wrong but should be looked at: stale inputs, refused records, unusual shares, drift, gaps.

Judges numbers against limits and warns; it holds nothing back. No clock: ages are those at the cycle's
``as_of``. No orchestrator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.special import kolmogorov

from oracle_dagster.storage import cycles, watch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oracle_core.inputs import Float
    from oracle_dagster.limits import Limits
    from oracle_dagster.pipeline import KeyReport
    from oracle_dagster.storage.cycles import Cycle, Key
    from oracle_dagster.storage.database import Bulk, Database

FRESH: Final = "inputs_are_fresh"
REJECTED: Final = "few_records_rejected"
SUPPRESSED: Final = "few_suppressed"
CONFIDENCE: Final = "confidence_has_not_drifted"
CONTRADICTION: Final = "contradiction_has_not_drifted"
HISTORY: Final = "history_has_no_gap"
ASKS: Final = {
    ("weighted_signals", FRESH): "The newest document, bar and event are not older than their limits.",
    ("weighted_signals", REJECTED): "Few of the documents of the last 24 hours were refused.",
    ("trend_windows", CONFIDENCE): "Confidence is distributed as in the last cycles of the same keys.",
    ("trend_windows", CONTRADICTION): "Contradiction is distributed as in the last cycles of the same keys.",
    ("trend_windows", HISTORY): "Every trend is in the history, from which momentum is taken (R59).",
    ("recommendations", SUPPRESSED): "Few recommendations are suppressed for the quality of their data.",
}
SAMPLE: Final = 5_000
"""Keys that a drift is measured on at most, evenly taken from all."""
_CHANCE: Final = 0.01
_SHORT: Final = "{} keys are too few to judge"


@dataclass(frozen=True)
class Watched:
    """The answer to one question; ``shown`` is for a person, ``keys`` are the ones to look at."""

    passed: bool
    why: str
    shown: dict[str, Any] = field(default_factory=dict)
    keys: Sequence[Key] = ()


def watch_cycle(
    database: Database, cycle: Cycle, computed: Mapping[str, Sequence[KeyReport]], limits: Limits
) -> dict[tuple[str, str], Watched]:
    """Answer the questions about the assets that a run has computed.

    Args:
        database: with inputs and results.
        cycle: that was computed.
        computed: what the pipeline reported, by asset.
        limits: from where on it warns.

    Returns:
        By asset and check.

    Raises:
        StorageError: the tables cannot be read.

    """

    def ask(bulk: Bulk) -> dict[tuple[str, str], Watched]:
        cycles.enter(bulk, cycle)
        found: dict[tuple[str, str], Watched] = {}
        if computed.get("weighted_signals"):
            hours = {
                "documents": limits.fresh_documents_hours,
                "bars": limits.fresh_bars_hours,
                "events": limits.fresh_events_hours,
            }
            hours = {kind: limit for kind, limit in hours.items() if limit > 0}
            newest = watch.newest_inputs(bulk, hours, cycle.as_of)
            found["weighted_signals", FRESH] = fresh(newest, hours, cycle.as_of)
            refused, loaded = watch.rejected_documents(bulk)
            found["weighted_signals", REJECTED] = rejected(refused, loaded, limits)
        trends = computed.get("trend_windows", ())
        if trends:
            missing = watch.without_history(bulk, _keys(trends))
            found["trend_windows", HISTORY] = gap(missing, len(trends))
            sample = trends[:: -(-len(trends) // SAMPLE)]
            earlier = watch.earlier_trends(bulk, _keys(sample), limits.drift_cycles)
            for check, name in ((CONFIDENCE, "confidence"), (CONTRADICTION, "contradiction")):
                now = np.array([float(str(each.metadata[name])) for each in sample], np.float64)
                found["trend_windows", check] = drift(now, earlier, getattr(earlier, name), limits)
        return found

    found = database.run(ask, "REPEATABLE READ")
    if decided := computed.get("recommendations"):
        found["recommendations", SUPPRESSED] = suppressed(decided, limits)
    return found


def _keys(reports: Sequence[KeyReport]) -> list[Key]:
    return [(each.entity_id, each.window) for each in reports]


def fresh(newest: Mapping[str, datetime | None], hours: Mapping[str, float], as_of: datetime) -> Watched:
    """Are the inputs fresh, seen from the cycle? A kind that was never loaded is not judged."""
    shown: dict[str, Any] = {}
    late = []
    for kind, moment in newest.items():
        if moment is None:
            continue
        age = (as_of - moment) / timedelta(hours=1)
        shown |= {f"newest_{kind}": moment, f"{kind}_age_hours": age, f"{kind}_limit_hours": hours[kind]}
        if age > hours[kind]:
            late.append(
                f"the newest of the {kind} became known {age:.1f} h before as_of, limit {hours[kind]:g} h"
            )
    why = "; ".join(late) or ("fresh" if shown else "nothing to judge: none loaded, or switched off")
    return Watched(not late, why, shown)


def rejected(refused: int, loaded: int, limits: Limits) -> Watched:
    """Was a usual share of the documents refused?"""
    share = refused / (refused + loaded) if refused > 0 else 0.0
    shown = {"rejected": refused, "share": share, "limit": limits.max_rejected_share}
    why = f"{refused} of {refused + loaded} documents of the last 24 hours were refused ({share:.1%})"
    return Watched(share <= limits.max_rejected_share, why if refused > 0 else "none was refused", shown)


def suppressed(decided: Sequence[KeyReport], limits: Limits) -> Watched:
    """Is a usual share of the recommendations suppressed?"""
    keys = [(each.entity_id, each.window) for each in decided if each.metadata.get("suppression_reasons")]
    share = len(keys) / len(decided)
    shown = {"suppressed": len(keys), "share": share, "limit": limits.max_suppressed_share}
    if len(decided) < limits.least_keys:
        return Watched(passed=True, why=_SHORT.format(len(decided)), shown=shown)
    passed = share <= limits.max_suppressed_share
    why = f"{len(keys)} of {len(decided)} recommendations are suppressed ({share:.1%})"
    return Watched(passed, why, shown, () if passed else keys)


def drift(now: Float, earlier: watch.Earlier, before: Float, limits: Limits) -> Watched:
    """Is a number distributed over the keys as it was?

    The two-sample Kolmogorov-Smirnov statistic D: the largest distance between the two cumulative shares, in
    [0, 1], of this cycle's values and of those of the last cycles of the same keys together. It has drifted
    where D exceeds the limit and keys of this number would show such a D by chance in less than 1 of 100
    cases; where a past of three cycles or the least number of keys is missing, nothing is judged.
    """
    known = np.unique(earlier.position)
    if len(known) < limits.least_keys or not earlier.enough:
        why = f"{len(known)} keys with {earlier.cycles} earlier cycles are too few to judge"
        return Watched(passed=True, why=why, shown={"keys": len(known), "cycles": earlier.cycles})
    values = now[known]
    distance = _distance(values, before)
    size = len(values) * len(before) / (len(values) + len(before))
    chance = float(kolmogorov(math.sqrt(size) * distance))
    shown = {
        "statistic": "two-sample Kolmogorov-Smirnov D",
        "drift": distance,
        "limit": limits.max_drift,
        "chance": chance,
        "median": float(np.median(values)),
        "median_before": float(np.median(before)),
        "keys": len(known),
        "cycles": earlier.cycles,
    }
    passed = distance <= limits.max_drift or chance >= _CHANCE
    medians = f"median {shown['median']:.3f}, before {shown['median_before']:.3f}"
    return Watched(passed, f"D = {distance:.3f} over {len(known)} keys; {medians}", shown)


def _distance(one: Float, other: Float) -> float:
    """The largest distance between the cumulative shares of two samples.

    As ``scipy.stats`` computes it, whose import takes longer than a whole cycle.
    """
    at = np.concatenate((one, other))
    shares = [np.searchsorted(np.sort(sample), at, side="right") / len(sample) for sample in (one, other)]
    return float(np.max(np.abs(shares[0] - shares[1])))


def gap(missing: Sequence[Key], keys: int) -> Watched:
    """Is every trend in the history? Momentum leaves out what is not."""
    shown = {"keys": keys, "without_history": len(missing)}
    why = f"{len(missing)} of {keys} trends are not in the history; momentum will leave this cycle out"
    return Watched(not missing, why if missing else "no gap", shown, missing)
