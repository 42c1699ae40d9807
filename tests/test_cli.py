"""The command line: what it prints, its exit codes, and that an error is one paragraph with a remedy."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
import typer.main
from psycopg import sql

from oracle_core.config import OracleConfig
from oracle_dagster import cli, configuration_page, pipeline
from oracle_dagster.cli import common, cycles, inputs
from oracle_dagster.embedded_postgres import EmbeddedPostgres
from oracle_dagster.export import ExportError, export_table, exportable
from oracle_dagster.ingestion.models import Kind
from oracle_dagster.sensors import automation_on
from tests.command import Result, oracle

AS_OF = "2026-03-10T12:00:00Z"
LATER = "2026-03-11T12:00:00Z"


def _commands(group: Any, above: str = "") -> list[str]:  # noqa: ANN401 - typer does not name the type
    found = []
    for name, command in group.commands.items():
        found.append(f"{above}{name}")
        if hasattr(command, "commands"):
            found += _commands(command, f"{above}{name} ")
    return found


COMMANDS = _commands(typer.main.get_command(cli.build_app()))


def paragraph(result: Result) -> str:
    """The error of a failed command, which must be one paragraph without a stack."""
    assert "Traceback" not in result.err
    assert "\n\n" not in result.err.strip()
    assert result.err.startswith("oracle: "), result.err
    return " ".join(result.err.split())


# ------------------------------------------------------------------------------------ without a database


def test_help_is_quick_because_it_imports_nothing_heavy() -> None:
    """Whoever asks for help, or completes a word, must not wait for the orchestrator."""
    script = (
        "import sys\n"
        "from oracle_dagster.cli import main\n"
        "sys.argv = ['oracle', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sorted({n.split('.')[0] for n in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {
        "dagster",
        "pyarrow",
        "matplotlib",
        "numpy",
        "scipy",
        "sqlalchemy",
        "psycopg",
        "adbc_driver_manager",
    }
    assert not heavy & set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    result = oracle(*command.split(), "--help")
    assert result.code == 0
    assert result.out.startswith("Usage: oracle ")


def test_the_commands_are_those_that_were_promised() -> None:
    promised = {
        "demo", "dev", "init", "ingest", "run", "export", "config show", "config set", "config history",
        "config diff", "rejected list", "rejected retry", "retract", "doctor",
        "agents list", "agents set", "agents disable", "plan", "apply", "explain", "verify", "prune",
        "backup", "restore", "reader create", "reader list", "reader drop",
        "entity retire", "entity revive", "entity rename", "entity list",
        "replay",
    }  # fmt: skip
    assert promised <= set(COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["runn"], "No such command 'runn'"),
        (["export", "trend_windows", "--format", "xml"], "'csv', 'jsonl', 'parquet'"),
        (["run", "--as-of", "2016-11-08"], "has no offset from UTC"),
        (["run", "--as-of", "yesterday"], "not a time in ISO 8601"),
        (["run", "--window", "2d"], "intraday"),
        (["run", "--stage", "decide"], "trend_windows"),
        (["ingest"], "Missing argument"),
        (["retract", "c9890907-0d41-5121-904d-ad1227606f35"], "--reason"),
    ],
)
def test_wrong_usage_is_told_with_exit_code_2(arguments: list[str], said: str) -> None:
    result = oracle(*arguments)
    assert result.code == 2
    assert said in result.err
    assert "Traceback" not in result.err


def test_an_unknown_table_is_answered_with_the_list_of_all() -> None:
    result = oracle("export", "trend_window", "--format", "csv")
    assert result.code == 2
    said = paragraph(result)
    assert "Did you mean trend_windows?" in said
    assert all(name in said for name in exportable())


def test_a_command_without_a_home_names_the_way_to_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORACLE_HOME", str(tmp_path / "none"))
    for arguments in (
        ["run"],
        ["export", "cycles", "--format", "csv"],
        ["config", "show"],
        ["rejected", "list"],
    ):
        result = oracle(*arguments)
        assert result.code == 1
        assert "`oracle init`" in paragraph(result)
        assert str(tmp_path / "none") in " ".join(result.err.split())
    assert not (tmp_path / "none").exists()


def test_the_home_of_the_demo_is_closed_to_other_servers_and_nothing_runs_in_it_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cycle as of today would replace the trends of 2016 by empty ones."""
    monkeypatch.setenv("ORACLE_HOME", "before")
    monkeypatch.setenv("ORACLE_DATABASE_URL", "postgresql://elsewhere/oracle")
    monkeypatch.setenv("ORACLE_AUTOMATION", "")
    monkeypatch.delenv("ORACLE_AUTOMATION")
    common.resolve_home(tmp_path)
    assert os.environ["ORACLE_DATABASE_URL"] == "postgresql://elsewhere/oracle"
    assert automation_on()
    (tmp_path / common.DEMO_MARK).touch()
    common.resolve_home(tmp_path)
    assert "ORACLE_DATABASE_URL" not in os.environ
    assert not automation_on()
    monkeypatch.setenv("ORACLE_AUTOMATION", "on")
    common.resolve_home(tmp_path)
    assert automation_on()


