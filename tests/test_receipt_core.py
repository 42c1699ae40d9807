"""The checker against receipts that the product wrote once: they stay checkable, tampering is named.

The files under `data/receipts` were written by the product from a database of made-up inputs and are never
written anew: a receipt is for whoever holds it, so a later version has to read those of an earlier one.
Only a change of the rules, which raises the code's version, may let one of them fail; the checker then says
that the rules changed, and new files go beside these. Beside each stands what the checker printed then.
Where a test compares text or findings exactly, the decision is taken from the file and not derived, because
another machine may derive other last digits; that it is derived to the tolerance is tested of every file.
How a database gives a receipt does not belong here.
"""

from __future__ import annotations

import hashlib
import json
import locale
import math
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oracle_core import receipt as core
from oracle_core.config import OracleConfig, parse_stored
from oracle_core.cycle import score_signals
from oracle_core.frames import SignalFrame
from oracle_core.inputs import AccuracyRows, HistoryRows, Keys, StandingRows

DATA = Path(__file__).parent / "data" / "receipts"
NAMES = ("heuristic_act", "heuristic_macro_only", "probabilistic_act", "probabilistic_mixed")
SECTIONS = ("key", "versions", "configuration", "inputs", "earlier", "derived", "stored", "seal")
Json = Any
Place = tuple[str | int, ...]

IN_ONE_MODE = {"ev", "p_bull", "r_up", "r_down", "pipeline_mode", "ev_threshold"}
# Below `stored`, only a hash covers these: who worded the thesis cannot be derived.
ONLY_HASHED = {
    ("recommendation", "model_metadata", name)
    for name in ("llm_used", "provider", "model_name", "prompt_version", "schema_version")
}


def load(name: str) -> Json:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


DECIDED = {
    (made["key"]["window"], made["stored"]["recommendation"]["pipeline_mode"]): made["derived"]
    for made in map(load, NAMES)
}


@pytest.fixture(params=NAMES)
def receipt(request: pytest.FixtureRequest) -> Json:
    """Each committed receipt."""
    return load(request.param)


@pytest.fixture
def act() -> Json:
    """One of them for what is alike in all."""
    return load("heuristic_act")


@pytest.fixture
def as_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derive what the file says was derived, to the last digit on every machine."""

    def derive(_inputs: object, key: tuple[str, str], *rest: Json) -> object:
        config: OracleConfig = rest[-1]
        return DECIDED[key[1], config.pipeline_mode.value]

    monkeypatch.setattr(core, "derive", derive)


def label(value: object) -> str:
    """A parameter in the name of a test; other signs change when a process collects the tests twice."""
    return re.sub(r"[^A-Za-z0-9.]+", "_", ascii(value)).strip("_")[:60]


def dotted(place: Place) -> str:
    """A place as findings name it."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)[1:]


def nodes(node: Json, place: Place = ()) -> Iterator[tuple[Place, Json]]:
    """Everything in a JSON value with its place; of a list of more than two the first and the last."""
    yield place, node
    if isinstance(node, dict):
        for name, value in node.items():
            yield from nodes(value, (*place, name))
    elif isinstance(node, list):
        for at in sorted({0, len(node) - 1}) if node else ():
            yield from nodes(node[at], (*place, at))


def leaves(node: Json) -> Iterator[tuple[Place, Json]]:
    return ((place, value) for place, value in nodes(node) if not isinstance(value, dict | list))


def put(root: Json, place: Place, value: Json) -> None:
    for step in place[:-1]:
        root = root[step]
    root[place[-1]] = value


