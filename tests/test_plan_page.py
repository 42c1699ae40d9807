"""The page of a plan: every part is there, every text from outside is escaped, nothing is fetched."""

from __future__ import annotations

import re
from copy import deepcopy
from html.parser import HTMLParser
from typing import Any

import pytest

from oracle_dagster.planning import page

EVIL = "<script>alert('x')</script>&\"|7d"
SIDE = {
    "action": "act",
    "mode": "production_eligible",
    "confidence": 0.7,
    "allocation_pct": 0.02,
    "max_loss_pct": 0.01,
    "risk_classification": "low",
    "eligible": True,
}
MONITOR = {**SIDE, "action": "monitor", "mode": "informational", "allocation_pct": 0.0, "eligible": False}
RISKIER = {**SIDE, "allocation_pct": 0.05, "risk_classification": "very_high"}


def change(entity: str, after: dict[str, Any], *because: str) -> dict[str, Any]:
    return {"entity_id": entity, "window": "7d", "before": SIDE, "after": after, "because": list(because)}


PLAN: dict[str, Any] = {
    "as_of": "2026-03-10T12:00:00Z",
    "base_version": 3,
    "config": {"eligibility.min_confidence": {"before": 0.3, "after": 0.45}},
    "stages": ["recommendations"],
    "transitions": [
        {"before": SIDE, "after": SIDE, "count": 1207},
        {"before": SIDE, "after": MONITOR, "count": 12},
    ],
    "changes": [
        change("A", MONITOR, "eligibility low_confidence fails: 0.4 >= 0.45 (before: 0.4 >= 0.3)"),
        change("B", RISKIER, "strength 0.2 -> 0.3"),
    ],
    "rebuild": {"recommendations": ["A|7d", "B|7d"]},
    "failures": [],
}


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def elements(text: str) -> _Elements:
    found = _Elements()
    found.feed(text)
    return found


def test_the_page_shows_transitions_flips_with_reasons_sizes_risks_and_what_to_rebuild() -> None:
    text = page.document(PLAN)
    for told in (
        "eligibility.min_confidence", "0.45", "1,207", "act · production", "monitor · informational",
        "eligibility low_confidence fails: 0.4 &gt;= 0.45 (before: 0.4 &gt;= 0.3)",
        "2.00 %", "5.00 %", "low → very high", "recommendations</b>: 2 partitions", "A|7d, B|7d",
        "configuration version 3",
    ):  # fmt: skip
        assert told in text, told
    flips, rest = text.index("Flips, each"), text.index("Further changes")
    assert flips < text.index("A 7d") < rest, "only A changes its action"
    assert rest < text.index("strength 0.2 -&gt; 0.3")


def test_the_page_stands_alone() -> None:
    found = elements(page.document(PLAN))
    assert not {"script", "link", "img", "iframe"} & set(found.tags)
    assert not {"src", "href"} & {name for name, _ in found.attributes}


@pytest.mark.parametrize(
    "path",
    [
        ("as_of",), ("base_version",), ("changes", 0, "entity_id"), ("changes", 0, "window"),
        ("changes", 1, "window"),
        ("changes", 0, "because", 0), ("changes", 1, "because", 0),
        ("changes", 1, "after", "risk_classification"),
        ("changes", 0, "after", "action"), ("transitions", 1, "after", "mode"),
        ("rebuild", "recommendations", 0), ("failures", 0, "message"), ("failures", 0, "entity_id"),
        ("failures", 0, "stage"), ("config", "eligibility.min_confidence", "after"),
    ],
)  # fmt: skip
def test_every_text_of_a_plan_is_escaped(path: tuple[str | int, ...]) -> None:
    plan: Any = deepcopy(PLAN)
    plan["failures"] = [{"stage": "trend_windows", "entity_id": "C", "window": "7d", "message": "no"}]
    place = plan
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = EVIL
    text = page.document(plan)
    assert "alert(" in text, "it is shown"
    assert "script" not in elements(text).tags
    assert not re.search(r"&(?!\w+;|#)", text), "a bare ampersand"


def test_names_of_settings_and_assets_are_escaped() -> None:
    plan = {**PLAN, "config": {EVIL: {"before": 1, "after": 2}}, "rebuild": {EVIL: ["A|7d"]}}
    assert "script" not in elements(page.document(plan)).tags


def test_an_empty_plan_and_a_large_one_say_so() -> None:
    empty = {**PLAN, "config": {}, "transitions": [], "changes": [], "rebuild": {}}
    text = page.document(empty)
    for told in ("the plan is empty", "no stored row would differ", "keeps its action and mode"):
        assert told in text
    many = page.LISTED_CHANGES + 5
    large = page.document({**PLAN, "changes": [change(f"E{n}", MONITOR, "why") for n in range(many)]})
    assert "and 5 more, which the JSON lists" in large
    assert f"E{many - 6} 7d" in large
    assert f"E{many - 5} 7d" not in large
