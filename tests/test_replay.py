"""Replay: each cycle as a run of its day would have decided it, in tables of its own, and judged."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from oracle_core.config import OracleConfig
from oracle_dagster import pipeline
from oracle_dagster.replaying import engine, page, report
from oracle_dagster.storage import configuration, inputs, replays
from oracle_dagster.storage.database import Database
from oracle_dagster.storage.replays import COLUMNS, Configuration, Replay
from tests.chain_runs import fresh_database
from tests.command import oracle
from tests.storage_rows import (
    AS_OF,
    RESULT_TABLES,
    WINDOWS,
    Document,
    Impact,
    ago,
    contents,
    insert_documents,
    insert_edge,
    insert_world,
    make_world,
    retract_document,
    revised,
    rows,
)
from tests.test_pipeline import run

WORLD = make_world(4, 60, bars=160)
LIVE = (*RESULT_TABLES, "cycles", "run_log", "cycle_failures", "risk_configs", "cycle_seals")
REPLAY_TABLES = ("replay_configs", "replay_blocks", "replay_decisions", "replay_failures")
HEURISTIC = Configuration("heuristic", OracleConfig())
PROBABILISTIC = Configuration(
    "probabilistic", OracleConfig().with_settings({"flags.probabilistic_scoring_enabled": True})
)
BOTH = (HEURISTIC, PROBABILISTIC)
EVERY = timedelta(days=2)
REQUEST = engine.Request(ago(days=12), AS_OF, EVERY)
DECIDED = ", ".join(f'"{name}"' for name in COLUMNS)


@pytest.fixture(scope="module")
def prepared(embedded_home: Path, migrated_template: str) -> Iterator[str]:
    """A world whose inputs change under the replayed cycles, as the name of a database to be copied."""
    for url in fresh_database(embedded_home, "replayed", migrated_template):
        recent = [d for d in WORLD.documents if d.impacts and ago(days=40) < d.published < ago(days=13)]
        with psycopg.connect(url) as connection:
            insert_world(connection, WORLD)
            insert_documents(connection, [revised(recent[0], ago(days=7), impacts=(Impact("ZaÄz", 1.0),))])
            insert_documents(connection, [revised(recent[1], ago(days=5), source="source-9")])
            retract_document(connection, recent[2], ago(days=3))
            insert_documents(
                connection,
                [
                    Document("late", (Impact(WORLD.entities[0], -1.0),), ago(days=20), known=ago(days=5)),
                    Document("newcomer", (Impact("newcomer", 1.0),), ago(days=6, hours=1)),
                    Document("only failed", (), ago(days=9), failed=True, names=("failed",)),
                ],
            )
            insert_edge(connection, "newcomer", WORLD.entities[1], 0.9)
            connection.execute(
                "UPDATE competitive_edges SET known_at = %s WHERE source_entity = 'newcomer'", (ago(days=3),)
            )
            _revise_a_bar(connection, WORLD.entities[0], ago(days=4))
        yield url.rpartition("/")[2].partition("?")[0]


def _revise_a_bar(connection: psycopg.Connection[Any], entity: str, known: datetime) -> None:
    day = (known - timedelta(days=6)).date()
    connection.execute(
        """UPDATE market_bars SET superseded_known_at = %s, superseded_xid = pg_current_xact_id()
           WHERE entity_id = %s AND day = %s""",
        (known, entity, day),
    )
    connection.execute(
        """INSERT INTO market_bars (entity_id, day, version, known_at, close, volume)
           SELECT entity_id, day, 2, %s, close * 1.2, volume FROM market_bars
           WHERE entity_id = %s AND day = %s""",
        (known, entity, day),
    )


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the intervals are is the core's to show; here they need not be exact."""
    monkeypatch.setattr(report, "DRAWS", 50)


@pytest.fixture
def url(embedded_home: Path, prepared: str) -> Iterator[str]:
    yield from fresh_database(embedded_home, "replay", prepared)


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    database = Database(url)
    yield database
    database.close()


def replayed(
    database: Database,
    configurations: tuple[Configuration, ...] = BOTH,
    request: engine.Request = REQUEST,
    **options: Any,  # noqa: ANN401 - of the engine
) -> Replay:
    return engine.replay(database, request, configurations, **options)