def test_a_traceback_is_shown_on_demand_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORACLE_HOME", str(tmp_path / "none"))
    assert "Traceback" not in oracle("run").err
    monkeypatch.setenv("ORACLE_DEBUG", "1")
    result = oracle("run")
    assert result.code == 1
    assert "Traceback" in result.err


def test_an_unforeseen_error_is_told_by_its_kind() -> None:
    err = io.StringIO()
    with redirect_stderr(err):
        assert common.report(KeyError("x")) == 1
    assert err.getvalue().startswith("oracle: KeyError: 'x'")
    assert "ORACLE_DEBUG=1" in err.getvalue()


def test_a_value_is_json_where_it_parses_as_json() -> None:
    assert common.assignments(["a.b=0.2", "a.c=true", "a.d=text", 'a.e="5"', "a.f=x=y"]) == {
        "a.b": 0.2, "a.c": True, "a.d": "text", "a.e": "5", "a.f": "x=y",
    }  # fmt: skip


def test_the_names_on_the_command_line_are_those_of_the_product() -> None:
    """They are written twice, because importing the originals would make every command slow."""
    assert tuple(cycles.Stage) == pipeline.STAGES
    assert tuple(inputs.KindName) == tuple(kind.value for kind in Kind)


def test_the_configuration_reference_is_current() -> None:
    """`python -m oracle_dagster.configuration_page > docs/configuration.md` brings it up to date."""
    page = Path(__file__).parent.parent / "docs" / "configuration.md"
    assert page.read_text(encoding="utf-8") == configuration_page.page()


def test_the_configuration_reference_names_every_setting() -> None:
    page = configuration_page.page()
    for path in OracleConfig().settings():
        section, name, *key = path.split(".", 2)
        assert f"`{section}.{name}{'.KEY' if key else ''}`" in page
        assert all(f"`{k}`&nbsp;" in page for k in key)


def test_version_names_what_results_depend_on() -> None:
    found = oracle("version", "--json").json
    assert {"oracle", "python", "dagster", "numpy", "embedded_postgresql"} <= set(found)


# ------------------------------------------------------------------------------------ on a database


