"""The demo: a home of its own, the known score, safe to repeat."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oracle_dagster.cli.demonstration import show
from oracle_dagster.demo import Row, certified_margins, score
from tests.model_server import polishes, says, serving

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("ORACLE_")}
# Another server that is named in the environment must not be touched: this one would refuse.
ELSEWHERE = {"ORACLE_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}


def demo(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "oracle_dagster.cli", "demo", *arguments],
        cwd=folder,
        env={**ENVIRONMENT, **ELSEWHERE, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def result(folder: Path) -> Any:  # noqa: ANN401 - JSON
    done = demo(folder, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_demo_calls_46_of_51_and_two_of_the_misses_were_mixed(result: Any) -> None:  # noqa: ANN401
    assert result["score"] == {
        "right": 46,
        "of": 51,
        "misses": [
            ["Florida", "mixed"],
            ["Michigan", "positive"],
            ["North Carolina", "mixed"],
            ["Pennsylvania", "positive"],
            ["Wisconsin", "positive"],
        ],
    }
    assert (result["documents"], result["as_of"], result["window"]) == (4208, "2016-11-08T00:00:00Z", "30d")


def test_the_demo_decides_57_entities(result: Any) -> None:  # noqa: ANN401
    rows = result["rows"]
    counted: dict[tuple[str, str], int] = {}
    for row in rows:
        counted[row["action"], row["mode"]] = counted.get((row["action"], row["mode"]), 0) + 1
    assert len(rows) == 57
    assert counted == {
        ("act", "production_eligible"): 23,
        ("act", "informational"): 1,
        ("defer", "production_eligible"): 20,
        ("defer", "simulation_eligible"): 2,
        ("defer", "informational"): 1,
        ("observe", "informational"): 10,
    }
    assert {row["action"] for row in rows if row["direction"] == "mixed"} == {"observe"}


def test_the_example_in_the_readme_is_what_the_demo_says(result: Any) -> None:  # noqa: ANN401
    (row,) = [row for row in result["rows"] if row["entity_id"] == "Pennsylvania"]
    assert row["thesis"] in README


def test_the_demo_says_where_the_time_went(result: Any) -> None:  # noqa: ANN401
    assert {"load the polls", "compute the cycle", "all"} <= set(result["seconds"])


def test_the_demo_has_a_home_of_its_own_and_can_be_repeated(result: Any, folder: Path) -> None:  # noqa: ANN401
    """Also with another server in the environment; the repeat prints the same rows, as people read them."""
    assert Path(result["home"]) == folder / ".oracle" / "demo"
    assert sorted(p.name for p in (folder / ".oracle").iterdir()) == ["demo"]
    again = demo(folder)
    assert again.returncode == 0, again.stderr
    assert "46 of 51" in again.stdout
    assert "Florida (mixed), Michigan, North Carolina (mixed), Pennsylvania, Wisconsin" in again.stdout
    assert re.search(
        r"^Florida +mixed +0\.076 +0\.598 +0\.284 observe informational *$", again.stdout, re.MULTILINE
    )
    assert "dev --home ./.oracle/demo" in again.stdout
    assert "ORACLE_DATABASE_URL is ignored" in again.stderr
    assert "Traceback" not in again.stderr


def test_a_model_can_be_tried_on_the_demo(result: Any, folder: Path) -> None:  # noqa: ANN401
    """Also after the demo was computed without one; what is decided does not change."""
    with serving(says(polishes)) as model:
        done = demo(folder, "--thesis-model", "tiny:1b", "--json", OLLAMA_HOST=model.address)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    reworded = found["reworded"]
    assert (reworded["model"], reworded["used"], reworded["of"]) == ("tiny:1b", 193, 193)
    assert len(model.requests) == 193
    assert {request["model"] for request in model.requests} == {"tiny:1b"}
    assert found["score"] == result["score"]
    changed = [(old, new) for old, new in zip(result["rows"], found["rows"], strict=True) if old != new]
    executable = {row["entity_id"] for row in result["rows"] if row["mode"] != "informational"}
    assert executable <= {old["entity_id"] for old, _ in changed}
    for old, new in changed:
        assert new == {**old, "thesis": old["thesis"].replace(" shows a ", " exhibits a ")}


def row(name: str, average: float, direction: str) -> Row:
    return Row(name, average, direction, abs(average), 0.5, 0.0, "observe", "informational", "")


def test_the_score_is_the_sign_of_the_average_against_the_certified_margin() -> None:
    """An average of exactly 0 names nobody, and entities without a certified result are not judged."""
    rows = [
        row("A", 0.2, "positive"),
        row("B", -0.1, "mixed"),
        row("C", 0.0, "neutral"),
        row("D", 1.0, "positive"),
    ]
    found = score(rows, {"A": 3.0, "B": 1.5, "C": -2.0})
    assert (found.right, found.of, found.misses) == (1, 3, [("B", "mixed"), ("C", "neutral")])


def test_the_certified_results_are_those_of_51() -> None:
    margins = certified_margins()
    assert len(margins) == 51
    assert (margins["Florida"], margins["Pennsylvania"], margins["California"]) == (-1.2, -0.7, 30.1)
    assert callable(show)
