"""Weights of single documents, in both modes, and the frame of all signals of a cycle (R170-R180, G1-G5).

:func:`score_signals` puts the three layers together. How a layer of synthetic signals comes about belongs in
``macro`` and ``competitive``, what signals add up to in ``trend``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from oracle_core.arrays import concatenate, finite, merge_tables, newest_first, string_codes
from oracle_core.competitive import (
    Relations,
    active_documents,
    competitor_names,
    competitor_signals,
    pattern_names,
    pattern_signals,
    patterns,
    relations,
)
from oracle_core.config import OracleConfig, ScoringConfig
from oracle_core.enums import SignalLayer, Window, codes
from oracle_core.frames import SignalFrame, SignalRows
from oracle_core.inputs import (
    US_PER_HOUR,
    Columns,
    CycleInputs,
    DocumentRows,
    Float,
    Int,
    Keys,
    Strings,
)
from oracle_core.macro import macro_names, macro_signals
from oracle_core.market import MarketFigures, figures
from oracle_core.records import SignalWeight
from oracle_core.source_accuracy import SourceAccuracy, accuracy_factors, factors_by_source
from oracle_core.synthetic import SyntheticSignals
from oracle_core.windows import members

if TYPE_CHECKING:
    from oracle_core.rules import RuleSet

BASE_RATE_ALIASES: dict[str, str] = {"performance_report": "earnings"}
"""Catalysts that share another one's base rate (C25)."""

_TINY = 1e-300

HEURISTIC_FACTORS: tuple[str, ...] = (
    "recency",
    "credibility",
    "novelty_bonus",
    "confidence_gate",
    "market_ctx_multiplier",
    "layer_weight",
)
"""Columns of SignalRows whose product, in this order and clamped, is the combined weight (heuristic)."""

PROBABILISTIC_FACTORS: tuple[str, ...] = (
    "recency",
    "credibility",
    "source_accuracy_factor",
    "novelty_bonus",
    "sigmoid_gate",
    "info_gain_factor",
    "regime_multiplier",
    "layer_weight",
)
"""The same in probabilistic mode; a factor that is NaN was not used (synthetic signals)."""


@dataclass(frozen=True, slots=True, eq=False)
class Evidence(Columns):
    """What a document's weight depends on, one row per (key, document).

    ``age_hours`` at least 0; ``half_life_hours`` the window's base half-life; ``credibility`` in [0, 1];
    ``novelty`` in [0, 1], 0 where unknown; ``base_rate`` in (0, 1]; ``accuracy_factor`` in [0.5, 1.5];
    ``market_ctx`` in [1, 1.45] (G5); ``regime_mult`` in [1, 2.5] (R177).
    """

    age_hours: Float
    half_life_hours: Float
    credibility: Float
    novelty: Float
    extraction_confidence: Float
    impact: Float
    base_rate: Float
    accuracy_factor: Float
    market_ctx: Float
    regime_mult: Float


@dataclass(frozen=True, slots=True, eq=False)
class Weights(Columns):
    """Factors of every weight and their product; NaN or 1 where the mode does not use a factor."""

    recency: Float
    novelty_bonus: Float
    confidence_gate: Float
    market_ctx_multiplier: Float
    sigmoid_gate: Float
    info_gain_factor: Float
    source_accuracy_factor: Float
    regime_multiplier: Float
    adaptive_half_life_hours: Float
    combined: Float


def recency(age_hours: Float, half_life_hours: Float) -> Float:
    """``2^(-age / half-life)`` in (0, 1]; a negative age counts as 0 (G1)."""
    return np.exp2(-np.maximum(age_hours, 0.0) / half_life_hours)


def novelty_bonus(novelty: Float, config: ScoringConfig) -> Float:
    """``1 + weight * clamp(novelty)``; NaN (unknown) counts as 0 (G3)."""
    return 1.0 + config.novelty_weight * np.clip(np.where(np.isnan(novelty), 0.0, novelty), 0.0, 1.0)