def write_world(folder: Path) -> None:
    """Two entities; one document of the first, named five, and one of the second, that is refused."""
    folder.mkdir()
    documents = [
        {
            "document_id": f"00000000-0000-4000-8000-00000000000{n}",
            "source_id": f"source {n}",
            "source_type": "news",
            "published_at": f"2026-03-0{n}T09:00:00+00:00",
            "extraction": {"status": "ok", "confidence": 0.9},
            "impacts": [
                {
                    "entity_id": "Åland, no".replace(",", ";") if n == 5 else "ACME",
                    "sentiment": "negative" if n == 2 else "positive",
                    "impact_score": 1.5 if n == 6 else 0.1 * n,
                    "catalyst_type": "legal",
                }
            ],
        }
        for n in range(1, 7)
    ]
    lines = [json.dumps(d, ensure_ascii=False) for d in documents]
    (folder / "documents.jsonl").write_text("\n".join([*lines, "{broken"]) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def world(embedded_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home on the shared server, its world loaded and one cycle computed."""
    server, name = EmbeddedPostgres(embedded_home), f"cli_{secrets.token_hex(6)}"
    patch = pytest.MonkeyPatch()
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
    folder = tmp_path_factory.mktemp("cli")
    patch.setenv("ORACLE_DATABASE_URL", server.url(name))
    patch.setenv("ORACLE_HOME", str(folder / "home"))
    write_world(folder / "world")
    try:
        assert oracle("init").code == 0
        loaded = oracle("ingest", str(folder / "world"), "--known-at", "published")
        assert loaded.code == 3, loaded.err  # two records are refused, the rest is loaded
        ran = oracle("run", "--as-of", AS_OF, "--json")
        assert ran.code == 0, ran.err
        assert ran.json["keys"] == 10
        yield folder
    finally:
        patch.undo()
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            for database in (name, f"{name}_dagster"):
                drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database))
                connection.execute(drop)


def exported(table: str, *arguments: str) -> list[dict[str, Any]]:
    result = oracle("export", table, "--format", "jsonl", *arguments)
    assert result.code == 0, result.err
    rows: list[dict[str, Any]] = result.lines
    return rows


def test_init_twice_changes_nothing(world: Path) -> None:
    result = oracle("init")
    assert (result.code, "up to date" in result.out) == (0, True)


def test_every_table_and_view_can_be_exported(world: Path) -> None:
    for name in exportable():
        rows = exported(name)
        if rows:
            assert len({tuple(row) for row in rows}) == 1


def test_an_export_has_the_columns_of_the_table_in_order(world: Path) -> None:
    rows = exported("trend_windows")
    assert list(rows[0]) == [
        "id", "entity_type", "entity_id", "window", "trend_direction", "trend_strength", "confidence",
        "contradiction_score", "disagreement_details", "top_supporting_evidence", "top_opposing_evidence",
        "dominant_catalysts", "material_risks", "market_context", "generated_at", "config_version",
    ]  # fmt: skip
    assert [(r["entity_id"], r["window"]) for r in rows] == sorted(
        (r["entity_id"], r["window"]) for r in rows
    )
    assert rows[0]["generated_at"] == AS_OF
    assert isinstance(rows[0]["market_context"], dict)
    assert isinstance(rows[0]["trend_strength"], float)


def test_all_three_forms_hold_the_same_values(world: Path, tmp_path: Path) -> None:
    """Floats keep every bit, JSON stays JSON, times are UTC, whatever the form."""
    lines = exported("weighted_signals")
    text = oracle("export", "weighted_signals", "--format", "csv").out
    cells = list(csv.DictReader(io.StringIO(text, newline="")))
    target = tmp_path / "signals.parquet"
    result = oracle("export", "weighted_signals", "--format", "parquet", "--out", str(target))
    assert (result.code, result.out) == (0, "")
    table = pq.read_table(target)
    assert table.column_names == list(lines[0]) == list(cells[0])
    assert len(lines) == len(cells) == table.num_rows > 0
    for line, cell, row in zip(lines, cells, table.to_pylist(), strict=True):
        assert cell["combined"] == repr(line["combined"])
        assert row["combined"] == line["combined"]
        assert (
            line["published_at"]
            == cell["published_at"]
            == row["published_at"].isoformat().replace("+00:00", "Z")
        )
        assert json.loads(cell["risk_flags"]) == json.loads(row["risk_flags"]) == line["risk_flags"] == []
        assert (cell["sigmoid_gate"], row["sigmoid_gate"], line["sigmoid_gate"]) == ("", None, None)
    assert any(not float(line["combined"]).is_integer() for line in lines)


def test_floats_pass_bit_for_bit(world: Path, tmp_path: Path) -> None:
    url = os.environ["ORACLE_DATABASE_URL"]
    numbers = [0.1 + 0.2, 5e-324, 1.7976931348623157e308, 1 / 3, 1.0, -0.0]
    with psycopg.connect(url) as connection:
        for day, number in enumerate(numbers, start=1):
            connection.execute(
                "INSERT INTO market_bars (entity_id, day, close, volume) VALUES ('bits', %s, %s, 0)",
                [f"2020-01-0{day}", abs(number) or 1.0],
            )
        connection.commit()
    rows = [r for r in exported("market_bars") if r["entity_id"] == "bits"]
    assert [r["close"] for r in rows] == [abs(n) or 1.0 for n in numbers]
    assert [r["day"] for r in rows][:1] == ["2020-01-01"]
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM market_bars WHERE entity_id = 'bits'")


def test_a_failed_export_leaves_the_old_file(world: Path, embedded_home: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    target.write_text("old")
    without_tables = EmbeddedPostgres(embedded_home).url("postgres")
    with pytest.raises(ExportError, match="`oracle init`"):
        export_table(without_tables, "cycles", "csv", out=target)
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]
    with pytest.raises(ExportError, match="Choose another file"):
        export_table(os.environ["ORACLE_DATABASE_URL"], "cycles", "csv", out=tmp_path / "no" / "out.csv")


def test_a_past_cycle_can_be_exported_after_a_later_one(world: Path) -> None:
    """The current table holds the newest cycle; --as-of reads any."""
    before = exported("trend_windows")
    assert oracle("run", "--as-of", LATER).code == 0
    now = exported("trend_windows")
    assert {r["generated_at"] for r in now} == {LATER}
    assert exported("trend_windows", "--as-of", AS_OF) == before
    assert exported("trend_windows", "--as-of", "2026-03-10T13:00:00+01:00") == before
    assert {r["generated_at"] for r in exported("recommendations", "--as-of", AS_OF)} == {AS_OF}
    assert exported("trend_windows", "--as-of", "2001-01-01T00:00:00Z") == []
    assert exported("document_intelligence", "--as-of", "2026-03-02T10:00:00Z") != []
    result = oracle("export", "risk_configs", "--format", "csv", "--as-of", AS_OF)
    assert (result.code, "--as-of" in paragraph(result)) == (2, True)


# ------------------------------------------------------------------------------------ inputs


def test_refused_records_are_listed_with_place_value_and_reason(world: Path) -> None:
    found = oracle("rejected", "list", "--json").json
    assert [(Path(r["file"]).name, r["line"]) for r in found] == [
        ("documents.jsonl", 6),
        ("documents.jsonl", 7),
    ]
    assert "1.5" in found[0]["message"]
    assert "impact_score" in found[0]["field"]
    assert found[1]["record"] == "{broken"
    listed = oracle("rejected", "list")
    assert (listed.code, "documents.jsonl" in listed.out) == (0, True)
    assert len(oracle("rejected", "list", "--json", "--limit", "1").json) == 1
    assert oracle("rejected", "list", "--json", "--kind", "market_data").json == []


def test_retrying_what_is_still_wrong_says_so(world: Path) -> None:
    result = oracle("rejected", "retry", "--known-at", "published", "--json")
    assert result.code == 3
    assert result.json["resolved"] == 0
    assert result.json["remaining"] + result.json["skipped"] == 2


def test_loading_the_same_file_twice_changes_nothing(world: Path) -> None:
    result = oracle("ingest", str(world / "world"), "--known-at", "published", "--json")
    assert result.code == 3
    assert result.json["total"] == {"read": 7, "inserted": 0, "revised": 0, "unchanged": 5, "rejected": 2}


def test_a_path_that_is_no_input_is_an_error(world: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        result = oracle("ingest", str(path))
        assert result.code == 1
        assert str(path) in paragraph(result).replace(" ", "") or str(path) in paragraph(result)


def test_a_withdrawn_document_counts_no_more_from_then_on(world: Path) -> None:
    document = "00000000-0000-4000-8000-000000000005"
    arguments = ("retract", document, "--reason", "duplicate", "--known-at", "2026-03-12T00:00:00Z", "--json")
    first, second = oracle(*arguments), oracle(*arguments)
    assert (first.code, second.code) == (0, 0)
    assert (first.json["changed"], second.json["changed"]) == (True, False)
    assert first.json["known_at"] == "2026-03-12T00:00:00Z"
    result = oracle("retract", "00000000-0000-4000-8000-0000000000ff", "--reason", "x")
    assert (result.code, "there is no document" in paragraph(result)) == (1, True)


# ------------------------------------------------------------------------------------ runs


def test_a_run_can_be_narrowed_to_entities_windows_and_stages(world: Path) -> None:
    arguments = ("--as-of", LATER, "--entity", "ACME", "--window", "7d", "--window", "30d", "--json")
    narrow = oracle("run", *arguments, "--stage", "recommendations").json
    assert (narrow["status"], narrow["keys"], narrow["computed"]) == ("success", 2, {"recommendations": 2})


def test_a_run_of_unknown_names_says_which_there_are(world: Path) -> None:
    result = oracle("run", "--as-of", AS_OF, "--entity", "acme")
    assert result.code == 1
    assert re.search(r"'?acme'?.*ACME", paragraph(result))
    result = oracle("run", "--failed", "00000000-0000-4000-8000-000000000000")
    assert result.code == 1
    assert "There is no run" in paragraph(result)


def test_tried_settings_are_a_version_that_is_not_active(world: Path) -> None:
    """`run --set` must leave the configuration in force alone, and its results must name their version."""
    active = oracle("config", "show", "--json").json["version"]
    arguments = ("run", "--as-of", "2026-03-09T12:00:00Z", "--set", "trend.positive_threshold=0.9", "--json")
    first, again = oracle(*arguments).json, oracle(*arguments).json
    assert first["config_version"] == again["config_version"] != active
    shown = oracle("config", "show", "trend.positive_threshold", "--json").json
    assert (shown["version"], shown["settings"]) == (active, {"trend.positive_threshold": 0.15})
    version = str(first["config_version"])
    tried = oracle("config", "show", "trend.positive_threshold", "--version", version, "--json").json
    assert (tried["active"], tried["settings"]) == (False, {"trend.positive_threshold": 0.9})
    rows = exported("recommendations", "--as-of", "2026-03-09T12:00:00Z")
    assert {r["config_version"] for r in rows} == {first["config_version"]}


# ------------------------------------------------------------------------------------ configuration


def test_settings_are_changed_together_or_not_at_all(world: Path) -> None:
    before = oracle("config", "show", "--json").json
    for wrong, said in (
        (["trend.positive_threshold=0.3", "trend.positiv=1"], "trend.positiv"),
        (["eligibility.min_confidence=0.9"], "must not be above live_confidence_threshold"),
        (["trend.positive_threshold=NaN"], "positive_threshold"),
        (["trend.max_evidence_refs=2.5"], "max_evidence_refs"),
        (["flags.macro_enabled=1"], "macro_enabled"),
    ):
        result = oracle("config", "set", *wrong)
        assert result.code == 1
        assert said in paragraph(result)
    assert oracle("config", "show", "--json").json == before


def test_a_change_is_a_new_version_with_its_reason(world: Path) -> None:
    before = oracle("config", "show", "--json").json["version"]
    changed = oracle("config", "set", "trend.mixed_threshold=0.12", "--reason", "a try", "--json").json
    assert changed["changed"] == [{"path": "trend.mixed_threshold", "from": 0.1, "to": 0.12}]
    assert changed["active"] is True
    last = oracle("config", "history", "--json").json[-1]
    assert (last["version"], last["reason"]) == (changed["version"], "a try")
    difference = oracle("config", "diff", str(before), str(changed["version"]), "--json").json
    assert difference["changed"] == [{"path": "trend.mixed_threshold", "from": 0.1, "to": 0.12}]
    assert "trend.mixed_threshold=0.12" in oracle("config", "show").out.splitlines()
    assert (
        oracle("config", "set", "trend.mixed_threshold=0.12", "--json").json["version"] == changed["version"]
    )
    assert oracle("config", "set", "trend.mixed_threshold=0.1", "--reason", "back").code == 0
    assert "has these values already" in oracle("config", "set", "trend.mixed_threshold=0.1").out


def test_config_show_answers_an_unknown_path_with_the_nearest(world: Path) -> None:
    result = oracle("config", "show", "trend.positive_treshold")
    assert result.code == 2
    assert "trend.positive_threshold" in paragraph(result)


# ------------------------------------------------------------------------------------ doctor


def test_doctor_finds_nothing_broken_in_a_sound_home(world: Path) -> None:
    result = oracle("doctor", "--json")
    findings = {f["check"]: f for f in result.json}
    assert {
        "python", "libraries", "code location", "home", "disk space", "server", "tables", "configuration",
        "rejected records", "open transactions", "orchestrator storage", "daemon", "stuck runs", "partitions",
    } <= set(findings)  # fmt: skip
    assert [f for f in result.json if f["verdict"] == "broken"] == []
    assert result.code == 0
    assert findings["rejected records"]["verdict"] == "notice"
    assert all(f["remedy"] != "" for f in result.json if f["verdict"] != "ok")
    assert "rejected records" in oracle("doctor").out


def test_doctor_says_what_to_do_about_a_damaged_configuration(world: Path) -> None:
    url = os.environ["ORACLE_DATABASE_URL"]
    with psycopg.connect(url) as connection:
        connection.execute(
            "UPDATE risk_configs SET config = jsonb_set(config, '{trend,x}', '1') WHERE active"
        )
    try:
        result = oracle("doctor", "--json")
        broken = {f["check"]: f["found"] for f in result.json if f["verdict"] == "broken"}
        assert result.code == 1
        assert "trend.x" in broken.pop("active configuration")
        assert broken == {}
    finally:
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE risk_configs SET config = config #- '{trend,x}' WHERE active")


def test_doctor_without_a_home_says_init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORACLE_DATABASE_URL", raising=False)
    monkeypatch.setenv("ORACLE_HOME", str(tmp_path / "none"))
    result = oracle("doctor", "--json")
    assert result.code == 1
    assert {f["check"]: f["remedy"] for f in result.json if f["verdict"] == "broken"} == {
        "home": "run `oracle init`, or name another with ORACLE_HOME",
        "database": "run `oracle init`",
    }
    assert not (tmp_path / "none").exists()


def test_doctor_names_an_old_open_write(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open write anywhere on the server holds back what counts as settled, so it must be findable."""
    from oracle_dagster import doctor
    from oracle_dagster.storage.database import Database

    monkeypatch.setattr(doctor, "LONG_TRANSACTION_SECONDS", 0)
    url = os.environ["ORACLE_DATABASE_URL"]
    database = Database(url)
    with psycopg.connect(url) as other:
        other.execute("SELECT pg_current_xact_id()")
        pid = other.info.backend_pid
        finding = doctor.long_transactions(database)
        assert (finding.verdict, f"pid {pid} " in finding.found) == ("notice", True)
        other.rollback()
    database.close()


def test_times_are_shown_in_utc() -> None:
    assert common.iso(datetime(2026, 3, 10, 12, tzinfo=UTC)) == AS_OF
    assert math.isclose(common.instant("2026-03-10T13:00:00+01:00").timestamp(), 1773144000)
