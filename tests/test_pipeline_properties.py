"""What must hold for every world: no look-ahead, batch = single, row order, empty worlds, scaling.

The results of all stages are compared bit for bit, floats by their hexadecimal form.
"""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle_core import cycle
from oracle_core.config import OracleConfig
from oracle_core.enums import PipelineMode, TrendDirection, Window
from oracle_core.frames import DecisionFrame, ProjectionFrame, SignalFrame, TrendFrame
from oracle_core.inputs import CycleInputs, HistoryRows, Keys, Ragged, StandingRows
from tests.strategies import (
    AS_OF_US,
    Bar,
    Document,
    Edge,
    Event,
    Exposure,
    World,
    histories,
    no_history,
    no_standing,
    worlds,
)

MODES = pytest.mark.parametrize("mode", list(PipelineMode))
# A run of all stages over every key costs far more than an ordinary example.
FEWER = settings(max_examples=max(5, settings.default.max_examples // 5))
Result = dict[tuple[str, int], dict[str, Any]]


def configured(mode: PipelineMode, **settings_: object) -> OracleConfig:
    flag = {"flags.probabilistic_scoring_enabled": mode is PipelineMode.PROBABILISTIC}
    return OracleConfig().with_settings(flag | settings_)


def standing_of(frame: DecisionFrame, trends: TrendFrame) -> StandingRows:
    """The decisions of a cycle as the standing recommendations of the next."""
    count = len(frame.keys)
    return StandingRows(
        np.arange(count),
        frame.rows.action,
        frame.rows.mode,
        trends.rows.confidence,
        np.full(count, "x", object),
    )


def run(
    inputs: CycleInputs,
    keys: Keys,
    config: OracleConfig,
    history: HistoryRows | None = None,
    standing: StandingRows | None = None,
) -> tuple[SignalFrame, TrendFrame, ProjectionFrame, DecisionFrame]:
    """All stages of a cycle at AS_OF."""
    signals = cycle.score_signals(inputs, keys, AS_OF_US, config)
    trends = cycle.assemble_trends(signals, inputs, AS_OF_US, config)
    projections = cycle.project_trends(trends, inputs, history or no_history(), AS_OF_US, config)
    decisions = cycle.decide(trends, projections, inputs, standing or no_standing(), AS_OF_US, config)
    return signals, trends, projections, decisions


def results(inputs: CycleInputs, keys: Keys, *args: Any) -> Result:  # noqa: ANN401
    """Everything every stage says of every key, without codes that depend on the other keys."""
    signals, trends, projections, decisions = run(inputs, keys, *args)
    found: Result = {}
    signal_rows, evidence = _by_key(signals.rows, len(keys)), _by_key(trends.evidence, len(keys))
    for i, (entity, window) in enumerate(zip(keys.entity.tolist(), keys.window.tolist(), strict=True)):
        found[str(inputs.entities[entity]), window] = {
            "signals": [_named(row, signals) for row in signal_rows[i]],
            "skipped": int(signals.skipped[i]),
            "evidence": [row | {"signal": trends.ids[row["signal"]]} for row in evidence[i]],
            "trend": _row(trends.rows, i),
            "supporting": trends.supporting[i],
            "opposing": trends.opposing[i],
            "disagreements": repr(trends.disagreements[i]),
            "catalysts": trends.dominant_catalysts[i],
            "risks": trends.material_risks[i],
            "projection": _row(projections.rows, i),
            "factors": projections.driving_factors[i],
            "decision": _row(decisions.rows, i),
            "thesis": decisions.thesis[i],
            "conditions": decisions.invalidation_conditions[i],
        }
    return found


def _bits(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, list):
        return [_bits(v) for v in value]
    return value.hex() if isinstance(value, float) else value


def _row(columns: Any, i: int) -> dict[str, Any]:  # noqa: ANN401
    return {
        f.name: getattr(columns, f.name)[np.array([i])].codes.tolist()
        if isinstance(getattr(columns, f.name), Ragged)
        else _bits(getattr(columns, f.name)[i].tolist())
        for f in fields(columns)
        if f.name != "key"
    }


def _by_key(rows: Any, keys: int) -> list[list[dict[str, Any]]]:  # noqa: ANN401
    grouped: list[list[dict[str, Any]]] = [[] for _ in range(keys)]
    for i, key in enumerate(rows.key.tolist()):
        grouped[key].append(_row(rows, i))
    return grouped


def _named(row: dict[str, Any], frame: SignalFrame) -> dict[str, Any]:
    """Replace the codes of strings by the strings."""
    tables = {
        "source": frame.sources,
        "source_type": frame.source_types,
        "catalyst": frame.catalysts,
    }
    named = {name: None if row[name] < 0 else table[row[name]] for name, table in tables.items()}
    return (
        row
        | named
        | {
            "signal": frame.ids[row["signal"]],
            "risks": [frame.risk_labels[code] for code in row["risks"]],
        }
    )


# ------------------------------------------------------------------------------------------- no look-ahead


@MODES
@FEWER
@given(world=worlds(), more=worlds())
def test_nothing_known_later_changes_a_result(mode: PipelineMode, world: World, more: World) -> None:
    """A row of any kind that is first known after AS_OF is as if it did not exist (decisions 5).

    Whatever ``more`` holds is moved past AS_OF by its known time alone, so some of it is published before.
    """
    config = configured(mode)
    late_hours = 10_000.0
    future = replace(
        world,
        documents=world.documents
        + tuple(replace(d, id=f"later-{d.id}", known_late_hours=late_hours) for d in more.documents),
        bars=world.bars + tuple(replace(b, known_late_hours=late_hours, close=7.0) for b in more.bars),
        events=world.events
        + tuple(replace(e, id=f"later-{e.id}", known_late_hours=late_hours) for e in more.events),
        exposures=world.exposures + tuple(replace(x, known_us=AS_OF_US + 1) for x in more.exposures),
        edges=world.edges + tuple(replace(e, known_us=AS_OF_US + 1) for e in more.edges),
    )
    past = world.known_by(AS_OF_US)
    expected = results(past.inputs(), past.keys(), config)
    found = results(future.inputs(), future.keys(), config)
    assert {key: found[key] for key in expected} == expected


@MODES
@FEWER
@given(world=worlds(), more=worlds())
def test_nothing_known_later_changes_the_accuracy_of_a_source(
    mode: PipelineMode, world: World, more: World
) -> None:
    """An outcome counts only when it is settled by AS_OF (R164)."""
    config = configured(mode)
    future = replace(
        world,
        documents=world.documents
        + tuple(replace(d, id=f"later-{d.id}", known_late_hours=10_000.0) for d in more.documents),
        bars=world.bars + tuple(replace(b, known_late_hours=10_000.0, close=7.0) for b in more.bars),
    )

    def accuracy(known: World) -> dict[str, tuple[str, int]]:
        inputs = known.inputs()
        found = cycle.measure_accuracy(inputs, AS_OF_US, config)
        return {
            inputs.sources[s]: (float(r).hex(), int(n))
            for s, r, n in zip(found.source, found.ratio, found.samples, strict=True)
        }

    assert accuracy(future) == accuracy(world.known_by(AS_OF_US))


@MODES
@FEWER
@given(world=worlds(), data=st.data())
def test_history_not_before_the_cycle_is_not_history(
    mode: PipelineMode, world: World, data: st.DataObject
) -> None:
    """R63: the row of the cycle itself, or of a later one, must not become `the cycle before`."""
    config, inputs, keys = configured(mode), world.inputs(), world.keys()
    history = data.draw(histories(len(keys)))
    own = HistoryRows(np.arange(len(keys)), np.full(len(keys), AS_OF_US), np.full(len(keys), 0.9))
    both = HistoryRows(
        *(np.concatenate((getattr(own, f.name), getattr(history, f.name))) for f in fields(history))
    )
    assert results(inputs, keys, config, both) == results(inputs, keys, config, history)


# ----------------------------------------------------------------------------------------- batch = single


@MODES
@FEWER
@given(world=worlds(), data=st.data())
def test_every_part_of_a_batch_gives_the_same_bits(
    mode: PipelineMode, world: World, data: st.DataObject
) -> None:
    """Any partition of the keys, in any order, down to single keys."""
    config, inputs, keys = configured(mode), world.inputs(), world.keys()
    history = data.draw(histories(len(keys)))
    _, trends, _, decisions = run(inputs, keys, config, history)
    standing = standing_of(decisions, trends)
    whole = results(inputs, keys, config, history, standing)
    order = data.draw(st.permutations(range(len(keys))))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(keys)), max_size=4)) | {0, len(keys)})
    parts: Result = {}
    for start, end in pairwise(cuts):
        chosen = np.array(order[start:end])
        parts |= results(
            inputs,
            Keys(keys.entity[chosen], keys.window[chosen]),
            config,
            _for_keys(history, chosen),
            _for_keys(standing, chosen),
        )
    assert parts == whole


