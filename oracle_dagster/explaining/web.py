"""An explanation as one HTML file with charts; it needs nothing beside it and asks nothing of the network.

Words and numbers are those of the terminal page: its tables and texts are only put into other clothes here.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from oracle_dagster.explaining import charts, terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

Object = dict[str, Any]

_STYLE: Final = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, "Helvetica Neue", Arial, sans-serif; color: #1d2430; background: #f5f6f8;
  margin: 0; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 24px 60px; }
h1 { font-size: 26px; margin: 0 0 4px; }
h2 { font-size: 17px; margin: 0 0 10px; }
section, header { background: #fff; border: 1px solid #e2e5ea; border-radius: 10px; padding: 18px 22px;
  margin: 0 0 16px; overflow-x: auto; }
p { margin: 0 0 8px; max-width: 92ch; }
p.dim { color: #667; font-weight: 600; margin-top: 14px; }
p.bold { font-weight: 600; }
.cards { display: flex; flex-wrap: wrap; gap: 8px; margin: 14px 0; }
.card { border: 1px solid #e2e5ea; border-radius: 8px; padding: 8px 12px; min-width: 82px; }
.card b { display: block; font-size: 19px; font-variant-numeric: tabular-nums; }
.card span { color: #667; font-size: 12.5px; }
.card.act b { color: #2a6fb0; } .card.defer b { color: #c0562b; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; margin: 0 0 10px; }
th { text-align: left; color: #667; font-weight: 600; padding: 3px 14px 5px 0; white-space: nowrap; }
td { padding: 3px 14px 3px 0; border-top: 1px solid #eef0f3; vertical-align: top; }
th.right, td.right { text-align: right; }
tr.no td:last-child { color: #667; } tr.fails td { background: #fdf0ea; }
tr.fails td:last-child { color: #b3421a; font-weight: 600; }
svg { width: 100%; height: auto; display: block; }
figure { margin: 0; } figcaption { color: #667; font-size: 13px; margin: 0 0 6px; }
"""


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
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>"
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
