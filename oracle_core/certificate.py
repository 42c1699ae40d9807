"""A proof that no few documents carry a decision, where trying all sets would take too long (heuristic mode).

For every quantity that a gate looks at there is a range that it cannot leave, whichever of at most so many
documents are removed. A gate whose answer is the same at both ends of the range has that answer for all these
sets; if all gates that matter do, none of the sets changes action or mode. The ranges are of sums and counts;
what is made of them is asked of the rules themselves. Only where nothing but the key's own documents counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from oracle_core.competitive import relations
from oracle_core.config import OracleConfig
from oracle_core.eligibility import action_gates, eligibility_gates, mode_gates
from oracle_core.enums import PipelineMode, SignalLayer, TrendDirection, codes
from oracle_core.frames import QualityRows, SignalRows
from oracle_core.gates import Gate
from oracle_core.inputs import CycleInputs, DocumentRows, Float, Int, Keys
from oracle_core.scoring import score_signals
from oracle_core.suppression import Layers, data_quality_scores, quality_gates, quality_rows
from oracle_core.trend import ActiveSignals, Support, agreement_confidence, average_bounds
from oracle_core.windows import in_window

if TYPE_CHECKING:
    from oracle_core.rules import RuleSet

SLACK = 1e-9
"""Ranges are widened by this, so that rounding proves nothing."""

_ENTITY = codes(SignalLayer)[SignalLayer.ENTITY]
_POSITIVE = codes(TrendDirection)[TrendDirection.POSITIVE]


def proved_safe(inputs: CycleInputs, key: Keys, as_of_us: int, config: OracleConfig, rules: RuleSet) -> int:
    """So many documents can be removed, whichever they are, and action and mode stay the same: proved.

    Args:
        inputs: the world, cut at what is known.
        key: one key.
        as_of_us: the moment looked from.
        config: the configuration.
        rules: the set of rules of the mode.

    Returns:
        0 where nothing is proved: in probabilistic mode, or where other entities, patterns or events count.

    """
    if rules.mode is not PipelineMode.HEURISTIC or not _alone(inputs, key, config, rules):
        return 0
    signals = score_signals(inputs, key, as_of_us, config, rules).rows
    if bool((signals.layer != _ENTITY).any()):
        return 0
    mine = (inputs.documents.entity == key.entity[0]) & in_window(
        inputs.documents.published_us, as_of_us, key.window[0]
    )
    documents = inputs.documents.take(mine)
    low, high = 0, len(documents.entity)
    while low < high:
        middle = (low + high + 1) // 2
        if _holds(signals, documents, key, middle, as_of_us, config):
            low = middle
        else:
            high = middle - 1
    return low


def _alone(inputs: CycleInputs, key: Keys, config: OracleConfig, rules: RuleSet) -> bool:
    if not config.flags.competitive_enabled:
        return True
    reach = rules.propagation_reach(config.competitive)
    prices = bool((inputs.bars.entity == key.entity[0]).any())
    return not prices and len(relations(inputs.edges, key.entity, reach).source) == 0


def _holds(  # noqa: PLR0917 - what is looked at, then how many, then by what
    signals: SignalRows, documents: DocumentRows, key: Keys, count: int, as_of_us: int, config: OracleConfig
) -> bool:
    """Whether every gate has one answer over all sets of at most ``count`` documents; two rows: low, high."""
    rows = ActiveSignals.of(signals)
    effective = rows.combined * rows.impact
    average = _mean_range(rows.combined, rows.impact * rows.sentiment, count)
    up, down = effective[rows.sentiment > 0.0], effective[rows.sentiment < 0.0]
    contradiction = _minority_range(_left(up, count), _left(down, count))
    ends = np.array([max(0, len(rows.row) - count), len(rows.row)])
    credibility = _mean_range(np.ones(len(rows.row)), rows.credibility, count)
    if len(rows.row) <= count:  # nothing may be left, and then every mean is 0
        average = np.array([min(average[0], 0.0), max(average[1], 0.0)])
        credibility = np.array([0.0, credibility[1]])
    agreement = _agreement_range(int((rows.sentiment > 0.0).sum()), int((rows.sentiment < 0.0).sum()), count)
    confidence = agreement_confidence(
        Support(ends, credibility, agreement), contradiction[::-1], config.trend
    ) + np.array([-SLACK, SLACK])
    size = np.abs(average)
    strength = np.array([0.0 if average[0] < 0.0 < average[1] else size.min(), size.max()])
    cited = _cited_range(rows, count, config)
    agreed, decided, positive, negative = average_bounds(average, contradiction, config.trend)
    decided = Gate(decided.name, strength, decided.relation, decided.threshold)
    clear = _constant(agreed) and bool(agreed.holds()[0])
    clear = clear or (_constant(decided) and bool(decided.holds()[0]))
    if not (clear or (_constant(agreed) and _constant(decided))):
        return False
    asked = [positive, negative, *action_gates(strength, confidence, config.eligibility)]
    asked += mode_gates(confidence, contradiction, cited, config.eligibility)
    asked += eligibility_gates(
        direction=np.full(2, _POSITIVE),  # whether it is neutral follows from the two gates above
        strength=strength,
        confidence=confidence,
        contradiction=contradiction,
        evidence=cited,
        config=config.eligibility,
    )
    return all(map(_constant, asked)) and _quality_holds(documents, key, count, as_of_us, config)


def _constant(gate: Gate) -> bool:
    """Whether the answer is the same at both ends, and so between them."""
    failed = gate.failed()
    return bool(failed[0] == failed[1])


def _left(weights: Float, count: int) -> Float:
    """Least and greatest sum after removing at most ``count`` of the (non-negative) weights."""
    ordered = np.sort(weights)
    return np.array([ordered[: max(0, len(ordered) - count)].sum(), ordered.sum()])


def _minority_range(up: Float, down: Float) -> Float:
    """Range of the minority's share, from the ranges of both sides."""
    shares = [min(a, b) / (a + b) if a + b > 0.0 else 0.0 for a in up.tolist() for b in down.tolist()]
    crossing = up[0] <= down[1] and down[0] <= up[1] and down[1] > 0.0 and up[1] > 0.0
    return np.array([max(0.0, min(shares) - SLACK), 0.5 if crossing else max(shares) + SLACK])


