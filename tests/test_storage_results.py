"""Result tables: what a cycle writes, what it keeps of earlier ones, frames that come back bit for bit."""

from __future__ import annotations

import dataclasses
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import psycopg
import pytest

from oracle_core.config import OracleConfig
from oracle_core.cycle import assemble_trends, project_trends, score_signals
from oracle_core.enums import EvidenceRole, SignalLayer, TrendDirection, Window
from oracle_core.frames import SignalFrame, TrendFrame
from oracle_core.inputs import Columns, HistoryRows, Keys, Ragged
from oracle_dagster import pipeline
from oracle_dagster.storage import configuration, cycles, decisions, inputs, results
from oracle_dagster.storage.cycles import Cycle, Key
from oracle_dagster.storage.database import Bulk, Database, StorageError
from oracle_dagster.storage.identity import NAMESPACE, is_document_id, row_id
from tests.storage_rows import (
    AS_OF,
    WINDOWS,
    Document,
    Impact,
    ago,
    contents,
    document_id,
    insert_bars,
    insert_documents,
    insert_world,
    make_world,
    rows,
)

T = TypeVar("T")
PATTERN = "pattern:Entity-A:performance_report:7d"
SEVEN: Key = ("Entity-A", "7d")
PROBABILISTIC = OracleConfig().with_settings({"flags.probabilistic_scoring_enabled": True})


@pytest.fixture
def database(migrated_url: str) -> Iterator[Database]:
    database = Database(migrated_url)
    yield database
    database.close()


def run(
    database: Database,
    as_of: datetime = AS_OF,
    keys: list[Key] | None = None,
    stages: tuple[str, ...] = pipeline.STAGES,
) -> pipeline.StageReport:
    """Run stages over keys, all known ones by default."""
    cycle = pipeline.open_cycle(database, as_of)
    if keys is None:
        keys = [(e, w) for e in pipeline.known_entities(database, cycle) for w in WINDOWS]
    return pipeline.run_stages(database, cycle, keys, stages, run_id="run")


def story(connection: psycopg.Connection[Any], *sentiments: float, prefix: str = "d", **age: float) -> None:
    """Documents about Entity-A, one per sentiment, an hour apart."""
    span = age or {"hours": 30}
    insert_documents(
        connection,
        [
            Document(
                f"{prefix}{n}",
                (Impact("Entity-A", s, 0.8, "legal", ("litigation",)),),
                published=ago(**span) + timedelta(hours=n),
                source=f"source-{n}",
            )
            for n, s in enumerate(sentiments)
        ],
    )


def writing(database: Database, cycle: Cycle, keys: list[Key], work: Callable[[Bulk], T]) -> T:
    """One writing transaction on keys."""

    def transaction(bulk: Bulk) -> T:
        cycles.enter(bulk, cycle)
        cycles.lock_entities(bulk, [e for e, _ in keys])
        cycles.stage_keys(bulk, keys)
        return work(bulk)

    return database.run(transaction)


def assert_same(found: object, wanted: object, path: str = "") -> None:
    """Equal to the bit, NaN included; -0 and 0 differ."""
    if isinstance(wanted, Ragged | Keys) or (
        isinstance(wanted, Columns) and dataclasses.is_dataclass(wanted)
    ):
        for f in dataclasses.fields(wanted):
            assert_same(getattr(found, f.name), getattr(wanted, f.name), f"{path}.{f.name}")
    elif isinstance(wanted, np.ndarray):
        assert isinstance(found, np.ndarray)
        assert found.dtype == wanted.dtype, path
        if wanted.dtype == np.float64:
            assert found.view(np.int64).tolist() == wanted.view(np.int64).tolist(), path
        else:
            assert found.tolist() == wanted.tolist(), path
    else:
        assert found == wanted, path


# --------------------------------------------------------------------------------------- identity