def decided(url: str, number: int, where: str = "true") -> list[tuple[Any, ...]]:
    return rows(
        url,
        f"""SELECT position, {DECIDED} FROM replay_decisions WHERE replay = {number} AND {where}
            ORDER BY position, as_of, entity_id COLLATE "C", "window" COLLATE "C" """,
    )


# -------------------------------------------------------------------------- the same as a run of the day


@pytest.mark.parametrize("chosen", BOTH, ids=lambda c: c.name)
def test_a_replayed_cycle_is_what_runs_in_order_store_and_the_live_tables_stay_as_they_are(
    database: Database, url: str, chosen: Configuration
) -> None:
    """Momentum, duplicates, accuracy, versions, newcomers: everything that depends on the day."""
    configuration.activate(database, chosen.config, "ada", "the mode of the test")
    for as_of in REQUEST.moments():
        run(database, as_of)
    live = contents(url, *LIVE)
    number = replayed(database, (chosen,), block_entities=3).number
    assert contents(url, *LIVE) == live

    ours = rows(
        url,
        f"""SELECT as_of, entity_id, "window", trend_direction, trend_strength, confidence,
                   contradiction_score, projected_direction, projected_strength
            FROM replay_decisions WHERE replay = {number} ORDER BY 1, 2, 3""",
    )
    theirs = rows(
        url,
        """SELECT h.generated_at, h.entity_id, h."window", h.trend_direction, h.trend_strength, h.confidence,
                  h.contradiction_score, p.projected_direction, p.projected_strength
           FROM trend_history h JOIN trend_projections p ON p.entity_id = h.entity_id
             AND p."window" = h."window" AND p.computed_at = h.generated_at ORDER BY 1, 2, 3""",
    )
    assert ours == theirs
    ours = rows(
        url,
        f"""SELECT as_of, entity_id, "window", action, mode, confidence, allocation_pct, max_loss_pct,
                   risk_classification, expected_value, p_bull, eligible
            FROM replay_decisions WHERE replay = {number} AND NOT duplicate ORDER BY 1, 2, 3""",
    )
    theirs = rows(
        url,
        """SELECT r.generated_at, r.entity_id, r.time_horizon, r.action, r.mode, r.confidence,
                  r.allocation_pct, r.max_loss_pct, r.risk_classification, r.expected_value, r.p_bull,
                  e.eligible
           FROM recommendations r JOIN risk_evaluations e ON e.recommendation_id = r.id ORDER BY 1, 2, 3""",
    )
    assert ours == theirs
    # The world is such that each of these was put to the test.
    assert 0 < len(ours) < len(decided(url, number))
    known = [
        e for (e,) in rows(url, f"SELECT DISTINCT entity_id FROM replay_decisions WHERE replay={number}")
    ]
    assert {"newcomer", "failed", "ZaÄz"} < set(known)
    first = rows(url, "SELECT min(as_of) FROM replay_decisions WHERE entity_id = 'newcomer'")
    assert first == [(ago(days=6),)]


def test_the_accuracy_of_the_sources_is_that_measured_in_each_cycle(database: Database, url: str) -> None:
    """Also after a document or a bar was replaced, where what was counted before no longer holds."""
    last = pipeline.open_cycle(database, AS_OF)
    entities = pipeline.known_entities(database, last)
    everything = database.run(lambda bulk: inputs.read_outcomes(bulk, last))
    timeline = database.run(lambda bulk: inputs.read_timeline(bulk, last, ago(days=60), entities))
    sources = engine._Sources(everything, timeline, last.config)
    names = timeline.rows.sources.tolist()
    measured = []
    for day in range(60, -1, -4):
        cycle = pipeline.open_cycle(database, ago(days=day))
        wanted, ratio, samples = pipeline.measure_sources(database, cycle)
        found = sources.at(cycle.as_of_us)
        assert [names[code] for code in found.source] == [name for name in wanted if name in names], day
        here = [name in names for name in wanted]
        assert found.ratio.tolist() == ratio[here].tolist(), day
        assert found.samples.tolist() == samples[here].tolist(), day
        measured.append(int(found.samples.sum()))
    assert measured[-1] > measured[0]


