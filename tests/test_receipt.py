"""A receipt carries a decision out of the database: derived again from the file alone, tampering is seen."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oracle_core import receipt as core
from oracle_dagster.storage import configuration
from oracle_dagster.storage.database import Database
from oracle_dagster.verification import receipts
from tests.chain_runs import fresh_database
from tests.storage_rows import AS_OF, ago, insert_world, rows
from tests.test_pipeline import PROBABILISTIC, WORLD, database, run
from tests.test_project import BLOCKED, BLOCKER
from tests.test_verify import altered, change, computed

__all__ = ["altered", "computed", "database"]

ROOT = Path(__file__).parent.parent
RICHEST = """
    SELECT r.id::text FROM recommendations r JOIN recommendation_evidence e ON e.recommendation_id = r.id
    WHERE r.generated_at = %s AND r.time_horizon = '30d' GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1"""


def richest(database: Database) -> str:
    """The recommendation that cites most."""
    ((found,),) = rows(database._conninfo, RICHEST, AS_OF)
    return str(found)


@pytest.fixture(scope="module", params=[False, True], ids=["heuristic", "probabilistic"])
def receipt(request: pytest.FixtureRequest, embedded_home: Path, migrated_template: str) -> Iterator[Any]:
    """The receipt of the recommendation that cites most, after an earlier cycle of both modes."""
    for url in fresh_database(embedded_home, "receipt", migrated_template):
        with psycopg.connect(url) as connection:
            insert_world(connection, WORLD)
        database = Database(url)
        if request.param:
            configuration.activate(database, PROBABILISTIC, "ada", "mode")
        run(database, ago(days=2))
        run(database)
        made = receipts.make(database, richest(database))
        assert made["configuration"]["version"] == (2 if request.param else 1)
        yield json.loads(json.dumps(made, allow_nan=False))
        database.close()


def check_file(path: Path) -> subprocess.CompletedProcess[str]:
    """The checker where neither the orchestrator nor a driver can be imported, nor this product's tables."""
    code = f"""BLOCKED = {BLOCKED!r}
{BLOCKER}
import runpy, socket
socket.socket = socket.create_connection = None
sys.argv = ["receipt", {str(path)!r}]
runpy.run_module("oracle_core.receipt", run_name="__main__")"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)


def test_the_file_alone_gives_the_decision_again_bit_for_bit(receipt: Any, tmp_path: Path) -> None:  # noqa: ANN401
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps(receipt))
    done = check_file(path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("This receipt holds, bit for bit.\n")
    stored = receipt["stored"]["recommendation"]
    for shown in (stored["entity_id"], stored["action"], repr(stored["confidence"]), stored["thesis"]):
        assert shown in done.stdout
    gates = receipt["derived"]["trace"]["gates"]
    assert {"eligibility", "action", "mode", "suppression"} <= {gate["part"] for gate in gates}
    assert receipt["seal"]["hash"] != receipt["seal"]["previous_hash"]
    assert len(receipt["derived"]["signals"]) > 1
    assert receipt["derived"]["citations"] == receipt["stored"]["evidence"] != []


def test_a_tampered_file_fails_in_the_process_too(receipt: Any, tmp_path: Path) -> None:  # noqa: ANN401
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps(receipt).replace('"sentiment": [1.0', '"sentiment": [-1.0', 1))
    done = check_file(path)
    assert done.returncode == 1
    assert "does not hold" in done.stdout
    path.write_text("{")
    assert check_file(path).returncode == 1
    path.write_text("[]")
    assert "no receipt" in check_file(path).stdout
    assert check_file(tmp_path / "none.json").returncode == 1


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
    """The paths of all values."""
    if isinstance(node, dict) and node:
        for name, value in node.items():
            yield from leaves(value, (*path, name))
    elif isinstance(node, list) and node:
        for at, value in enumerate(node):
            yield from leaves(value, (*path, at))
    else:
        yield path


def changed(receipt: Any, path: tuple[Any, ...], value: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    made = copy.deepcopy(receipt)
    node = made
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value(node[path[-1]])
    return made


def other(value: Any) -> Any:  # noqa: ANN401
    """Something else of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value}x" if isinstance(value, str) else "x"


def test_every_part_of_the_file_is_covered_by_its_hash(receipt: Any) -> None:  # noqa: ANN401
    """One value of every path that differs in more than a position."""
    seen = {}
    for path in leaves(receipt):
        seen.setdefault(tuple(step for step in path if isinstance(step, str)), path)
    assert len(seen) > 200
    sections = {name: core._digest(receipt[name]) for name in core._HASHED}
    for path in seen.values():
        if path[0] in sections:
            tampered = changed(receipt, path, other)
            assert core._digest(tampered[path[0]]) != sections[path[0]], path
        else:
            text, holds = core.report(changed(receipt, path, other))
            assert not holds, (path, text)


