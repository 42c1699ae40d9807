"""The leak prober finds every planted look into the future, and none in the product."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import psycopg
import pytest

from oracle_core.inputs import CycleInputs
from oracle_dagster.assets import leaks as leaks_job
from oracle_dagster.definitions import build_defs
from oracle_dagster.jobs import CYCLE_JOB
from oracle_dagster.storage import configuration, cycles, inputs, results
from oracle_dagster.storage import decisions as decided
from oracle_dagster.storage.cycles import AS_OF as AS_OF_SQL
from oracle_dagster.storage.cycles import SNAPSHOT
from oracle_dagster.storage.database import Database, StorageError
from oracle_dagster.verification import leaks
from tests.chain_runs import FixedDatabase, fresh_database
from tests.storage_rows import AS_OF, RESULT_TABLES, ago, contents, insert_world, make_world
from tests.test_pipeline import PROBABILISTIC, database, newer_input, run

__all__ = ["database"]

INPUT_TABLES = (
    "documents",
    "document_intelligence",
    "document_impact_records",
    "market_bars",
    "macro_events",
    "exposure_profiles",
    "competitive_edges",
    "risk_configs",
    "cycles",
)
SMALL = make_world(5, 50, seed=11, bars=60)


@pytest.fixture(scope="module")
def past(embedded_home: Path, migrated_template: str) -> Iterator[Database]:
    """Two cycles of a small world in heuristic mode; the later one is probed."""
    yield from made(embedded_home, migrated_template, probabilistic=False)


@pytest.fixture(scope="module")
def past_by_chance(embedded_home: Path, migrated_template: str) -> Iterator[Database]:
    """The same in probabilistic mode, which alone looks at the accuracy of sources."""
    yield from made(embedded_home, migrated_template, probabilistic=True)


def made(embedded_home: Path, migrated_template: str, *, probabilistic: bool) -> Iterator[Database]:
    for url in fresh_database(embedded_home, "past", migrated_template):
        with psycopg.connect(url) as connection:
            insert_world(connection, SMALL)
        database = Database(url)
        if probabilistic:
            configuration.activate(database, PROBABILISTIC, "ada", "mode")
        run(database, ago(days=2))
        run(database)
        yield database
        database.close()


def probe(database: Database, *kinds: str, probes: int | None = None, seed: int = 3) -> leaks.LeakReport:
    cycle = leaks.choose_cycle(database, AS_OF)
    number = len(kinds or leaks.KINDS) if probes is None else probes
    return leaks.probe(database, cycle, probes=number, entities=2, seed=seed, kinds=kinds or None)


def test_the_product_has_no_leak_every_kind_disturbs_something_and_nothing_stays(past: Database) -> None:
    before = contents(past._conninfo, *RESULT_TABLES, *INPUT_TABLES)
    found = probe(past)
    assert found.leaks == []
    assert found.probes == len(leaks.KINDS)
    with_nothing = {kind for kind, rows in found.disturbed.items() if rows == 0}
    assert with_nothing <= {"changed rows of the future", "removed rows of the future"}  # there is none yet
    assert contents(past._conninfo, *RESULT_TABLES, *INPUT_TABLES) == before


def test_what_is_stored_of_the_future_is_changed_and_removed_too(
    database: Database, migrated_url: str
) -> None:
    run(database, ago(days=2))
    run(database)
    newer_input(migrated_url)
    found = probe(database, "changed rows of the future", "removed rows of the future")
    assert found.leaks == []
    assert min(found.disturbed.values()) > 0


# ------------------------------------------------------------------------------------------ planted leaks

Plant = Callable[[pytest.MonkeyPatch], None]
EARLY = f"superseded_known_at > {AS_OF_SQL}"


def constant(name: str, old: str, new: str, *, times: bool = True) -> Plant:
    """A statement of the readers with a part of its condition changed."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        text = getattr(inputs, name)
        assert old in text, (name, old)
        patch.setattr(inputs, name, text.replace(old, new))
        if not times:
            blind(patch)

    return plant


def blind(patch: pytest.MonkeyPatch, *parts: str) -> None:
    """The core no longer cuts at the moment of the cycle (some of the parts)."""
    cut = CycleInputs.known_at

    def known_at(self: CycleInputs, as_of_us: int) -> CycleInputs:
        import dataclasses

        names = parts or ("documents", "bars", "events", "exposures", "edges")
        return dataclasses.replace(cut(self, as_of_us), **{name: getattr(self, name) for name in names})

    patch.setattr(CycleInputs, "known_at", known_at)