def test_a_later_document_changes_no_earlier_replayed_cycle(database: Database, url: str) -> None:
    first = replayed(database)
    known = ago(days=4)
    with psycopg.connect(url) as connection:
        insert_documents(
            connection,
            [
                Document(f"later-{e}", (Impact(e, -1.0, 1.0),), ago(days=11), known=known)
                for e in WORLD.entities
            ],
        )
    second = replayed(database)
    assert second.number > first.number
    before, after = f"as_of < '{known.isoformat()}'", f"as_of >= '{known.isoformat()}'"
    assert decided(url, second.number, before) == decided(url, first.number, before)
    assert decided(url, second.number, after) != decided(url, first.number, after)


# ------------------------------------------------------------------------------ repeated, killed, shared


def test_a_finished_replay_is_given_back_until_an_input_changes(database: Database, url: str) -> None:
    first = replayed(database)
    stored = contents(url, *REPLAY_TABLES)
    assert replayed(database).number == first.number
    assert contents(url, *REPLAY_TABLES) == stored
    assert replayed(database, (HEURISTIC,)).number > first.number
    with psycopg.connect(url) as connection:
        retract_document(connection, next(d for d in WORLD.documents if d.impacts), AS_OF)
    assert replayed(database).number > first.number + 1


KILLED = """
import os, signal, sys
from datetime import datetime, timedelta
from oracle_core.config import OracleConfig
from oracle_dagster.replaying import engine
from oracle_dagster.storage import replays
from oracle_dagster.storage.database import Database

heuristic = OracleConfig()
probabilistic = heuristic.with_settings({"flags.probabilistic_scoring_enabled": True})
both = [
    replays.Configuration("heuristic", heuristic),
    replays.Configuration("probabilistic", probabilistic),
]
first, last = map(datetime.fromisoformat, sys.argv[2:])
write, engine.CYCLES_PER_WRITE = replays.write_cycles, 2

def write_and_die(bulk, *, block, done, **rest):
    write(bulk, block=block, done=done, **rest)
    if (block.position, done[0]) == (1, 2):
        os.kill(os.getpid(), signal.SIGKILL)  # before the transaction of this write is committed

replays.write_cycles = write_and_die
engine.replay(Database(sys.argv[1]), engine.Request(first, last, timedelta(days=2)), both)
"""