MEANINGFUL = (
    ("inputs", "documents", "sentiment"),
    ("inputs", "documents", "impact"),
    ("inputs", "documents", "published_us"),
    ("inputs", "documents", "extraction_confidence"),
    ("configuration", "values", "trend", "positive_threshold"),
    ("configuration", "values", "eligibility", "min_confidence"),
    ("configuration", "fingerprint"),
    ("key", "as_of_us"),
    ("key", "window"),
    ("key", "entity_id"),
    ("key", "recommendation_id"),
    ("derived", "signals", 0, "combined"),
    ("derived", "trend", "average"),
    ("derived", "trend", "direction"),
    ("derived", "projection", "blended"),
    ("derived", "decision", "allocation_pct"),
    ("derived", "citations", 0, "weight"),
    ("derived", "trace", "gates", 0, "threshold"),
    ("stored", "recommendation", "confidence"),
    ("stored", "recommendation", "action"),
    ("stored", "recommendation", "thesis"),
    ("stored", "recommendation", "config_version"),
    ("stored", "recommendation", "model_metadata", "deterministic_thesis"),
    ("stored", "evaluation", "eligible"),
    ("stored", "evaluation", "risk_checks", "data_quality_score"),
    ("stored", "evidence", 0, "document_id"),
)


@pytest.mark.parametrize("path", MEANINGFUL, ids=lambda path: ".".join(map(str, path)))
def test_tampering_is_seen_even_with_hashes_made_anew(receipt: Any, path: tuple[Any, ...]) -> None:  # noqa: ANN401
    """Because the decision is derived again, not looked up."""
    nudge: Callable[[Any], Any] = other
    if path[:2] == ("inputs", "documents"):

        def nudge(column: list[Any]) -> list[Any]:
            return [None if v is None else v - 3_600_000_000 if v > 1 else v * 0.5 for v in column]

    if path[:2] == ("configuration", "values"):

        def nudge(value: float) -> float:
            return value * 0.9

    tampered = changed(receipt, path, nudge)
    text, holds = core.report({**tampered, "hashes": core.hashes(tampered)})
    assert not holds, text
    assert core.report({**receipt, "hashes": core.hashes(receipt)})[1]


def test_a_removed_or_added_document_is_seen_even_with_hashes_made_anew(receipt: Any) -> None:  # noqa: ANN401
    inputs = receipt["inputs"]
    mine = inputs["entities"].index(receipt["key"]["entity_id"])
    cited = inputs["document_ids"].index(receipt["derived"]["citations"][0]["document_id"])
    pairs = zip(inputs["documents"]["entity"], inputs["documents"]["document"], strict=True)
    at = list(pairs).index((mine, cited))
    for again in ([], [at, at]):
        tampered = copy.deepcopy(receipt)
        for column in tampered["inputs"]["documents"].values():
            column[at : at + 1] = [column[each] for each in again]
        assert not core.report({**tampered, "hashes": core.hashes(tampered)})[1]


def test_a_part_that_is_missing_or_malformed_is_named(receipt: Any) -> None:  # noqa: ANN401
    for name in (*core._HASHED, "hashes"):
        with pytest.raises(core.ReceiptError, match=name):
            core.check({key: value for key, value in receipt.items() if key != name})
    for path, what in (
        (("format",), "format"),
        (("inputs", "documents", "sentiment"), "different lengths"),
        (("configuration", "values"), "configuration"),
    ):
        broken = changed(
            receipt, path, lambda value: value[:-1] if isinstance(value, list | str) else {"x": 1}
        )
        with pytest.raises(core.ReceiptError, match=what):
            core.check(broken)
    without = copy.deepcopy(receipt)
    del without["inputs"]["bars"]["close"]
    with pytest.raises(core.ReceiptError, match="exactly the columns"):
        core.check(without)
    text, holds = core.report({"format": "something"})
    assert (holds, "oracle-receipt/1" in text) == (False, True)


def test_last_digits_of_another_machine_are_accepted_and_said(receipt: Any) -> None:  # noqa: ANN401
    path = ("derived", "trend", "strength")
    near = changed(receipt, path, lambda value: value * (1 + 1e-14))
    text, holds = core.report({**near, "hashes": core.hashes(near)})
    assert holds
    assert "not bit for bit" in text
    far = changed(receipt, path, lambda value: value * (1 + 1e-10))
    assert not core.report({**far, "hashes": core.hashes(far)})[1]


def test_no_receipt_is_given_of_what_does_not_follow(altered: Database) -> None:
    one = richest(altered)
    assert core.report(receipts.make(altered, one))[1]
    change(altered, f"UPDATE recommendations SET thesis = 'Buy.' WHERE id = '{one}'")
    with pytest.raises(receipts.ReceiptError, match="thesis"):
        receipts.make(altered, one)
    change(
        altered,
        f"""UPDATE recommendations SET model_metadata = model_metadata || '{{"llm_used": true}}'
            WHERE id = '{one}'""",
    )
    assert core.report(receipts.make(altered, one))[1]  # the words of a model are taken as they are


def test_no_receipt_is_given_of_a_decision_on_an_earlier_cycles_trend(database: Database) -> None:
    run(database, ago(days=2))
    run(database, stages=("recommendations",), accuracy=False)
    ((one,),) = rows(
        database._conninfo, "SELECT id::text FROM recommendations WHERE generated_at = %s LIMIT 1", AS_OF
    ) or [("none",)]
    if one != "none":
        with pytest.raises(receipts.ReceiptError, match="earlier cycle's results"):
            receipts.make(database, one)
