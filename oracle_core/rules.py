"""The two sets of rules, side by side: the only place where the pipeline mode is looked at (R128, R129).

A stage of the cycle asks :func:`rules_for` once and hands the set down; the modules of the rules never import
this one (except for its type), so a rule cannot look up the mode. Both functions of a field have the same
signature. Nothing here computes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oracle_core.bayesian import Mass, Posterior, no_posterior, posterior
from oracle_core.competitive import attenuated_transfer, flat_reach, flat_transfer, graded_reach
from oracle_core.config import (
    CompetitiveConfig,
    MacroConfig,
    OracleConfig,
    RegimeConfig,
    ScoringConfig,
    TrendConfig,
)
from oracle_core.contradiction import disagreement_entropy, minority_share
from oracle_core.eligibility import ExpectedValueRule, expected_value, no_expected_value
from oracle_core.enums import PipelineMode
from oracle_core.gates import Gate
from oracle_core.inputs import BarRows, Bool, Float, Int
from oracle_core.macro import (
    MacroIntegration,
    additive_integration,
    conditional_integration,
    linear_impact,
    multiplicative_impact,
)
from oracle_core.projection import MomentumRule, ew_momentum, simple_momentum
from oracle_core.regime import Regimes, no_regimes, regimes
from oracle_core.scoring import (
    HEURISTIC_FACTORS,
    PROBABILISTIC_FACTORS,
    Evidence,
    Weights,
    score_heuristic,
    score_probabilistic,
)
from oracle_core.sizing import AllocationRule, conviction_allocation, full_allocation
from oracle_core.terms import Term
from oracle_core.thesis import WordsRule, no_words, probabilistic_conditions, probabilistic_sentences
from oracle_core.trend import (
    Standing,
    heuristic_bounds,
    heuristic_confidence,
    heuristic_direction,
    heuristic_terms,
    probabilistic_bounds,
    probabilistic_confidence,
    probabilistic_direction,
    probabilistic_terms,
)


@dataclass(frozen=True, slots=True)
class RuleSet:
    """One function per rule that differs between the modes; all take and give columns.

    ``weight_factors``, ``direction_bounds`` and ``confidence_terms`` are what ``score_documents``,
    ``direction`` and ``trend_confidence`` are made of, for showing it.
    """

    mode: PipelineMode
    weight_factors: tuple[str, ...]
    score_documents: Callable[[Evidence, ScoringConfig], Weights]
    macro_impact: Callable[[Float, Float, MacroConfig], Float]
    propagation_reach: Callable[[CompetitiveConfig], int]
    propagate: Callable[[Float, Float, Int, CompetitiveConfig], Float]
    integrate_macro: Callable[[Float, Float, Bool, MacroConfig], MacroIntegration]
    contradiction_score: Callable[[Float, Float], Float]
    posterior: Callable[[Mass], Posterior]
    regimes: Callable[[BarRows, int, RegimeConfig], Regimes]
    direction: Callable[[Standing, TrendConfig], Int]
    direction_bounds: Callable[[Standing, TrendConfig], tuple[Gate, ...]]
    trend_confidence: Callable[[Standing, TrendConfig], Float]
    confidence_terms: Callable[[Standing, TrendConfig], tuple[Term, ...]]
    momentum: MomentumRule
    expected_value: ExpectedValueRule
    allocation_scale: AllocationRule
    extra_sentences: WordsRule
    extra_conditions: WordsRule


HEURISTIC = RuleSet(
    mode=PipelineMode.HEURISTIC,
    weight_factors=HEURISTIC_FACTORS,
    score_documents=score_heuristic,
    macro_impact=linear_impact,
    propagation_reach=flat_reach,
    propagate=flat_transfer,
    integrate_macro=additive_integration,
    contradiction_score=minority_share,
    posterior=no_posterior,
    regimes=no_regimes,
    direction=heuristic_direction,
    direction_bounds=heuristic_bounds,
    trend_confidence=heuristic_confidence,
    confidence_terms=heuristic_terms,
    momentum=simple_momentum,
    expected_value=no_expected_value,
    allocation_scale=full_allocation,
    extra_sentences=no_words,
    extra_conditions=no_words,
)

PROBABILISTIC = RuleSet(
    mode=PipelineMode.PROBABILISTIC,
    weight_factors=PROBABILISTIC_FACTORS,
    score_documents=score_probabilistic,
    macro_impact=multiplicative_impact,
    propagation_reach=graded_reach,
    propagate=attenuated_transfer,
    integrate_macro=conditional_integration,
    contradiction_score=disagreement_entropy,
    posterior=posterior,
    regimes=regimes,
    direction=probabilistic_direction,
    direction_bounds=probabilistic_bounds,
    trend_confidence=probabilistic_confidence,
    confidence_terms=probabilistic_terms,
    momentum=ew_momentum,
    expected_value=expected_value,
    allocation_scale=conviction_allocation,
    extra_sentences=probabilistic_sentences,
    extra_conditions=probabilistic_conditions,
)


def rules_for(config: OracleConfig) -> RuleSet:
    """Choose the set of rules of a configuration.

    Implements: R129.
    """
    return {rules.mode: rules for rules in (HEURISTIC, PROBABILISTIC)}[config.pipeline_mode]
