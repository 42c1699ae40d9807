"""The words of a recommendation: thesis, risk prefix and invalidation conditions (R101-R108, R118, G29).

Every sentence is put together from numbers that were decided elsewhere; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from oracle_core.config import OracleConfig, RiskConfig
from oracle_core.eligibility import evidence_sides
from oracle_core.enums import (
    Action,
    EvReason,
    MarketRegime,
    Mode,
    RiskLevel,
    SuppressionReason,
    TrendDirection,
)
from oracle_core.projection import divergence_factor
from oracle_core.records import EligibilityResult, SuppressionResult, TrendProjection, TrendSummary
from oracle_core.suppression import suppression_note


@dataclass(frozen=True, slots=True)
class ProbabilisticView:
    """What the probabilistic set of rules adds to the words of one trend."""

    p_bull: float
    entropy: float
    regime: MarketRegime
    expected_value: float | None
    action: Action
    ev_reasons: tuple[EvReason, ...] = ()


class WordsRule(Protocol):
    """Further sentences or conditions of one trend; the two sets of rules differ here (R195, G29)."""

    def __call__(self, view: ProbabilisticView | None, config: OracleConfig) -> list[str]:
        """Return the texts in order, none where there is nothing to add."""
        ...


@dataclass(frozen=True, slots=True)
class ThesisParts:
    """Everything the thesis of one trend says, already decided; ``mode`` is the final one."""

    entity_id: str
    window: str
    direction: TrendDirection
    strength: float
    confidence: float
    contradiction: float
    catalysts: Sequence[str]
    risks: Sequence[str]
    supporting: int
    opposing: int
    action: Action
    mode: Mode
    suppressed_by: tuple[SuppressionReason, ...] = ()
    data_quality_score: float = 0.0
    projection: ProjectionParts | None = None
    extra: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ProjectionParts:
    """What the thesis says of a projection that is not of low confidence."""

    direction: TrendDirection
    strength: float
    factors: Sequence[str]
    diverges: bool


def thesis_text(parts: ThesisParts, config: RiskConfig) -> str:
    """Assemble the deterministic thesis (R101).

    Opening, catalysts, contradiction, projection, risks, evidence, action. Sentences without content are
    left out (R103-R106). The probabilistic sentence stands before the action (R195), suppression notes after
    it (R77, R78).

    Implements: R101, R102, R103, R104, R105, R106, R107, R108.
    """
    opening = (
        f"{parts.entity_id} shows a {parts.direction} trend over the {parts.window} window "
        f"with strength {parts.strength:.2f} and confidence {parts.confidence:.2f}."
    )
    sentences = [opening]
    catalysts = parts.catalysts[: config.thesis_max_catalysts]
    if len(catalysts) > 0:
        sentences.append(f"Dominant catalysts: {', '.join(catalysts)}.")
    if parts.contradiction > config.thesis_contradiction_note:
        sentences.append(f"Signals disagree (contradiction score {parts.contradiction:.2f}).")
    if parts.projection is not None:
        sentences.extend(_projection_sentences(parts, parts.projection, config))
    risks = parts.risks[: config.thesis_max_risks]
    if len(risks) > 0:
        sentences.append(f"Material risks: {', '.join(risks)}.")
    sentences.append(f"Evidence: {parts.supporting} supporting and {parts.opposing} opposing documents.")
    sentences.extend(parts.extra)
    sentences.append(f"Recommendation: {parts.action.upper()} ({parts.mode.replace('_', ' ')}).")
    note = suppression_note(parts.suppressed_by, parts.data_quality_score)
    if note != "":
        sentences.append(note)
    return " ".join(sentences)


def _projection_sentences(parts: ThesisParts, projection: ProjectionParts, config: RiskConfig) -> list[str]:
    # The divergence has its own sentence below.
    divergence = divergence_factor(parts.direction, projection.direction)
    factors = [factor for factor in projection.factors if factor != divergence][: config.thesis_max_factors]
    drivers = f", driven by: {'; '.join(factors)}" if len(factors) > 0 else ""
    outlook = (
        f"Projected direction over the next {parts.window}: {projection.direction} "
        f"with strength {projection.strength:.2f}{drivers}."
    )
    sentences = [outlook]
    if projection.diverges:
        sentences.append(f"The projection diverges from the current {parts.direction} trend.")
    return sentences


def with_risk_prefix(thesis: str, risk: RiskLevel) -> str:
    """Thesis as it is stored (R118).

    Implements: R118.
    """
    return f"[risk:{risk}] {thesis}"


def invalidation_conditions(
    direction: TrendDirection,
    diverges_to: TrendDirection | None,
    extra: Sequence[str],
    config: OracleConfig,
) -> list[str]:
    """List what would make a recommendation obsolete (G29).

    Args:
        direction: of the trend.
        diverges_to: projected direction where it differs, else None.
        extra: conditions of the set of rules.
        config: the thresholds named.

    """
    conditions = [
        f"Trend direction changes from {direction}",
        f"Contradiction score exceeds {two_decimals(config.eligibility.max_contradiction)}",
        f"Confidence falls below {two_decimals(config.eligibility.min_confidence)}",
        f"No new evidence for {config.suppression.max_evidence_staleness_hours:g} hours",
    ]
    if diverges_to is not None:
        conditions.append(f"Projection diverges: {diverges_to}")
    conditions.extend(extra)
    return conditions


def two_decimals(threshold: float) -> str:
    """Threshold with two decimals, or with all it has where two would change it."""
    text = f"{threshold:.2f}"
    return text if float(text) == threshold else repr(threshold)


def no_words(view: ProbabilisticView | None, config: OracleConfig) -> list[str]:  # noqa: ARG001
    """Nothing to add, heuristic."""
    return []


def probabilistic_sentences(view: ProbabilisticView | None, config: OracleConfig) -> list[str]:
    """Say the probability, its entropy, the regime and the expected value (R195), probabilistic.

    Implements: R195.
    """
    if view is None:
        return []
    value = "unavailable" if view.expected_value is None else f"{view.expected_value:+.4f}"
    reading = (
        f"Probabilistic view: P_bull {view.p_bull:.2f}, entropy {view.entropy:.2f}, "
        f"regime {view.regime}, expected value {value}."
    )
    sentences = [reading]
    if EvReason.LOW_EXPECTED_VALUE in view.ev_reasons:
        threshold = config.eligibility.ev_threshold
        sentences.append(f"The expected edge of this action does not exceed {threshold:g}.")
    if EvReason.EV_UNAVAILABLE in view.ev_reasons:
        sentences.append("Too few past returns to judge the expected value of this action.")
    return sentences


def probabilistic_conditions(view: ProbabilisticView | None, config: OracleConfig) -> list[str]:
    """Name the expected value that would end the recommendation (G29), probabilistic.

    A deferral is judged on -EV (C11), so its condition names that side.
    """
    deferred = view is not None and view.action is Action.DEFER and config.eligibility.ev_directional
    subject = "Expected value of deferring" if deferred else "Expected value"
    return [f"{subject} falls to {config.eligibility.ev_threshold:g} or below"]


# ------------------------------------------------------------------------------------------ single forms


def build_thesis(
    summary: TrendSummary,
    eligibility: EligibilityResult,
    projection: TrendProjection | None = None,
    suppression: SuppressionResult | None = None,
    *,
    config: OracleConfig | None = None,
    words: WordsRule = no_words,
) -> str:
    """Deterministic thesis of one trend, without the risk prefix (R101).

    Args:
        summary: the trend.
        eligibility: action and allowed mode.
        projection: left out where None or of low confidence.
        suppression: forces the mode to informational and adds its note.
        config: what is named and how much of it; the defaults where None.
        words: :func:`no_words` or :func:`probabilistic_sentences`.

    """
    c = config or OracleConfig()
    supporting, opposing = evidence_sides(summary)
    suppressed = suppression is not None and suppression.suppressed
    view = None
    if summary.p_bull is not None and summary.entropy is not None and summary.regime is not None:
        view = ProbabilisticView(
            p_bull=summary.p_bull,
            entropy=summary.entropy,
            regime=MarketRegime(summary.regime),
            expected_value=eligibility.ev,
            action=eligibility.action,
            ev_reasons=eligibility.ev_reasons,
        )
    shown = None
    if projection is not None and not projection.low_confidence:
        shown = ProjectionParts(
            direction=projection.projected_direction,
            strength=projection.projected_strength,
            factors=projection.driving_factors,
            diverges=projection.diverges_from_current,
        )
    parts = ThesisParts(
        entity_id=summary.entity_id,
        window=summary.window.value,
        direction=summary.trend_direction,
        strength=summary.trend_strength,
        confidence=summary.confidence,
        contradiction=summary.contradiction_score,
        catalysts=summary.dominant_catalysts,
        risks=summary.material_risks,
        supporting=supporting,
        opposing=opposing,
        action=eligibility.action,
        mode=Mode.INFORMATIONAL if suppressed else eligibility.mode,
        suppressed_by=() if suppression is None else suppression.reasons,
        data_quality_score=0.0 if suppression is None else suppression.data_quality_score,
        projection=shown,
        extra=words(view, c),
    )
    return thesis_text(parts, c.risk)
