"""An explanation as one HTML file with charts; it needs nothing beside it and asks nothing of the network.

Words and numbers are those of the terminal page: its tables and texts are only put into other clothes here.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from oracle_dagster.explaining import charts, terminal
from oracle_dagster.page_style import STYLE

if TYPE_CHECKING:
    from collections.abc import Iterator

Object = dict[str, Any]


def document(page: Object) -> str:
    """The page as a whole file."""
    title = f"{page['entity_id']} {page['window']} as of {terminal.moment(page['as_of'])}"
    pictures = [
        (
            "What adds up to the average",
            "contributions, largest first; dashed: a direction begins",
            charts.waterfall(page),
        ),
        (
            "How it came about",
            "dashed lines across: a direction begins; lines down: world events and changes of the action",
            charts.history(page),
        ),
    ]
    if "since" in page:
        then = terminal.moment(page["since"]["as_of"])
        pictures += [
            (f"What changed the {measure} since {then}", "", charts.attribution(page["since"], measure))
            for measure in ("average", "confidence")
        ]
    drawn = "".join(
        f"<section><h2>{escape(name)}</h2><figure><figcaption>{escape(about)}</figcaption>{svg}</figure></section>"
        for name, about, svg in pictures
    )
    sections = "".join(
        f"<section><h2>{escape(name)}</h2>{''.join(_html(body))}</section>"
        for name, body in terminal.sections(page, len(page["signals"]))
    )
    texts = "".join(_html(Group(*terminal.head(page).renderables[2:])))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>"
        f"<header><h1>{escape(title)}</h1>{_cards(page)}{texts}</header>{drawn}{sections}</main></body></html>\n"
    )


def _cards(page: Object) -> str:
    decision = page["decision"]
    values = [
        ("action", decision["action"].upper(), decision["action"]),
        ("mode", decision["mode"].removesuffix("_eligible"), ""),
        ("strength", terminal.number(decision["strength"]), ""),
        ("confidence", terminal.number(decision["confidence"]), ""),
        ("contradiction", terminal.number(decision["contradiction"]), ""),
        ("allocation", terminal.percent(decision["allocation_pct"]), ""),
        ("loss limit", terminal.percent(decision["max_loss_pct"]), ""),
        ("risk", decision["risk"].replace("_", " "), ""),
    ]
    cards = (
        f'<div class="card {escape(kind)}"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for name, value, kind in values
    )
    return f'<div class="cards">{"".join(cards)}</div>'


def _html(body: object) -> Iterator[str]:
    """What the terminal would show, as HTML."""
    if isinstance(body, Group):
        for part in body.renderables:
            yield from _html(part)
    elif isinstance(body, Padding):
        yield from _html(body.renderable)
    elif isinstance(body, Table):
        yield _table(body)
    elif isinstance(body, Text):
        if body.plain:
            kind = f' class="{body.style}"' if body.style else ""
            yield f"<p{kind}>{escape(body.plain)}</p>"
    else:
        raise TypeError(
            f"the terminal page holds a {type(body).__name__}, which no one has laid out for HTML"
        )


def _table(table: Table) -> str:
    sides = [' class="right"' if column.justify == "right" else "" for column in table.columns]
    heads = "".join(
        f"<th{side}>{escape(str(column.header))}</th>"
        for side, column in zip(sides, table.columns, strict=True)
    )
    rows = []
    for cells in zip(*(list(column.cells) for column in table.columns), strict=True):
        kind = {"FAILS": ' class="fails"', "no": ' class="no"', "not asked": ' class="no"'}.get(
            str(cells[-1]), ""
        )
        rows.append(
            f"<tr{kind}>"
            + "".join(f"<td{side}>{escape(str(cell))}</td>" for side, cell in zip(sides, cells, strict=True))
            + "</tr>"
        )
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
