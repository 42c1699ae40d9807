"""Plan and apply: the plan writes nothing, and applying it ends in exactly what was planned, row by row."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest

from oracle_dagster import doctor
from oracle_dagster.definitions import build_defs
from oracle_dagster.home import Home
from oracle_dagster.launch import LaunchError, apply_plan, orchestrator, run_cycle
from oracle_dagster.pipeline import STAGES
from oracle_dagster.planning import jobs
from oracle_dagster.planning.plan import Plan, as_object, make_plan
from oracle_dagster.storage import configuration
from oracle_dagster.storage.database import Database
from tests.chain_runs import QUIET, Chain, database_name, fresh_database, home_on, with_driver
from tests.command import oracle
from tests.operation import locked, wait_until_blocked
from tests.storage_rows import (
    AS_OF,
    RESULT_TABLES,
    WINDOWS,
    Document,
    Impact,
    ago,
    contents,
    insert_documents,
    make_world,
    rows,
)

WORLD = make_world(4, 60, bars=120)
EVERYTHING = (*RESULT_TABLES, "cycles", "run_log", "run_batches", "risk_configs", "config_applications")
PROBABILISTIC = {"flags.probabilistic_scoring_enabled": True}
SETTINGS: tuple[dict[str, Any], ...] = (
    {"eligibility.min_confidence": 0.62, "eligibility.min_evidence": 3},
    {"scoring.half_life_hours.30d": 60.0, "scoring.half_life_hours.7d": 20.0},
)
RANGES = {
    "eligibility.min_confidence": (0.2, 0.69),
    "eligibility.max_contradiction": (0.3, 0.6),
    "eligibility.action_strength_threshold": (0.26, 0.5),
    "trend.positive_threshold": (0.05, 0.3),
    "scoring.half_life_hours.7d": (12.0, 200.0),
    "scoring.half_life_hours.30d": (24.0, 600.0),
    "projection.macro_weight_cap": (0.1, 0.6),
    "eligibility.max_allocation_pct": (0.05, 0.2),
}


@pytest.fixture(scope="module")
def prepared(
    embedded_home: Path,
    migrated_template: str,
    dagster_template: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, str]]:
    """The names of the two databases of a home with two cycles, to be copied."""
    with contextlib.ExitStack() as held:
        patch = held.enter_context(pytest.MonkeyPatch.context())
        fresh = contextlib.contextmanager(fresh_database)
        domain = held.enter_context(fresh(embedded_home, "planned", migrated_template))
        events = held.enter_context(fresh(embedded_home, "planned_dagster", dagster_template))
        home = home_on(tmp_path_factory.mktemp("plan") / "home", domain, with_driver(events), patch, WORLD)
        for days in (2, 1):
            done = run_cycle(home, as_of=ago(days=days))
            assert done.status == "success", done.message
        yield database_name(domain), database_name(events)


@pytest.fixture
def database_url(embedded_home: Path, prepared: tuple[str, str]) -> Iterator[str]:
    yield from fresh_database(embedded_home, "plan", prepared[0])


@pytest.fixture
def home(
    tmp_path: Path,
    embedded_home: Path,
    prepared: tuple[str, str],
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Home]:
    for events in fresh_database(embedded_home, "plan_dagster", prepared[1]):
        yield home_on(tmp_path / "home", database_url, with_driver(events), monkeypatch)


def planned(url: str, settings: dict[str, Any], as_of: datetime = AS_OF) -> Plan:
    """The plan of the settings, made in this process."""
    database = Database(url)
    try:
        candidate = configuration.active(database).config.with_settings(settings)
        return make_plan(database, candidate, as_of=as_of)
    finally:
        database.close()


def decided(url: str, plan: Plan) -> dict[tuple[str, str], tuple[Any, ...]]:
    """What stands after the plan's cycle, of every key."""
    found = rows(
        url,
        """SELECT c.entity_id, c."window", r.action, r.mode, h.confidence, r.allocation_pct, r.max_loss_pct,
                  r.risk_classification, e.eligible
           FROM cycle_keys c JOIN recommendations r ON r.id = c.standing_recommendation_id
           JOIN risk_evaluations e ON e.recommendation_id = r.id
           JOIN LATERAL (SELECT confidence FROM trend_history h WHERE h.entity_id = c.entity_id
                           AND h."window" = c."window" AND h.generated_at <= c.as_of
                         ORDER BY h.generated_at DESC, h.config_version DESC LIMIT 1) h ON true
           WHERE c.as_of = %s AND c.config_version = (SELECT version FROM risk_configs WHERE active)""",
        plan.as_of,
    )
    return {(row[0], row[1]): tuple(row[2:]) for row in found}