def _mean_range(weight: Float, value: Float, count: int) -> Float:
    """Range of a weighted mean after removing at most ``count`` members, if one is left (Dinkelbach)."""
    return np.array([-_greatest(weight, -value, count) - SLACK, _greatest(weight, value, count) + SLACK])


def _greatest(weight: Float, value: Float, count: int) -> float:
    if len(weight) == 0:
        return 0.0
    count = min(count, len(weight) - 1)
    best = float((weight * value).sum() / weight.sum())
    while True:
        kept = np.argsort(weight * (value - best), kind="stable")[count:]
        # Fewer may be removed than allowed: what adds to the mean stays.
        found = float((weight[kept] * value[kept]).sum() / weight[kept].sum())
        if found <= best + 1e-13:
            return max(found, best)
        best = found


def _agreement_range(up: int, down: int, count: int) -> Float:
    found = [
        max(a, b) / max(1, a + b)
        for a in range(max(0, up - count), up + 1)
        for b in range(max(0, down - (count - (up - a))), down + 1)
    ]
    return np.array([min(found), max(found)])


def _cited_range(rows: ActiveSignals, count: int, config: OracleConfig) -> Int:
    """Range of the documents cited, of each side at most so many."""
    most = config.trend.max_evidence_refs
    sides = [int(((rows.sentiment * sign > 0.0) & (rows.impact > 0.0)).sum()) for sign in (1.0, -1.0)]
    least = min(
        min(most, sides[0] - a) + min(most, max(0, sides[1] - (count - a)))
        for a in range(min(count, sides[0]) + 1)
    )
    return np.array([least, sum(min(most, side) for side in sides)])


def _quality_holds(
    documents: DocumentRows, key: Keys, count: int, as_of_us: int, config: OracleConfig
) -> bool:
    """Whether the data quality has one answer for all sets; worst and best documents as two rows."""
    now = quality_rows(Keys(np.zeros(1, np.int64), key.window), _as_first(documents), 1, as_of_us)
    valid = documents.take(~documents.failed)
    if len(valid.entity) <= count or bool(np.isnan(valid.extraction_confidence).any()):
        return False
    trust = _mean_range(np.ones(len(valid.entity)), valid.extraction_confidence, count)
    times = np.sort(valid.published_us)
    types = np.sort(np.bincount(valid.source_type[valid.source_type >= 0]))
    types = types[types > 0]
    gone = int((np.cumsum(types) <= count).sum())
    failed = int(now.failed[0])
    left = np.array([len(valid.entity) - count, len(valid.entity)])
    broken = np.array([failed, max(0, failed - count)])
    rows = QualityRows(
        total=left + broken,
        valid=left,
        failed=broken,
        average_extraction_confidence=trust,
        newest_us=np.array([times[len(times) - 1 - count], times[-1]]),
        source_types=np.array([len(types) - gone, len(types)]),
    )
    scores = data_quality_scores(rows, as_of_us, config.suppression) + np.array([-SLACK, SLACK])
    none = np.zeros(2, np.int64)
    layers = Layers(left, none, none)
    asked = quality_gates(rows, scores, layers, as_of_us=as_of_us, config=config.suppression)
    return all(map(_constant, asked))


def _as_first(documents: DocumentRows) -> DocumentRows:
    return replace(documents, entity=np.zeros_like(documents.entity))