def binary_gate(extraction_confidence: Float, config: ScoringConfig) -> Float:
    """1 where the extraction confidence reaches the threshold, else 0 (G4)."""
    return np.where(extraction_confidence >= config.binary_gate_threshold, 1.0, 0.0)


def sigmoid_gate(extraction_confidence: Float, config: ScoringConfig) -> Float:
    """``sigma(k * (x - midpoint))``: a smooth gate that is never quite 0 or 1 (C2).

    Implements: R170.
    """
    return np.asarray(expit(config.sigmoid_steepness * (extraction_confidence - config.sigmoid_midpoint)))


def base_rate(catalyst: str | None, config: ScoringConfig) -> float:
    """Base rate of a catalyst; the default for none and for an unknown one.

    Implements: R172.
    """
    name = catalyst or ""
    return config.event_type_base_rates.get(BASE_RATE_ALIASES.get(name, name), config.default_base_rate)


def info_gain(rate: Float, config: ScoringConfig) -> Float:
    """``1 + lambda * -log2(rate)``, clamped to [1, max]; an invalid rate counts as the default.

    Implements: R171, R173.
    """
    valid = np.where((rate > 0.0) & (rate <= 1.0), rate, config.default_base_rate)
    return np.clip(1.0 - config.info_gain_lambda * np.log2(valid), 1.0, config.info_gain_max)


def adaptive_half_life(
    base_hours: Float, impact: Float, gain: Float, market_ctx: Float, config: ScoringConfig
) -> Float:
    """Half-life in hours, longer for impact, surprise and market reaction; never below the base (G12).

    Each beta is clamped to [0, its scale], so the factor lies in [1, 6] with the defaults.

    Implements: R174.
    """
    beta_impact = config.adaptive_decay_impact_scale * np.clip(impact, 0.0, 1.0)
    surprise = (gain - 1.0) / max(config.info_gain_max - 1.0, _TINY)
    beta_surprise = config.adaptive_decay_surprise_scale * np.clip(surprise, 0.0, 1.0)
    reaction = (market_ctx - 1.0) / max(3.0 * config.market_term_weight, _TINY)
    beta_market = config.adaptive_decay_market_scale * np.clip(reaction, 0.0, 1.0)
    return base_hours * (1.0 + beta_impact) * (1.0 + beta_surprise) * (1.0 + beta_market)


def market_ctx_multiplier(figures: MarketFigures, config: ScoringConfig) -> Float:
    """``1 + sum of three clamped market terms``, in [1, 1.45]; a missing term is 0 (G5)."""
    terms = (
        (figures.volatility_pct, config.volatility_scale_pct),
        (figures.volume_change_pct, config.volume_scale_pct),
        (figures.price_change_pct, config.price_scale_pct),
    )
    multiplier = np.ones(len(figures.volatility_pct))
    for value, scale in terms:
        share = np.minimum(1.0, np.abs(value) / scale)
        multiplier += config.market_term_weight * np.where(np.isnan(share), 0.0, share)
    return multiplier


def regime_multiplier(figures: MarketFigures, config: ScoringConfig) -> Float:
    """``1 + w_r |z_r| + w_v |z_v|``, at most max.

    1 where the return's z-score does not exist (sigma 0, too few returns); a missing volume z-score is 0.

    Implements: R175, R176, R177.
    """
    volume = np.where(np.isnan(figures.volume_z), 0.0, figures.volume_z)
    raw = (
        1.0
        + config.regime_return_weight * np.abs(figures.return_z)
        + config.regime_volume_weight * np.abs(volume)
    )
    return np.minimum(np.where(np.isnan(figures.return_z), 1.0, raw), config.regime_multiplier_max)


def credibilities(
    credibility: Float, source_type: Int, source_types: Strings, config: ScoringConfig
) -> Float:
    """The document's own credibility, else that of its source type, in [0, 1] (G2, decisions 1).

    Args:
        credibility: NaN where the document states none.
        source_type: codes into ``source_types``, -1 where unknown.
        source_types: names.
        config: the defaults.

    """
    table = [config.credibility_by_source_type.get(name, config.default_credibility) for name in source_types]
    usual = np.array([*table, config.default_credibility])[source_type]
    return np.clip(np.where(np.isnan(credibility), usual, credibility), 0.0, 1.0)


