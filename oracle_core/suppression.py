"""Whether the data behind a trend may be acted on: six quality checks and two safety checks (R67-R80).

What the trend itself says is not judged here, see :mod:`oracle_core.eligibility`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle_core.arrays import exact_means, group_offsets, runs
from oracle_core.config import SuppressionConfig
from oracle_core.enums import SuppressionReason
from oracle_core.frames import QualityRows
from oracle_core.gates import Gate, Relation, failures
from oracle_core.inputs import US_PER_HOUR, Bool, Columns, DocumentRows, Float, Int, Keys
from oracle_core.records import DataQualityContext, SuppressionResult, TrendSummary
from oracle_core.single import microseconds
from oracle_core.terms import Term, summed
from oracle_core.windows import members

REASONS: tuple[SuppressionReason, ...] = tuple(SuppressionReason)
NO_TIME = -1


@dataclass(frozen=True, slots=True, eq=False)
class Layers(Columns):
    """Number of active signals per layer, macro signals that act through a modifier included."""

    entity: Int
    macro: Int
    competitive: Int


def quality_rows(keys: Keys, documents: DocumentRows, entities: int, as_of_us: int) -> QualityRows:
    """Count the documents of every key's entity inside its window, valid and failed (R68, decisions 4).

    A document counts once per entity it names, with or without an impact. Averages, the newest time and the
    source types are those of the valid documents; a valid document without an extraction confidence is left
    out of the average.

    Args:
        keys: entity and window codes.
        documents: known at ``as_of``, any order.
        entities: size of the entity table.
        as_of_us: end of every window; a document dated later is in none.

    Returns:
        One row per key.

    Implements: R68.

    """
    rows = documents.take(np.lexsort((-documents.published_us, documents.entity)))
    owner, row = members(rows.entity, rows.published_us, entities, keys, as_of_us)
    count = len(keys)
    total = np.bincount(owner, minlength=count)
    sound = ~rows.failed[row]
    owner, row = owner[sound], row[sound]
    valid = np.bincount(owner, minlength=count)
    newest = np.full(count, NO_TIME)
    first, _ = runs(owner)
    newest[owner[first]] = rows.published_us[row[first]]
    rated = ~np.isnan(rows.extraction_confidence[row])
    offsets = group_offsets(owner[rated], count)
    means = exact_means(rows.extraction_confidence[row[rated]], offsets)
    types = rows.source_type[row]
    span = int(types.max(initial=0)) + 1
    typed = np.unique((owner * span + types)[types >= 0]) // span
    return QualityRows(
        total=total,
        valid=valid,
        failed=total - valid,
        average_extraction_confidence=np.where(np.diff(offsets) > 0, means, np.nan),
        newest_us=newest,
        source_types=np.bincount(typed, minlength=count),
    )


def data_quality_scores(quality: QualityRows, as_of_us: int, config: SuppressionConfig) -> Float:
    """Score the data of every key (R76, G23): confidence, freshness and coverage.

    Args:
        quality: one row per key; a missing average or newest time contributes 0.
        as_of_us: time the freshness is measured at.
        config: weights and scales.

    Returns:
        Values in [0, sum of the three weights].

    """
    return summed(data_quality_terms(quality, as_of_us, config))


def data_quality_terms(quality: QualityRows, as_of_us: int, config: SuppressionConfig) -> tuple[Term, ...]:
    """The three parts of the score; arguments as for :func:`data_quality_scores`.

    Implements: R76.
    """
    average = np.nan_to_num(quality.average_extraction_confidence)
    trusted = np.minimum(average / config.confidence_baseline, 1.0)
    hours = (as_of_us - quality.newest_us) / US_PER_HOUR
    fresh = np.clip(1.0 - hours / config.max_evidence_staleness_hours, 0.0, 1.0)
    fresh = np.where(quality.newest_us == NO_TIME, 0.0, fresh)
    ratio = quality.valid / np.maximum(quality.total, 1)
    coverage = ratio * np.minimum(quality.valid / config.count_saturation, 1.0)
    return (
        Term("confidence", config.confidence_weight, trusted),
        Term("freshness", config.freshness_weight, fresh),
        Term("coverage", config.coverage_weight, coverage),
    )


def suppressions(
    quality: QualityRows,
    scores: Float,
    layers: Layers,
    *,
    as_of_us: int,
    config: SuppressionConfig,
) -> Bool:
    """Apply all eight checks to every key; each is independent but the sixth, silent where the first fired.

    Check 1 is silent without a valid document and fires where no valid document states a confidence; 2, 3 and
    4 are silent without any document (R69-R75, C3). The last two are the safety checks on the layers of the
    active signals, before macro signals leave the list (R78-R80, G25).

    Args:
        quality: one row per key.
        scores: see :func:`data_quality_scores`.
        layers: active signals per layer, one row per key.
        as_of_us: time the age is measured at.
        config: thresholds.

    Returns:
        One column per member of SuppressionReason, true where it fires.

    Implements: R67.

    """
    return failures(quality_gates(quality, scores, layers, as_of_us=as_of_us, config=config))


def quality_gates(
    quality: QualityRows,
    scores: Float,
    layers: Layers,
    *,
    as_of_us: int,
    config: SuppressionConfig,
) -> tuple[Gate, ...]:
    """The eight checks themselves, in the order of SuppressionReason; arguments as for :func:`suppressions`.

    The age of the newest document is in microseconds, infinite where none has a time.

    Implements: R69, R70, R71, R72, R73, R74, R75, R78, R79.
    """
    average = quality.average_extraction_confidence
    documents, no_macro = quality.total > 0, layers.macro == 0
    undated = quality.newest_us == NO_TIME
    age_us = np.where(undated, np.inf, (as_of_us - quality.newest_us).astype(np.float64))
    oldest_us = config.max_evidence_staleness_hours * US_PER_HOUR
    types, valid = quality.source_types.astype(np.float64), quality.valid.astype(np.float64)
    failure_rate = quality.failed / np.maximum(quality.total, 1)
    own = layers.entity.astype(np.float64)
    trust = (average, Relation.AT_LEAST, config.min_avg_extraction_confidence, quality.valid > 0)
    trusted = ~Gate("", *trust).failed()
    asked = (
        trust,
        (age_us, Relation.AT_MOST, oldest_us, documents),
        (types, Relation.AT_LEAST, float(config.min_source_types), documents),
        (failure_rate, Relation.AT_MOST, config.max_extraction_failure_rate, None),
        (valid, Relation.AT_LEAST, float(config.min_valid_documents), None),
        (scores, Relation.AT_LEAST, config.min_data_quality_score, trusted),
        (own, Relation.AT_LEAST, 1.0, ~no_macro),
        (own, Relation.AT_LEAST, 1.0, no_macro & (layers.competitive > 0)),
    )
    return tuple(Gate(reason.value, *gate) for reason, gate in zip(REASONS, asked, strict=True))


def suppression_note(reasons: tuple[SuppressionReason, ...], data_quality_score: float) -> str:
    """Say why a trend may not be acted on, for the end of the thesis (R77-R79); empty without a reason."""
    safety = (SuppressionReason.MACRO_ONLY, SuppressionReason.PATTERN_ONLY)
    quality = [reason.value for reason in reasons if reason not in safety]
    limit = "not for automated execution"
    sentences = []
    if quality:
        listed = ", ".join(quality)
        sentences.append(f"Suppressed for data quality: {listed} (score {data_quality_score:.2f}).")
    if SuppressionReason.MACRO_ONLY in reasons:
        sentences.append(f"This is a macro-only signal without entity-specific evidence, {limit}.")
    if SuppressionReason.PATTERN_ONLY in reasons:
        sentences.append(f"This is a pattern-only signal without entity-specific or macro evidence, {limit}.")
    return " ".join(sentences)


# ------------------------------------------------------------------------------------------ single forms


def build_quality_context_from_summary(summary: TrendSummary) -> DataQualityContext:
    """Estimate the data quality from the trend alone, where the documents are not at hand (R68, G24)."""
    count = len(summary.top_supporting_evidence) + len(summary.top_opposing_evidence)
    return DataQualityContext(
        total_documents=count,
        valid_documents=count,
        failed_documents=0,
        avg_extraction_confidence=summary.confidence,
        newest_document_at=summary.generated_at,
        distinct_source_types=min(count, 1),
    )


def evaluate_suppression(
    summary: TrendSummary,
    context: DataQualityContext | None = None,
    config: SuppressionConfig | None = None,
) -> SuppressionResult:
    """Six quality checks of one trend at its own time (R67).

    Args:
        summary: the trend.
        context: its documents; estimated from the trend where None.
        config: thresholds; the defaults where None.

    """
    c = config or SuppressionConfig()
    known = context or build_quality_context_from_summary(summary)
    average, newest = known.avg_extraction_confidence, known.newest_document_at
    quality = QualityRows(
        total=np.array([known.total_documents]),
        valid=np.array([known.valid_documents]),
        failed=np.array([known.failed_documents]),
        average_extraction_confidence=np.array([np.nan if average is None else average]),
        newest_us=np.array([NO_TIME if newest is None else microseconds(newest)]),
        source_types=np.array([known.distinct_source_types]),
    )
    as_of_us = microseconds(summary.generated_at)
    scores = data_quality_scores(quality, as_of_us, c)
    none = np.zeros(1, np.int64)
    fired = suppressions(quality, scores, Layers(none, none, none), as_of_us=as_of_us, config=c)[0]
    reasons = tuple(reason for reason, fires in zip(REASONS, fired.tolist(), strict=True) if fires)
    return SuppressionResult(
        suppressed=len(reasons) > 0, reasons=reasons, data_quality_score=float(scores[0])
    )


def evaluate_macro_only_suppression(
    entity_signals: int, macro_signals: int, competitive_signals: int = 0
) -> bool:
    """Whether world events are the sole basis, with or without patterns beside them (R78, G25)."""
    return _safety(entity_signals, macro_signals, competitive_signals, SuppressionReason.MACRO_ONLY)


def evaluate_pattern_only_suppression(
    entity_signals: int, macro_signals: int, competitive_signals: int
) -> bool:
    """Whether competitive and pattern signals are the sole basis (R79, G25)."""
    return _safety(entity_signals, macro_signals, competitive_signals, SuppressionReason.PATTERN_ONLY)


def _safety(entity: int, macro: int, competitive: int, reason: SuppressionReason) -> bool:
    zero = np.zeros(1, np.int64)
    fired = suppressions(
        QualityRows(zero, zero, zero, np.array([np.nan]), zero, zero),
        np.zeros(1),
        Layers(np.array([entity]), np.array([macro]), np.array([competitive])),
        as_of_us=0,
        config=SuppressionConfig(),
    )
    return bool(fired[0, REASONS.index(reason)])
