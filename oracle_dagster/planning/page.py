"""A plan as one HTML file; it needs nothing beside it and asks nothing of the network.

Every number on it is one of the plan's JSON, from which alone it is made; every text from outside is escaped.
"""

from __future__ import annotations

import json
from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Any, Final

from oracle_dagster.page_style import STYLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Object = dict[str, Any]

LISTED_CHANGES: Final = 2_000
"""Changed decisions listed one by one; more make a page that no browser scrolls."""
OPEN_CHANGES: Final = 25
"""Of these, how many are seen before somebody asks for the others."""
_MORE_STYLE: Final = """
td.same { color: #8a8f98; } td.moved { background: #fdf0ea; font-weight: 600; }
ul.because { margin: 0; padding-left: 16px; } ul.because li { margin: 0; }
td.key { white-space: nowrap; font-weight: 600; }
code { font: 13px ui-monospace, "SFMono-Regular", Menlo, monospace; }
details { margin: 0 0 8px; } summary { cursor: pointer; } p.keys { color: #667; font-size: 13px; }
.up { color: #2a6fb0; } .down { color: #c0562b; }
"""
_RISKS: Final = ("low", "moderate", "high", "very_high")


def document(plan: Object) -> str:
    """The page of a plan as :func:`oracle_dagster.planning.plan.as_object` gives it."""
    title = f"Plan as of {plan['as_of']}"
    flips = [change for change in plan["changes"] if _flips(change)]
    rest = [change for change in plan["changes"] if not _flips(change)]
    sections = [
        ("Settings", _settings(plan)),
        ("Decisions before and after", _transitions(plan["transitions"])),
        ("To rebuild", _rebuild(plan["rebuild"])),
        ("Flips, each with the rule and numbers that cause it", _flipped(flips)),
        ("Size and risk", _sizes(plan["changes"])),
        ("Further changes of numbers", _moved(rest)),
    ]
    if plan["failures"]:
        sections.append(("What could not be planned", _failures(plan["failures"])))
    told = "".join(f"<section><h2>{escape(name)}</h2>{body}</section>" for name, body in sections)
    about = (
        f"From configuration version {escape(str(plan['base_version']))}. Both configurations decide every "
        "entity and window over the same inputs, as of the same moment. Nothing was written."
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{_MORE_STYLE}</style></head><body><main>"
        f"<header><h1>{escape(title)}</h1><p>{about}</p>{_cards(plan, flips)}</header>{told}"
        "</main></body></html>\n"
    )


def _flips(change: Object) -> bool:
    return _what(change["before"]) != _what(change["after"])


def _what(side: Object) -> str:
    mode = str(side["mode"]).removesuffix("_eligible").replace("_", " ")
    return f"{side['action']} · {mode}"


def _cards(plan: Object, flips: Sequence[Object]) -> str:
    keys = {key for listed in plan["rebuild"].values() for key in listed}
    values = (
        ("keys decided", sum(t["count"] for t in plan["transitions"])),
        ("flips", len(flips)),
        ("decisions changed", len(plan["changes"])),
        ("keys to rebuild", len(keys)),
        ("not planned", len(plan["failures"])),
    )
    cards = "".join(
        f'<div class="card"><b>{value:,}</b><span>{escape(name)}</span></div>' for name, value in values
    )
    return f'<div class="cards">{cards}</div>'


def _table(heads: Iterable[str], rows: Iterable[str], right: Sequence[int] = ()) -> str:
    head = "".join(f"<th{_side(at, right)}>{escape(name)}</th>" for at, name in enumerate(heads))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _long_table(heads: Sequence[str], rows: Iterable[str], right: Sequence[int] = ()) -> str:
    """A table of which only the beginning is open."""
    listed = list(rows)
    more = listed[OPEN_CHANGES:]
    rest = f"<details><summary>{len(more):,} more</summary>{_table(heads, more, right)}</details>"
    return _table(heads, listed[:OPEN_CHANGES], right) + (rest if more else "")


def _side(at: int, right: Sequence[int]) -> str:
    return ' class="right"' if at in right else ""


def _row(*cells: str, right: Sequence[int] = ()) -> str:
    """A row of cells that are HTML already."""
    return "<tr>" + "".join(f"<td{_side(at, right)}>{cell}</td>" for at, cell in enumerate(cells)) + "</tr>"


def _settings(plan: Object) -> str:
    if not plan["config"]:
        return "<p>No setting changes, so that the plan is empty.</p>"
    rows = (
        _row(
            f"<code>{escape(path)}</code>", escape(json.dumps(of["before"])), escape(json.dumps(of["after"]))
        )
        for path, of in plan["config"].items()
    )
    return _table(("setting", "before", "after"), rows)


