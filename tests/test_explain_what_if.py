"""What would change a recorded decision, why it differs from an earlier one, and the pages of both."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import psycopg
import pytest
from rich.console import Console

from oracle_core.alternatives import Supposed
from oracle_core.whatif import removed_documents
from oracle_dagster import pipeline
from oracle_dagster.cli.common import _jsonable
from oracle_dagster.explaining import asking, gather, terminal
from oracle_dagster.explaining.web import document
from oracle_dagster.storage import configuration, cycles
from oracle_dagster.storage.database import Database
from tests.storage_rows import (
    AS_OF,
    WINDOWS,
    Document,
    Impact,
    ago,
    document_id,
    insert_documents,
    retract_document,
    revised,
)
from tests.test_pipeline import PROBABILISTIC, WORLD, database, run

__all__ = ["database"]

MODES = pytest.mark.parametrize("mode", ["heuristic", "probabilistic"])


def begin(database: Database, mode: str) -> None:
    if mode == "probabilistic":
        configuration.activate(database, PROBABILISTIC, "ada", "mode")


def asked(database: Database, entity: str, window: str) -> tuple[pipeline.Part, dict[str, Any]]:
    part = gather.chosen_again(database, gather.choose(database, (entity, window)))
    return part, asking.what_if(database, part)


def decided(database: Database, cycle: cycles.Cycle, key: cycles.Key, change: Any = None) -> dict[str, Any]:  # noqa: ANN401
    """What the whole pipeline decides."""
    made = gather.computed_again(database, cycle, key, change).made[0]
    return {"action": made.action, "mode": made.mode, "suppression_reasons": made.suppression_reasons}


def without_direction(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "direction"}


@MODES
def test_every_answer_holds_when_the_whole_pipeline_decides_again(database: Database, mode: str) -> None:
    """Of documents really added, really removed, and of moments just before and after the stated ones."""
    begin(database, mode)
    run(database)
    changed = {"added": 0, "removed": 0, "waited": 0}
    for entity in WORLD.entities[:1]:
        for window in ("7d", "90d") if mode == "heuristic" else ("90d",):
            key = (entity, window)
            part, found = asked(database, entity, window)
            cycle = part.cycle
            now = decided(database, cycle, key)
            assert without_direction(found["now"]) == now
            decision = found["distance"]["decision"]
            for side, sign in (("positive", 1.0), ("negative", -1.0)):
                count = decision[side]
                if count is None:
                    continue
                for number, same in ((count - 1, True), (count, False)):
                    change = asking.supposing(entity, sign, number, cycle.as_of_us, Supposed())
                    after = decided(database, cycle, key, change)
                    assert ((after["action"], after["mode"]) == (now["action"], now["mode"])) == same
                assert after == without_direction(decision[f"{side}_becomes"])
                changed["added"] += 1
            for by in ("documents", "sources"):
                bounds = found["influence"][by]
                if bounds["upper"] is None:
                    continue
                names = [item["id"] for item in bounds["example"]]
                assert len(names) == bounds["upper"]
                after = decided(
                    database, cycle, key, lambda read, n=names, b=by: removed_documents(read, n, b)
                )
                assert after == without_direction(bounds["becomes"])
                assert (after["action"], after["mode"]) != (now["action"], now["mode"])
                changed["removed"] += 1
            for step in found["shelf_life"]["changes"]:
                just = timedelta(microseconds=1)
                before = decided(database, dataclasses.replace(cycle, as_of=step["at"] - just), key)
                after = decided(database, dataclasses.replace(cycle, as_of=step["at"]), key)
                assert before == without_direction(step["before"])
                assert after == without_direction(step["after"])
                changed["waited"] += 1
    assert min(changed.values()) >= (2 if mode == "heuristic" else 1), changed


def later_inputs(url: str) -> None:
    """News, a late report, a revision, a withdrawal and two bars, all known within the last two days."""
    entity = WORLD.entities[0]
    fresh = [
        Document(
            f"fresh-{n}",
            (Impact(entity, -1.0, 0.9),),
            published=ago(hours=10 + n),
            source=f"source-{n}",
            credibility=0.9,
        )
        for n in range(3)
    ]
    late = Document("late", (Impact(entity, 1.0, 0.9),), published=ago(days=20), known=ago(hours=5))
    mine = [d for d in WORLD.documents if any(i.entity == entity for i in d.impacts)]
    with psycopg.connect(url) as connection:
        insert_documents(connection, [*fresh, late])
        changed = dataclasses.replace(mine[0].impacts[0], sentiment=-mine[0].impacts[0].sentiment or 1.0)
        insert_documents(
            connection, [revised(mine[0], ago(hours=3), impacts=(changed, *mine[0].impacts[1:]))]
        )
        retract_document(connection, mine[1], ago(hours=2))


@MODES
def test_the_parts_of_a_change_add_up_to_it_for_every_window(
    database: Database, migrated_url: str, mode: str
) -> None:
    """Between two recorded cycles that differ in everything that can differ."""
    begin(database, mode)
    run(database, ago(days=2))
    later_inputs(migrated_url)
    current = configuration.active(database).config
    configuration.activate(
        database, current.with_settings({"scoring.half_life_hours.90d": 500.0}), "ada", "shorter"
    )
    run(database)
    seen: set[str] = set()
    for entity in WORLD.entities[:1]:
        for window in ("7d", "90d") if mode == "heuristic" else ("90d",):
            chosen = gather.choose(database, (entity, window))
            earlier = gather.choose(database, (entity, window), ago(days=2))
            found = asking.since(database, chosen, earlier)
            pages = [gather.page(database, each) for each in (earlier, chosen)]
            for measure, values in (
                ("average", [p["direction"]["average"] for p in pages]),
                ("confidence", [p["decision"]["confidence"] for p in pages]),
            ):
                assert [found["before"][measure], found["after"][measure]] == values
                total = sum(part[measure] for part in found["parts"].values())
                assert total == pytest.approx(values[1] - values[0], abs=1e-9)
                assert found["change"][measure] == pytest.approx(values[1] - values[0], abs=1e-15)
            assert [found["before"]["action"], found["after"]["action"]] == [
                p["decision"]["action"] for p in pages
            ]
            assert "code" not in found["parts"]
            seen |= set(found["parts"])
            if (entity, window) == (WORLD.entities[0], "90d"):
                named = {name: {item["id"] for item in items} for name, items in found["documents"].items()}
                assert {document_id(f"fresh-{n}") for n in range(3)} <= named["new_documents"]
                assert document_id("late") in named["late_or_revised"]
                assert len(named["late_or_revised"]) == 3
                assert found["settings"] == {"scoring.half_life_hours.90d": {"before": 720.0, "after": 500.0}}
    assert seen >= {"new_documents", "ageing", "late_or_revised", "configuration"}
    assert ("left_the_window" in seen) == (mode == "heuristic"), "of the short window"


def test_what_changed_with_the_code_is_what_todays_rules_do_not_give(
    database: Database, migrated_url: str
) -> None:
    run(database, ago(days=2))
    run(database)
    entity = WORLD.entities[0]
    with psycopg.connect(migrated_url) as connection:
        connection.execute(
            """UPDATE trend_history SET confidence = confidence - 0.125
               WHERE entity_id = %s AND "window" = '90d' AND generated_at = %s""",
            (entity, ago(days=2)),
        )
    chosen = gather.choose(database, (entity, "90d"))
    found = asking.since(database, chosen, gather.choose(database, (entity, "90d"), ago(days=2)))
    assert found["parts"]["code"] == {"average": 0.0, "confidence": pytest.approx(0.125)}
    total = sum(part["confidence"] for part in found["parts"].values())
    assert total == pytest.approx(found["change"]["confidence"], abs=1e-9)


def test_two_configurations_of_one_moment_are_compared_and_the_wrong_way_round_is_refused(
    database: Database,
) -> None:
    run(database)
    configuration.activate(database, PROBABILISTIC, "ada", "mode")
    run(database)
    key = (WORLD.entities[0], "90d")
    new, old = (gather.choose(database, key, AS_OF, version) for version in (2, 1))
    found = asking.since(database, new, old)
    assert list(found["parts"]) == ["configuration"]
    assert found["parts"]["configuration"] == found["change"]
    later = gather.choose(database, key)
    with pytest.raises(gather.NotExplainableError, match="--since must name another cycle, not after"):
        asking.since(database, later, later)


# ------------------------------------------------------------------------------------------------- pages


class Reader(HTMLParser):
    """Collects what a browser would fetch, and checks that tags close."""

    VOID = frozenset({"meta", "br", "path", "use"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in {"src", "href", "xlink:href"} and not (value or "").startswith("#"):
                self.fetched.append(str(value))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def full_page(database: Database, entity: str, window: str) -> dict[str, Any]:
    chosen = gather.choose(database, (entity, window))
    part = gather.chosen_again(database, chosen)
    page = gather.page(database, chosen, part)
    page["what_if"] = asking.what_if(database, part)
    page["since"] = asking.since(database, chosen, gather.choose(database, (entity, window), ago(days=2)))
    return page


MADE: dict[str, Any] = {}


@pytest.fixture
def page(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The page of a key with everything on it, made once."""
    if not MADE:
        database, url = request.getfixturevalue("database"), request.getfixturevalue("migrated_url")
        run(database, ago(days=2))
        later_inputs(url)
        with psycopg.connect(url) as connection:
            connection.execute(
                "UPDATE documents SET title = '<b>$5 & more$</b>' WHERE source_id = 'source-1'"
            )
        run(database)
        MADE.update(full_page(database, WORLD.entities[0], "90d"))
    return copy.deepcopy(MADE)