def outcome_equals(url: str, plan: Plan) -> int:
    """Every changed decision is stored as planned, unless it is a duplicate of the one that stood."""
    stands = decided(url, plan)
    assert set(stands) == set(plan.first_stages)
    compared = 0
    for change in plan.changes:
        after = change.after
        action, mode, confidence, allocation, loss, risk, eligible = stands[change.key]
        assert (action, mode, confidence) == (after.action, after.mode, after.confidence), change
        own = rows(
            url,
            "SELECT count(*) FROM recommendations WHERE entity_id = %s AND time_horizon = %s "
            "AND generated_at = %s AND config_version > %s",
            *change.key, plan.as_of, plan.base_version,
        )  # fmt: skip
        if own == [(1,)]:
            stored = (allocation, loss, risk, eligible)
            assert stored == (
                after.allocation_pct, after.max_loss_pct, after.risk_classification, after.eligible
            ), change  # fmt: skip
        compared += 1
    return compared


@pytest.mark.parametrize("settings", SETTINGS, ids=["eligibility", "half lives"])
@pytest.mark.parametrize("probabilistic", [False, True], ids=["heuristic", "probabilistic"])
def test_applying_a_plan_ends_in_exactly_what_was_planned(
    home: Home, database_url: str, settings: dict[str, Any], probabilistic: bool
) -> None:
    """Also where documents arrive between plan and apply: the run reads what the plan read."""
    if probabilistic:
        database = Database(database_url)
        configuration.activate(
            database, configuration.active(database).config.with_settings(PROBABILISTIC), "ada", "mode"
        )
        database.close()
        assert run_cycle(home, as_of=ago(hours=12)).status == "success"
    before = contents(database_url, *EVERYTHING)
    plan = planned(database_url, settings)
    assert contents(database_url, *EVERYTHING) == before, "a plan writes nothing"
    assert plan.first_stages
    if not probabilistic or "scoring" in str(settings):
        assert plan.changes
    assert not plan.failures
    assert sum(plan.transitions.values()) == len(WORLD.entities) * len(WINDOWS)
    assert all(change.because for change in plan.changes)
    with psycopg.connect(database_url) as connection:
        late = [
            Document(f"late-{e}", (Impact(e, -1.0, 1.0),), published=ago(hours=1)) for e in WORLD.entities
        ]
        insert_documents(connection, late)
    outcome = apply_plan(home, plan, changed_by="ada", reason="try")
    assert outcome is not None
    assert outcome.status == "success"
    assert outcome.keys == len(plan.first_stages)
    assert outcome.computed == {stage: len(keys) for stage, keys in plan.rebuild.items()}
    assert outcome_equals(database_url, plan) == len(plan.changes)
    assert planned(database_url, settings).settings == {}


@pytest.mark.acceptance
def test_twenty_random_configurations_end_in_what_was_planned(home: Home, database_url: str) -> None:
    rng = random.Random(7)
    changed = compared = 0
    for _ in range(20):
        chosen = rng.sample(sorted(RANGES), 2)
        plan = planned(database_url, {path: round(rng.uniform(*RANGES[path]), 4) for path in chosen})
        if not plan.settings:
            continue
        outcome = apply_plan(home, plan, changed_by="ada", reason="random")
        assert (outcome is None) == (not plan.first_stages)
        if outcome is not None:
            assert outcome.status == "success"
            assert outcome.computed == {stage: len(keys) for stage, keys in plan.rebuild.items()}
            compared += outcome_equals(database_url, plan)
        changed += 1
    print(f"{changed} random configurations applied, {compared} changed decisions as planned")


def test_an_unchanged_configuration_gives_an_empty_plan(home: Home, database_url: str) -> None:
    active = rows(database_url, "SELECT config FROM risk_configs WHERE active")[0][0]
    plan = planned(database_url, {"eligibility.min_evidence": active["eligibility"]["min_evidence"]})
    assert as_object(plan)["changes"] == []
    assert as_object(plan)["rebuild"] == {}
    with pytest.raises(LaunchError, match="changes no setting"):
        apply_plan(home, plan, changed_by="ada", reason="nothing")


def test_a_threshold_reaches_recommendations_only_and_a_half_life_everything(
    home: Home, database_url: str
) -> None:
    assert home.pg_dir.parent == home.path
    assert set(planned(database_url, SETTINGS[0]).rebuild) == {"recommendations"}
    assert set(planned(database_url, SETTINGS[1]).rebuild) == set(STAGES)
    windows = {window for _, window in planned(database_url, SETTINGS[1]).first_stages}
    assert windows == {"7d", "30d"}, "the other windows keep their half-lives"