def _transitions(transitions: Sequence[Object]) -> str:
    if not transitions:
        return "<p>Nothing was decided.</p>"
    counts = {(_what(t["before"]), _what(t["after"])): t["count"] for t in transitions}
    sides = sorted({side for pair in counts for side in pair})
    heads = "".join(f'<th class="right">{escape(side).replace(" · ", "<br>")}</th>' for side in sides)
    rows = []
    for before in sides:
        cells = []
        for after in sides:
            count = counts.get((before, after), 0)
            kind = "same" if before == after or count == 0 else "moved"
            cells.append(f'<td class="right {kind}">{f"{count:,}" if count else "·"}</td>')
        rows.append(f"<tr><th>{escape(before)}</th>{''.join(cells)}</tr>")
    return (
        "<p>Rows: what is decided now; columns: what would be. Coloured: keys that change over.</p>"
        f"<table><thead><tr><th>before \\ after</th>{heads}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _because(change: Object) -> str:
    return (
        '<ul class="because">' + "".join(f"<li>{escape(text)}</li>" for text in change["because"]) + "</ul>"
    )


def _key(change: Object) -> str:
    return escape(f"{change['entity_id']} {change['window']}")


def _flipped(flips: Sequence[Object]) -> str:
    if not flips:
        return "<p>None: every key keeps its action and mode.</p>"
    rows = (
        f'<tr><td class="key">{_key(c)}</td><td>{escape(_what(c["before"]))}</td>'
        f"<td>{escape(_what(c['after']))}</td><td>{_because(c)}</td></tr>"
        for c in flips[:LISTED_CHANGES]
    )
    return _long_table(("key", "before", "after", "because"), rows) + _left_out(flips)


def _moved(rest: Sequence[Object]) -> str:
    if not rest:
        return "<p>None.</p>"
    rows = (
        f'<tr><td class="key">{_key(c)}</td><td>{escape(_what(c["after"]))}</td><td>{_because(c)}</td></tr>'
        for c in rest[:LISTED_CHANGES]
    )
    return (
        "<p>These keys keep action and mode.</p>"
        + _table(("key", "decision", "because"), rows)
        + _left_out(rest)
    )


def _left_out(changes: Sequence[Object]) -> str:
    more = len(changes) - LISTED_CHANGES
    return f"<p>and {more:,} more, which the JSON lists</p>" if more > 0 else ""


def _sizes(changes: Sequence[Object]) -> str:
    """Sums and counts over the changed decisions, then every key whose size or risk moves."""
    names = ("allocation_pct", "max_loss_pct", "risk_classification")
    moved = [c for c in changes if any(c["before"][name] != c["after"][name] for name in names)]
    if not moved:
        return "<p>No allocation, loss limit or risk class changes.</p>"
    sums = {
        name: tuple(sum(c[side][name] for c in moved) for side in ("before", "after")) for name in names[:2]
    }
    classes = {
        side: Counter(str(c[side]["risk_classification"]) for c in moved) for side in ("before", "after")
    }
    known = [name for name in _RISKS if any(name in of for of in classes.values())]
    known += sorted({name for of in classes.values() for name in of} - set(_RISKS))
    totals = [
        _row(label, _share(sums[name][0]), _arrow(*sums[name]), right=(1, 2))
        for label, name in (("allocation, sum", "allocation_pct"), ("loss limit, sum", "max_loss_pct"))
    ]
    totals += [
        _row(
            escape(f"keys of {name.replace('_', ' ')} risk"),
            f"{classes['before'][name]:,}",
            f"{classes['after'][name]:,}",
            right=(1, 2),
        )
        for name in known
    ]
    rows = (
        _row(
            f"<b>{_key(c)}</b>",
            _share(c["before"]["allocation_pct"]),
            _arrow(c["before"]["allocation_pct"], c["after"]["allocation_pct"]),
            _share(c["before"]["max_loss_pct"]),
            _arrow(c["before"]["max_loss_pct"], c["after"]["max_loss_pct"]),
            _risk(c),
            right=(1, 2, 3, 4),
        )
        for c in moved[:LISTED_CHANGES]
    )
    heads = ("key", "allocation", "then", "loss limit", "then", "risk")
    return (
        f"<p>{len(moved):,} keys change in size or risk.</p>"
        + _table(("", "before", "after"), totals, (1, 2))
        + _long_table(heads, rows, (1, 2, 3, 4))
        + _left_out(moved)
    )


def _share(value: float) -> str:
    return f"{100.0 * value:.2f} %"


def _arrow(before: float, after: float) -> str:
    kind = "up" if after > before else "down" if after < before else ""
    return f'<span class="{kind}">{_share(after)}</span>'


def _risk(change: Object) -> str:
    before, after = (
        str(change[side]["risk_classification"]).replace("_", " ") for side in ("before", "after")
    )
    return escape(after if before == after else f"{before} → {after}")


def _rebuild(rebuild: dict[str, list[str]]) -> str:
    if not rebuild:
        return "<p>Nothing: no stored row would differ.</p>"
    return "".join(
        f"<details><summary><b>{escape(asset)}</b>: {len(keys):,} partitions</summary>"
        f'<p class="keys">{escape(", ".join(keys))}</p></details>'
        for asset, keys in rebuild.items()
    )


def _failures(failures: Sequence[Object]) -> str:
    rows = (
        _row(escape(f"{f['entity_id']} {f['window']}"), escape(f["stage"]), escape(f["message"]))
        for f in failures[:LISTED_CHANGES]
    )
    return _table(("key", "stage", "why"), rows) + _left_out(failures)