def rewritten(module: ModuleType, name: str, *changes: str) -> Plant:
    """A function of the product with one line changed."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        source = textwrap.dedent(inspect.getsource(getattr(module, name)))
        for old, new in zip(changes[::2], changes[1::2], strict=True):
            assert old in source, (name, old)
            source = source.replace(old, new)
        scope: dict[str, Any] = dict(vars(module))
        code = "from __future__ import annotations\n" + source
        exec(compile(code, f"planted {name}", "exec"), scope)  # noqa: S102 - the leak is planted in a copy
        patch.setattr(module, name, scope[name])

    return plant


def named_unseen(patch: pytest.MonkeyPatch) -> None:
    changed = tuple((t, c, q.replace("pg_visible_in_snapshot", "NULL IS NULL OR pg_visible_in_snapshot"))
                    for t, c, q in inputs._NAMED)  # fmt: skip
    patch.setattr(inputs, "_NAMED", changed)


def named_too_early(patch: pytest.MonkeyPatch) -> None:
    changed = tuple((t, c, q.replace(f"known_at <= {AS_OF_SQL}", "known_at IS NOT NULL", 1))
                    for t, c, q in inputs._NAMED)  # fmt: skip
    patch.setattr(inputs, "_NAMED", changed)


def off_by_one(patch: pytest.MonkeyPatch) -> None:
    cut = CycleInputs.known_at
    patch.setattr(CycleInputs, "known_at", lambda self, as_of_us: cut(self, as_of_us + 1))


def current_accuracy(patch: pytest.MonkeyPatch) -> None:
    import numpy as np
    import pyarrow as pa
    import sqlalchemy as sa

    from oracle_dagster.storage.schema import source_accuracy

    def now(database: Database, cycle: cycles.Cycle) -> Any:  # noqa: ANN401 - as the product's
        del cycle
        query = sa.select(
            source_accuracy.c.source_id, source_accuracy.c.accuracy_ratio, source_accuracy.c.sample_count
        )
        with database.begin() as connection:
            rows = sorted(connection.execute(query).all())
        columns = list(zip(*rows, strict=True))
        return pa.array(columns[0]), np.array(columns[1]), np.array(columns[2], np.int64)

    patch.setattr(inputs, "peek_accuracy", now)


SEEN = "pg_visible_in_snapshot("
ANY = "(true OR pg_visible_in_snapshot("


def unseen(alias: str) -> tuple[str, str]:
    return f"{SEEN}{alias}.xid, {SNAPSHOT})", "true"


def superseded_unseen(alias: str) -> tuple[str, str]:
    return f"NOT {SEEN}{alias}.superseded_xid, {SNAPSHOT})", "false"


PLANTED: dict[str, tuple[Plant, str]] = {
    "documents: no cut at the time they were known": (
        constant("_IMPACTS", f"i.known_at <= {AS_OF_SQL}", "true", times=False),
        "new documents",
    ),
    "documents: published instead of known": (
        constant("_IMPACTS", "i.known_at <=", "i.published_at <=", times=False),
        "new documents",
    ),
    "documents: impacts that arrived later": (
        lambda patch: [
            constant("_IMPACTS", *unseen("i"))(patch),
            constant("_IMPACTS", *unseen("r"))(patch),
        ].clear(),
        "new documents",
    ),
    "documents: a revision applied early": (
        constant("_IMPACTS", f"i.{EARLY}", "false"),
        "revised documents known later",
    ),
    "documents: a retraction applied early": (
        constant("_IMPACTS", f"i.{EARLY}", "false"),
        "withdrawn documents, known later",
    ),
    "documents: the snapshot ignored for what replaces": (
        constant("_IMPACTS", *superseded_unseen("i")),
        "revised documents that arrived later",
    ),
    "documents: the snapshot ignored for retractions": (
        constant("_IMPACTS", *superseded_unseen("i")),
        "withdrawn documents that arrived later",
    ),
    "bars: the day itself and later": (
        lambda patch: [
            constant("_BARS", f"b.known_at <= {AS_OF_SQL}", "true")(patch),
            blind(patch, "bars"),
        ].clear(),
        "new bars",
    ),
    "bars: the snapshot ignored": (constant("_BARS", *unseen("b")), "new bars"),
    "bars: a correction applied early": (
        constant("_BARS", f"b.{EARLY}", "false"),
        "revised bars known later",
    ),
    "bars: the snapshot ignored for corrections": (
        constant("_BARS", *superseded_unseen("b")),
        "revised bars that arrived later",
    ),
    "events: known later": (
        lambda patch: [
            constant("_EVENTS", f"e.known_at <= {AS_OF_SQL}", "true")(patch),
            blind(patch, "events"),
        ].clear(),
        "new events, exposures and relationships",
    ),
    "events: the snapshot ignored": (
        constant("_EVENTS", *unseen("e")),
        "new events, exposures and relationships",
    ),
    "events: a revision applied early": (
        constant("_EVENTS", f"e.{EARLY}", "false"),
        "revised events known later",
    ),
    "events: the snapshot ignored for retractions": (
        constant("_EVENTS", *superseded_unseen("e")),
        "withdrawn events that arrived later",
    ),
    "exposures: a revision applied early": (
        constant("_EXPOSURES", f"e.{EARLY}", "false"),
        "revised exposures known later",
    ),
    "exposures: the snapshot ignored": (
        constant("_EXPOSURES", *superseded_unseen("e")),
        "revised exposures that arrived later",
    ),
    "relationships: the snapshot ignored": (
        constant("_EDGES", *unseen("e")),
        "new events, exposures and relationships",
    ),
    "relationships: a revision applied early": (
        constant("_EDGES", f"e.{EARLY}", "false"),
        "revised relationships known later",
    ),
    "relationships: the snapshot ignored for retractions": (
        constant("_EDGES", *superseded_unseen("e")),
        "withdrawn relationships that arrived later",
    ),
    "entities: the snapshot ignored": (named_unseen, "new documents"),
    "entities: known later": (named_too_early, "new bars"),
    "core: no cut": (blind, "rows of the future handed to the core"),
    "core: a microsecond too late": (off_by_one, "rows of the future handed to the core"),
    "accuracy: that of now": (current_accuracy, "accuracies of later cycles"),
    "accuracy: the newest of all": (
        rewritten(
            inputs,
            "_accuracy_of",
            "if chosen is None or chosen.accuracy_config_version is None:",
            "newest = newest.where(sa.true()) if False else sa.select(history.c.as_of, "
            "history.c.config_version).order_by(history.c.as_of.desc()).limit(1)\n"
            "            if True:",
        ),
        "accuracies of later cycles",
    ),
    "momentum: of trends that were written later": (
        rewritten(
            results,
            "read_history",
            "AND (own.projection_seq IS NULL OR c.trend_seq < own.projection_seq)",
            "",
        ),
        "results of other cycles",
    ),
    "standing: of later cycles": (
        rewritten(
            decided,
            "read_standing",
            "c.as_of < {AS_OF}",
            "c.as_of > {AS_OF}",
            "AND (own.decision_seq IS NULL OR c.decision_seq < own.decision_seq)",
            "",
        ),
        "results of other cycles",
    ),
    "standing: of decisions that were written later": (
        rewritten(
            decided,
            "read_standing",
            "AND (own.decision_seq IS NULL OR c.decision_seq < own.decision_seq)",
            "",
        ),
        "results of other cycles",
    ),
    "configuration: that of now": (
        rewritten(
            cycles,
            "read_cycle",
            "configuration.get(database, config_version)",
            "configuration.active(database)",
        ),
        "configurations",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_leak_is_found(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """In copies of the readers' statements and functions; each fails in the kind that is meant for it."""
    plant, kind = PLANTED[name]
    database = request.getfixturevalue("past_by_chance" if name.startswith("accuracy") else "past")
    with monkeypatch.context() as patch:
        plant(patch)
        found = probe(database, kind)
    assert found.leaks
    assert {leak.kind for leak in found.leaks} == {kind}


