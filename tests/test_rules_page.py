"""The page docs/rules.md is complete and current."""

from __future__ import annotations

import tomllib

import pytest

from tests import rules_page

CATALOGUE = tomllib.loads(rules_page.CATALOGUE.read_text(encoding="utf-8"))
HOMES = rules_page.homes()
TESTS = rules_page.tests()


def test_the_catalogue_lists_every_rule_once() -> None:
    assert list(CATALOGUE["rules"]) == [f"R{n}" for n in range(1, 214)]


@pytest.mark.parametrize("rule", list(CATALOGUE["rules"]))
def test_a_rule_has_one_home_and_a_test(rule: str) -> None:
    """One rule, one place: two homes would let the rule drift apart, none would make it a promise only."""
    if rule in CATALOGUE["later"]:
        assert rule not in HOMES, f"{rule} has a home now: take it out of [later]"
        return
    if rule in CATALOGUE["tests_only"]["rules"]:
        assert rule not in HOMES
    else:
        assert len(HOMES.get(rule, [])) == 1, f"{rule} must have exactly one home, has {HOMES.get(rule)}"
    assert TESTS.get(rule), f"no test names {rule}"


def test_the_page_is_current() -> None:
    assert rules_page.PAGE.read_text(encoding="utf-8") == rules_page.render(), (
        "run `python -m tests.rules_page`"
    )


def test_ranges_and_single_numbers_are_read() -> None:
    assert rules_page.rules_in("R1, R45-R47 and (R9)") == {"R1", "R45", "R46", "R47", "R9"}