def score_heuristic(evidence: Evidence, config: ScoringConfig) -> Weights:
    """Binary gate, fixed half-life, market context (G5)."""
    one, unused = np.ones(len(evidence.impact)), np.full(len(evidence.impact), np.nan)
    decay = recency(evidence.age_hours, evidence.half_life_hours)
    bonus = novelty_bonus(evidence.novelty, config)
    gate = binary_gate(evidence.extraction_confidence, config)
    product = decay * evidence.credibility * bonus * gate * evidence.market_ctx
    return Weights(
        recency=decay,
        novelty_bonus=bonus,
        confidence_gate=gate,
        market_ctx_multiplier=evidence.market_ctx,
        sigmoid_gate=unused,
        info_gain_factor=one,
        source_accuracy_factor=one,
        regime_multiplier=unused,
        adaptive_half_life_hours=unused,
        combined=layered(product, config.entity_layer_weight, config),
    )


def score_probabilistic(evidence: Evidence, config: ScoringConfig) -> Weights:
    """Sigmoid gate, adaptive half-life, information gain, source accuracy, regime multiplier.

    Implements: R168, R180.
    """
    one = np.ones(len(evidence.impact))
    gain = info_gain(evidence.base_rate, config)
    half_life = adaptive_half_life(
        evidence.half_life_hours, evidence.impact, gain, evidence.market_ctx, config
    )
    decay = recency(evidence.age_hours, half_life)
    bonus = novelty_bonus(evidence.novelty, config)
    gate = sigmoid_gate(evidence.extraction_confidence, config)
    product = (
        decay * evidence.credibility * evidence.accuracy_factor * bonus * gate * gain * evidence.regime_mult
    )
    return Weights(
        recency=decay,
        novelty_bonus=bonus,
        confidence_gate=one,
        market_ctx_multiplier=one,
        sigmoid_gate=gate,
        info_gain_factor=gain,
        source_accuracy_factor=evidence.accuracy_factor,
        regime_multiplier=evidence.regime_mult,
        adaptive_half_life_hours=half_life,
        combined=layered(product, config.entity_layer_weight, config),
    )


def layered(product: Float, layer_weight: float, config: ScoringConfig) -> Float:
    """Product of the factors (each at least 0) times the layer weight, at most max; NaN stays visible.

    Implements: R5.
    """
    return np.minimum(product * layer_weight, config.max_combined)


def compute_signal_weight(
    *,
    age_hours: float,
    window: Window,
    impact_score: float,
    extraction_confidence: float,
    rules: RuleSet,
    config: OracleConfig,
    credibility: float | None = None,
    source_type: str | None = None,
    novelty: float | None = None,
    catalyst_type: str | None = None,
    source_accuracy: SourceAccuracy | None = None,
    market: MarketFigures | None = None,
) -> SignalWeight:
    """Weight of one document (R6, R178).

    Args:
        age_hours: age at the moment looked at; a negative one counts as 0.
        window: the window, which sets the base half-life.
        impact_score: in [0, 1].
        extraction_confidence: in [0, 1].
        rules: the set of rules of the mode.
        config: the configuration.
        credibility: None for that of the source type.
        source_type: None for the default credibility.
        novelty: None where unknown.
        catalyst_type: sets the base rate.
        source_accuracy: None for factor 1.
        market: one row; None where there are no prices.

    """
    types = [] if source_type is None else [source_type]
    unknown = np.array([np.nan])
    moves = MarketFigures(unknown, unknown, unknown, unknown, unknown) if market is None else market
    factor = np.ones(1)
    if source_accuracy is not None:
        ratio, samples = np.array([source_accuracy.accuracy_ratio]), np.array([source_accuracy.sample_count])
        factor = accuracy_factors(ratio, samples, config.accuracy)
    evidence = Evidence(
        age_hours=np.array([age_hours]),
        half_life_hours=np.array([config.scoring.half_life_hours[window]]),
        credibility=credibilities(
            np.array([credibility], np.float64),
            np.array([len(types) - 1]),
            np.array(types, np.object_),
            config.scoring,
        ),
        novelty=np.array([novelty], np.float64),
        extraction_confidence=np.array([extraction_confidence]),
        impact=np.array([impact_score]),
        base_rate=np.array([base_rate(catalyst_type, config.scoring)]),
        accuracy_factor=factor,
        market_ctx=market_ctx_multiplier(moves, config.scoring),
        regime_mult=regime_multiplier(moves, config.scoring),
    )
    found = rules.score_documents(evidence, config.scoring)
    sigmoid, regime = float(found.sigmoid_gate[0]), float(found.regime_multiplier[0])
    return SignalWeight(
        recency=float(found.recency[0]),
        credibility=float(evidence.credibility[0]),
        novelty_bonus=float(found.novelty_bonus[0]),
        confidence_gate=float(found.confidence_gate[0]),
        market_ctx_multiplier=float(found.market_ctx_multiplier[0]),
        combined=float(found.combined[0]),
        sigmoid_gate=None if np.isnan(sigmoid) else sigmoid,
        info_gain_factor=float(found.info_gain_factor[0]),
        source_accuracy_factor=float(found.source_accuracy_factor[0]),
        regime_multiplier=None if np.isnan(regime) else regime,
    )


