"""A decision taken apart: what the page says adds up and multiplies to what was decided, in both modes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from oracle_core.config import OracleConfig
from oracle_core.cycle import assemble_trends, decide, project_trends, score_signals
from oracle_core.enums import PipelineMode, Window
from oracle_core.explanation import ACTS_AS_FACTOR, INACTIVE, explain
from oracle_core.gates import Gate, Relation, failures
from oracle_core.inputs import CycleInputs, Keys
from oracle_core.rules import HEURISTIC, PROBABILISTIC, rules_for
from oracle_core.terms import Term, summed
from tests import explained
from tests.strategies import (
    AS_OF_US,
    NAN,
    Bar,
    Document,
    Edge,
    Event,
    Exposure,
    World,
    no_history,
    no_standing,
    worlds,
)

CONFIGS = {
    PipelineMode.HEURISTIC: OracleConfig(),
    PipelineMode.PROBABILISTIC: OracleConfig().with_settings({"flags.probabilistic_scoring_enabled": True}),
}
MODES = pytest.mark.parametrize("mode", list(PipelineMode))
WINDOWS = list(Window)

RICH = World(
    documents=(
        Document("a1", "a", 1.0, 1.0, 0.8, 0.9, 0.7, 0.4, "legal", "s1", risks=("suit", "fine")),
        Document("a2", "a", 5.0, 0.6, 0.9, 0.8, 0.9, NAN, "earnings", "s2", "filing"),
        Document("a3", "a", 20.0, -0.5, 0.5, 0.7, 0.6, 1.0, "legal", "s3"),
        Document("a4", "a", 30.0, 1.0, 0.7, 0.2, 0.5, source="s1"),
        Document("a5", "a", 3.0, failed=True, has_impact=False),
        Document("a6", "a", 40.0, 0.0, 0.7, 0.8),
        Document("b1", "b", 2.0, -1.0, 0.9, 0.9, 0.9, catalyst="legal"),
    ),
    bars=tuple(
        Bar("a", day, 100.0 + (day * 7) % 11 + 0.1 * day, 900.0 + 13 * (day % 5)) for day in range(1, 130)
    ),
    events=(Event("e1", 10.0, -1), Event("e2", 50.0, 1, items=(("sector", "tech"),))),
    exposures=(Exposure("a", "geo", "us", 0.6), Exposure("a", "sector", "tech", 0.5)),
    edges=(Edge("a", "b", -0.7),),
    accuracy=(("s1", 0.8, 20), ("s2", 0.3, 12)),
)


def page_of(
    world: World, entity: str, window: Window, mode: PipelineMode, config: OracleConfig | None = None
) -> dict[str, Any]:
    inputs = world.inputs()
    keys = Keys(np.array([world.names().index(entity)]), np.array([WINDOWS.index(window)]))
    return page(inputs, keys, config or CONFIGS[mode])


def page(inputs: CycleInputs, keys: Keys, config: OracleConfig) -> dict[str, Any]:
    signals = score_signals(inputs, keys, AS_OF_US, config)
    trends = assemble_trends(signals, inputs, AS_OF_US, config)
    projections = project_trends(trends, inputs, no_history(), AS_OF_US, config)
    decided = decide(trends, projections, inputs, no_standing(), AS_OF_US, config)
    found = explain(
        signals=signals,
        trends=trends,
        projections=projections,
        decided=decided,
        inputs=inputs,
        as_of_us=AS_OF_US,
        config=config,
        rules=rules_for(config),
    )
    return json.loads(json.dumps(found, allow_nan=False))  # type: ignore[no-any-return]


@MODES
@settings(max_examples=20)
@given(world=worlds())
def test_every_decision_can_be_derived_again_from_its_page(mode: PipelineMode, world: World) -> None:
    for name in world.names():
        for window in (Window.ONE_DAY, Window.NINETY_DAYS):
            explained.check(page_of(world, name, window, mode), mode.value)


@MODES
@pytest.mark.parametrize("window", WINDOWS)
def test_a_world_with_every_layer_can_be_derived_again(mode: PipelineMode, window: Window) -> None:
    for name in RICH.names():
        explained.check(page_of(RICH, name, window, mode), mode.value)


def test_the_page_says_what_a_signal_is() -> None:
    found = page_of(RICH, "a", Window.SEVEN_DAYS, PipelineMode.HEURISTIC)
    (one,) = (s for s in found["signals"] if s["id"] == "a1")
    assert list(one["factors"]) == [
        "recency",
        "credibility",
        "novelty_bonus",
        "confidence_gate",
        "market_ctx_multiplier",
        "layer_weight",
    ]
    assert (one["layer"], one["source_id"], one["source_type"], one["catalyst_type"]) == (
        "entity", "s1", "news", "legal",
    )  # fmt: skip
    assert one["risks"] == ["suit", "fine"]
    assert one["published_us"] == AS_OF_US - 3_600_000_000
    assert one["factors"]["novelty_bonus"] == pytest.approx(1.1)
    assert one["adaptive_half_life_hours"] is None
    assert (one["impact"], one["sentiment"], one["extraction_confidence"]) == (0.8, 1.0, 0.9)
    (silent,) = (s for s in found["signals"] if s["id"] == "a4")
    assert (silent["weight"], silent["counted"], silent["why_not"]) == (0.0, False, INACTIVE)
    assert found["decision"]["thesis"].startswith("[risk:")
    assert found["decision"]["invalidation_conditions"]
    assert found["data_quality"] | {"terms": [], "score": 0} == {
        "terms": [],
        "score": 0,
        "total": 6,
        "valid": 5,
        "failed": 1,
        "source_types": 2,
        "average_extraction_confidence": pytest.approx((0.9 + 0.8 + 0.7 + 0.2 + 0.8) / 5),
        "newest_us": AS_OF_US - 3_600_000_000,
    }


def test_the_probabilistic_page_has_its_own_factors_and_the_macro_layer_acts_as_one() -> None:
    found = page_of(RICH, "a", Window.SEVEN_DAYS, PipelineMode.PROBABILISTIC)
    (one,) = (s for s in found["signals"] if s["id"] == "a1")
    assert list(one["factors"]) == [
        "recency",
        "credibility",
        "source_accuracy_factor",
        "novelty_bonus",
        "sigmoid_gate",
        "info_gain_factor",
        "regime_multiplier",
        "layer_weight",
    ]
    assert one["factors"]["source_accuracy_factor"] == pytest.approx(1.3)
    assert one["adaptive_half_life_hours"] > 56.0
    (event,) = (s for s in found["signals"] if s["id"] == "macro:e1")
    assert "sigmoid_gate" not in event["factors"]
    assert (event["counted"], event["why_not"], event["mass"]) == (False, ACTS_AS_FACTOR, 0.0)
    assert event["weight"] > 0.0
    assert event["source_id"] is None
    assert found["direction"]["macro_modifier"] != 1.0
    assert found["posterior"]["regime"] in {"trend_following", "panic", "mean_reversion", "uncertainty"}
    thresholds = {"trend_following": 0.15, "panic": 0.1, "mean_reversion": 0.2, "uncertainty": 0.15}
    assert found["posterior"]["direction_threshold"] == thresholds[found["posterior"]["regime"]]
    assert {g["gate"] for g in found["gates"] if g["part"] == "expected_value"} == {
        "low_expected_value",
        "ev_unavailable",
    }


def test_the_layers_are_named_and_the_confidence_says_what_it_saw() -> None:
    found = page_of(RICH, "a", Window.THIRTY_DAYS, PipelineMode.HEURISTIC)
    assert [layer["layer"] for layer in found["layers"]] == ["entity", "macro", "competitor", "pattern"]
    assert [layer["signals"] for layer in found["layers"][:3]] == [5, 2, 1]
    confidence = found["confidence"]
    assert [t["term"] for t in confidence["terms"]] == [
        "sources",
        "credibility",
        "agreement",
        "contradiction",
    ]
    assert confidence["unique_sources"] == 4
    assert confidence["terms"][0]["quantity"] == pytest.approx(4 / 15)
    agreed = confidence["agreement"] * confidence["agreement_dampener"]
    assert confidence["terms"][2]["quantity"] == pytest.approx(agreed)
    assert confidence["agreement_dampener"] == pytest.approx(np.log2(5) / 3)
    assert [t["term"] for t in found["risk"]["terms"]] == [
        "contradiction",
        "missing_confidence",
        "thin_evidence",
        "failed_gates",
    ]
    assert [t["term"] for t in found["data_quality"]["terms"]] == ["confidence", "freshness", "coverage"]


def test_the_age_of_the_newest_document_is_in_hours_and_unknown_without_one() -> None:
    found = explained.gate(
        page_of(RICH, "a", Window.SEVEN_DAYS, PipelineMode.HEURISTIC), "suppression", "stale_evidence"
    )
    assert (found["value"], found["threshold"], found["margin"]) == (1.0, 168.0, 167.0)
    only_failed = World(documents=(Document("d", "a", failed=True, has_impact=False),))
    missing = page_of(only_failed, "a", Window.SEVEN_DAYS, PipelineMode.HEURISTIC)
    found = explained.gate(missing, "suppression", "stale_evidence")
    assert (found["value"], found["margin"], found["asked"], found["holds"]) == (None, None, True, False)
    assert missing["data_quality"]["newest_us"] is None
    assert missing["direction"]["average"] == 0.0


def test_a_weight_beyond_the_limit_says_where_it_was_cut() -> None:
    config = OracleConfig().with_settings({"scoring.max_combined": 0.3})
    found = page_of(RICH, "a", Window.SEVEN_DAYS, PipelineMode.HEURISTIC, config)
    assert found["direction"]["max_weight"] == 0.3
    assert max(s["weight"] for s in found["signals"]) == 0.3
    explained.check(found, "heuristic")


def test_only_one_decision_is_taken_apart_at_a_time() -> None:
    inputs = RICH.inputs()
    with pytest.raises(ValueError, match="one decision is taken apart at a time, not 10"):
        page(inputs, RICH.keys(), OracleConfig())


# ------------------------------------------------------------------------------------- gates and terms


@pytest.mark.parametrize(
    ("relation", "holds", "margins"),
    [
        (Relation.AT_LEAST, [False, True, True], [-1.0, 0.0, 1.0]),
        (Relation.AT_MOST, [True, True, False], [1.0, 0.0, -1.0]),
        (Relation.ABOVE, [False, False, True], [-1.0, 0.0, 1.0]),
        (Relation.BELOW, [True, False, False], [1.0, 0.0, -1.0]),
    ],
)
def test_a_gate_compares_and_measures(relation: Relation, holds: list[bool], margins: list[float]) -> None:
    gate = Gate("g", np.array([1.0, 2.0, 3.0]), relation, 2.0)
    assert gate.holds().tolist() == holds
    assert gate.margin().tolist() == margins
    assert gate.failed().tolist() == [not h for h in holds]


def test_what_is_not_asked_cannot_fail_and_what_is_missing_does() -> None:
    values = np.array([1.0, 1.0, NAN])
    asked = Gate("g", values, Relation.AT_LEAST, np.array([2.0, 2.0, 2.0]), np.array([True, False, True]))
    assert asked.failed().tolist() == [True, False, True]
    assert failures((asked, replace(asked, applies=None))).tolist() == [
        [True, True],
        [False, True],
        [True, True],
    ]


def test_a_sum_is_its_terms_in_order() -> None:
    terms = (Term("a", 2.0, np.array([1.0, 3.0])), Term("b", np.array([-1.0, 0.5]), np.array([4.0, 4.0])))
    assert [t.value().tolist() for t in terms] == [[2.0, 6.0], [-4.0, 2.0]]
    assert summed(terms).tolist() == [-2.0, 8.0]
    assert summed(terms[:1]).tolist() == [2.0, 6.0]


def test_the_names_of_the_factors_are_columns_of_a_signal() -> None:
    inputs = RICH.inputs()
    for rules in (HEURISTIC, PROBABILISTIC):
        rows = score_signals(inputs, RICH.keys(), AS_OF_US, CONFIGS[rules.mode]).rows
        product = np.ones(len(rows.key))
        for name in rules.weight_factors:
            product = product * np.nan_to_num(getattr(rows, name), nan=1.0)
        assert np.minimum(product, 100.0).tolist() == rows.combined.tolist()