def test_the_html_page_stands_alone_and_says_what_the_terminal_says(page: dict[str, Any]) -> None:
    html = document(page)
    assert html == document(page), "the same page gives the same bytes"
    reader = Reader()
    reader.feed(html)
    assert reader.open == []
    assert reader.fetched == []
    assert "<script" not in html
    assert "@import" not in html
    assert "url(" not in html.replace("url(#", "")
    assert html.count("<svg") == 4
    assert "<b>$5" not in html
    text = " ".join(" ".join(reader.text).split())
    assert "<b>$5 & more$</b>" in text
    out = io.StringIO()
    console = Console(file=out, width=20_000, highlight=False)
    for _, body in terminal.sections(page, len(page["signals"])):
        console.print(body)
    assert {word for word in re.findall(r"\S+", out.getvalue()) if word not in text} == set()
    assert page["decision"]["thesis"] in text
    for title in ("What would change it", "Since 2026-03-08T12:00:00Z", "What adds up to the average"):
        assert title in text


def test_the_terminal_page_says_bounds_as_bounds_and_how_far_was_searched(page: dict[str, Any]) -> None:
    def shown() -> str:
        out = io.StringIO()
        terminal.print_page(Console(file=out, width=20_000, highlight=False), page, 3)
        return out.getvalue()

    bounds = page["what_if"]["influence"]["documents"]
    for change, said in (
        ({"lower": 2, "upper": 4, "exact": False}, "documents: at least 2 and at most 4 of "),
        ({"lower": 2, "upper": 2, "exact": True}, "documents: exactly 2 of "),
        ({"lower": 1, "upper": 1, "exact": True, "of": 9}, "documents: exactly 1 of 9 document must go"),
        (
            {"upper": None, "exact": False, "becomes": None},
            "documents: no set was found that changes action or mode",
        ),
        ({"impossible": True, "of": 9}, "documents: no set of the 9 changes action or mode (all were tried)"),
    ):
        becomes = {"action": "act", "mode": "informational", "direction": "mixed", "suppression_reasons": []}
        page["what_if"]["influence"]["documents"] = {
            **bounds,
            "impossible": False,
            "becomes": becomes,
            **change,
        }
        assert said in shown()
    life = page["what_if"]["shelf_life"]
    page["what_if"]["shelf_life"] = {**life, "ends": False, "changes": []}
    assert "action and mode were not seen to change up to" in shown()
    decision = page["what_if"]["distance"]["decision"]
    page["what_if"]["distance"]["decision"] = {**decision, "positive": None, "negative": None}
    assert "no number of negative documents up to 40 changes the decision" in shown()


