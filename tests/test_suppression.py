"""Data quality and the two safety checks (R67-R80)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product

import numpy as np
import pytest

from oracle_core.config import SuppressionConfig
from oracle_core.enums import SuppressionReason, TrendDirection, Window, codes
from oracle_core.frames import QualityRows
from oracle_core.inputs import US_PER_DAY, US_PER_HOUR, DocumentRows, Keys, Ragged
from oracle_core.records import DataQualityContext, TrendSummary
from oracle_core.suppression import (
    NO_TIME,
    build_quality_context_from_summary,
    data_quality_scores,
    evaluate_macro_only_suppression,
    evaluate_pattern_only_suppression,
    evaluate_suppression,
    quality_rows,
    suppression_note,
)

AS_OF = datetime(2026, 3, 10, 12, tzinfo=UTC)
AS_OF_US = 1_773_144_000_000_000
R = SuppressionReason


def trend(confidence: float = 0.62, documents: int = 4) -> TrendSummary:
    return TrendSummary(
        entity_id="Entity-A",
        window=Window.SEVEN_DAYS,
        trend_direction=TrendDirection.NEGATIVE,
        trend_strength=0.35,
        confidence=confidence,
        contradiction_score=0.0,
        top_opposing_evidence=tuple(f"document-{n}" for n in range(documents)),
        generated_at=AS_OF,
    )


def context(
    *,
    total: int = 10,
    valid: int | None = None,
    failed: int = 0,
    confidence: float | None = 0.8,
    age_hours: float | None = 0.0,
    types: int = 2,
) -> DataQualityContext:
    """Documents without a fault, unless told."""
    return DataQualityContext(
        total_documents=total,
        valid_documents=total - failed if valid is None else valid,
        failed_documents=failed,
        avg_extraction_confidence=confidence,
        newest_document_at=None if age_hours is None else AS_OF - timedelta(hours=age_hours),
        distinct_source_types=types,
    )


def reasons(known: DataQualityContext, config: SuppressionConfig | None = None) -> set[SuppressionReason]:
    return set(evaluate_suppression(trend(), known, config).reasons)


def test_r77_good_data_are_not_suppressed() -> None:
    found = evaluate_suppression(trend(), context())
    assert (found.suppressed, found.reasons) == (False, ())
    assert found.data_quality_score == pytest.approx(1.0)


def test_r67_every_failing_check_is_recorded() -> None:
    """Confidence .39 and one valid document: two reasons (six independent checks)."""
    found = evaluate_suppression(trend(), context(total=1, confidence=0.39))
    assert found.suppressed
    assert found.reasons == (R.LOW_EXTRACTION_CONFIDENCE, R.INSUFFICIENT_VALID_DOCUMENTS)


@pytest.mark.parametrize(("confidence", "fires"), [(0.399999, True), (0.40, False)])
def test_r69_low_extraction_confidence(confidence: float, fires: bool) -> None:
    assert (R.LOW_EXTRACTION_CONFIDENCE in reasons(context(confidence=confidence))) is fires


@pytest.mark.parametrize(("seconds", "fires"), [(0, False), (1, True)])
def test_r70_evidence_is_stale_after_a_week_to_the_second(seconds: int, fires: bool) -> None:
    known = context(age_hours=168.0 + seconds / 3600.0)
    assert (R.STALE_EVIDENCE in reasons(known)) is fires


def test_r71_documents_without_a_time_count_as_stale() -> None:
    assert R.STALE_EVIDENCE in reasons(context(total=3, age_hours=None))


def test_r71_no_document_is_not_stale_but_insufficient() -> None:
    """With none at all only two checks fire: a missing document has no age, no type and no failure."""
    nothing = context(total=0, confidence=None, age_hours=None, types=0)
    assert reasons(nothing) == {R.INSUFFICIENT_VALID_DOCUMENTS, R.LOW_DATA_QUALITY}


@pytest.mark.parametrize(("types", "fires"), [(0, True), (1, False)])
def test_r72_source_diversity_follows_the_number(types: int, fires: bool) -> None:
    assert (R.LOW_SOURCE_DIVERSITY in reasons(context(total=3, types=types))) is fires


def test_r72_two_types_can_be_asked_for() -> None:
    """C3: the reading `all of one type` is a setting."""
    strict = SuppressionConfig(min_source_types=2)
    assert R.LOW_SOURCE_DIVERSITY in reasons(context(types=1), strict)
    assert R.LOW_SOURCE_DIVERSITY not in reasons(context(total=0, types=0), strict)


@pytest.mark.parametrize(("failed", "total", "fires"), [(2, 4, False), (3, 5, True)])
def test_r73_failure_rate_above_one_half(failed: int, total: int, fires: bool) -> None:
    known = context(total=total, failed=failed)
    assert (R.HIGH_EXTRACTION_FAILURE_RATE in reasons(known)) is fires


@pytest.mark.parametrize(("valid", "fires"), [(1, True), (2, False)])
def test_r74_two_valid_documents_are_needed(valid: int, fires: bool) -> None:
    assert (R.INSUFFICIENT_VALID_DOCUMENTS in reasons(context(total=valid))) is fires


def test_r75_low_quality_of_the_worked_example() -> None:
    """Confidence .4, 167 h, 2 of 4: score .231786 < .30, and check 1 did not fire."""
    found = evaluate_suppression(trend(), context(total=4, failed=2, confidence=0.4, age_hours=167.0))
    assert found.data_quality_score == pytest.approx(0.231786, abs=5e-7)
    assert found.reasons == (R.LOW_DATA_QUALITY,)


def test_r75_low_quality_is_silent_where_the_confidence_already_fired() -> None:
    known = context(total=4, failed=2, confidence=0.39, age_hours=167.0)
    assert reasons(known) == {R.LOW_EXTRACTION_CONFIDENCE}


def test_r76_score_of_the_worked_example() -> None:
    """Confidence .6, 48 h, 4 of 5: .4 x .75 + .3 x .714286 + .3 x .32 = .610286 (G23)."""
    found = evaluate_suppression(trend(), context(total=5, failed=1, confidence=0.6, age_hours=48.0))
    assert found.data_quality_score == pytest.approx(0.610286, abs=5e-7)


@pytest.mark.parametrize(
    ("known", "score"),
    [
        (context(total=5), 0.85),  # coverage .5: five of five, half of ten
        (context(total=20), 1.0),  # coverage saturates at ten
        (context(confidence=1.0), 1.0),  # confidence saturates at .8
        (context(confidence=0.4), 0.8),
        (context(age_hours=84.0), 0.85),
        (context(age_hours=500.0), 0.7),  # freshness never falls below 0
        (context(age_hours=None), 0.7),
        (context(confidence=None), 0.6),
    ],
)
def test_r76_each_part_of_the_score(known: DataQualityContext, score: float) -> None:
    assert evaluate_suppression(trend(), known).data_quality_score == pytest.approx(score, abs=1e-12)


def test_r76_a_single_document_is_all_of_one() -> None:
    """.4 + .3 + .3 x 1/10: the share of valid documents is 1, not 1/2."""
    assert evaluate_suppression(trend(), context(total=1)).data_quality_score == pytest.approx(
        0.73, abs=1e-12
    )


def test_r76_a_document_dated_after_the_trend_is_no_fresher_than_new() -> None:
    assert evaluate_suppression(trend(), context(age_hours=-84.0)).data_quality_score == pytest.approx(1.0)


def test_r76_without_a_time_nothing_is_fresh_even_at_the_first_moment_of_all() -> None:
    known = QualityRows(
        *(np.array([n]) for n in (10, 10, 0)), np.array([0.8]), np.array([NO_TIME]), np.array([2])
    )
    assert data_quality_scores(known, 0, SuppressionConfig()).tolist() == pytest.approx([0.7])


def test_r73_one_failed_document_of_one_is_a_failure_rate_of_one() -> None:
    assert R.HIGH_EXTRACTION_FAILURE_RATE in reasons(context(total=1, failed=1))


def test_r70_r72_one_document_is_enough_to_be_stale_or_of_too_few_types() -> None:
    assert {R.STALE_EVIDENCE, R.LOW_SOURCE_DIVERSITY} <= reasons(context(total=1, age_hours=500.0, types=0))


def test_r75_exactly_the_least_score_passes() -> None:
    known = context(total=5)
    score = evaluate_suppression(trend(), known).data_quality_score
    assert R.LOW_DATA_QUALITY not in reasons(known, SuppressionConfig(min_data_quality_score=score))
    above = SuppressionConfig(min_data_quality_score=float(np.nextafter(score, 2.0)))
    assert reasons(known, above) == {R.LOW_DATA_QUALITY}
    assert evaluate_suppression(trend(), known, above).suppressed, "one reason is enough"


def test_only_failed_documents_leave_check_one_silent() -> None:
    """Nothing was extracted, so there is no confidence to be low; all the others fire."""
    failed = context(total=3, failed=3, confidence=None, age_hours=None, types=0)
    assert reasons(failed) == {
        R.STALE_EVIDENCE,
        R.LOW_SOURCE_DIVERSITY,
        R.HIGH_EXTRACTION_FAILURE_RATE,
        R.INSUFFICIENT_VALID_DOCUMENTS,
        R.LOW_DATA_QUALITY,
    }


def test_valid_documents_that_state_no_confidence_are_not_trusted() -> None:
    assert R.LOW_EXTRACTION_CONFIDENCE in reasons(context(confidence=None))


def test_r68_the_fallback_estimates_from_the_trend() -> None:
    """G24: four documents at .62 are not suppressed, one is insufficient."""
    found = build_quality_context_from_summary(trend())
    assert found == DataQualityContext(
        total_documents=4,
        valid_documents=4,
        failed_documents=0,
        avg_extraction_confidence=0.62,
        newest_document_at=AS_OF,
        distinct_source_types=1,
    )
    assert not evaluate_suppression(trend()).suppressed
    assert evaluate_suppression(trend(documents=1)).reasons == (R.INSUFFICIENT_VALID_DOCUMENTS,)
    assert build_quality_context_from_summary(trend(documents=0)).distinct_source_types == 0


# ---------------------------------------------------------------------------------------- safety checks


@pytest.mark.parametrize(("entity", "macro", "competitive"), list(product((0, 2), repeat=3)))
def test_g25_truth_table_of_the_safety_checks(entity: int, macro: int, competitive: int) -> None:
    """R78: macro alone, patterns may stand beside it. R79: patterns alone."""
    assert evaluate_macro_only_suppression(entity, macro, competitive) is (entity == 0 and macro == 2)
    assert evaluate_pattern_only_suppression(entity, macro, competitive) is (
        (entity, macro, competitive) == (0, 0, 2)
    )


def test_r78_r79_values_of_the_specification() -> None:
    assert evaluate_macro_only_suppression(0, 2)
    assert not evaluate_macro_only_suppression(1, 2)
    assert evaluate_pattern_only_suppression(0, 0, 3)
    assert not evaluate_pattern_only_suppression(0, 1, 3)
    assert evaluate_macro_only_suppression(0, 1, 3)
    assert evaluate_pattern_only_suppression(0, 0, 1)


# ------------------------------------------------------------------------------------------------ notes


def test_r77_the_note_names_the_reasons_and_the_score() -> None:
    note = suppression_note((R.STALE_EVIDENCE, R.LOW_DATA_QUALITY), 0.231786)
    assert note == "Suppressed for data quality: stale_evidence, low_data_quality (score 0.23)."


def test_r78_the_macro_caveat() -> None:
    note = suppression_note((R.MACRO_ONLY,), 0.9)
    assert note.startswith("This is a macro-only signal")
    assert "not for automated execution" in note
    assert "data quality" not in note


def test_r79_the_pattern_caveat_follows_the_quality_note() -> None:
    """R80: the safety checks come after the main one."""
    note = suppression_note((R.INSUFFICIENT_VALID_DOCUMENTS, R.PATTERN_ONLY), 0.0)
    assert note == (
        "Suppressed for data quality: insufficient_valid_documents (score 0.00). "
        "This is a pattern-only signal without entity-specific or macro evidence, "
        "not for automated execution."
    )


def test_without_a_reason_there_is_no_note() -> None:
    assert suppression_note((), 0.1) == ""


# --------------------------------------------------------------------------- counting the documents


def documents(*rows: tuple[int, int, float, bool, float, int]) -> DocumentRows:
    """Rows of (entity, document, age in days, failed, confidence, source type)."""
    count = len(rows)
    published = np.array([AS_OF_US - round(age * US_PER_DAY) for _, _, age, _, _, _ in rows], np.int64)
    return DocumentRows(
        entity=np.array([row[0] for row in rows], np.int64),
        document=np.array([row[1] for row in rows], np.int64),
        source=np.zeros(count, np.int64),
        source_type=np.array([row[5] for row in rows], np.int64),
        published_us=published,
        known_us=published,
        credibility=np.ones(count),
        novelty=np.zeros(count),
        extraction_confidence=np.array([row[4] for row in rows], np.float64),
        failed=np.array([row[3] for row in rows], np.bool_),
        has_impact=np.zeros(count, np.bool_),
        sentiment=np.zeros(count),
        impact=np.zeros(count),
        catalyst=np.full(count, -1),
        risks=Ragged.empty(count),
    )


def counted(rows: DocumentRows, *keys: tuple[int, Window]) -> QualityRows:
    window = codes(Window)
    asked = Keys(np.array([entity for entity, _ in keys]), np.array([window[name] for _, name in keys]))
    return quality_rows(asked, rows, 3, AS_OF_US)


def test_r68_all_documents_of_the_window_count_and_the_valid_ones_are_averaged() -> None:
    """Decisions 4: the failed one counts, but gives no confidence, time or type."""
    nan = float("nan")
    rows = documents(
        (1, 0, 2.0, False, 0.9, 0),
        (1, 1, 1.0, True, 0.1, 3),
        (1, 2, 3.0, False, 0.5, 2),
        (1, 3, 4.0, False, nan, 2),
        (1, 4, 8.0, False, 0.2, 1),  # outside 7d
        (1, 5, -0.1, False, 0.2, 1),  # dated after as_of
        (2, 6, 0.1, False, 0.3, -1),
    )
    found = counted(rows, (1, Window.SEVEN_DAYS), (2, Window.SEVEN_DAYS), (0, Window.SEVEN_DAYS))
    assert found.total.tolist() == [4, 1, 0]
    assert found.valid.tolist() == [3, 1, 0]
    assert found.failed.tolist() == [1, 0, 0]
    assert found.average_extraction_confidence[:2] == pytest.approx([0.7, 0.3])
    assert np.isnan(found.average_extraction_confidence[2])
    assert found.newest_us.tolist() == [
        AS_OF_US - 2 * US_PER_DAY,
        AS_OF_US - round(0.1 * US_PER_DAY),
        NO_TIME,
    ]
    assert found.source_types.tolist() == [2, 0, 0]


def test_r68_every_window_counts_its_own_documents() -> None:
    rows = documents((0, 0, 0.25, False, 0.5, 0), (0, 1, 0.75, False, 0.7, 0), (0, 2, 20.0, False, 0.9, 1))
    found = counted(rows, *((0, window) for window in Window))
    assert found.total.tolist() == [1, 2, 2, 3, 3]
    assert found.average_extraction_confidence == pytest.approx([0.5, 0.6, 0.6, 0.7, 0.7])


def test_r1_a_document_exactly_as_old_as_the_window_is_outside() -> None:
    rows = documents((0, 0, 7.0, False, 0.5, 0), (0, 1, 0.0, False, 0.5, 0))
    assert counted(rows, (0, Window.SEVEN_DAYS)).total.tolist() == [1]


def test_no_document_at_all_gives_full_rows() -> None:
    found = counted(documents(), (0, Window.ONE_DAY))
    assert (found.total.tolist(), found.newest_us.tolist(), found.source_types.tolist()) == (
        [0],
        [NO_TIME],
        [0],
    )


def test_the_age_limit_is_in_hours() -> None:
    assert SuppressionConfig().max_evidence_staleness_hours * US_PER_HOUR == 7 * US_PER_DAY
