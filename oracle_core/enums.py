"""The closed vocabularies of the product; nothing here computes.

Every enum is a ``StrEnum`` whose value is what tables, JSON and the command line show. ``codes`` gives the
fixed integer code of each member for use in arrays: its position in the definition.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

E = TypeVar("E", bound=StrEnum)


class TrendDirection(StrEnum):
    """Direction of a trend (R14)."""

    POSITIVE = "positive"
    NEGATIVE = "negative"
    MIXED = "mixed"
    NEUTRAL = "neutral"


class Window(StrEnum):
    """The five trend windows (R1), shortest first."""

    INTRADAY = "intraday"
    ONE_DAY = "1d"
    SEVEN_DAYS = "7d"
    THIRTY_DAYS = "30d"
    NINETY_DAYS = "90d"


class Action(StrEnum):
    """What a recommendation asks for (R66)."""

    ACT = "act"
    DEFER = "defer"
    MONITOR = "monitor"
    OBSERVE = "observe"


class Mode(StrEnum):
    """How far a recommendation may be executed (R66), least first."""

    INFORMATIONAL = "informational"
    SIMULATION_ELIGIBLE = "simulation_eligible"
    PRODUCTION_ELIGIBLE = "production_eligible"


class RiskLevel(StrEnum):
    """Risk classification (R120), lowest first."""

    LOW = "low"
    MODERATE = "moderate"
    HIGH = "high"
    VERY_HIGH = "very_high"


class RejectionReason(StrEnum):
    """Why a trend failed a gate (R81-R85), in the order in which gates are listed."""

    LOW_CONFIDENCE = "low_confidence"
    LOW_TREND_STRENGTH = "low_trend_strength"
    HIGH_CONTRADICTION = "high_contradiction"
    INSUFFICIENT_EVIDENCE = "insufficient_evidence"
    NEUTRAL_DIRECTION = "neutral_direction"


class SuppressionReason(StrEnum):
    """Why the data behind a trend may not be acted on (R69-R79), in the order of the checks."""

    LOW_EXTRACTION_CONFIDENCE = "low_extraction_confidence"
    STALE_EVIDENCE = "stale_evidence"
    LOW_SOURCE_DIVERSITY = "low_source_diversity"
    HIGH_EXTRACTION_FAILURE_RATE = "high_extraction_failure_rate"
    INSUFFICIENT_VALID_DOCUMENTS = "insufficient_valid_documents"
    LOW_DATA_QUALITY = "low_data_quality"
    MACRO_ONLY = "macro_only"
    PATTERN_ONLY = "pattern_only"


class EvReason(StrEnum):
    """Why the expected-value gate made a recommendation informational (R192, G26)."""

    LOW_EXPECTED_VALUE = "low_expected_value"
    EV_UNAVAILABLE = "ev_unavailable"


class MarketRegime(StrEnum):
    """Market regimes (R151)."""

    TREND_FOLLOWING = "trend_following"
    PANIC = "panic"
    MEAN_REVERSION = "mean_reversion"
    UNCERTAINTY = "uncertainty"


class PipelineMode(StrEnum):
    """The two sets of rules (R128)."""

    HEURISTIC = "heuristic"
    PROBABILISTIC = "probabilistic"


class EvidenceRole(StrEnum):
    """Side of a piece of evidence: supporting is positive, opposing negative (R25, C26)."""

    SUPPORTING = "supporting"
    OPPOSING = "opposing"


class Severity(StrEnum):
    """Severity of a world event (R47)."""

    CRITICAL = "critical"
    HIGH = "high"
    MODERATE = "moderate"
    LOW = "low"


class EventDuration(StrEnum):
    """Expected duration of a world event (R45)."""

    SHORT_TERM = "short_term"
    MEDIUM_TERM = "medium_term"
    LONG_TERM = "long_term"


class EventDirection(StrEnum):
    """Direction of a world event."""

    POSITIVE = "positive"
    NEGATIVE = "negative"
    MIXED = "mixed"
    NEUTRAL = "neutral"


class Sentiment(StrEnum):
    """Sentiment label of an impact; positive is +1, negative -1, the others 0 (decisions 1)."""

    POSITIVE = "positive"
    NEGATIVE = "negative"
    NEUTRAL = "neutral"
    MIXED = "mixed"


class SignalLayer(StrEnum):
    """Layer of a weighted signal (R5). ``pattern`` and ``competitor`` form the competitive layer."""

    ENTITY = "entity"
    MACRO = "macro"
    COMPETITOR = "competitor"
    PATTERN = "pattern"


def codes(enum: type[E]) -> dict[E, int]:
    """Map each member to its array code."""
    return {member: position for position, member in enumerate(enum)}