def _for_keys(rows: Any, chosen: Any) -> Any:  # noqa: ANN401
    """Rows of the chosen keys, numbered by their place among them."""
    place = {key: i for i, key in enumerate(chosen.tolist())}
    kept = [i for i, key in enumerate(rows.key.tolist()) if key in place]
    part = rows.take(np.array(kept, np.int64))
    return replace(part, key=np.array([place[key] for key in part.key.tolist()], np.int64))


@MODES
@FEWER
@given(world=worlds())
def test_a_repeated_cycle_gives_the_same_bits(mode: PipelineMode, world: World) -> None:
    config, inputs, keys = configured(mode), world.inputs(), world.keys()
    assert results(inputs, keys, config) == results(inputs, keys, config)


@MODES
@FEWER
@given(world=worlds())
def test_inputs_are_not_changed(mode: PipelineMode, world: World) -> None:
    """A stage that sorted its input in place would spoil the next one."""
    inputs, untouched = world.inputs(), world.inputs()
    run(inputs, world.keys(), configured(mode))
    for part in ("documents", "bars", "events", "exposures", "edges", "accuracy"):
        mine, other = getattr(inputs, part), getattr(untouched, part)
        for f in fields(mine):
            a, b = getattr(mine, f.name), getattr(other, f.name)
            if isinstance(a, Ragged):
                a, b = a.codes, b.codes
            assert np.array_equal(a, b, equal_nan=a.dtype == np.float64)