def other(value: Json) -> Json:
    """Something else of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value}x" if isinstance(value, str) else "x"


def rehashed(made: Json) -> Json:
    """The receipt of a forger who knows how the hashes are made."""
    return {**made, "hashes": core.hashes(made)}


def found(made: Json) -> list[str]:
    """Where the checker finds something."""
    return [finding.path for finding in core.check(made)[1]]


def says(made: Json) -> str:
    """Why the checker refuses a receipt."""
    text, holds = core.report(made)
    assert not holds
    assert text.startswith("This receipt does not hold: ")
    assert text.endswith(".")
    return text.removeprefix("This receipt does not hold: ")[:-1]


# ----------------------------------------------------------------------------------- what was written holds


def test_a_committed_receipt_still_holds(receipt: Json) -> None:
    derived, findings = core.check(receipt)
    assert [finding for finding in findings if not finding.negligible] == []
    assert list(derived) == list(receipt["derived"])


def test_the_receipts_hold_every_kind_of_evidence_and_outcome() -> None:
    made = [load(name) for name in NAMES]
    derived = [one["derived"] for one in made]
    signals = [signal for each in derived for signal in each["signals"]]
    assert {signal["layer"] for signal in signals} == {"entity", "macro", "competitor", "pattern"}
    assert {None, "legal"} <= {signal["catalyst"] for signal in signals}
    assert any(len(signal["risks"]) > 1 for signal in signals)
    assert {each["trend"]["direction"] for each in derived} == {"positive", "neutral", "mixed"}
    assert [bool(each["decision"]["suppressed_by"]) for each in derived] == [False, True, False, True]
    assert [each["decision"]["eligible"] for each in derived] == [True, False, False, False]
    assert [one["stored"]["recommendation"]["pipeline_mode"] for one in made] == [
        *("heuristic", "heuristic"),
        *("probabilistic", "probabilistic"),
    ]
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 150_000


def test_made_again_of_its_parts_a_receipt_is_the_same(receipt: Json) -> None:
    key, earlier = receipt["key"], receipt["earlier"]
    made = core.make(
        key=(key["entity_id"], key["window"]),
        recommendation_id=key["recommendation_id"],
        as_of=key["as_of"],
        as_of_us=key["as_of_us"],
        config=parse_stored(receipt["configuration"]["values"])[0],
        config_version=receipt["configuration"]["version"],
        inputs=core.read_inputs(receipt["inputs"]),
        history=core._read(HistoryRows, earlier["history"], "history"),
        standing=core._read(StandingRows, earlier["standing"], "standing"),
        stored=receipt["stored"],
        seal=receipt["seal"],
        libraries=receipt["versions"]["libraries"],
    )
    assert made["versions"]["code"] == core.CODE_VERSION
    assert made["versions"]["stages"] == dict(core.STAGE_VERSIONS)
    assert made.pop("hashes") == core.hashes(made)
    made["versions"] |= {name: receipt["versions"][name] for name in ("code", "stages")}
    differences = core._differences("", {name: receipt[name] for name in made}, made)
    assert [finding for finding in differences if not finding.negligible] == []
    assert set(made) == set(receipt) - {"hashes"}


def test_a_receipt_of_a_cycle_without_a_seal_holds_none(as_decided: None, act: Json) -> None:
    made = core.make(
        key=("a-01", "30d"),
        recommendation_id="r",
        as_of="now",
        as_of_us=0,
        config=parse_stored(act["configuration"]["values"])[0],
        config_version=3,
        inputs=core.read_inputs(act["inputs"]),
        history=core._read(HistoryRows, act["earlier"]["history"], "history"),
        standing=core._read(StandingRows, act["earlier"]["standing"], "standing"),
        stored={"evidence": ()},
        seal=None,
        libraries={},
    )
    assert made["seal"] is None
    assert made["stored"] == {"evidence": []}
    assert made["format"] == "oracle-receipt/1"


# ------------------------------------------------------------------------------------------- as a program


@pytest.mark.parametrize("name", NAMES)
def test_the_program_prints_what_it_printed_then(
    as_decided: None, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert core.main([str(DATA / f"{name}.json")]) == 0
    assert capsys.readouterr().out == (DATA / f"{name}.txt").read_text(encoding="utf-8")


def test_the_program_derives(capsys: pytest.CaptureFixture[str]) -> None:
    assert core.main([str(DATA / "probabilistic_act.json")]) == 0
    assert "\nThis receipt holds" in capsys.readouterr().out


def test_the_program_takes_its_arguments_from_the_command_line(
    as_decided: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["receipt", str(DATA / "heuristic_act.json")])
    assert core.main() == 0
    assert capsys.readouterr().out.endswith("This receipt holds, bit for bit.\n")


def test_the_program_reads_utf_8_whatever_the_locale(
    as_decided: None, capsys: pytest.CaptureFixture[str]
) -> None:
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        locale.setlocale(locale.LC_CTYPE, "C")
        assert core.main([str(DATA / "heuristic_act.json")]) == 0
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
    assert "supply, Überschuldung" in capsys.readouterr().out


def test_the_program_says_how_it_is_used(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        core.main(["--help"])
    assert ended.value.code == 0
    purpose = (
        "Derive the decision of a receipt from the inputs in it and compare. No database, no network. "
        "Exit code 0: it holds, 1: it does not."
    )
    assert capsys.readouterr().out.split("\n\n") == [
        "usage: python -m oracle_core.receipt [-h] FILE",
        purpose,
        "positional arguments:\n  FILE        a receipt, written by `oracle receipt`",
        "options:\n  -h, --help  show this help message and exit\n",
    ]
    with pytest.raises(SystemExit) as ended:
        core.main([])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("error: the following arguments are required: FILE\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read: Expecting value: line 1 column 1 (char 0)"),
        (b"{", "cannot be read: Expecting property name enclosed in double quotes"),
        (b"\xff", "cannot be read: 'utf-8' codec can't decode byte 0xff in position 0"),
        (b"[" * 100_000, "cannot be read: maximum recursion depth exceeded"),
        (b"[]", "is no receipt: it holds no JSON object\n"),
        (b'"text"', "is no receipt: it holds no JSON object\n"),
    ],
    ids=["empty", "open", "no_text", "deep", "list", "string"],
)
def test_a_file_that_is_no_receipt_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "receipt.json"
    path.write_bytes(content)
    assert core.main([str(path)]) == 1
    assert capsys.readouterr().out.startswith(f"{path} {message}")


def test_a_missing_and_a_truncated_file_are_refused_by_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "receipt.json"
    assert core.main([str(path)]) == 1
    missing = f"[Errno 2] No such file or directory: '{path}'"
    assert capsys.readouterr().out == f"{path} cannot be read: {missing}\n"
    path.write_bytes((DATA / "heuristic_act.json").read_bytes()[:-2])
    assert core.main([str(path)]) == 1
    assert capsys.readouterr().out.startswith(f"{path} cannot be read: Expecting ',' delimiter: line 1")


def test_the_program_fails_with_what_the_report_says(
    as_decided: None, capsys: pytest.CaptureFixture[str], tmp_path: Path, act: Json
) -> None:
    path = tmp_path / "receipt.json"
    act["stored"]["recommendation"]["action"] = "defer"
    path.write_text(json.dumps(rehashed(act)), encoding="utf-8")
    assert core.main([str(path)]) == 1
    expected = (DATA / "heuristic_act.txt").read_text(encoding="utf-8").splitlines()[:-1]
    assert capsys.readouterr().out.splitlines() == [
        *expected,
        "DIFFERS stored.recommendation.action: the file says 'defer', derived 'act'",
        "This receipt does not hold: 1 values differ.",
    ]


def test_a_receipt_of_other_code_says_so(as_decided: None, act: Json) -> None:
    act["versions"]["code"] = "0.9"
    text, holds = core.report(rehashed(act))
    assert holds
    assert text.splitlines()[-2:] == [
        f"Written by code 0.9, checked by {core.CODE_VERSION}: the rules changed.",
        "This receipt holds, bit for bit.",
    ]
    act["versions"] = {}
    assert f"Written by code None, checked by {core.CODE_VERSION}: the rules" in core.report(rehashed(act))[0]
    act["versions"] = ["0.9"]
    assert "Written by" not in core.report(rehashed(act))[0]


def test_other_last_digits_are_accepted_and_said(as_decided: None, act: Json) -> None:
    trend = act["derived"]["trend"]
    trend["strength"] *= 1 + 1e-14
    trend["confidence"] *= 1 - 1e-14
    text, holds = core.report(rehashed(act))
    assert holds
    assert text.splitlines()[-1] == (
        "This receipt holds to 1e-12, not bit for bit: 2 numbers differ in their last digits, as on another "
        "machine or with other libraries."
    )
    act["derived"]["projection"]["strength"] += 1e-9
    text, holds = core.report(rehashed(act))
    assert not holds
    assert [line.split(":")[0] for line in text.splitlines()[-2:]] == [
        "DIFFERS derived.projection.strength",
        "This receipt does not hold",
    ]
    assert text.endswith("This receipt does not hold: 1 values differ.")


# ---------------------------------------------------------------------------------------------- tampering


@pytest.mark.parametrize("section", SECTIONS)
def test_every_value_is_covered_by_the_hash_of_its_part(act: Json, section: str) -> None:
    alone = {section: act[section]}
    before = core.hashes(alone)
    assert before[section] == act["hashes"][section]
    for place, value in list(leaves(act[section])):
        put(alone, (section, *place), other(value))
        after = core.hashes(alone)
        assert {name for name in before if after[name] != before[name]} == {section, "whole"}, place
        put(alone, (section, *place), value)


@pytest.mark.parametrize("name", [*SECTIONS, "whole"])
def test_a_changed_hash_is_named(as_decided: None, act: Json, name: str) -> None:
    right = act["hashes"][name]
    act["hashes"][name] = "0" * 64
    assert core.check(act)[1] == [core.Finding(f"hashes.{name}", "0" * 64, right)]
    del act["hashes"][name]
    assert core.check(act)[1] == [core.Finding(f"hashes.{name}", "nothing", right)]


@pytest.mark.parametrize("part", ["signals", "trend", "evidence", "projection", "decision", "citations"])
@pytest.mark.parametrize("name", ["heuristic_act", "probabilistic_act"])
def test_a_changed_value_of_what_was_derived_is_named(as_decided: None, name: str, part: str) -> None:
    made = load(name)
    for place, value in list(leaves(made["derived"][part])):
        where: Place = ("derived", part, *place)
        put(made, where, other(value))
        *hashed, finding = core.check(made)[1]
        assert [each.path for each in hashed] == ["hashes.derived", "hashes.whole"]
        assert finding == core.Finding(dotted(where), other(value), value)
        put(made, where, value)


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_value_of_what_was_stored_is_named(as_decided: None, name: str) -> None:
    made = load(name)
    for place, value in list(leaves(made["stored"])):
        put(made, ("stored", *place), other(value))
        expected = [] if place in ONLY_HASHED else [dotted(("stored", *place))]
        assert found(made) == ["hashes.stored", "hashes.whole", *expected]
        put(made, ("stored", *place), value)


@pytest.mark.parametrize("name", ["heuristic_act", "probabilistic_mixed"])
def test_a_missing_or_added_value_of_what_was_stored_is_named(as_decided: None, name: str) -> None:
    made = load(name)
    for place, value in list(nodes(made["stored"])):
        if not isinstance(value, dict):
            continue
        value["extra"] = 1
        accepted = place in {("recommendation", "model_metadata"), ("evaluation", "risk_checks")}
        assert found(made)[2:] == ([] if accepted else [dotted(("stored", *place, "extra"))])
        del value["extra"]
        for gone, old in list(value.items()):
            del value[gone]
            where: Place = (*place, gone)
            named = found(made)[2:]
            if where in ONLY_HASHED or (place == ("evaluation", "risk_checks") and gone in IN_ONE_MODE):
                assert named == []
            else:
                assert named == [dotted(("stored", *where))]
            value[gone] = old


def test_a_missing_value_is_shown_as_nothing(as_decided: None, act: Json) -> None:
    action = act["stored"]["recommendation"].pop("action")
    act["derived"]["trend"]["more"] = 7
    assert core.check(rehashed(act))[1] == [
        core.Finding("derived.trend.more", 7, "nothing"),
        core.Finding("stored.recommendation.action", "nothing", action),
    ]


def test_a_list_in_another_order_or_of_another_length_is_named(as_decided: None, act: Json) -> None:
    for place, value in list(nodes(act["derived"])):
        if isinstance(value, list) and len(value) > 1 and value != value[::-1]:
            where: Place = ("derived", *place)
            put(act, where, value[::-1])
            first = found(rehashed(act))[0]
            assert first.startswith(f"{dotted(where)}[")
            put(act, where, [*value, value[0]])
            assert found(rehashed(act)) == [dotted(where)]
            put(act, where, value)


@pytest.mark.parametrize("part", ["evaluation", "recommendation"])
def test_the_words_of_a_model_are_taken_as_they_are(as_decided: None, act: Json, part: str) -> None:
    act["stored"]["recommendation"]["thesis"] = "Buy."
    assert found(rehashed(act)) == ["stored.recommendation.thesis"]
    act["stored"]["recommendation"]["model_metadata"]["llm_used"] = "yes"
    assert found(rehashed(act)) == ["stored.recommendation.thesis"]
    act["stored"]["recommendation"]["model_metadata"]["llm_used"] = True
    assert found(rehashed(act)) == []
    act["stored"][part] = {}
    assert any(path.startswith(f"stored.{part}.") for path in found(rehashed(act)))


def test_a_changed_key_is_named(as_decided: None, act: Json) -> None:
    as_of_us = act["key"]["as_of_us"]
    act["key"]["recommendation_id"] = "other"
    assert found(rehashed(act)) == ["stored.recommendation.id"]
    act["key"]["as_of"] = "2026-03-10T12:00:01+00:00"
    assert found(rehashed(act)) == ["key.as_of", "stored.recommendation.id"]
    act["key"]["as_of_us"] += 1_000_000
    assert found(rehashed(act)) == ["stored.recommendation.generated_at_us", "stored.recommendation.id"]
    act["key"] |= {"as_of_us": as_of_us + 1, "as_of": "2026-03-10T12:00:00.000001+00:00"}
    assert "key.as_of" not in found(rehashed(act))
    act["key"]["entity_id"] = "Z-00"
    assert "stored.recommendation.entity_id" in found(rehashed(act))


def test_a_changed_configuration_is_named(as_decided: None, act: Json) -> None:
    right = act["configuration"]["fingerprint"]
    for place, value in list(leaves(act["configuration"]["values"]))[::4]:
        where: Place = ("configuration", "values", *place)
        put(act, where, value * 0.99 if isinstance(value, float) and value else other(value))
        if place[-1] != "probabilistic_scoring_enabled":
            made = rehashed(act)
            text, holds = core.report(made)
            assert not holds
            assert "configuration.fingerprint" in text or "the configuration cannot be used" in text, place
        put(act, where, value)
    act["configuration"]["fingerprint"] = "0"
    assert core.check(rehashed(act))[1] == [core.Finding("configuration.fingerprint", "0", right)]
    del act["configuration"]["fingerprint"]
    assert core.check(rehashed(act))[1] == [core.Finding("configuration.fingerprint", None, right)]
    act["configuration"]["fingerprint"] = right
    act["configuration"]["version"] = 9
    assert found(rehashed(act)) == ["stored.recommendation.config_version"]


INPUTS: tuple[tuple[Place, Json], ...] = (
    (("inputs", "documents", "sentiment", 15), -1.0),
    (("inputs", "documents", "impact", 15), 0.5),
    (("inputs", "documents", "published_us", 15), 1773133637278909),
    (("inputs", "documents", "known_us", 15), 1783133637278909),
    (("inputs", "documents", "extraction_confidence", 15), None),
    (("inputs", "documents", "credibility", 15), 0.1),
    (("inputs", "documents", "novelty", 15), None),
    (("inputs", "documents", "has_impact", 15), False),
    (("inputs", "documents", "failed", 15), True),
    (("inputs", "documents", "catalyst", 15), -1),
    (("inputs", "documents", "risks", 15), [0, 2]),
    (("inputs", "documents", "source", 15), 1),
    (("inputs", "documents", "source_type", 15), 0),
    (("inputs", "bars", "close", -1), 90.0),
    (("inputs", "bars", "volume", -1), 2000.0),
    (("inputs", "events", "sign", 0), 0),
    (("inputs", "events", "sector", 1), []),
    (("inputs", "exposures", "share", 0), 0.9),
    (("inputs", "edges", "target", 1), 0),
    (("inputs", "entities", 2), "Ö"),
    (("inputs", "risk_labels", 1), "sun"),
    (("inputs", "catalysts", 0), "a"),
    (("inputs", "sources", 4), "source-5"),
    (("earlier", "history", "signed_strength", 0), 0.3),
    (("key", "window"), "90d"),
    (("key", "entity_id"), "Z-00"),
    (("key", "as_of_us"), 1773147600000000),
    (("configuration", "values", "trend", "max_catalysts"), 1),
    (("configuration", "values", "probabilistic_scoring_enabled"), True),
)


@pytest.mark.parametrize(("place", "value"), INPUTS, ids=label)
def test_what_was_read_decides(act: Json, place: Place, value: Json) -> None:
    """A forger who makes the hashes anew is found out by the derivation."""
    put(act, place, value)
    text, holds = core.report(rehashed(act))
    assert not holds
    assert "DIFFERS " in text


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("inputs", "edges", "rho", 0), 0.9),
        (("inputs", "accuracy", "ratio", 0), 0.5),
        (("earlier", "history", "signed_strength", 0), 0.3),
    ],
    ids=label,
)
def test_what_was_read_decides_in_the_probabilistic_mode(place: Place, value: float) -> None:
    made = load("probabilistic_mixed")
    put(made, place, value)
    text, holds = core.report(rehashed(made))
    assert not holds
    assert "DIFFERS " in text


# --------------------------------------------------------------------------------------- what is malformed


def test_another_format_is_refused(act: Json) -> None:
    act["format"] = "oracle-receipt/2"
    refused = "the file says format {!r}, this checker reads 'oracle-receipt/1'"
    assert says(act) == refused.format("oracle-receipt/2")
    assert says({}) == refused.format(None)


def test_a_missing_or_unknown_part_is_named(act: Json) -> None:
    for name in (*SECTIONS, "hashes"):
        without = {part: value for part, value in act.items() if part != name}
        assert says(without) == f"the receipt lacks {name}"
    assert says({"format": core.FORMAT}) == f"the receipt lacks {', '.join(sorted((*SECTIONS, 'hashes')))}"
    more = {**act, "comment": "trust me", "b": 1}
    assert says(more) == "the receipt has parts that no receipt has: b, comment"


@pytest.mark.parametrize("wrong", [None, 1, "x", [], ["x"], {"x": 1}, math.nan, 10**30, [[]]], ids=label)
def test_a_part_of_the_wrong_kind_is_refused_without_a_traceback(
    as_decided: None, act: Json, wrong: Json
) -> None:
    shallow = [place for place, _ in nodes(act) if 0 < len(place) < (3 if place[0] != "derived" else 2)]
    assert len(shallow) > 50
    for place in shallow:
        root = act
        for step in place[:-1]:
            root = root[step]
        before = root[place[-1]]
        put(act, place, wrong)
        assert not core.report(act)[1], place
        put(act, place, before)


def test_what_cannot_be_derived_says_why(act: Json) -> None:
    del act["key"]["window"]
    assert says(act) == "nothing can be derived: KeyError: 'window'"
    act["key"]["window"] = "8d"
    assert says(act).startswith("nothing can be derived: ValueError: ")
    act["key"] = 5
    assert says(act).startswith("nothing can be derived: TypeError: ")


def test_nested_too_deeply_is_refused(act: Json) -> None:
    deep: list[Json] = []
    for _ in range(100_000):
        deep = [deep]
    act["stored"] = deep
    assert says(act).startswith("nothing can be derived: RecursionError: ")


def test_a_configuration_that_cannot_be_used_says_why(act: Json) -> None:
    del act["configuration"]["values"]
    assert says(act) == "the configuration cannot be used: 'values'"
    act["configuration"]["values"] = {"unheard": 1}
    assert says(act).startswith("the configuration cannot be used: ")
    assert "unheard" in says(act)
    act["configuration"] = []
    assert says(act).startswith("the configuration cannot be used: ")


def test_missing_and_added_columns_are_named(act: Json) -> None:
    tables = [("inputs", name) for name in core._TABLES] + [("earlier", "history"), ("earlier", "standing")]
    for section, table in tables:
        rows = act[section][table]
        refused = f"{section}.{table} must have exactly the columns {', '.join(rows)}"
        for name, column in list(rows.items()):
            del rows[name]
            assert says(act) == refused
            rows[name] = column
            act[section][table] = rows = dict.fromkeys(refused.split("columns ")[1].split(", ")) | rows
        rows["more"] = []
        assert says(act) == refused
        del rows["more"]
        first = next(iter(rows))
        rows[first] = rows[first][:-1]
        assert says(act) == f"the columns of {section}.{table} have different lengths"
        act[section][table] = load("heuristic_act")[section][table]


def test_missing_and_added_inputs_are_named(act: Json) -> None:
    names = (
        "entities, document_ids, sources, source_types, catalysts, risk_labels, event_ids, items, documents, "
        "bars, events, exposures, edges, accuracy"
    )
    for name in names.split(", "):
        without = {each: value for each, value in act["inputs"].items() if each != name}
        assert says({**act, "inputs": without}) == f"inputs must have exactly the parts {names}"
    more = {**act["inputs"], "more": []}
    assert says({**act, "inputs": more}) == f"inputs must have exactly the parts {names}"


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        (("inputs", "documents", "risks", 0), 5),
        (("inputs", "documents", "risks", 0), ["x"]),
        (("inputs", "documents", "sentiment", 0), "x"),
        (("inputs", "documents", "sentiment", 0), [1.0]),
        (("inputs", "documents", "entity", 0), "x"),
        (("inputs", "documents", "entity", 0), None),
        (("inputs", "documents", "entity", 0), 10**30),
        (("inputs", "documents", "risks"), None),
        (("inputs", "bars", "close"), 5),
        (("inputs", "bars", "day"), 5),
        (("inputs", "documents", "failed"), None),
        (("inputs", "events", "geo"), [1, 2]),
        (("earlier", "standing", "recommendation_id"), 5),
        (("earlier", "history", "as_of_us"), ["x"]),
    ],
    ids=label,
)
def test_a_column_that_cannot_be_read_is_named(act: Json, place: Place, wrong: Json) -> None:
    put(act, place, wrong)
    assert says(act).startswith(f"{'.'.join(map(str, place[:3]))} cannot be read: ")


# ------------------------------------------------------------------------------------------- by hand


def test_hashes_by_hand(act: Json) -> None:
    def sha(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()

    assert core._digest({"b": [1, 0.5, None], "a": "Ä"}) == sha('{"a":"\\u00c4","b":[1,0.5,null]}')
    assert core._digest(None) == sha("null")
    parts = {name: sha("null") for name in SECTIONS}
    listed = ",".join(f'"{name}":"{parts[name]}"' for name in sorted(parts))
    assert core.hashes({"format": "f"}) == {**parts, "whole": sha(f'["f",{{{listed}}}]')}
    assert list(core.hashes(act)) == [*SECTIONS, "whole"]
    with pytest.raises(ValueError, match="not JSON compliant"):
        core._digest(math.nan)


def test_values_as_json_carries_them() -> None:
    assert core._plain(np.array([[1.5, math.nan], [-math.inf, 2.0]])) == [[1.5, None], [None, 2.0]]
    assert core._plain([1, "a", (True, None)]) == [1, "a", [True, None]]
    assert math.copysign(1.0, core._plain(-0.0)) == 1.0
    assert core._plain_json({"a": (1, "Ä")}) == {"a": [1, "Ä"]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        core._plain_json([math.inf])


def test_columns_are_read_as_they_were_written() -> None:
    ragged = core._column("Ragged", [[1, 2], [], [3]], "at")
    assert (ragged.offsets.tolist(), ragged.codes.tolist()) == ([0, 2, 2, 3], [1, 2, 3])
    assert ragged.codes.dtype == np.int64
    assert core._column("Ragged", [], "at").offsets.tolist() == [0]
    numbers = core._column("Float", [1, None, 0.5], "at")
    assert numbers.dtype == np.float64
    assert np.array_equal(numbers, [1.0, math.nan, 0.5], equal_nan=True)
    assert core._column("Int", [2**60 + 1], "at").tolist() == [2**60 + 1]
    assert core._column("Int", [], "at").dtype == np.int64
    assert core._column("Bool", [True, False], "at").dtype == np.bool_
    texts = core._column("Strings", ["a", "Ä"], "at")
    assert (texts.dtype, texts.tolist()) == (np.object_, ["a", "Ä"])
    rows = AccuracyRows(np.array([0, 2]), np.array([math.nan, 0.5]), np.array([3, 4]))
    written = core._written(rows)
    assert written == {"source": [0, 2], "ratio": [None, 0.5], "samples": [3, 4]}
    again = core._read(AccuracyRows, written, "accuracy")
    assert [getattr(again, f.name).dtype for f in fields(again)] == [np.int64, np.float64, np.int64]


def scored() -> SignalFrame:
    made = load("heuristic_act")
    inputs = core.read_inputs(made["inputs"])
    keys = Keys(np.array([1]), np.array([3]))
    config, _ = parse_stored(made["configuration"]["values"])
    return score_signals(inputs, keys, made["key"]["as_of_us"], config)


def test_zero_has_no_sign() -> None:
    frame = scored()
    frame.rows.sentiment[:] = -0.0
    made = core._zero(frame)
    assert not np.signbit(made.rows.sentiment).any()
    assert np.array_equal(made.rows.impact, frame.rows.impact)
    assert made.rows.layer is frame.rows.layer
    assert made.rows.risks is frame.rows.risks
    assert made.ids is frame.ids


def test_signals_by_hand() -> None:
    frame = scored()
    named = core._signals(frame)
    assert [signal["signal"] for signal in named] == frame.ids[frame.rows.signal].tolist()
    assert "key" not in named[0]
    frame.rows.source[:], frame.rows.catalyst[:], frame.rows.source_type[:] = 0, -1, 0
    frame.rows.signal[:] = 0
    for signal in core._signals(frame):
        assert (signal["source"], signal["catalyst"]) == (frame.sources[0], None)
        assert (signal["source_type"], signal["signal"]) == (frame.source_types[0], frame.ids[0])


@pytest.mark.parametrize(
    ("written", "derived", "expected"),
    [
        (1.0, 1.0 + 5e-13, [("p", True)]),
        (1.0, 1.0 + 5e-12, [("p", False)]),
        (0.0, 5e-13, [("p", True)]),
        (0.0, 5e-12, [("p", False)]),
        (1e15, 1e15 + 500, [("p", True)]),
        (1e15, 1e15 + 5000, [("p", False)]),
        (1, 1.0, [("p", False)]),
        (1.0, 1, [("p", False)]),
        (1, True, [("p", False)]),
        (3, 4, [("p", False)]),
        (0.5, None, [("p", False)]),
        (None, 0.5, [("p", False)]),
        (None, None, []),
        (0.0, -0.0, []),
        ("a", "a", []),
        ([1, 2], [1, 3], [("p[1]", False)]),
        ([1], [1, 2], [("p", False)]),
        ([], {}, [("p", False)]),
        ({}, [], [("p", False)]),
        ({}, 1, [("p", False)]),
        (1, {}, [("p", False)]),
        ([1], 1, [("p", False)]),
        (1, [1], [("p", False)]),
        ({"b": 1, "a": 2}, {"b": 2, "a": 1}, [("p.a", False), ("p.b", False)]),
        ({"b": 1}, {"a": [{}]}, [("p.a", False), ("p.b", False)]),
        ({"a": {"b": [0.0]}}, {"a": {"b": [1e-13]}}, [("p.a.b[0]", True)]),
    ],
    ids=label,
)
def test_differences_by_hand(written: object, derived: object, expected: list[tuple[str, bool]]) -> None:
    findings = list(core._differences("p", written, derived))
    assert [(finding.path, finding.negligible) for finding in findings] == expected
    if [path for path, _ in expected] == ["p"]:
        assert (findings[0].says, findings[0].derived) == (written, derived)


def test_a_missing_name_differs_from_one_that_says_nothing() -> None:
    (finding,) = core._differences("p", {"a": None}, {})
    assert finding == core.Finding("p.a", None, "nothing")
