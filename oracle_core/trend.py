"""From the signals of a key to its trend: average, direction, confidence, lists (R8-R40, R181-R184).

Weights come from ``scoring``, the score of a contradiction from ``contradiction``, the order of the evidence
from ``evidence``, the posterior from ``bayesian``; here they become one row per key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from oracle_core.arrays import (
    ascending,
    divide,
    exact_sums,
    group_codes,
    group_max,
    group_means,
    group_offsets,
    group_sums,
    ranges,
    runs,
)
from oracle_core.bayesian import BayesianPosterior, Posterior, evidence_mass
from oracle_core.config import OracleConfig, TrendConfig
from oracle_core.contradiction import (
    Sides,
    disagreement_entropy,
    disagreements,
    participants,
    side_weights,
)
from oracle_core.enums import EvidenceRole, MarketRegime, SignalLayer, TrendDirection, Window, codes
from oracle_core.evidence import ROLES, Candidates, rank
from oracle_core.frames import EvidenceRows, MarketContext, SignalFrame, SignalRows, TrendFrame, TrendRows
from oracle_core.gates import Gate, Relation
from oracle_core.inputs import BarRows, Bool, Columns, CycleInputs, Float, Int, Strings
from oracle_core.market import market_context
from oracle_core.records import TrendSummary, WeightedSignal
from oracle_core.regime import RegimeClassification, Regimes, regimes_of
from oracle_core.single import single_frame
from oracle_core.terms import Term, summed

if TYPE_CHECKING:
    from oracle_core.rules import RuleSet

_POSITIVE, _NEGATIVE, _MIXED, _NEUTRAL = (codes(TrendDirection)[member] for member in TrendDirection)
_LAYERS = codes(SignalLayer)


@dataclass(frozen=True, slots=True, eq=False)
class ActiveSignals(Columns):
    """Those columns of the active signals that a trend is made of, and their ``row`` in the frame (R30)."""

    row: Int
    key: Int
    signal: Int
    layer: Int
    catalyst: Int
    sentiment: Float
    impact: Float
    extraction_confidence: Float
    recency: Float
    credibility: Float
    combined: Float

    @classmethod
    def of(cls, rows: SignalRows) -> ActiveSignals:
        """Keep the signals whose combined weight is above 0."""
        active = np.flatnonzero(rows.combined > 0.0)
        names = (field.name for field in fields(cls) if field.name != "row")
        return cls(row=active, **{name: getattr(rows, name)[active] for name in names})


@dataclass(frozen=True, slots=True, eq=False)
class Support(Columns):
    """What the heuristic confidence looks at, one row per key, over the active signals.

    ``unique_sources`` counts distinct real documents (R30), ``average_credibility`` is in [0, 1] (R32),
    ``agreement`` the raw majority share of the directional ones, 0 without any (R33, G10).
    """

    unique_sources: Int
    average_credibility: Float
    agreement: Float


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """All that a rule for direction or confidence may look at, one row per key."""

    average: Float
    contradiction: Float
    support: Support
    posterior: Posterior
    regimes: Regimes


def weighted_averages(weight: Float, impact: Float, sentiment: Float, offsets: Int) -> Float:
    """``sum(w * impact * s) / sum(w)`` of each group, in [-1, 1]; 0 where there is no weight (G6).

    The upper sum is exact, so the sign of the result is.

    Implements: R16.
    """
    total = group_sums(weight, group_codes(offsets), len(offsets) - 1)
    return np.clip(divide(exact_sums(weight * impact * sentiment, offsets), total), -1.0, 1.0)


def threshold_direction(average: Float, contradiction: Float, config: TrendConfig) -> Int:
    """Mixed, positive, negative, neutral: the first rule that holds wins (heuristic).

    Args:
        average: weighted average in [-1, 1].
        contradiction: score in [0, 0.5].
        config: the thresholds.

    Returns:
        Codes of TrendDirection.

    Implements: R8, R12, R14.

    """
    agreed, decided, positive, negative = average_bounds(average, contradiction, config)
    mixed = agreed.failed() & decided.failed()
    return _first_that_holds(((mixed, _MIXED), (positive.holds(), _POSITIVE), (negative.holds(), _NEGATIVE)))


def average_bounds(
    average: Float, contradiction: Float, config: TrendConfig
) -> tuple[Gate, Gate, Gate, Gate]:
    """What the heuristic direction asks: agreed or decided (else mixed), then positive, then negative.

    Implements: R9, R10, R11.
    """
    return (
        Gate("not_mixed:contradiction", contradiction, Relation.AT_MOST, config.mixed_threshold),
        Gate("not_mixed:average", np.abs(average), Relation.AT_LEAST, config.mixed_sentiment_bound),
        Gate("positive", average, Relation.AT_LEAST, config.positive_threshold),
        Gate("negative", average, Relation.AT_MOST, config.negative_threshold),
    )


def entropy_direction(
    mass: Float, p_bull: Float, entropy: Float, threshold: Float, config: TrendConfig
) -> Int:
    """Neutral without evidence, mixed by entropy, else by probability beyond a threshold (probabilistic).

    Args:
        mass: evidence of both sides.
        p_bull: its probability.
        entropy: of that probability.
        threshold: the regime's distance from 1/2 at which a direction begins.
        config: the bound of the entropy.

    Returns:
        Codes of TrendDirection.

    Implements: R182.

    """
    heard, clear, positive, negative = posterior_bounds(mass, p_bull, entropy, threshold, config)
    return _first_that_holds(
        (
            (heard.failed(), _NEUTRAL),
            (clear.failed(), _MIXED),
            (positive.holds(), _POSITIVE),
            (negative.holds(), _NEGATIVE),
        )
    )


def posterior_bounds(
    mass: Float, p_bull: Float, entropy: Float, threshold: Float, config: TrendConfig
) -> tuple[Gate, Gate, Gate, Gate]:
    """What the probabilistic direction asks, in this order; arguments as for :func:`entropy_direction`.

    Any evidence (else neutral), a clear probability (else mixed), then positive, then negative.

    Implements: R181.
    """
    return (
        Gate("any_evidence", mass, Relation.ABOVE, 0.0),
        Gate("not_mixed:entropy", entropy, Relation.AT_MOST, config.entropy_mixed_threshold),
        Gate("positive", p_bull, Relation.ABOVE, 0.5 + threshold),
        Gate("negative", p_bull, Relation.BELOW, 0.5 - threshold),
    )


def _first_that_holds(rules: Sequence[tuple[Bool, int]]) -> Int:
    """Code of the first condition that holds in each row; neutral where none does."""
    return np.select([condition for condition, _ in rules], [code for _, code in rules], _NEUTRAL)


def heuristic_direction(standing: Standing, config: TrendConfig) -> Int:
    """Direction by :func:`threshold_direction`."""
    return threshold_direction(standing.average, standing.contradiction, config)


def heuristic_bounds(standing: Standing, config: TrendConfig) -> tuple[Gate, ...]:
    """Questions of :func:`average_bounds`."""
    return average_bounds(standing.average, standing.contradiction, config)


def probabilistic_bounds(standing: Standing, config: TrendConfig) -> tuple[Gate, ...]:
    """Questions of :func:`posterior_bounds`."""
    found = standing.posterior
    return posterior_bounds(found.mass, found.p_bull, found.entropy, standing.regimes.threshold, config)


def probabilistic_direction(standing: Standing, config: TrendConfig) -> Int:
    """Direction by :func:`entropy_direction`."""
    found = standing.posterior
    return entropy_direction(found.mass, found.p_bull, found.entropy, standing.regimes.threshold, config)


def count_factor(unique_sources: Int, config: TrendConfig) -> Float:
    """``min(n / 15, 0.8)``.

    Implements: R31.
    """
    return np.minimum(unique_sources / config.confidence_count_divisor, config.confidence_count_cap)


def agreement_dampener(unique_sources: Int, config: TrendConfig) -> Float:
    """``min(1, log2(n + 1) / log2(8))``.

    Implements: R34.
    """
    return np.asarray(
        np.minimum(1.0, np.log2(unique_sources + 1.0) / np.log2(config.confidence_dampener_base))
    )


def agreement_confidence(support: Support, contradiction: Float, config: TrendConfig) -> Float:
    """``.3 count + .3 credibility + .4 agreement - .4 contradiction``, clamped to [0, 1] (heuristic).

    Every part is 0 without an active signal, so the result is.

    Implements: R35, R38.
    """
    return np.clip(summed(agreement_terms(support, contradiction, config)), 0.0, 1.0)


def agreement_terms(support: Support, contradiction: Float, config: TrendConfig) -> tuple[Term, ...]:
    """The parts of :func:`agreement_confidence`.

    Implements: R36, R37.
    """
    dampened = support.agreement * agreement_dampener(support.unique_sources, config)
    return (
        Term("sources", config.confidence_count_weight, count_factor(support.unique_sources, config)),
        Term("credibility", config.confidence_credibility_weight, support.average_credibility),
        Term("agreement", config.confidence_agreement_weight, dampened),
        Term("contradiction", -config.confidence_contradiction_penalty, contradiction),
    )


def posterior_confidence(bayesian_confidence: Float, contradiction: Float, penalty: Float) -> Float:
    """The posterior's confidence less the regime's share of the contradiction (probabilistic, G17)."""
    return np.maximum(0.0, summed(posterior_terms(bayesian_confidence, contradiction, penalty)))


def posterior_terms(bayesian_confidence: Float, contradiction: Float, penalty: Float) -> tuple[Term, ...]:
    """The parts of :func:`posterior_confidence`.

    Implements: R184.
    """
    return (
        Term("posterior", 1.0, bayesian_confidence),
        Term("contradiction", -penalty, contradiction),
    )


def heuristic_terms(standing: Standing, config: TrendConfig) -> tuple[Term, ...]:
    """Parts of :func:`agreement_terms`."""
    return agreement_terms(standing.support, standing.contradiction, config)


def probabilistic_terms(standing: Standing, config: TrendConfig) -> tuple[Term, ...]:  # noqa: ARG001
    """Parts of :func:`posterior_terms`."""
    confidence, penalty = standing.posterior.bayesian_confidence, standing.regimes.penalty
    return posterior_terms(confidence, standing.contradiction, penalty)


def heuristic_confidence(standing: Standing, config: TrendConfig) -> Float:
    """Confidence by :func:`agreement_confidence`."""
    return agreement_confidence(standing.support, standing.contradiction, config)


def probabilistic_confidence(standing: Standing, config: TrendConfig) -> Float:  # noqa: ARG001
    """Confidence by :func:`posterior_confidence`."""
    confidence, penalty = standing.posterior.bayesian_confidence, standing.regimes.penalty
    return posterior_confidence(confidence, standing.contradiction, penalty)


def strengths(average: Float, modifier: Float) -> Float:
    """``min(1, |average * m|)``; the modifier is 1 in heuristic mode (C42, G8, G16).

    The clamp of the product to [-2, 2] is part of the bound: the average is in [-1, 1], m in [0, 2].

    Implements: R15.
    """
    return np.minimum(1.0, np.abs(average * modifier))


def support_of(rows: ActiveSignals, is_document: Bool, offsets: Int) -> Support:
    """Count and average the active signals of each key.

    Implements: R30, R32, R33.
    """
    groups = len(offsets) - 1
    group = group_codes(offsets)
    # Rows of one key stand newest first, then by id, so a document named twice stands in neighbouring rows.
    documents = np.flatnonzero(is_document)
    distinct, _ = runs(group[documents], rows.signal[documents])
    positive = np.bincount(group[rows.sentiment > 0.0], minlength=groups)
    negative = np.bincount(group[rows.sentiment < 0.0], minlength=groups)
    return Support(
        unique_sources=np.bincount(group[documents][distinct], minlength=groups),
        average_credibility=group_means(rows.credibility, offsets),
        agreement=np.maximum(positive, negative) / np.maximum(1, positive + negative),
    )


def top_labels(
    group: Int, label: Int, weight: Float, table: Strings, *, groups: int, limit: int
) -> list[list[str]]:
    """Labels of each group by their summed effective weight, ties by name, without those of no weight (G11).

    Args:
        group: group of each row, any order.
        label: code into ``table``; codes below 0 are left out.
        weight: effective weight.
        table: sorted names.
        groups: number of groups.
        limit: labels kept.

    """
    counted = np.flatnonzero((label >= 0) & (weight > 0.0))
    order = counted[ascending(group[counted], label[counted])]
    first, offsets = runs(group[order], label[order])
    total = exact_sums(weight[order], offsets)
    owner, name = group[order][first], label[order][first]
    best = np.lexsort((name, -total, owner))
    bounds = group_offsets(owner, groups)
    rank_in_group = np.arange(len(best)) - bounds[:-1][owner[best]]
    best = best[rank_in_group < limit]
    names = table[name[best]].tolist()
    ends = group_offsets(owner[best], groups).tolist()
    return [names[a:b] for a, b in pairwise(ends)]


def assemble_trends(
    signals: SignalFrame, inputs: CycleInputs, config: OracleConfig, rules: RuleSet
) -> TrendFrame:
    """Assemble the trend of every key.

    Args:
        signals: the signals of every key.
        inputs: what is known at ``as_of``: bars for the market context and the regimes.
        config: the configuration.
        rules: the set of rules of the mode.

    Returns:
        One row per key, in key order, also for keys without a signal.

    Implements: R2, R29.

    """
    return trends_of(signals, *_market(signals, inputs, config, rules), config, rules)


def measure_trends(
    signals: SignalFrame, inputs: CycleInputs, config: OracleConfig, rules: RuleSet
) -> TrendRows:
    """The numbers of :func:`assemble_trends` without its lists, for many keys that nobody will read about."""
    return measured(signals, *_market(signals, inputs, config, rules), config, rules).trends


def _market(
    signals: SignalFrame, inputs: CycleInputs, config: OracleConfig, rules: RuleSet
) -> tuple[MarketContext, Regimes]:
    bars, entities, entity = inputs.bars, len(inputs.entities), signals.keys.entity
    context = market_context(bars, entities, config.scoring.volatility_period_days)
    return context.take(entity), rules.regimes(bars, entities, config.regime).take(entity)


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """The numbers of every trend, and what its lists are made of: signals, weights, sides, ranks."""

    trends: TrendRows
    rows: ActiveSignals
    effective: Float
    sides: Sides
    evidence: EvidenceRows


def measured(
    signals: SignalFrame, context: MarketContext, regimes: Regimes, config: OracleConfig, rules: RuleSet
) -> Measured:
    """The numbers of every trend, without its lists; one row per key."""
    count = len(signals.keys)
    rows, modifier, layers = merged(signals, config, rules)
    offsets = group_offsets(rows.key, count)
    is_entity = rows.layer == _LAYERS[SignalLayer.ENTITY]
    average = weighted_averages(rows.combined, rows.impact, rows.sentiment, offsets)
    effective = rows.combined * rows.impact
    sides = participants(rows.key, rows.signal, rows.catalyst, rows.sentiment, effective)
    weights = side_weights(sides, count)
    contradiction = rules.contradiction_score(*weights)
    mass = evidence_mass(
        np.where(is_entity, effective * modifier[rows.key], effective), rows.sentiment, rows.key, count
    )
    posterior = rules.posterior(mass)
    support = support_of(rows, is_entity, offsets)
    standing = Standing(average, contradiction, support, posterior, regimes)
    evidence = rank(
        Candidates(
            group=rows.key,
            signal=rows.signal,
            is_document=is_entity,
            weight=rows.combined,
            top_weight=group_max(rows.combined, offsets)[rows.key],
            impact=rows.impact,
            recency=rows.recency,
            extraction_confidence=rows.extraction_confidence,
            sentiment=rows.sentiment,
        ),
        config.trend,
    )
    real = [
        np.bincount(evidence.key[evidence.is_document & (evidence.role == code)], minlength=count)
        for code in (ROLES[EvidenceRole.SUPPORTING], ROLES[EvidenceRole.OPPOSING])
    ]
    result = TrendRows(
        direction=rules.direction(standing, config.trend),
        strength=strengths(average, modifier),
        average=average,
        confidence=rules.trend_confidence(standing, config.trend),
        contradiction=contradiction,
        evidence_count=real[0] + real[1],
        supporting_count=real[0],
        opposing_count=real[1],
        entity_signals=layers[_LAYERS[SignalLayer.ENTITY]],
        macro_signals=layers[_LAYERS[SignalLayer.MACRO]],
        competitive_signals=layers[_LAYERS[SignalLayer.COMPETITOR]] + layers[_LAYERS[SignalLayer.PATTERN]],
        unique_sources=support.unique_sources,
        average_credibility=support.average_credibility,
        agreement=support.agreement,
        volatility=context.volatility,
        volume_change_pct=context.volume_change_pct,
        price_change_pct=context.price_change_pct,
        p_bull=posterior.p_bull,
        alpha=posterior.alpha,
        beta=posterior.beta,
        log_likelihood=posterior.log_likelihood,
        bayesian_confidence=posterior.bayesian_confidence,
        entropy=posterior.entropy,
        regime=regimes.regime,
        regime_volatility_ratio=regimes.volatility_ratio,
        contradiction_entropy=_beside(posterior, disagreement_entropy(*weights)),
        macro_modifier=_beside(posterior, modifier),
    )
    return Measured(result, rows, effective, sides, evidence)


def trends_of(
    signals: SignalFrame, context: MarketContext, regimes: Regimes, config: OracleConfig, rules: RuleSet
) -> TrendFrame:
    """Assemble the trend of every key from its signals and what the market says of it, one row per key."""
    keys, count = signals.keys, len(signals.keys)
    found = measured(signals, context, regimes, config, rules)
    rows, effective, evidence = found.rows, found.effective, found.evidence
    directional = np.where(rows.sentiment != 0.0, effective, 0.0)
    risks = signals.rows.risks
    at_risk, place = ranges(risks.offsets[rows.row], risks.lengths()[rows.row])
    return TrendFrame(
        keys=keys,
        rows=found.trends,
        supporting=_cited(evidence, EvidenceRole.SUPPORTING, signals.ids, count),
        opposing=_cited(evidence, EvidenceRole.OPPOSING, signals.ids, count),
        disagreements=disagreements(found.sides, count, signals.ids, signals.catalysts),
        dominant_catalysts=top_labels(
            rows.key,
            rows.catalyst,
            directional,
            signals.catalysts,
            groups=count,
            limit=config.trend.max_catalysts,
        ),
        material_risks=top_labels(
            rows.key[at_risk],
            risks.codes[place],
            effective[at_risk],
            signals.risk_labels,
            groups=count,
            limit=config.trend.max_risks,
        ),
        evidence=evidence,
        ids=signals.ids,
    )


def merged(signals: SignalFrame, config: OracleConfig, rules: RuleSet) -> tuple[ActiveSignals, Float, Int]:
    """The signals that a trend is made of, the macro modifier of each key, and its active signals by layer.

    Macro signals that act through the modifier are not among the first, but among the last, which has one row
    per layer code.
    """
    every = ActiveSignals.of(signals.rows)
    layers = _layer_counts(every, len(signals.keys))
    return *_integrate(every, layers, config, rules), layers


def standing_of(rows: TrendRows, config: OracleConfig) -> Standing:
    """What the rules for direction and confidence looked at, from the trends they made."""
    posterior = Posterior(
        mass=(rows.alpha - 1.0) + (rows.beta - 1.0),
        p_bull=rows.p_bull,
        alpha=rows.alpha,
        beta=rows.beta,
        log_likelihood=rows.log_likelihood,
        bayesian_confidence=rows.bayesian_confidence,
        entropy=rows.entropy,
    )
    return Standing(
        average=rows.average,
        contradiction=rows.contradiction,
        support=Support(rows.unique_sources, rows.average_credibility, rows.agreement),
        posterior=posterior,
        regimes=regimes_of(rows.regime, rows.regime_volatility_ratio, config.regime),
    )


def _beside(posterior: Posterior, values: Float) -> Float:
    """Values that are stored beside a posterior: NaN where there is none."""
    return np.where(np.isnan(posterior.p_bull), np.nan, values)


def _layer_counts(rows: ActiveSignals, keys: int) -> Int:
    """Active signals of each key: one row per layer code."""
    cells = np.bincount(rows.key * len(SignalLayer) + rows.layer, minlength=keys * len(SignalLayer))
    return cells.reshape(keys, len(SignalLayer)).T


def _integrate(
    rows: ActiveSignals, layers: Int, config: OracleConfig, rules: RuleSet
) -> tuple[ActiveSignals, Float]:
    """Let the mode's rule place the macro layer: the merged list, and the modifier of each key."""
    both = (layers[_LAYERS[SignalLayer.ENTITY]] > 0) & (layers[_LAYERS[SignalLayer.MACRO]] > 0)
    averages = []
    for layer in (SignalLayer.ENTITY, SignalLayer.MACRO):
        part = np.flatnonzero(both[rows.key] & (rows.layer == _LAYERS[layer]))
        offsets = group_offsets(rows.key[part], len(both))
        averages.append(
            weighted_averages(rows.combined[part], rows.impact[part], rows.sentiment[part], offsets)
        )
    found = rules.integrate_macro(averages[0], averages[1], both, config.macro)
    gone = found.removed[rows.key] & (rows.layer == _LAYERS[SignalLayer.MACRO])
    return rows.take(~gone), found.modifier