# ---------------------------------------------------------------------------------------------- row order


@MODES
@FEWER
@given(world=worlds(), data=st.data())
def test_the_order_of_rows_is_irrelevant(mode: PipelineMode, world: World, data: st.DataObject) -> None:
    config, keys = configured(mode), world.keys()
    history = data.draw(histories(len(keys)))
    shuffled = replace(
        world,
        documents=tuple(data.draw(st.permutations(world.documents))),
        bars=tuple(reversed(world.bars)),
        events=tuple(data.draw(st.permutations(world.events))),
        exposures=tuple(data.draw(st.permutations(world.exposures))),
        edges=tuple(data.draw(st.permutations(world.edges))),
        accuracy=tuple(reversed(world.accuracy)),
    )
    backwards = history.take(np.arange(len(history.key))[::-1])
    expected = results(world.inputs(), keys, config, history)
    assert results(shuffled.inputs(), keys, config, backwards) == expected


# ------------------------------------------------------------------------------------------ empty worlds


@MODES
def test_no_key_gives_every_column_without_rows(mode: PipelineMode) -> None:
    """Empty in, full schema out: nothing downstream has to know about the empty case."""
    nothing = Keys(np.zeros(0, np.int64), np.zeros(0, np.int64))
    one = World(entities=("a",))
    empty = run(World().inputs(), nothing, configured(mode))
    full = run(one.inputs(), one.keys(), configured(mode))
    for name in ("rows", "evidence"):
        for mine, other in zip(empty, full, strict=True):
            if not hasattr(mine, name):
                continue
            for f in fields(getattr(mine, name)):
                a, b = getattr(getattr(mine, name), f.name), getattr(getattr(other, name), f.name)
                assert len(a) == 0, f"{name}.{f.name}"
                if not isinstance(a, Ragged):
                    assert a.dtype == b.dtype, f"{name}.{f.name}"
                    assert a.shape[1:] == b.shape[1:], f"{name}.{f.name}"
    assert empty[3].thesis == []


@MODES
def test_an_entity_without_evidence_gets_a_row_in_every_window(mode: PipelineMode) -> None:
    """Decisions 2, rows: named by a bar, an exposure, an edge or a failed document is enough."""
    world = World(
        documents=(Document("d", "a", failed=True, has_impact=False),),
        bars=(Bar("b", 1, 100.0),),
        exposures=(Exposure("c", "geo", "us", 0.5),),
        edges=(Edge("e", "f", 0.5),),
    )
    signals, trends, projections, decisions = run(world.inputs(), world.keys(), configured(mode))
    assert len(trends.rows.direction) == 25
    assert set(trends.rows.direction.tolist()) == {list(TrendDirection).index(TrendDirection.NEUTRAL)}
    assert set(trends.rows.strength.tolist()) == {0.0}
    assert set(trends.rows.confidence.tolist()) == {0.0}
    assert not decisions.rows.eligible.any()
    assert len(signals.rows.key) == 0
    assert len(projections.driving_factors) == 25
    assert all(text.startswith("[risk:") for text in decisions.thesis)


# ------------------------------------------------------------------------------------------------ scaling

LAYERS = ("scoring.entity_layer_weight", "macro.macro_layer_weight", "competitive.competitive_layer_weight")


@FEWER
@given(world=worlds(), power=st.integers(-3, 2))
def test_scaling_all_layers_alike_changes_no_heuristic_result(world: World, power: int) -> None:
    """Averages, shares and ranks are ratios of weights; a power of two keeps every bit of them."""
    plain = OracleConfig()
    weights = plain.settings()
    scaled = plain.with_settings({path: weights[path] * 2.0**power for path in LAYERS})

    def without_weights(found: Result) -> Result:
        return {
            key: {name: value for name, value in row.items() if name not in {"signals", "disagreements"}}
            for key, row in found.items()
        }

    inputs, keys = world.inputs(), world.keys()
    assert without_weights(results(inputs, keys, scaled)) == without_weights(results(inputs, keys, plain))