def test_a_plan_whose_base_is_no_longer_active_is_refused(home: Home, database_url: str) -> None:
    plan = planned(database_url, SETTINGS[0])
    database = Database(database_url)
    other = configuration.active(database).config.with_settings({"eligibility.min_evidence": 4})
    configuration.activate(database, other, "bob", "meanwhile")
    database.close()
    before = contents(database_url, *EVERYTHING)
    with pytest.raises(LaunchError, match=r"version 1, but version 2 is active now. Plan again"):
        apply_plan(home, plan, changed_by="ada", reason="late")
    assert contents(database_url, *EVERYTHING) == before


def test_the_commands_show_reasons_ask_first_and_read_a_file(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[eligibility]\nmin_confidence = 0.62\n")
    asked = ("--file", str(file), "--set", "eligibility.min_evidence=3", "--as-of", AS_OF.isoformat())
    shown = oracle("plan", *asked, "--home", str(home.path))
    assert shown.code == 0, shown.err
    assert "eligibility.min_confidence: " in shown.out
    assert "decisions change:" in shown.out
    assert "To rebuild: recommendations " in shown.out
    told = json.loads(oracle("plan", *asked, "--json", "--home", str(home.path)).out)
    assert set(told["config"]) == {"eligibility.min_confidence", "eligibility.min_evidence"}
    assert {"entity_id", "window", "before", "after", "because"} == set(told["changes"][0])
    assert set(told["changes"][0]["before"]) == {
        "action", "mode", "confidence", "allocation_pct", "max_loss_pct", "risk_classification", "eligible",
    }  # fmt: skip
    assert sum(t["count"] for t in told["transitions"]) == len(WORLD.entities) * len(WINDOWS)
    refused = oracle("apply", *asked, "--home", str(home.path))
    assert refused.code == 1
    assert "repeat with --yes" in refused.err
    done = oracle("apply", *asked, "--yes", "--json", "--home", str(home.path))
    assert done.code == 0, done.err
    assert json.loads(done.out)["status"] == "success"
    nothing = oracle("plan", *asked, "--home", str(home.path))
    assert "the plan is empty" in nothing.out
    unknown = oracle("plan", "--set", "eligibility.nonsense=1", "--home", str(home.path))
    assert unknown.code != 0
    assert "nonsense" in unknown.err


# Held, the run waits before its first row is written, or in its middle; planning needs neither table.
HELD_TABLES = ("weighted_signals", "trend_projections")


def applied(settings: dict[str, Any]) -> list[str]:
    """The arguments of the command that applies the settings."""
    given = [argument for path, value in settings.items() for argument in ("--set", f"{path}={value}")]
    return ["apply", *given, "--as-of", AS_OF.isoformat(), "--yes"]


@pytest.mark.parametrize(
    "table", [HELD_TABLES[0], pytest.param(HELD_TABLES[1], marks=pytest.mark.acceptance)]
)
def test_an_apply_that_was_killed_is_named_and_ends_in_its_plan_when_it_is_repeated(
    home: Home, database_url: str, table: str
) -> None:
    plan = planned(database_url, SETTINGS[1])
    command = applied(SETTINGS[1])
    with locked(database_url, table):
        process = subprocess.Popen(
            [sys.executable, "-m", "oracle_dagster.cli", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until_blocked(database_url)
        process.kill()
        process.wait()
    assert rows(database_url, "SELECT max(version) FROM risk_configs WHERE active") == [(2,)]
    assert rows(database_url, "SELECT finished_at FROM config_applications") == [(None,)]

    shown = oracle("plan", "--set", "eligibility.min_evidence=4", "--home", str(home.path))
    assert "but its run did not end: version 2" in shown.err
    database = Database(database_url)
    finding = doctor.applied(database)
    database.close()
    assert (finding.verdict, "oracle apply --yes" in finding.remedy) == (doctor.Verdict.NOTICE, True)

    again = oracle(*command, "--json", "--home", str(home.path))
    assert again.code == 0, again.err
    assert [one["status"] for one in again.json["finished"]] == ["success"]
    assert outcome_equals(database_url, plan) == len(plan.changes)
    assert rows(database_url, "SELECT count(finished_at), max(config_version) FROM config_applications") == [
        (1, 2)
    ]
    nothing = oracle(*command, "--json", "--home", str(home.path))
    assert nothing.json == {"applied": False, "reason": "no setting changes"}
    assert oracle("plan", *command[1:-1], "--home", str(home.path)).err == ""


# ---------------------------------------------------------------------- jobs of the user interface

WHEN = AS_OF.isoformat()
STEPS = {jobs.PLAN_JOB: jobs.PLAN_STEP, jobs.APPLY_JOB: jobs.APPLY_STEP}
ASKED = [f"{path}={value}" for path, value in SETTINGS[0].items()]


def execute(home: Home, job: str, **config: Any) -> dg.ExecuteInProcessResult:  # noqa: ANN401
    """One run of a job as a worker of the user interface executes it."""
    with home.connect() as connections, orchestrator(home, connections) as instance:
        job_def = build_defs().resolve_job_def(job)
        return job_def.execute_in_process(
            run_config={**QUIET, "ops": {STEPS[job]: {"config": config}}},
            instance=instance,
            raise_on_error=False,
        )


def shown(run: dg.ExecuteInProcessResult, step: str) -> dict[str, Any]:
    """The metadata of the step that a person opens."""
    (output,) = [e.step_output_data for e in run.events_for_node(step) if e.is_successful_output]
    return {name: value.value for name, value in output.metadata.items()}


def message(run: dg.ExecuteInProcessResult) -> str:
    (failure,) = [event.step_failure_data for event in run.all_events if event.is_step_failure]
    assert failure.user_failure_data is not None, failure.error
    return str(failure.user_failure_data.description)


def test_the_plan_job_shows_the_plan_and_writes_nothing(home: Home, database_url: str) -> None:
    plan = as_object(planned(database_url, SETTINGS[0]))
    before = contents(database_url, *EVERYTHING)
    run = execute(home, jobs.PLAN_JOB, set=ASKED, as_of=WHEN)
    assert run.success
    assert contents(database_url, *EVERYTHING) == before
    told = shown(run, jobs.PLAN_STEP)
    assert told["plan"] == json.loads(json.dumps(plan))
    assert told["decisions_changed"] == len(plan["changes"]) > 0
    change = plan["changes"][0]
    assert f"| {change['entity_id']} {change['window']} |" in told["changes"]
    assert change["because"][0] in told["changes"]
    assert "| `eligibility.min_confidence` |" in told["settings"]
    assert f"| recommendations | {len(plan['rebuild']['recommendations'])} |" in told["rebuild"]
    counts = [int(line.split("|")[3]) for line in told["transitions"].splitlines()[2:]]
    assert sum(counts) == sum(t["count"] for t in plan["transitions"])


def test_the_apply_job_starts_the_run_of_the_command_and_ends_in_the_plan(
    home: Home, database_url: str
) -> None:
    plan = planned(database_url, SETTINGS[0])
    file = "[eligibility]\nmin_confidence = 0.62\nmin_evidence = 3\n"
    run = execute(home, jobs.APPLY_JOB, file=file, as_of=WHEN, reason="too many weak ones")
    assert run.success
    assert shown(run, jobs.APPLY_STEP)["decisions_changed"] == len(plan.changes)
    assert outcome_equals(database_url, plan) == len(plan.changes)
    assert rows(database_url, "SELECT reason FROM risk_configs WHERE active") == [("too many weak ones",)]
    assert rows(database_url, "SELECT count(finished_at) FROM config_applications") == [(1,)]
    with home.connect() as connections, orchestrator(home, connections) as instance:
        (batch,) = instance.get_runs(dg.RunsFilter(job_name="aggregation_cycle"), limit=1)
        assert batch.status is dg.DagsterRunStatus.SUCCESS
        counts = Chain(database_url, instance).seen(batch.run_id).counts()
    assert counts == {asset: len(keys) for asset, keys in plan.rebuild.items()}
    again = execute(home, jobs.APPLY_JOB, file=file, as_of=WHEN)
    assert shown(again, jobs.APPLY_STEP)["settings"] == "No setting changes, so that the plan is empty."


BAD_SETTINGS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"set": ["eligibility.min_confidense=0.4"]}, "nearest: eligibility.min_confidence"),
    ({"set": ["eligibility.min_confidence=2"]}, "eligibility.min_confidence = 2"),
    ({"set": ["eligibility"]}, "is not path=value"),
    ({"file": "[eligibility\n"}, "`file` cannot be read as settings"),
    ({"set": ["trend.max_risks=4"], "as_of": "yesterday"}, "yesterday"),
    ({}, "name what to change"),
)


def test_a_setting_that_cannot_be_used_fails_the_job_with_the_message_of_the_command(home: Home) -> None:
    for config, told in BAD_SETTINGS:
        run = execute(home, jobs.PLAN_JOB, **config)
        assert not run.success
        assert told in message(run)


def test_what_a_plan_holds_cannot_break_the_tables() -> None:
    evil = "a|b\n<img src=x>"
    told = jobs.metadata(
        {
            "as_of": WHEN,
            "config": {},
            "transitions": [],
            "changes": [],
            "rebuild": {"recommendations": [evil] * 25},
        }
    )
    text = str(told["rebuild"].value)
    assert len(text.splitlines()) == 3
    assert "a\\|b &lt;img" in text
    assert "and 5 more" in text