def test_a_killed_replay_goes_on_where_it_was_and_ends_as_an_undisturbed_one(
    database: Database, url: str, embedded_home: Path, prepared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    span = (REQUEST.first.isoformat(), REQUEST.last.isoformat())
    ended = subprocess.run([sys.executable, "-c", KILLED, url, *span], check=False, timeout=300)
    assert ended.returncode == -9
    half = rows(url, "SELECT position, cycles_done FROM replay_blocks ORDER BY position")
    assert half == [(0, 7), (1, 2)]
    assert rows(url, "SELECT finished_at FROM replays") == [(None,)]
    with psycopg.connect(url) as connection:  # what arrives meanwhile is not read by the rest of it
        insert_documents(
            connection, [Document("since", (Impact(WORLD.entities[0], -1.0, 1.0),), ago(days=11))]
        )
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(engine, "CYCLES_PER_WRITE", 3)
    replay = replayed(database, on_progress=lambda done, whole: told.append((done, whole)))
    assert replay.finished
    assert told == [(9, 14), (12, 14), (14, 14)]
    for other_url in fresh_database(embedded_home, "undisturbed", prepared):
        other = Database(other_url)
        whole = replayed(other)
        assert decided(url, replay.number) == decided(other_url, whole.number)
        assert text(database, replay) == text(other, whole)
        other.close()


ORPHANED = """
import os, signal, sys
from datetime import datetime, timedelta
from oracle_core.config import OracleConfig
from oracle_dagster.replaying import engine
from oracle_dagster.storage.replays import Configuration
from oracle_dagster.storage.database import Database
import psutil

def told(done, whole):
    children = psutil.Process().children(recursive=True)
    if done > 0 and children:
        with open(sys.argv[4], "w") as file:
            print(*(child.pid for child in children), file=file)
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    engine._ALONE = engine._POLL_SECONDS = 0
    first, last = map(datetime.fromisoformat, sys.argv[2:4])
    request = engine.Request(first, last, timedelta(minutes=20))
    configurations = [Configuration("one", OracleConfig())]
    url = sys.argv[1]
    engine.replay(Database(url), request, configurations, url=url, processes=2, on_progress=told)
"""


@pytest.mark.acceptance
def test_the_processes_of_a_killed_replay_end_with_it_and_another_goes_on(
    database: Database, url: str, tmp_path: Path
) -> None:
    script, found = tmp_path / "replay.py", tmp_path / "children"
    script.write_text(ORPHANED, encoding="utf-8")
    request = engine.Request(ago(days=12), AS_OF, timedelta(minutes=20))
    span = (request.first.isoformat(), request.last.isoformat())
    ended = subprocess.run([sys.executable, str(script), url, *span, str(found)], check=False, timeout=600)
    assert ended.returncode == -9
    children = [int(pid) for pid in found.read_text().split()]
    assert len(children) >= 2
    deadline = time.monotonic() + 60
    while any(map(psutil.pid_exists, children)):
        assert time.monotonic() < deadline, children
        time.sleep(0.1)
    cycles = len(request.moments())
    half = [done for (done,) in rows(url, "SELECT cycles_done FROM replay_blocks")]
    assert 0 < sum(half) < 2 * cycles
    replay = replayed(database, (Configuration("one", OracleConfig()),), request)
    assert [block.cycles_done for block in replay.blocks] == [cycles, cycles]
    assert rows(url, "SELECT count(DISTINCT as_of), max(replay) FROM replay_decisions") == [
        (cycles, replay.number)
    ]
    print(f"killed after {sum(half)} of {2 * cycles} cycles; {len(children)} processes ended with it")


def text(database: Database, replay: Replay, request: engine.Request = REQUEST) -> str:
    return json.dumps(report.report(database, request, replay), allow_nan=False)


@pytest.mark.parametrize("way", ["blocks", pytest.param("processes", marks=pytest.mark.acceptance)])
def test_blocks_processes_and_repetition_change_no_bit_of_the_decisions_or_the_report(
    database: Database, url: str, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    whole = replayed(database)
    expected = decided(url, whole.number), text(database, whole)
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM replays")
    assert rows(url, "SELECT count(*) FROM replay_decisions") == [(0,)]
    monkeypatch.setattr(engine, "_ALONE", 0)
    options: dict[str, Any] = {"block_entities": 2} if way == "blocks" else {"url": url, "processes": 4}
    again = replayed(database, **options)
    assert again.number > whole.number
    assert len(again.blocks) == (8 if way == "blocks" else 4)
    assert (decided(url, again.number), text(database, again)) == expected


def test_two_at_the_same_replay_do_not_mix_their_rows(database: Database, url: str) -> None:
    replay = replayed(database)
    table = database.run(lambda bulk: bulk.arrow(f"SELECT {DECIDED} FROM replay_decisions LIMIT 3"))
    failed = engine._failures([])

    def write(done: tuple[int, int]) -> None:
        block = replay.blocks[0]
        database.run(
            lambda bulk: replays.write_cycles(
                bulk, replay=replay, block=block, done=done, decided=table, failed=failed
            )
        )

    stored = contents(url, *REPLAY_TABLES)
    write((4, 7))  # stored by the other one: the same rows
    with pytest.raises(replays.OvertakenError, match="another process"):
        write((2, 4))
    assert contents(url, *REPLAY_TABLES) == stored


def test_a_key_that_cannot_be_computed_is_recorded_and_the_others_go_on(
    database: Database, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy = replayed(database, (HEURISTIC,))
    compute = engine.compute

    def failing(read: Any, keys: Any, as_of_us: int, config: Any, **rest: Any) -> Any:  # noqa: ANN401
        names = read.entities[keys.entity].tolist()
        if as_of_us > 1_000_000 * ago(days=3).timestamp() and WORLD.entities[2] in names:
            raise ArithmeticError("no such number")
        return compute(read, keys, as_of_us, config, **rest)

    monkeypatch.setattr(engine, "compute", failing)
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE replays SET request_hash = 'other'")
    broken = replayed(database, (HEURISTIC,))
    failed = rows(
        url, 'SELECT as_of, entity_id, "window", message FROM replay_failures ORDER BY as_of, "window"'
    )
    assert [(as_of, entity) for as_of, entity, *_ in failed] == [
        (as_of, WORLD.entities[2]) for as_of in (ago(days=2), AS_OF) for _ in WINDOWS
    ]
    assert {message for *_, message in failed} == {"ArithmeticError: no such number"}
    others = f"NOT (entity_id = '{WORLD.entities[2]}' AND as_of > '{ago(days=3).isoformat()}')"
    assert decided(url, broken.number) == decided(url, healthy.number, others)
    (told,) = report.report(database, REQUEST, broken)["configurations"]
    assert told["counts"]["failed"] == 10


# ------------------------------------------------------------------------------------------- the report


def test_only_settled_returns_are_judged_and_everything_is_counted(database: Database, url: str) -> None:
    replay = replayed(database)
    told = report.report(database, REQUEST, replay)
    days = [as_of for as_of in REQUEST.moments() if as_of + timedelta(days=7) <= AS_OF - timedelta(hours=12)]
    settled = rows(url, "SELECT DISTINCT as_of FROM replay_decisions WHERE outcome = 'settled' ORDER BY 1")
    assert [as_of for (as_of,) in settled] == days
    for position, each in enumerate(told["configurations"]):
        counts = each["counts"]
        stored = rows(
            url,
            f"""SELECT count(*), count(*) FILTER (WHERE documents > 0 AND return_7d <> 0),
                       count(*) FILTER (WHERE documents = 0),
                       count(*) FILTER (WHERE documents > 0 AND outcome = 'unsettled'),
                       count(*) FILTER (WHERE documents > 0 AND outcome = 'no_prices'),
                       count(*) FILTER (WHERE documents > 0 AND return_7d = 0)
                FROM replay_decisions WHERE position = {position}""",
        )
        names = (
            "decisions", "judged", "without_documents", "unsettled", "without_prices", "unchanged_price",
        )  # fmt: skip
        assert stored == [tuple(counts[name] for name in names)]
        assert counts["decisions"] == sum(counts[name] for name in names[1:])
        assert min(counts["judged"], counts["unsettled"], counts["without_prices"]) > 0
        for dimension, groups in each["scores"].items():
            for name in names:
                total = sum(group["counts"][name] for group in groups.values())
                missing = 0 if dimension != "source type" else counts[name] - total
                assert total + missing == counts[name], (dimension, name)
    assert all(
        end == close
        for close, end in rows(
            url,
            """SELECT d.return_7d, b.close / a.close - 1 FROM replay_decisions d
               CROSS JOIN LATERAL (SELECT close FROM market_bars m WHERE m.entity_id = d.entity_id
                 AND m.known_at <= d.as_of AND superseded_known_at IS NULL
                 ORDER BY day DESC LIMIT 1) a
               CROSS JOIN LATERAL (SELECT close FROM market_bars m WHERE m.entity_id = d.entity_id
                 AND m.known_at <= d.as_of + interval '7 days' AND superseded_known_at IS NULL
                 ORDER BY day DESC LIMIT 1) b
               WHERE d.outcome = 'settled'""",
        )
    )


def test_the_figures_of_the_report_are_those_of_plain_loops_over_the_stored_rows(
    database: Database, url: str
) -> None:
    replay = replayed(database)
    told = report.report(database, REQUEST, replay)
    for position, each in enumerate(told["configurations"]):
        found = rows(
            url,
            f"""SELECT "window", action, trend_direction, confidence, p_bull, plain_average, return_7d > 0
                FROM replay_decisions WHERE position = {position} AND documents > 0 AND return_7d <> 0""",
        )
        for dimension, index, names in (("window", 0, WINDOWS), ("action", 1, ("act", "defer", "observe"))):
            for name in names:
                here = [row for row in found if row[index] == name]
                group = each["scores"][dimension].get(name)
                if not here:
                    continue
                measures = group["measures"]
                way = {"positive": 1, "negative": -1}
                calls = [(way[d], rose) for *_, d, _, _, _, rose in here if d in way]
                hits = sum((call > 0) == rose for call, rose in calls)
                assert measures["calls"] == len(calls)
                assert measures["hit_rate"]["value"] == (pytest.approx(hits / len(calls)) if calls else None)
                brier = sum((0.5 + 0.5 * way.get(d, 0) * c - rose) ** 2 for *_, d, c, _, _, rose in here)
                assert measures["brier_confidence"]["value"] == pytest.approx(brier / len(here))
                plain = sum((0.5 + 0.5 * a - rose) ** 2 for *_, a, rose in here)
                assert measures["brier_plain"]["value"] == pytest.approx(plain / len(here))
                if position == 1:
                    bull = sum((p - rose) ** 2 for *_, p, _, rose in here)
                    assert measures["brier_p_bull"]["value"] == pytest.approx(bull / len(here))
                else:
                    assert measures["brier_p_bull"]["value"] is None
        per_day = each["per_day"]
        assert sum(per_day["decisions"]) == each["counts"]["decisions"]
        assert per_day["decisions"] == [
            sum(per_day[action][day] for action in ("act", "defer", "monitor", "observe"))
            for day in range(told["cycles"])
        ]
        flips = rows(
            url,
            f"""SELECT count(*) FILTER (WHERE before <> now), count(before) FROM (
                    SELECT action || mode AS now, lag(action || mode) OVER (
                        PARTITION BY entity_id, "window" ORDER BY as_of) AS before
                    FROM replay_decisions WHERE position = {position}) AS d""",
        )
        assert flips == [(sum(per_day["flips"]), sum(per_day["followed"]))]
        for bins in each["reliability"].values():
            assert sum(row["count"] for row in bins["bins"]) == each["counts"]["judged"]


def test_the_equity_is_that_of_the_sizes_and_returns_that_are_stored(database: Database, url: str) -> None:
    """Under settings that let nearly everything pass, for and against an entity."""
    bold = OracleConfig().with_settings(
        {
            "eligibility.min_confidence": 0.0,
            "eligibility.paper_confidence_threshold": 0.0,
            "eligibility.min_evidence": 1,
            "suppression.max_evidence_staleness_hours": 10_000.0,
            "suppression.min_valid_documents": 1,
            "suppression.min_data_quality_score": 0.0,
        }
    )
    request = engine.Request(ago(days=120), AS_OF, timedelta(days=5))
    replay = replayed(database, (Configuration("bold", bold),), request)
    told = report.report(database, request, replay)
    found = rows(
        url,
        """SELECT as_of, CASE action WHEN 'act' THEN 1 ELSE -1 END * allocation_pct, return_7d
           FROM replay_decisions WHERE mode <> 'informational' AND action IN ('act', 'defer')
             AND return_7d IS NOT NULL""",
    )
    assert {weight > 0.0 for _, weight, _ in found} == {True, False}
    for name, signs in (("act", (1,)), ("act and defer", (1, -1))):
        earned, positions = 0.0, 0
        for as_of in request.moments():
            here = [(w, r) for at, w, r in found if at == as_of and (w > 0.0 or -1 in signs)]
            gross = sum(abs(w) for w, _ in here)
            earned += sum(w * r for w, r in here) / max(1.0, gross) / 1.4
            positions += len(here)
        curve = told["configurations"][0]["equity"][name]
        assert curve["positions"] == positions > 0
        assert curve["earned"] == pytest.approx(earned)
        assert len(curve["curve"]) == told["cycles"] == 25
    assert told["market"]["positions"] == len(
        rows(url, "SELECT DISTINCT as_of, entity_id FROM replay_decisions WHERE return_7d IS NOT NULL")
    )


def test_the_page_stands_alone_and_escapes_what_comes_from_outside(database: Database) -> None:
    evil = Configuration("<script>alert(1)</script>", PROBABILISTIC.config)
    replay = replayed(database, (HEURISTIC, evil))
    told = report.report(database, REQUEST, replay)
    made = page.document(told)
    assert made == page.document(told)
    assert made.count("<svg") == 2 + 1 + 2
    assert "<script" not in made
    assert "src=" not in made
    assert "&lt;script&gt;" in made
    for configuration_told in told["configurations"]:
        assert f"{configuration_told['counts']['judged']:,}" in made
    for sentence in page.summary(told):
        assert "nan" not in sentence


# -------------------------------------------------------------------------------------------- the command


def test_the_command_replays_reports_and_writes_the_page(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORACLE_DATABASE_URL", url)
    monkeypatch.setenv("ORACLE_HOME", str(tmp_path / "home"))
    settings = tmp_path / "strict.toml"
    settings.write_text("[eligibility]\nmin_confidence = 0.6\n", encoding="utf-8")
    span = ("--from", ago(days=12).isoformat(), "--to", AS_OF.isoformat(), "--every", "3d")
    command = ("replay", *span, "--window", "7d", "--window", "30d", "--config", f"strict={settings}")
    done = oracle(
        *command, "--config", "first=1", "--set", "flags.probabilistic_scoring_enabled=true", "--json",
        "--html", str(tmp_path / "page.html"),
    )  # fmt: skip
    assert done.code == 0, done.err
    told = done.json
    assert [c["name"] for c in told["configurations"]] == ["active", "strict", "first", "changed"]
    assert told["configurations"][1]["settings"] == {"eligibility.min_confidence": 0.6}
    assert told["configurations"][3]["pipeline_mode"] == "probabilistic"
    assert told["windows"] == ["7d", "30d"]
    assert told["cycles"] == 5
    assert told["as_of"][-1] == AS_OF.isoformat().replace("+00:00", "Z")
    active, _, first, _ = told["configurations"]
    assert {**first, "name": "active", "compared_with_first": None} == active
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count("<svg") == 9
    only = oracle(*command, "--without-active", "--entity", WORLD.entities[0])
    assert only.code == 0, only.err
    assert "1 entity" in only.out
    assert "active" not in only.out
    for part in ("hit rate", "Brier", "base rate", "changed action or mode", "Equity"):
        assert part.lower() in only.out.lower()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--every", "1x"), 2, "write it like 12h, 1d or 1w"),
        (("--every", "0d"), 2, "write it like"),
        (("--config", "bold"), 2, "is not NAME=FILE"),
        (("--config", "active=1"), 2, "each differently"),
        (("--without-active",), 2, "at least one configuration"),
        (("--config", "old=99"), 1, "no configuration version 99"),
        (("--config", "bold=missing.toml"), 1, "missing.toml"),
        (("--entity", "nobody"), 1, "nothing about nobody is known"),
        (("--to", "2025-01-01T00:00:00Z"), 1, "--to is not before --from"),
    ],
)
def test_wrong_requests_say_what_to_write_instead(  # noqa: PLR0917 - three of them are the request
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    monkeypatch.setenv("ORACLE_DATABASE_URL", url)
    monkeypatch.setenv("ORACLE_HOME", str(tmp_path / "home"))
    done = oracle("replay", "--from", ago(days=3).isoformat(), "--to", AS_OF.isoformat(), *arguments)
    assert (done.code, "Traceback" in done.err) == (code, False), done.err
    assert said in " ".join(done.err.split())
    assert rows(url, "SELECT number FROM replays") == []


def test_a_replay_without_cycles_or_names_is_refused(database: Database) -> None:
    backwards = engine.Request(AS_OF, ago(days=1), EVERY)
    for request, chosen in (
        (backwards, BOTH),
        (engine.Request(AS_OF, AS_OF, timedelta(0)), BOTH),
        (REQUEST, ()),
        (REQUEST, (HEURISTIC, HEURISTIC)),
        (engine.Request(AS_OF, AS_OF, EVERY, windows=("2d",)), BOTH),
    ):
        with pytest.raises(ValueError, match=r"replay|unknown window"):
            replayed(database, chosen, request)
    assert engine.Request(AS_OF, AS_OF, EVERY).moments() == [AS_OF]
    odd = engine.Request(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 4, 23, tzinfo=UTC), EVERY)
    assert [moment.day for moment in odd.moments()] == [1, 3]