def score_signals(
    inputs: CycleInputs, keys: Keys, as_of_us: int, config: OracleConfig, rules: RuleSet
) -> SignalFrame:
    """Weigh every signal of every key, the enabled layers merged.

    A document counts for a key when it is valid, known and inside the window. One whose gate is 0 stays in
    the list with weight 0. One with NaN or infinity in what its weight needs is skipped and counted.

    Args:
        inputs: what is known at ``as_of_us``.
        keys: the (entity, window) pairs asked for.
        as_of_us: the moment looked at.
        config: the configuration.
        rules: the set of rules of the mode.

    Implements: R3, R4.

    """
    documents = valid_documents(inputs.documents)
    scope, related = keys, None
    if config.flags.competitive_enabled:
        related = relations(inputs.edges, keys.entity, rules.propagation_reach(config.competitive))
        scope = _scope(keys, related, len(inputs.entities))
    scored, skipped = _entity_rows(inputs, documents, scope, as_of_us=as_of_us, config=config, rules=rules)
    parts: list[tuple[SyntheticSignals, list[str]]] = []
    if config.flags.macro_enabled:
        events = macro_names(inputs.event_ids.tolist())
        parts.append((macro_signals(inputs, keys, as_of_us, config, rules), events))
    if related is not None:
        layer = active_documents(scope, scored)
        passed, sources = competitor_signals(keys, layer, related, config, rules)
        parts.append((passed, competitor_names(sources, inputs.entities)))
        history = patterns(inputs, documents, keys.entity, as_of_us, config.competitive)
        repeated = pattern_signals(
            keys, layer, related, history, as_of_us=as_of_us, config=config.competitive
        )
        parts.append((repeated, pattern_names(repeated, keys, inputs.entities, inputs.catalysts)))
    own = scored.take(scored.key < len(keys))
    rows, ids = _merge(own, inputs.document_ids, parts, config.scoring.max_combined)
    return SignalFrame(
        keys=keys,
        ids=ids,
        sources=inputs.sources,
        source_types=inputs.source_types,
        catalysts=inputs.catalysts,
        risk_labels=inputs.risk_labels,
        rows=rows,
        skipped=skipped[: len(keys)],
    )


def valid_documents(documents: DocumentRows) -> DocumentRows:
    """Documents with an impact whose extraction did not fail: by entity, newest first, then by id."""
    rows = documents.take(documents.has_impact & ~documents.failed)
    order = newest_first(rows.entity, rows.published_us, rows.document)
    return rows if bool((order[1:] > order[:-1]).all()) else rows.take(order)


