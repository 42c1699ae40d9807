"""Every single form agrees with the batch on random inputs to 1e-12: 500, and 10,000 in `make acceptance`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from oracle_core.bayesian import (
    BayesianPosterior,
    Posterior,
    compute_bayesian_posterior,
    compute_entropy,
    entropy,
    evidence_mass,
    posterior,
)
from oracle_core.config import OracleConfig, RegimeConfig, TrendConfig
from oracle_core.contradiction import detect_contradictions, participants, side_weights
from oracle_core.enums import MarketRegime, TrendDirection, Window
from oracle_core.market import MarketFigures
from oracle_core.regime import (
    RegimeClassification,
    Regimes,
    classify,
    classify_from_indicators,
    compute_ema,
    ema,
)
from oracle_core.rules import HEURISTIC, PROBABILISTIC, RuleSet
from oracle_core.scoring import (
    Evidence,
    base_rate,
    compute_signal_weight,
    market_ctx_multiplier,
    regime_multiplier,
)
from oracle_core.trend import (
    Standing,
    Support,
    compute_bayesian_trend_confidence,
    compute_trend_confidence,
    derive_probabilistic_direction,
    derive_trend_direction,
    weighted_averages,
    weighted_sentiment_average,
)
from tests.strategies import signal

CONFIG = OracleConfig()
TREND = TrendConfig()
CATALYSTS = ("earnings", "legal", "unheard of", None)
RULES = pytest.mark.parametrize("rules", [HEURISTIC, PROBABILISTIC], ids=lambda rules: rules.mode.value)


@pytest.fixture(params=[500, pytest.param(10_000, marks=pytest.mark.acceptance)])
def count(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(20_260_310)


def same(found: Any, expected: Any) -> None:  # noqa: ANN401
    np.testing.assert_allclose(np.array(found, np.float64), expected, rtol=0.0, atol=1e-12)


@RULES
def test_weight_of_a_document(rules: RuleSet, random: np.random.Generator, count: int) -> None:
    windows = random.integers(0, 5, count)
    catalysts = random.integers(0, len(CATALYSTS), count)
    age, impact, confidence, credibility = random.random((4, count)) * np.array(
        [[200.0], [1.0], [1.0], [1.0]]
    )
    novelty = np.where(random.random(count) < 0.2, np.nan, random.random(count))
    moves = MarketFigures(*(random.normal(0.0, 2.0, count) for _ in range(5)))
    hours = np.array([CONFIG.scoring.half_life_hours[window] for window in Window])
    rates = np.array([base_rate(name, CONFIG.scoring) for name in CATALYSTS])
    batch = rules.score_documents(
        Evidence(
            age_hours=age,
            half_life_hours=hours[windows],
            credibility=credibility,
            novelty=novelty,
            extraction_confidence=confidence,
            impact=impact,
            base_rate=rates[catalysts],
            accuracy_factor=np.ones(count),
            market_ctx=market_ctx_multiplier(moves, CONFIG.scoring),
            regime_mult=regime_multiplier(moves, CONFIG.scoring),
        ),
        CONFIG.scoring,
    )
    found = [
        compute_signal_weight(
            age_hours=float(age[i]),
            window=list(Window)[windows[i]],
            impact_score=float(impact[i]),
            extraction_confidence=float(confidence[i]),
            rules=rules,
            config=CONFIG,
            credibility=float(credibility[i]),
            novelty=None if np.isnan(novelty[i]) else float(novelty[i]),
            catalyst_type=CATALYSTS[catalysts[i]],
            market=moves.take(np.array([i])),
        )
        for i in range(count)
    ]
    same([w.combined for w in found], batch.combined)
    same([w.recency for w in found], batch.recency)


def evidence(random: np.random.Generator, count: int) -> tuple[Any, Any, Any, Any]:
    """Weights, impacts, sentiments and groups of groups of none to six signals."""
    sizes = random.integers(0, 7, count)
    total = int(sizes.sum())
    weight = np.where(random.random(total) < 0.1, 0.0, random.random(total) * 3.0)
    sentiment = random.choice([-1.0, 1.0, 0.0, 0.4, -0.7], total)
    return weight, random.random(total), sentiment, np.append(0, np.cumsum(sizes))


def test_average_contradiction_and_posterior_of_a_list(random: np.random.Generator, count: int) -> None:
    weight, impact, sentiment, offsets = evidence(random, count)
    group = np.repeat(np.arange(count), np.diff(offsets))
    names, none = np.arange(len(group)), np.full(len(group), -1)
    weights = side_weights(participants(group, names, none, sentiment, weight * impact), count)
    batch = posterior(evidence_mass(weight * impact, sentiment, group, count))
    made = [signal(f"{n:06d}", weight[n], sentiment[n], impact[n]) for n in range(len(group))]
    lists = [made[a:b] for a, b in pairwise(offsets.tolist())]
    same(
        [weighted_sentiment_average(signals) for signals in lists],
        weighted_averages(weight, impact, sentiment, offsets),
    )
    for rules in (HEURISTIC, PROBABILISTIC):
        same(
            [detect_contradictions(signals, rules.contradiction_score).score for signals in lists],
            rules.contradiction_score(*weights),
        )
    found = [compute_bayesian_posterior(signals) for signals in lists]
    for name in ("p_bull", "alpha", "beta", "log_likelihood", "bayesian_confidence", "entropy"):
        same([getattr(one, name) for one in found], getattr(batch, name))
    same([one.signal_count for one in found], np.diff(offsets))


def test_direction_and_confidence(random: np.random.Generator, count: int) -> None:
    average, contradiction = random.uniform(-0.6, 0.6, count), random.uniform(0.0, 0.5, count)
    bull, bear = random.exponential(1.0, (2, count))
    bull[random.random(count) < 0.1] = 0.0
    groups = np.arange(count)
    batch = posterior(
        evidence_mass(np.append(bull, bear), np.repeat([1.0, -1.0], count), np.append(groups, groups), count)
    )
    regimes = classify(random.integers(-1, 2, count) * 1.0, random.uniform(0.5, 2.0, count), RegimeConfig())
    no_support = Support(groups, average, average)  # not looked at
    standing = Standing(average, contradiction, no_support, batch, regimes)
    directions = HEURISTIC.direction(standing, TREND)
    found = [derive_trend_direction(a, c) for a, c in zip(average, contradiction, strict=True)]
    assert [list(TrendDirection)[code] for code in directions] == found
    assert len(set(found)) == 4
    ones = [(_posterior(batch, i), _regime(regimes, i)) for i in range(count)]
    directions = PROBABILISTIC.direction(standing, TREND)
    found = [derive_probabilistic_direction(*one) for one in ones]
    assert [list(TrendDirection)[code] for code in directions] == found
    assert len(set(found)) == 4
    same(
        [compute_bayesian_trend_confidence(p, c, r) for (p, r), c in zip(ones, contradiction, strict=True)],
        PROBABILISTIC.trend_confidence(standing, TREND),
    )


def _posterior(rows: Posterior, i: int) -> BayesianPosterior:
    names = ("p_bull", "alpha", "beta", "log_likelihood", "bayesian_confidence", "entropy")
    return BayesianPosterior(**{name: float(getattr(rows, name)[i]) for name in names}, signal_count=2)


def _regime(rows: Regimes, i: int) -> RegimeClassification:
    threshold = float(rows.threshold[i])
    return RegimeClassification(
        list(MarketRegime)[rows.regime[i]],
        float(rows.trend_indicator[i]),
        float(rows.volatility_ratio[i]),
        threshold,
        -threshold,
        float(rows.penalty[i]),
    )


def test_heuristic_confidence_of_a_list(random: np.random.Generator, count: int) -> None:
    """Expected by the formula as the seed prints it."""
    sizes = random.integers(1, 10, count)
    positives = random.integers(0, sizes + 1)
    credibility, contradiction = random.random(count), random.uniform(0.0, 0.5, count)
    majority = np.maximum(positives, sizes - positives) / sizes
    expected = (
        0.3 * np.minimum(sizes / 15.0, 0.8)
        + 0.3 * credibility
        + 0.4 * majority * np.minimum(1.0, np.log2(sizes + 1.0) / 3.0)
        - 0.4 * contradiction
    )
    found = [
        compute_trend_confidence(
            [
                signal(str(k), 1.0, 1.0 if k < positives[i] else -1.0, credibility=float(credibility[i]))
                for k in range(sizes[i])
            ],
            float(contradiction[i]),
        )
        for i in range(count)
    ]
    same(found, np.clip(expected, 0.0, 1.0))


def test_entropy_regime_and_average(random: np.random.Generator, count: int) -> None:
    shares = random.random(count)
    same([compute_entropy(p) for p in shares.tolist()], entropy(shares))
    trend, ratio = random.integers(-1, 2, count) * 1.0, random.uniform(0.5, 2.0, count)
    batch = classify(trend, ratio, RegimeConfig())
    found = [classify_from_indicators(*pair) for pair in zip(trend.tolist(), ratio.tolist(), strict=True)]
    assert [one.regime for one in found] == [list(MarketRegime)[code] for code in batch.regime]
    same([one.bullish_threshold for one in found], batch.threshold)
    same([one.contradiction_penalty_multiplier for one in found], batch.penalty)
    closes = random.uniform(50.0, 150.0, (count, 20))
    same([compute_ema(row, 20) for row in closes.tolist()], ema(closes))