def _cited(evidence: EvidenceRows, role: EvidenceRole, ids: Strings, keys: int) -> list[list[str]]:
    """Ids of one side of every key, best first."""
    mine = evidence.role == ROLES[role]
    names = ids[evidence.signal[mine]].tolist()
    ends = group_offsets(evidence.key[mine], keys).tolist()
    return [names[a:b] for a, b in pairwise(ends)]


# ------------------------------------------------------------------------------------------ single forms


def weighted_sentiment_average(signals: Sequence[WeightedSignal]) -> float:
    """Average of one list of signals in [-1, 1]; 0 where there is no weight (R16)."""
    rows = single_frame(signals).rows
    return float(
        weighted_averages(rows.combined, rows.impact, rows.sentiment, np.array([0, len(rows.key)]))[0]
    )


def derive_trend_direction(
    average: float, contradiction: float, config: TrendConfig | None = None
) -> TrendDirection:
    """Heuristic direction of one trend (R8).

    >>> derive_trend_direction(0.20, 0.40).value
    'mixed'
    >>> derive_trend_direction(0.30, 0.40).value
    'positive'
    """
    found = threshold_direction(np.array([average]), np.array([contradiction]), config or TrendConfig())
    return list(TrendDirection)[int(found[0])]


def derive_probabilistic_direction(
    posterior: BayesianPosterior, regime: RegimeClassification, config: TrendConfig | None = None
) -> TrendDirection:
    """Direction of one posterior (R181, R182)."""
    mass = (posterior.alpha - 1.0) + (posterior.beta - 1.0)
    evidence, p_bull, entropy, threshold = (
        np.array([value]) for value in (mass, posterior.p_bull, posterior.entropy, regime.bullish_threshold)
    )
    found = entropy_direction(evidence, p_bull, entropy, threshold, config or TrendConfig())
    return list(TrendDirection)[int(found[0])]