def _scope(keys: Keys, related: Relations, entities: int) -> Keys:
    """The keys asked for, then those of related entities in the same windows."""
    asked = np.zeros((entities, len(Window)), np.bool_)
    asked[keys.entity, keys.window] = True
    row, window = np.nonzero(asked[related.source])
    needed = np.zeros_like(asked)
    needed[related.target[row], window] = True
    entity, window = np.nonzero(needed & ~asked)
    return Keys(np.append(keys.entity, entity), np.append(keys.window, window))


def _entity_rows(
    known: CycleInputs,
    documents: DocumentRows,
    scope: Keys,
    *,
    as_of_us: int,
    config: OracleConfig,
    rules: RuleSet,
) -> tuple[SignalRows, Int]:
    """Weigh the documents of every key in scope; also how many were skipped per key."""
    entities = len(known.entities)
    key, member = members(documents.entity, documents.published_us, entities, scope, as_of_us)
    rows = documents.take(member)
    moves = figures(known.bars, entities, config.scoring.volatility_period_days)
    half_lives = np.array([config.scoring.half_life_hours[window] for window in Window])
    rates = [base_rate(name, config.scoring) for name in known.catalysts.tolist()]
    rates.append(base_rate(None, config.scoring))
    factors = factors_by_source(known.accuracy, len(known.sources), config.accuracy)
    evidence = Evidence(
        age_hours=(as_of_us - rows.published_us) / US_PER_HOUR,
        half_life_hours=half_lives[scope.window[key]],
        credibility=credibilities(rows.credibility, rows.source_type, known.source_types, config.scoring),
        novelty=rows.novelty,
        extraction_confidence=rows.extraction_confidence,
        impact=rows.impact,
        base_rate=np.array(rates)[rows.catalyst],
        accuracy_factor=factors[rows.source],
        market_ctx=market_ctx_multiplier(moves, config.scoring)[rows.entity],
        regime_mult=regime_multiplier(moves, config.scoring)[rows.entity],
    )
    weights = rules.score_documents(evidence, config.scoring)
    good = finite(rows.sentiment, rows.impact, rows.extraction_confidence)
    good &= ~np.isinf(rows.credibility) & ~np.isinf(rows.novelty)
    scored = SignalRows(
        key=key,
        signal=rows.document,
        layer=np.full(len(key), codes(SignalLayer)[SignalLayer.ENTITY]),
        source=rows.source,
        source_type=rows.source_type,
        catalyst=rows.catalyst,
        published_us=rows.published_us,
        sentiment=rows.sentiment,
        impact=rows.impact,
        extraction_confidence=rows.extraction_confidence,
        recency=weights.recency,
        credibility=evidence.credibility,
        novelty_bonus=weights.novelty_bonus,
        confidence_gate=weights.confidence_gate,
        market_ctx_multiplier=weights.market_ctx_multiplier,
        sigmoid_gate=weights.sigmoid_gate,
        info_gain_factor=weights.info_gain_factor,
        source_accuracy_factor=weights.source_accuracy_factor,
        regime_multiplier=weights.regime_multiplier,
        adaptive_half_life_hours=weights.adaptive_half_life_hours,
        layer_weight=np.full(len(key), config.scoring.entity_layer_weight),
        combined=weights.combined,
        risks=rows.risks,
    )
    skipped = np.bincount(key[~good], minlength=len(scope))
    return scored.take(good), skipped


def _merge(
    own: SignalRows,
    document_ids: Strings,
    parts: list[tuple[SyntheticSignals, list[str]]],
    max_combined: float,
) -> tuple[SignalRows, Strings]:
    """Join documents and synthetic signals under one table of ids: by key, newest first, then by id."""
    if not any(names for _, names in parts):
        return own, document_ids  # in that order already
    extra, places = string_codes([name for _, names in parts for name in names])
    ids, document_code, extra_code = merge_tables(document_ids, extra)
    stacked = [replace(own, signal=document_code[own.signal])]
    first = 0
    for signals, names in parts:
        code = extra_code[places[first : first + len(names)]]
        stacked.append(signals.rows(code, max_combined))
        first += len(names)
    rows = concatenate(stacked)
    return rows.take(newest_first(rows.key, rows.published_us, rows.signal)), ids