@MODES
@FEWER
@given(world=worlds())
def test_a_mirrored_world_has_mirrored_trends(mode: PipelineMode, world: World) -> None:
    """Nothing prefers good news: with every sign turned the direction turns and all sizes stay.

    Without bars, because history is not mirrored by turning sentiments.
    """
    world = replace(world, bars=())
    mirrored = replace(
        world,
        documents=tuple(replace(d, sentiment=-d.sentiment) for d in world.documents),
        events=tuple(replace(e, sign=-e.sign) for e in world.events),
    )
    config, keys = configured(mode), world.keys()
    _, trends, projections, decisions = run(world.inputs(), keys, config)
    _, other_trends, other_projections, other_decisions = run(mirrored.inputs(), keys, config)
    turned = np.array([1, 0, 2, 3])
    assert turned[trends.rows.direction].tolist() == other_trends.rows.direction.tolist()
    assert turned[projections.rows.direction].tolist() == other_projections.rows.direction.tolist()
    assert trends.supporting == other_trends.opposing
    for name in ("strength", "contradiction", "confidence"):
        assert getattr(trends.rows, name) == pytest.approx(getattr(other_trends.rows, name), abs=1e-12), name
    for name in ("allocation_pct", "max_loss_pct", "risk_score"):
        assert getattr(decisions.rows, name) == pytest.approx(getattr(other_decisions.rows, name), abs=1e-12)
    assert decisions.rows.mode.tolist() == other_decisions.rows.mode.tolist()


# ------------------------------------------------------------------------------------- ranges, finiteness


@MODES
@FEWER
@given(world=worlds(), data=st.data())
def test_r210_every_number_is_finite_and_in_its_range(
    mode: PipelineMode, world: World, data: st.DataObject
) -> None:
    """Property 14 over the whole pipeline."""
    keys = world.keys()
    signals, trends, projections, decisions = run(
        world.inputs(), keys, configured(mode), data.draw(histories(len(keys)))
    )
    t, p, d = trends.rows, projections.rows, decisions.rows
    unit: dict[str, Any] = {
        "strength": t.strength,
        "confidence": t.confidence,
        "contradiction": t.contradiction,
        "agreement": t.agreement,
        "credibility": t.average_credibility,
        "projected strength": p.strength,
        "projected confidence": p.confidence,
        "contribution": p.macro_contribution_pct / 100.0,
        "macro weight": p.macro_weight / 0.4,
        "quality": d.data_quality_score,
        "allocation": d.allocation_pct / 0.10,
        "loss": d.max_loss_pct / 0.02,
        "combined": signals.rows.combined / 100.0,
    }
    if mode is PipelineMode.PROBABILISTIC:
        unit |= {"p_bull": t.p_bull, "entropy": t.entropy, "bayesian": t.bayesian_confidence}
        unit |= {"modifier": t.macro_modifier / 2.0}
        assert (t.alpha >= 1.0).all()
        assert (t.beta >= 1.0).all()
    for name, values in unit.items():
        assert np.isfinite(values).all(), name
        assert (values >= 0.0).all(), name
        assert (values <= 1.0 + 1e-12).all(), name
    assert (np.abs(p.momentum) <= 2.0).all()
    assert (np.abs(p.macro_signed) <= 1.0).all()
    assert np.isfinite(d.risk_score).all()
    assert not np.isinf(d.expected_value).any()


@MODES
@FEWER
@given(world=worlds())
def test_an_identical_next_cycle_is_a_duplicate_of_this_one(mode: PipelineMode, world: World) -> None:
    """R127: nothing changed, so nothing new is said."""
    config, inputs, keys = configured(mode), world.inputs(), world.keys()
    _, trends, _, first = run(inputs, keys, config)
    assert not first.rows.duplicate.any()
    _, _, _, second = run(inputs, keys, config, None, standing_of(first, trends))
    assert second.rows.duplicate.all()


def test_the_worlds_reach_every_layer_and_outcome() -> None:
    """Guards the strategy itself: a draw without macro or competitive signals would make all this vacuous."""
    world = World(
        documents=(
            Document("d1", "a"),
            Document("d2", "a", age_hours=2.0, catalyst="legal"),
            Document("d3", "b", sentiment=-1.0),
        ),
        events=(Event("e1"),),
        exposures=(Exposure("a", "geo", "us", 0.8),),
        edges=(Edge("a", "b", 0.5),),
    )
    signals, trends, _, _ = run(
        world.inputs(), world.keys([Window.ONE_DAY]), configured(PipelineMode.HEURISTIC)
    )
    names = [signals.ids[code] for code in signals.rows.signal.tolist()]
    assert {name.split(":")[0] for name in names} == {"d1", "d2", "d3", "macro", "competitor"}
    assert trends.rows.macro_signals.tolist() == [1, 0]
