"""The stages of a cycle: versions, one set of rules per stage, cost, and the cut at as_of."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType

import numpy as np
import pytest

from oracle_core import cycle
from oracle_core.config import OracleConfig
from oracle_core.enums import PipelineMode, TrendDirection, Window
from oracle_core.inputs import US_PER_HOUR, HistoryRows
from oracle_core.rules import HEURISTIC, PROBABILISTIC, RuleSet, rules_for
from tests.strategies import AS_OF_US, Bar, Document, Edge, Event, Exposure, World, no_history, no_standing

CONFIGS = {
    PipelineMode.HEURISTIC: OracleConfig(),
    PipelineMode.PROBABILISTIC: OracleConfig().with_settings({"flags.probabilistic_scoring_enabled": True}),
}
MODES = pytest.mark.parametrize("mode", list(PipelineMode))


def test_every_stage_has_a_version() -> None:
    """The orchestrator marks old results stale by them; a stage without one would never turn stale."""
    assert list(cycle.STAGE_VERSIONS) == [
        "source_accuracy",
        "weighted_signals",
        "trend_windows",
        "trend_projections",
        "recommendations",
    ]
    assert all(version.isdigit() for version in cycle.STAGE_VERSIONS.values())
    assert cycle.CODE_VERSION.count(".") == 4


def test_r129_the_flag_alone_chooses_the_set_of_rules() -> None:
    assert rules_for(CONFIGS[PipelineMode.HEURISTIC]) is HEURISTIC
    assert rules_for(CONFIGS[PipelineMode.PROBABILISTIC]) is PROBABILISTIC


def test_r129_every_rule_of_the_design_is_switched() -> None:
    """A field that holds the same function in both sets would be no switch."""
    same = [f for f in RuleSet.__dataclass_fields__ if getattr(HEURISTIC, f) is getattr(PROBABILISTIC, f)]
    assert same == []


def crowd(documents: int) -> World:
    """Two linked entities with so many documents each, bars, an event and an exposure."""
    names = ("a", "b")
    return World(
        documents=tuple(
            Document(
                f"{name}-{n:04d}",
                name,
                age_hours=0.5 + 400.0 * n / documents,
                sentiment=(1.0, -1.0, 0.5)[n % 3],
                catalyst=("legal", "earnings")[n % 2],
                risks=("r1",),
            )
            for name in names
            for n in range(documents)
        ),
        bars=tuple(Bar(name, day, 100.0 + day % 7) for name in names for day in range(1, 131)),
        events=(Event("e1"),),
        exposures=(Exposure("a", "geo", "us", 0.8),),
        edges=(Edge("a", "b", 0.5),),
    )


@MODES
def test_no_python_call_per_signal(mode: PipelineMode) -> None:
    """Ten times the signals in the same groups: no more calls of the core's own functions."""

    def calls(documents: int) -> Counter[str]:
        known = crowd(documents)
        inputs, keys, config = known.inputs(), known.keys(), CONFIGS[mode]
        counted: Counter[str] = Counter()

        def note(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and "oracle_core" in frame.f_code.co_filename:
                counted[f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"] += 1

        sys.setprofile(note)
        try:
            signals = cycle.score_signals(inputs, keys, AS_OF_US, config)
            trends = cycle.assemble_trends(signals, inputs, AS_OF_US, config)
            projections = cycle.project_trends(trends, inputs, no_history(), AS_OF_US, config)
            cycle.decide(trends, projections, inputs, no_standing(), AS_OF_US, config)
            cycle.measure_accuracy(inputs, AS_OF_US, config)
        finally:
            sys.setprofile(None)
        return counted

    few, many = calls(60), calls(600)
    # A sentence about a key may or may not be said; that is at most one call per key, whatever the signals.
    keys = len(crowd(1).keys())
    assert {name: (few[name], count) for name, count in many.items() if count > max(few[name], keys)} == {}


@MODES
def test_r2_each_window_sees_only_what_lies_inside_it(mode: PipelineMode) -> None:
    """A record 43201 s old is absent from intraday and present in the other four."""
    known = World(documents=(Document("d", "a", age_hours=43_201.0 / 3600.0),))
    signals = cycle.score_signals(known.inputs(), known.keys(), AS_OF_US, CONFIGS[mode])
    windows = [list(Window)[signals.keys.window[key]] for key in signals.rows.key.tolist()]
    assert windows == [w for w in Window if w is not Window.INTRADAY]


def test_an_earlier_as_of_sees_an_earlier_world() -> None:
    """Every stage cuts at its own as_of: the newer document is not there two hours before."""
    known = World(
        documents=(Document("new", "a", age_hours=1.0, sentiment=-1.0), Document("old", "a", age_hours=5.0))
    )
    keys = known.keys([Window.INTRADAY])

    def direction(as_of_us: int) -> TrendDirection:
        signals = cycle.score_signals(known.inputs(), keys, as_of_us, CONFIGS[PipelineMode.HEURISTIC])
        found = cycle.assemble_trends(signals, known.inputs(), as_of_us, CONFIGS[PipelineMode.HEURISTIC])
        return list(TrendDirection)[found.rows.direction[0]]

    assert direction(AS_OF_US - 2 * US_PER_HOUR) is TrendDirection.POSITIVE
    assert direction(AS_OF_US) is TrendDirection.MIXED


def test_r42_the_cycle_before_enters_the_projection() -> None:
    known = World(documents=(Document("d", "a"),))
    keys, config = known.keys([Window.ONE_DAY]), CONFIGS[PipelineMode.HEURISTIC]
    signals = cycle.score_signals(known.inputs(), keys, AS_OF_US, config)
    trends = cycle.assemble_trends(signals, known.inputs(), AS_OF_US, config)
    history = HistoryRows(np.array([0]), np.array([AS_OF_US - US_PER_HOUR]), np.array([0.2]))
    found = cycle.project_trends(trends, known.inputs(), history, AS_OF_US, config)
    assert found.rows.momentum[0] == pytest.approx(0.5 - 0.2, abs=1e-12)
    assert found.driving_factors[0][0] == "Positive momentum (+0.300) in recent trend strength"


def test_events_of_any_age_enter_the_projection() -> None:
    """The event left its windows long ago, yet it exists for the projection's confidence (decisions 4)."""
    known = World(
        documents=(Document("d", "a"),),
        events=(Event("e", age_hours=24.0 * 400.0),),
        exposures=(Exposure("a", "geo", "us", 0.8),),
    )
    keys, config = known.keys([Window.ONE_DAY]), CONFIGS[PipelineMode.HEURISTIC]
    signals = cycle.score_signals(known.inputs(), keys, AS_OF_US, config)
    trends = cycle.assemble_trends(signals, known.inputs(), AS_OF_US, config)
    found = cycle.project_trends(trends, known.inputs(), no_history(), AS_OF_US, config)
    assert trends.rows.macro_signals.tolist() == [0]
    assert found.rows.has_macro_events.tolist() == [True]
    assert found.rows.confidence[0] == pytest.approx(0.8 * trends.rows.confidence[0] + 0.05, abs=1e-12)


def test_r50_with_the_macro_layer_off_no_event_is_read() -> None:
    known = World(
        documents=(Document("d", "a"),), events=(Event("e"),), exposures=(Exposure("a", "geo", "us", 0.8),)
    )
    config = OracleConfig().with_settings({"flags.macro_enabled": False})
    keys = known.keys([Window.ONE_DAY])
    signals = cycle.score_signals(known.inputs(), keys, AS_OF_US, config)
    trends = cycle.assemble_trends(signals, known.inputs(), AS_OF_US, config)
    found = cycle.project_trends(trends, known.inputs(), no_history(), AS_OF_US, config)
    assert (found.rows.has_macro_events.tolist(), found.rows.macro_weight.tolist()) == ([False], [0.0])
    assert found.rows.confidence[0] == pytest.approx(0.72 * trends.rows.confidence[0], abs=1e-12)


def test_g35_the_horizon_is_the_window() -> None:
    """One whole medium-term event just now: what is left after .5, 1, 7, 30 and 90 days, heuristic impact."""
    known = World(
        events=(Event("e", age_hours=0.0),),
        exposures=tuple(Exposure("a", d, "us", 1.0) for d in ("geo", "supply", "commodity", "sector")),
    )
    every = tuple((d, "us") for d in ("geo", "supply", "commodity", "sector"))
    known = World(events=(Event("e", age_hours=0.0, items=every),), exposures=known.exposures)
    config = OracleConfig()
    signals = cycle.score_signals(known.inputs(), known.keys(), AS_OF_US, config)
    trends = cycle.assemble_trends(signals, known.inputs(), AS_OF_US, config)
    found = cycle.project_trends(trends, known.inputs(), no_history(), AS_OF_US, config)
    left = [0.75 * 2.0 ** (-days / 7.0) for days in (0.5, 1.0, 7.0, 30.0, 90.0)]
    assert found.rows.macro_signed == pytest.approx(left, abs=1e-12)


PROBABILISTIC_ONLY = {
    "scoring.sigmoid_steepness": 9.0,
    "scoring.sigmoid_midpoint": 0.4,
    "scoring.info_gain_lambda": 0.9,
    "scoring.info_gain_max": 2.0,
    "scoring.default_base_rate": 0.2,
    "scoring.event_type_base_rates.legal": 0.5,
    "scoring.adaptive_decay_impact_scale": 0.5,
    "scoring.adaptive_decay_surprise_scale": 0.5,
    "scoring.adaptive_decay_market_scale": 0.2,
    "scoring.regime_return_weight": 0.5,
    "scoring.regime_volume_weight": 0.5,
    "scoring.regime_multiplier_max": 2.0,
    "macro.modifier_weight": 0.9,
    "competitive.max_distance": 5,
    "competitive.distance_decay": 0.1,
    "trend.entropy_mixed_threshold": 0.5,
    "regime.default_threshold": 0.3,
    "regime.panic_threshold": 0.3,
    "regime.flat_tolerance": 0.1,
    "regime.uncertainty_contradiction_multiplier": 0.9,
    "projection.ew_lambda": 0.2,
    "projection.ew_max_differences": 1,
    "projection.vol_reference": 0.5,
    "eligibility.ev_threshold": 0.5,
    "eligibility.ev_min_returns": 1,
    "accuracy.min_samples": 0,
    "accuracy.factor_base": 0.1,
}


def test_r131_with_the_flag_off_no_probabilistic_setting_changes_a_result() -> None:
    """All at once, over documents, bars, an event, an edge and history; with the flag on they matter."""
    known = crowd(40)
    inputs, keys = known.inputs(), known.keys()
    history = HistoryRows(np.array([0, 0]), np.array([AS_OF_US - 2, AS_OF_US - 1]), np.array([0.2, -0.3]))

    def said(config: OracleConfig) -> list[str]:
        signals = cycle.score_signals(inputs, keys, AS_OF_US, config)
        trends = cycle.assemble_trends(signals, inputs, AS_OF_US, config)
        projections = cycle.project_trends(trends, inputs, history, AS_OF_US, config)
        decisions = cycle.decide(trends, projections, inputs, no_standing(), AS_OF_US, config)
        columns = [frame.rows for frame in (signals, trends, projections, decisions)]
        numbers = [
            getattr(rows, f).tolist() for rows in columns for f in rows.__dataclass_fields__ if f != "risks"
        ]
        return [repr(numbers), *decisions.thesis, repr(decisions.invalidation_conditions)]

    off, on = CONFIGS[PipelineMode.HEURISTIC], CONFIGS[PipelineMode.PROBABILISTIC]
    assert said(off.with_settings(PROBABILISTIC_ONLY)) == said(off)
    assert said(on.with_settings(PROBABILISTIC_ONLY)) != said(on)