def test_at_least_twenty_kinds_of_leak_are_planted() -> None:
    assert len(PLANTED) >= 20
    assert {kind for _, kind in PLANTED.values()} <= set(leaks.KINDS)


def test_there_must_be_a_cycle_to_probe(database: Database) -> None:
    with pytest.raises(StorageError, match="no cycle to probe"):
        leaks.choose_cycle(database)


def test_the_check_of_the_job_passes_and_a_leak_fails_it(
    past: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not part of the cycle job, which must not become slower by it."""
    monkeypatch.setattr(leaks_job, "PROBES", 1)
    defs = build_defs(resources={"database": FixedDatabase(url=past._conninfo)})
    nodes = {node.name for node in defs.resolve_job_def(CYCLE_JOB).nodes}
    assert not any("no_look_ahead" in name for name in nodes)
    with dg.DagsterInstance.ephemeral() as instance:
        for leaking in (False, True):
            if leaking:
                constant("_IMPACTS", f"i.known_at <= {AS_OF_SQL}", "true", times=False)(monkeypatch)
            job = defs.resolve_job_def("leak_probe")
            done = job.execute_in_process(instance=instance, raise_on_error=False)
            (evaluation,) = done.get_asset_check_evaluations()
            assert evaluation.passed is not leaking
            assert evaluation.metadata["disturbed_rows"].value > 0


@pytest.mark.acceptance
@pytest.mark.parametrize("probabilistic", [False, True])
def test_no_false_alarm_in_two_hundred_probes(
    embedded_home: Path, migrated_template: str, probabilistic: bool
) -> None:
    for past in made(embedded_home, migrated_template, probabilistic=probabilistic):
        found = probe(past, probes=200)
        rows = sum(found.disturbed.values())
        print(f"{found.probes} probes, {rows} rows disturbed, {len(found.leaks)} leaks")
        assert found.leaks == []