def compute_trend_confidence(
    signals: Sequence[WeightedSignal], contradiction: float, config: TrendConfig | None = None
) -> float:
    """Heuristic confidence of one list of signals in [0, 1] (R37)."""
    support = support_of_signals(signals)
    return float(agreement_confidence(support, np.array([contradiction]), config or TrendConfig())[0])


def compute_bayesian_trend_confidence(
    posterior: BayesianPosterior, contradiction: float, regime: RegimeClassification
) -> float:
    """Confidence of one posterior in [0, 1] (R184)."""
    confidence, penalty = posterior.bayesian_confidence, regime.contradiction_penalty_multiplier
    return float(posterior_confidence(*(np.array([v]) for v in (confidence, contradiction, penalty)))[0])


def support_of_signals(signals: Sequence[WeightedSignal]) -> Support:
    """What the confidence of one list of signals looks at: one row (R30, R32, R33)."""
    rows = ActiveSignals.of(single_frame(signals).rows)
    return support_of(rows, rows.layer == _LAYERS[SignalLayer.ENTITY], np.array([0, len(rows.key)]))


def assemble_trend_summary(
    signals: Sequence[WeightedSignal],
    *,
    entity_id: str,
    window: Window,
    generated_at: datetime,
    config: OracleConfig,
    rules: RuleSet,
    closes: Sequence[float] = (),
    volumes: Sequence[float] | None = None,
) -> TrendSummary:
    """Trend of one list of signals.

    Args:
        signals: of all layers, any order.
        entity_id: whose trend it is.
        window: of which window.
        generated_at: the moment looked at.
        config: the configuration.
        rules: the set of rules of the mode.
        closes: daily closes known at that moment, oldest first.
        volumes: the volumes of the same days; None where unknown.

    """
    days = np.arange(len(closes))
    bars = BarRows(
        entity=np.zeros_like(days),
        day=days,
        known_us=days,
        close=np.array(closes),
        volume=np.full(len(days), np.nan) if volumes is None else np.array(volumes),
    )
    context = market_context(bars, 1, config.scoring.volatility_period_days)
    frame = trends_of(single_frame(signals), context, rules.regimes(bars, 1, config.regime), config, rules)
    row = {field.name: getattr(frame.rows, field.name)[0].item() for field in fields(frame.rows)}
    number = {name: None if np.isnan(value) else value for name, value in row.items()}
    regime = list(MarketRegime)[row["regime"]].value if row["regime"] >= 0 else None
    return TrendSummary(
        entity_id=entity_id,
        window=window,
        trend_direction=list(TrendDirection)[row["direction"]],
        trend_strength=row["strength"],
        confidence=row["confidence"],
        contradiction_score=row["contradiction"],
        disagreement_details=tuple(frame.disagreements[0]),
        top_supporting_evidence=tuple(frame.supporting[0]),
        top_opposing_evidence=tuple(frame.opposing[0]),
        dominant_catalysts=tuple(frame.dominant_catalysts[0]),
        material_risks=tuple(frame.material_risks[0]),
        market_context={
            name: number[name] for name in ("volatility", "volume_change_pct", "price_change_pct")
        },
        generated_at=generated_at,
        p_bull=number["p_bull"],
        alpha=number["alpha"],
        beta_param=number["beta"],
        bayesian_confidence=number["bayesian_confidence"],
        entropy=number["entropy"],
        regime=regime,
        pipeline_mode=rules.mode,
    )