def test_the_page_is_json(page: dict[str, Any]) -> None:
    text = json.dumps(page, default=_jsonable, allow_nan=False)
    found = json.loads(text)
    assert datetime.fromisoformat(found["what_if"]["shelf_life"]["searched_until"]).tzinfo == UTC
    assert found["since"]["as_of"] == "2026-03-08T12:00:00Z"


@pytest.mark.acceptance
@MODES
def test_every_key_of_a_world_has_all_answers(database: Database, migrated_url: str, mode: str) -> None:
    """Keys without documents, with failed ones only, of neighbours alone: nothing is left out."""
    begin(database, mode)
    run(database, ago(days=2))
    later_inputs(migrated_url)
    run(database)
    counts = {"keys": 0, "exact": 0, "bounded": 0, "ends": 0, "stays": 0}
    for entity in WORLD.entities:
        for window in WINDOWS:
            page = full_page(database, entity, window)
            assert document(page).count("<svg") == 4
            json.dumps(page, default=_jsonable, allow_nan=False)
            for bounds in page["what_if"]["influence"].values():
                counts["exact" if bounds["exact"] else "bounded"] += 1
            counts["ends" if page["what_if"]["shelf_life"]["ends"] else "stays"] += 1
            for measure in ("average", "confidence"):
                total = sum(part[measure] for part in page["since"]["parts"].values())
                assert total == pytest.approx(page["since"]["change"][measure], abs=1e-9)
            counts["keys"] += 1
    print(mode, counts)