def test_ids_are_uuid5_of_natural_keys() -> None:
    assert row_id("trend", "E", "7d") == str(uuid.uuid5(NAMESPACE, "trend\x1fE\x1f7d"))
    assert results.trend_id(("E", "7d")) != results.trend_id(("E", "1d"))
    assert row_id("a", "b", "c") != row_id("a", "bc", "")


@pytest.mark.parametrize(
    ("text", "real"),
    [
        (document_id("x"), True),
        (PATTERN, False),
        (f"macro:{document_id('x')}", False),
        ("competitor:" + document_id("x"), False),
        ("", False),
    ],
)
def test_only_uuids_are_documents_r61_c35(text: str, real: bool) -> None:
    assert is_document_id(text) is real


# ----------------------------------------------------------------------------- frames there and back


@pytest.mark.parametrize("probabilistic", [False, True])
def test_stored_frames_are_read_back_bit_for_bit(
    database: Database, migrated_url: str, probabilistic: bool
) -> None:
    """A later stage may run alone; it must not notice."""
    with psycopg.connect(migrated_url) as connection:
        insert_world(connection, make_world())
    if probabilistic:
        configuration.activate(database, PROBABILISTIC, "ada", "mode")
    cycle = pipeline.open_cycle(database, AS_OF)
    entities = pipeline.known_entities(database, cycle)
    keys = [(e, w) for e in entities for w in WINDOWS]
    pipeline.run_stages(database, cycle, keys, pipeline.STAGES, run_id="r")
    read = database.run(lambda bulk: inputs.read_inputs(bulk, cycle, entities, neighbours=True))
    coded = results.key_rows(keys, {e: n for n, e in enumerate(read.entities.tolist())})
    signals = score_signals(read, coded, cycle.as_of_us, cycle.config)
    trends = assemble_trends(signals, read, cycle.as_of_us, cycle.config)
    none = HistoryRows(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    projections = project_trends(trends, read, none, cycle.as_of_us, cycle.config)

    stored = writing(database, cycle, keys, lambda bulk: results.read_signals(bulk, coded))
    assert len(stored.rows.key) > 100
    for name in ("ids", "sources", "source_types", "catalysts"):
        code = {"ids": "signal"}.get(name, name.removesuffix("s"))
        for frame in (stored, signals):
            assert getattr(frame, name).tolist() == sorted(getattr(frame, name))
        assert texts(stored, code, name) == texts(signals, code, name)
    assert labels(stored) == labels(signals)
    for f in dataclasses.fields(signals.rows):
        if f.name not in {"signal", "source", "source_type", "catalyst", "risks"}:
            wanted = getattr(signals.rows, f.name)
            plain = wanted + 0.0 if wanted.dtype == np.float64 else wanted
            assert_same(getattr(stored.rows, f.name), plain, f.name)
    assert stored.skipped.tolist() == signals.skipped.tolist()
    assert_same(assemble_trends(stored, read, cycle.as_of_us, cycle.config).rows, trends.rows)

    table = writing(database, cycle, keys, lambda bulk: results.read_trends(bulk, "trend_projections"))
    again = results.trend_frame(table, coded)
    assert_same(again.rows, pipeline._plain(trends).rows)
    for name in ("supporting", "opposing", "disagreements", "dominant_catalysts", "material_risks"):
        assert getattr(again, name) == getattr(trends, name), name
    table = writing(database, cycle, keys, results.read_projections)
    projected = results.projection_frame(table, coded)
    assert_same(projected.rows, pipeline._plain(projections).rows)
    assert projected.driving_factors == projections.driving_factors


def texts(frame: SignalFrame, code: str, table: str) -> list[str | None]:
    of = getattr(frame, table)
    return [None if c < 0 else of[c] for c in getattr(frame.rows, code).tolist()]


def labels(frame: SignalFrame) -> list[list[str]]:
    lists = frame.rows.risks
    ends = lists.offsets.tolist()
    return [frame.risk_labels[lists.codes[a:b]].tolist() for a, b in pairwise(ends)]


# -------------------------------------------------------------------------------- current tables


def test_three_cycles_leave_one_current_row_and_three_of_history_per_window_r56_r58_r62(
    database: Database, migrated_url: str
) -> None:
    with psycopg.connect(migrated_url) as connection:
        story(connection, 1.0, -1.0, 1.0, hours=60)
    for days in (2, 1, 0):
        run(database, ago(days=days))
    counts = {name: len(found) for name, found in contents(migrated_url).items()}
    assert counts["trend_windows"] == 5
    assert counts["trend_history"] == 15
    assert counts["trend_projections"] == 15
    assert rows(migrated_url, "SELECT DISTINCT generated_at FROM trend_windows") == [(AS_OF,)]


def test_a_trend_row_holds_what_r57_lists_and_the_json_keys_of_the_data_model_r186(
    database: Database, migrated_url: str
) -> None:
    with psycopg.connect(migrated_url) as connection:
        story(connection, 1.0, 1.0, -1.0)
        insert_bars(connection, "Entity-A", [100.0 + n for n in range(30)])
    run(database)
    ((row,),) = rows(migrated_url, """SELECT to_jsonb(t) FROM trend_windows t WHERE "window" = '7d'""")
    assert row["entity_type"] == "entity"
    assert row["id"] == results.trend_id(SEVEN)
    assert sorted(row["top_supporting_evidence"]) == sorted(map(document_id, ("d0", "d1")))
    assert row["top_opposing_evidence"] == [document_id("d2")]
    assert row["dominant_catalysts"] == ["legal"]
    assert row["material_risks"] == ["litigation"]
    assert {d["dimension"] for d in row["disagreement_details"]} == {"sentiment", "catalyst:legal"}
    context = row["market_context"]
    assert set(context) == {"volatility", "volume_change_pct", "price_change_pct", "signal_layers", "basis"}
    assert context["signal_layers"] == {"entity": 3, "macro": 0, "competitive": 0}
    configuration.activate(database, PROBABILISTIC, "ada", "mode")
    run(database)
    query = """SELECT market_context -> 'probabilistic' FROM trend_windows WHERE "window" = '7d'"""
    ((context,),) = rows(migrated_url, query)
    assert set(context) == {
        "p_bull",
        "alpha",
        "beta",
        "log_likelihood",
        "bayesian_confidence",
        "entropy",
        "regime",
        "regime_volatility_ratio",
        "pipeline_mode",
        "contradiction_entropy",
        "macro_modifier",
    }
    assert context["regime"] == "uncertainty"
    assert context["regime_volatility_ratio"] is None, "NaN never reaches JSON (C36)"
    assert context["pipeline_mode"] == "probabilistic"


def test_an_older_as_of_never_overwrites_a_newer_current_row(database: Database, migrated_url: str) -> None:
    with psycopg.connect(migrated_url) as connection:
        insert_world(connection, make_world())
    run(database, AS_OF)
    current = ("trend_windows", "trend_evidence", "weighted_signals")
    before = contents(migrated_url, *current)
    run(database, ago(days=3))
    assert contents(migrated_url, *current) == before
    assert rows(migrated_url, "SELECT count(DISTINCT generated_at) FROM trend_history") == [(2,)]
    run(database, AS_OF + timedelta(hours=1))
    assert rows(migrated_url, "SELECT DISTINCT as_of FROM weighted_signals") == [
        (AS_OF + timedelta(hours=1),)
    ]


def test_an_older_as_of_brings_no_signals_back_to_a_key_that_has_none_now(
    database: Database, migrated_url: str
) -> None:
    """A newest cycle without a signal leaves no row to compare with, so the cycle's keys decide."""
    with psycopg.connect(migrated_url) as connection:
        story(connection, 1.0, hours=20)
    intraday = [("Entity-A", "intraday")]
    run(database, AS_OF, intraday)
    run(database, ago(hours=19), intraday)
    assert contents(migrated_url, "weighted_signals") == {"weighted_signals": []}
    run(database, AS_OF + timedelta(hours=1), [("Entity-A", "7d")])
    assert len(contents(migrated_url, "weighted_signals")["weighted_signals"]) == 1


def trend_of(ids: list[str], roles: list[str], *, key: Key = SEVEN) -> tuple[TrendFrame, list[Key]]:
    """A hand-made trend of one key with its evidence."""
    names = np.array(sorted(ids), np.object_)
    n = len(ids)
    kinds = {"Int": np.int64, "Float": np.float64, "Bool": np.bool_}
    zero = {f.name: np.zeros(1, kinds[str(f.type)]) for f in dataclasses.fields(results.TrendRows)}
    role = np.array([list(EvidenceRole).index(EvidenceRole(r)) for r in roles], np.int64)
    position = np.array([sum(r == roles[i] for r in roles[:i]) for i in range(n)], np.int64)
    numbers = [np.linspace(0.1, 0.9, n) + k for k in range(6)]
    evidence = results.EvidenceRows(
        key=np.zeros(n, np.int64),
        role=role,
        position=position,
        signal=np.searchsorted(names, ids).astype(np.int64),
        is_document=np.array([is_document_id(i) for i in ids], np.bool_),
        rank_score=numbers[0],
        weight_component=numbers[1],
        impact_component=numbers[2],
        recency_component=numbers[3],
        confidence_component=numbers[4],
        sentiment_value=numbers[5],
    )
    sides = {r: [i for i, other in zip(ids, roles, strict=True) if other == r] for r in set(roles)}
    frame = TrendFrame(
        keys=Keys(np.zeros(1, np.int64), np.array([list(Window).index(Window(key[1]))])),
        rows=results.TrendRows(**zero),
        supporting=[sides.get("supporting", [])],
        opposing=[sides.get("opposing", [])],
        disagreements=[[]],
        dominant_catalysts=[[]],
        material_risks=[[]],
        evidence=evidence,
        ids=names,
    )
    return frame, [key]


def test_evidence_of_a_trend_is_replaced_and_holds_documents_only_r60_r61_g37(
    database: Database, migrated_url: str
) -> None:
    """Four ids of which one is synthetic give three rows; ranks and components are those of the frame."""
    with psycopg.connect(migrated_url) as connection:
        story(connection, 1.0, 1.0, -1.0)
    ids = [document_id("d0"), PATTERN, document_id("d1"), document_id("d2")]
    frame, keys = trend_of(ids, ["supporting"] * 3 + ["opposing"])
    query = """SELECT trend_window_id::text, document_id::text, role, rank_position, rank_score,
                      weight_component, impact_component, recency_component, confidence_component,
                      sentiment_value FROM trend_evidence ORDER BY role DESC, rank_position"""
    cycle = pipeline.open_cycle(database, AS_OF)
    writing(database, cycle, keys, lambda bulk: results.write_trends(bulk, cycle, keys, frame))
    found = rows(migrated_url, query)
    assert [r[1:4] for r in found] == [
        (document_id("d0"), "supporting", 0),
        (document_id("d1"), "supporting", 2),
        (document_id("d2"), "opposing", 0),
    ]
    assert {r[0] for r in found} == {results.trend_id(SEVEN)}
    assert found[1][4:] == tuple(float(c[2]) for c in (np.linspace(0.1, 0.9, 4) + k for k in range(6)))
    other, _ = trend_of([document_id("d2")], ["opposing"])
    later = pipeline.open_cycle(database, AS_OF + timedelta(days=1))
    writing(database, later, keys, lambda bulk: results.write_trends(bulk, later, keys, other))
    assert [r[1:4] for r in rows(migrated_url, query)] == [(document_id("d2"), "opposing", 0)]


def test_a_history_that_cannot_be_written_never_blocks_the_trend_r59_c33(
    database: Database, migrated_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with psycopg.connect(migrated_url) as connection:
        story(connection, 1.0, 1.0)
        connection.execute("DROP TABLE trend_history")
    with caplog.at_level(logging.DEBUG, logger="oracle_dagster"):
        report = run(database)
    assert len(contents(migrated_url, "trend_windows")["trend_windows"]) == 5
    assert len(rows(migrated_url, "SELECT FROM trend_evidence")) == 6
    debug = [r for r in caplog.records if "history" in r.getMessage() and r.levelno == logging.DEBUG]
    assert len(debug) == 1
    # A cycle without its history cannot be sealed, and that is never silent.
    errors = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert [r.name for r in errors] == ["oracle_dagster.storage.seals"]
    assert report.failures == []
    ((details,),) = rows(migrated_url, "SELECT details FROM run_log WHERE stage = 'trend_windows'")
    assert details["without_history"] == 5
    stages = ("trend_projections", "recommendations")
    assert len(run(database, stages=stages).keys["recommendations"]) == 5, "later stages read current trends"


def test_a_lost_database_while_writing_history_is_not_mistaken_for_a_history_problem(
    database: Database,
) -> None:
    frame, keys = trend_of([], [])
    cycle = pipeline.open_cycle(database, AS_OF)

    class Lost(Bulk):
        def execute(self, sql: str, params: Sequence[object] = ()) -> int:
            if "INTO trend_history" in sql:
                raise StorageError("gone", transient=True)
            return super().execute(sql, params)

    def work(bulk: Bulk) -> object:
        bulk.__class__ = Lost
        return results.write_trends(bulk, cycle, keys, frame)

    with pytest.raises(StorageError, match="gone"):
        writing(database, cycle, keys, work)


def test_values_outside_their_range_are_refused_by_the_tables(database: Database) -> None:
    frame, keys = trend_of([], [])
    frame.rows.strength[0] = 1.5
    cycle = pipeline.open_cycle(database, AS_OF)
    with pytest.raises(StorageError, match="trend_strength_in_0_1") as e:
        writing(database, cycle, keys, lambda bulk: results.write_trends(bulk, cycle, keys, frame))
    assert e.value.sqlstate == "23514"


def test_a_negative_zero_is_made_plain_before_anything_is_stored_or_handed_on() -> None:
    """PostgreSQL's JSON numbers have none, so a stored frame could not come back bit for bit."""
    frame, _ = trend_of([], [])
    frame.rows.average[0] = -0.0
    plain = pipeline._plain(frame)
    assert np.signbit(frame.rows.average).tolist() == [True]
    assert np.signbit(plain.rows.average).tolist() == [False]
    assert plain.rows.evidence_count.dtype == np.int64


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinity_never_become_json_c36(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        results.to_json({"x": value})
    frame, _ = trend_of([], [])
    frame.rows.volatility[0] = value
    assert results.market_contexts(frame.rows, OracleConfig().pipeline_mode)[0]["volatility"] is None


# -------------------------------------------------------------------------------- momentum, history


def set_trend(database: Database, as_of: datetime, strength: float, direction: TrendDirection) -> Cycle:
    """Store a trend of the key as a cycle would."""
    frame, keys = trend_of([], [])
    frame.rows.strength[0] = strength
    frame.rows.direction[0] = list(TrendDirection).index(direction)
    cycle = pipeline.open_cycle(database, as_of)
    writing(database, cycle, keys, lambda bulk: results.write_trends(bulk, cycle, keys, frame))
    return cycle


def history(database: Database, as_of: datetime) -> list[tuple[datetime, float]]:
    cycle = pipeline.open_cycle(database, as_of)
    found = writing(database, cycle, [SEVEN], lambda bulk: results.read_history(bulk, cycle))
    times = [cycles.moment(t) for t in found.as_of_us.tolist()]
    assert found.key.tolist() == [0] * len(times)
    return sorted(zip(times, found.signed_strength.tolist(), strict=True))


def test_momentum_sees_strictly_earlier_cycles_with_their_sign_r63_c34_g42(database: Database) -> None:
    """The row just written for the own cycle must not count, or the change would always be 0."""
    set_trend(database, ago(days=3), 0.5, TrendDirection.MIXED)
    set_trend(database, ago(days=2), 0.3, TrendDirection.NEGATIVE)
    set_trend(database, ago(days=1), 0.2, TrendDirection.POSITIVE)
    set_trend(database, AS_OF, 0.4, TrendDirection.NEGATIVE)
    assert history(database, AS_OF) == [(ago(days=3), 0.0), (ago(days=2), -0.3), (ago(days=1), 0.2)]
    assert history(database, ago(days=3)) == []


def test_momentum_needs_ten_differences_and_reads_no_more_than_eleven_rows_g19(database: Database) -> None:
    for days in range(14, 0, -1):
        set_trend(database, ago(days=days), days / 100, TrendDirection.POSITIVE)
    found = history(database, AS_OF)
    assert [t for t, _ in found] == [ago(days=d) for d in range(11, 0, -1)]


def test_of_two_configurations_of_one_as_of_momentum_takes_the_later(database: Database) -> None:
    set_trend(database, ago(days=1), 0.2, TrendDirection.POSITIVE)
    configuration.activate(database, PROBABILISTIC, "ada", "mode")
    set_trend(database, ago(days=1), 0.9, TrendDirection.POSITIVE)
    assert history(database, AS_OF) == [(ago(days=1), 0.9)]


def test_the_momentum_of_r63_is_minus_a_tenth(database: Database, migrated_url: str) -> None:
    """History -0.30, then -0.40: the change is -0.100000 and not 0."""
    with psycopg.connect(migrated_url) as connection:
        story(connection, -1.0)
    set_trend(database, ago(days=1), 0.3, TrendDirection.NEGATIVE)
    set_trend(database, AS_OF, 0.4, TrendDirection.NEGATIVE)
    run(database, AS_OF, [SEVEN], ("trend_projections",))
    ((momentum,),) = rows(migrated_url, "SELECT momentum FROM trend_projections")
    assert momentum == pytest.approx(-0.1, abs=1e-12)


# -------------------------------------------------------------------------------- recommendations


def test_a_recommendation_its_evidence_and_evaluation_hold_what_r121_r122_r125_r126_list(
    database: Database, migrated_url: str
) -> None:
    with psycopg.connect(migrated_url) as connection:
        story(connection, -1.0, -1.0, -1.0, -1.0, 1.0)
    run(database)
    ((r, e, trend),) = rows(
        migrated_url,
        """SELECT to_jsonb(r), to_jsonb(e), to_jsonb(t) FROM recommendations r
           JOIN risk_evaluations e ON e.recommendation_id = r.id
           JOIN trend_windows t ON t.entity_id = r.entity_id AND t."window" = r.time_horizon
           WHERE r.time_horizon = '7d'""",
    )
    assert r["id"] == row_id("recommendation", *SEVEN, pipeline.open_cycle(database, AS_OF).as_of_us, 1)
    assert r["confidence"] == trend["confidence"]
    assert r["thesis"].startswith(f"[risk:{r['risk_classification']}] Entity-A shows a negative trend")
    assert r["model_metadata"] == {
        "provider": "deterministic",
        "model_name": "rules",
        "prompt_version": "1",
        "schema_version": "1",
        "deterministic_thesis": r["thesis"].split("] ", 1)[1],
        "llm_used": False,
    }
    assert (r["pipeline_mode"], r["expected_value"], r["p_bull"]) == ("heuristic", None, None)
    assert set(e["risk_checks"]) == {
        "time_horizon",
        "position_sizing",
        "invalidation_conditions",
        "risk_classification",
        "suppression_reasons",
        "data_quality_score",
        "ev_reasons",
    }
    assert e["risk_checks"]["position_sizing"] == {
        "allocation_pct": r["allocation_pct"],
        "max_loss_pct": r["max_loss_pct"],
    }
    assert e["risk_checks"]["invalidation_conditions"] == r["invalidation_conditions"]
    assert e["created_at"] == r["generated_at"] == trend["generated_at"]
    cited = rows(
        migrated_url,
        """SELECT evidence_type, weight FROM recommendation_evidence e JOIN recommendations r
           ON r.id = e.recommendation_id WHERE time_horizon = '7d' ORDER BY evidence_type, weight DESC""",
    )
    assert [c[0] for c in cited] == ["opposing"] * 4 + ["supporting"]
    weights = [c[1] for c in cited]
    assert weights == pytest.approx([1.0, 0.909091, 0.833333, 0.769231, 1.0], abs=1e-6), "R123"


def test_the_probabilistic_mode_adds_the_six_keys_of_r193(database: Database, migrated_url: str) -> None:
    with psycopg.connect(migrated_url) as connection:
        story(connection, -1.0, -1.0, -1.0)
        insert_bars(connection, "Entity-A", [100.0 + (n % 5) for n in range(60)])
    configuration.activate(database, PROBABILISTIC, "ada", "mode")
    run(database)
    ((checks, p_bull, ev, mode),) = rows(
        migrated_url,
        """SELECT e.risk_checks, r.p_bull, r.expected_value, r.pipeline_mode FROM recommendations r
           JOIN risk_evaluations e ON e.recommendation_id = r.id WHERE r.time_horizon = '7d'""",
    )
    assert {"ev", "p_bull", "r_up", "r_down", "pipeline_mode", "ev_threshold"} <= set(checks)
    assert (checks["ev"], checks["p_bull"], checks["ev_threshold"]) == (ev, p_bull, 0.005)
    assert checks["pipeline_mode"] == mode == "probabilistic"
    ((missing,),) = rows(
        migrated_url,
        """SELECT count(*) FROM risk_evaluations WHERE risk_checks -> 'ev' = 'null' AND risk_checks ? 'ev'""",
    )
    assert missing == 0


def test_citations_keep_their_rank_when_synthetic_ids_are_left_out_r124_g30(
    database: Database, migrated_url: str
) -> None:
    with psycopg.connect(migrated_url) as connection:
        story(connection, 1.0, 1.0)
    frame, keys = trend_of([document_id("d0"), PATTERN, document_id("d1")], ["supporting"] * 3)
    cycle = pipeline.open_cycle(database, AS_OF)
    writing(database, cycle, keys, lambda bulk: results.write_trends(bulk, cycle, keys, frame))
    run(database, AS_OF, keys, ("trend_projections", "recommendations"))
    cited = rows(
        migrated_url, "SELECT document_id::text, weight FROM recommendation_evidence ORDER BY 2 DESC"
    )
    assert [c[0] for c in cited] == [document_id("d0"), document_id("d1")]
    assert [c[1] for c in cited] == pytest.approx([1.0, 0.833333], abs=1e-6)


def test_a_duplicate_adds_no_row_and_points_to_the_one_that_stands_r127(
    database: Database, migrated_url: str
) -> None:
    with psycopg.connect(migrated_url) as connection:
        story(connection, -1.0, -1.0, hours=40)
    key = [("Entity-A", "90d")]
    run(database, ago(hours=2), key)
    report = run(database, ago(hours=1), key)
    ((only,),) = rows(migrated_url, "SELECT id::text FROM recommendations")
    (told,) = report.keys["recommendations"]
    assert told.metadata["equals_standing"] == only
    assert told.metadata["written_rows"] == 0
    standing = rows(migrated_url, "SELECT standing_recommendation_id::text FROM cycle_keys")
    assert standing == [(only,), (only,)]
    with psycopg.connect(migrated_url) as connection:
        story(connection, 1.0, 1.0, 1.0, prefix="new", minutes=30)
    run(database, AS_OF + timedelta(hours=3), key)
    assert len(rows(migrated_url, "SELECT FROM recommendations")) == 2


def test_only_eligible_unsuppressed_current_recommendations_are_actionable(
    database: Database, migrated_url: str
) -> None:
    with psycopg.connect(migrated_url) as connection:
        story(connection, *[-1.0] * 7)
    run(database)
    found = rows(migrated_url, "SELECT time_horizon, action, mode FROM actionable_recommendations ORDER BY 1")
    assert ("7d", "defer", "production_eligible") in found
    assert all(mode != "informational" for _, _, mode in found)
    with psycopg.connect(migrated_url) as connection:
        story(connection, *[1.0] * 7, prefix="turn", hours=8)
    run(database, AS_OF + timedelta(minutes=1))
    assert rows(migrated_url, "SELECT FROM actionable_recommendations WHERE time_horizon = '7d'") == []
    assert len(rows(migrated_url, "SELECT FROM recommendation_evaluations")) > 5


def test_a_cycle_that_now_finds_a_duplicate_takes_its_recommendation_back(
    database: Database, migrated_url: str
) -> None:
    """As when the rules have changed between a cycle and its repeat."""
    with psycopg.connect(migrated_url) as connection:
        story(connection, -1.0, -1.0, hours=40)
    key = [("Entity-A", "90d")]
    run(database, ago(hours=2), key)
    run(database, AS_OF, key)
    with psycopg.connect(migrated_url) as connection:
        ((standing,),) = connection.execute("SELECT id FROM recommendations").fetchall()
        connection.execute("UPDATE recommendations SET confidence = 0, action = 'act'")
    run(database, AS_OF, key)
    assert len(rows(migrated_url, "SELECT FROM recommendations")) == 2
    with psycopg.connect(migrated_url) as connection:
        connection.execute(
            """UPDATE recommendations r SET confidence = o.confidence, action = o.action
               FROM recommendations o WHERE r.id = %s AND o.id <> r.id""",
            (standing,),
        )
    run(database, AS_OF, key)
    assert rows(migrated_url, "SELECT id FROM recommendations") == [(standing,)]


# ------------------------------------------------------------------------------------------ locks


def test_two_runs_over_the_same_keys_end_as_one_after_the_other(
    database: Database, migrated_url: str
) -> None:
    """The second waits for the locks of the first, then sees what it committed."""
    frame, keys = trend_of([], [])
    cycle = pipeline.open_cycle(database, AS_OF)
    other = Database(migrated_url)
    with database.bulk() as bulk:
        cycles.enter(bulk, cycle)
        cycles.lock_entities(bulk, ["Entity-A"])
        with pytest.raises(StorageError, match="lock timeout"):
            lock_impatiently(other, "Entity-A")
        lock_impatiently(other, "Entity-B")
        cycles.stage_keys(bulk, keys)
        results.write_trends(bulk, cycle, keys, frame)
    lock_impatiently(other, "Entity-A")
    other.close()


def lock_impatiently(database: Database, entity: str) -> None:
    with database.bulk() as bulk:
        bulk.execute("SET LOCAL lock_timeout = '100ms'")
        cycles.lock_entities(bulk, [entity])


def test_a_key_keeps_the_number_of_its_first_writing(database: Database, migrated_url: str) -> None:
    query = "SELECT trend_seq, projection_seq FROM cycle_keys WHERE as_of = %s"
    set_trend(database, AS_OF, 0.1, TrendDirection.POSITIVE)
    before = rows(migrated_url, query, AS_OF)
    set_trend(database, ago(days=1), 0.1, TrendDirection.POSITIVE)
    set_trend(database, AS_OF, 0.2, TrendDirection.POSITIVE)
    assert rows(migrated_url, query, AS_OF) == before
    ((later, _),) = rows(migrated_url, query, ago(days=1))
    assert later > before[0][0]


def test_signals_of_every_layer_are_stored_with_all_factors(database: Database, migrated_url: str) -> None:
    with psycopg.connect(migrated_url) as connection:
        insert_world(connection, make_world())
    run(database)
    found = rows(migrated_url, "SELECT layer, count(*) FROM weighted_signals GROUP BY 1 ORDER BY 1")
    assert {layer for layer, _ in found} == {layer.value for layer in SignalLayer}
    assert rows(migrated_url, "SELECT DISTINCT sigmoid_gate FROM weighted_signals") == [(None,)]
    assert decisions.MODEL["provider"] == "deterministic"
