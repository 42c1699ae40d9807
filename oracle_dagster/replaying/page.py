"""A replay's report as tables for people, and as one HTML file that needs nothing beside it.

Every number is one of the report's JSON, from which alone both are made; every text from outside is escaped.
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any, Final

from oracle_dagster.page_style import STYLE
from oracle_dagster.replaying import pictures

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Object = dict[str, Any]

_MORE_STYLE: Final = """
span.key { white-space: nowrap; } span.range { color: #667; font-size: 12px; white-space: nowrap; }
dt { font-weight: 600; } dd { margin: 0 0 8px; max-width: 92ch; }
"""
QUALITY: Final = (
    "of", "", "judged", "rises", "calls", "hit rate", "base", "plain", "Brier base", "plain", "confidence",
    "p_bull",
)  # fmt: skip
"""What the table of the scores shows, column by column."""


def number(value: float | None, digits: int = 3) -> str:
    """A measure, or a dash where there is nothing to measure."""
    return "–" if value is None else f"{value:.{digits}f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share in percent, or a dash."""
    return "–" if value is None else f"{100.0 * value:.{digits}f} %"


def quality(configuration: Object) -> Iterator[tuple[str, str, int, Object]]:
    """Dimension, group, judged decisions and measures, in the order of the report."""
    for dimension, groups in configuration["scores"].items():
        for name, told in groups.items():
            yield dimension, name, told["counts"]["judged"], told["measures"]


def quality_rows(configuration: Object) -> Iterator[tuple[str, ...]]:
    """The rows below ``QUALITY``, with intervals by day."""
    for dimension, name, judged, m in quality(configuration):
        yield (
            dimension,
            name,
            f"{judged:,}",
            number(m["base_rate"]["value"]),
            f"{m['calls']:,}",
            spread(m["hit_rate"]),
            number(m["hit_rate_base"]["value"]),
            number(m["hit_rate_plain"]["value"]),
            number(m["brier_base"]["value"], 4),
            number(m["brier_plain"]["value"], 4),
            spread(m["brier_confidence"], 4),
            spread(m["brier_p_bull"], 4),
        )


def summary(report: Object) -> list[str]:
    """The report in sentences, one paragraph each."""
    told = [_span(report)]
    for configuration in report["configurations"]:
        told += _told(configuration, report["cycles"])
    told.append(f"Equity of the market in equal parts: {_earned(report['market'])}")
    return told


def _span(report: Object) -> str:
    span = f"{report['cycles']:,} cycles from {report['from']} to {report['to']}"
    entities = "entity" if report["entities"] == 1 else "entities"
    return f"{span}, {report['entities']:,} {entities}, windows {', '.join(report['windows'])}"


def _told(configuration: Object, cycles: int) -> Iterator[str]:
    counts, per_day = configuration["counts"], configuration["per_day"]
    m = configuration["scores"]["all"]["all"]["measures"]
    settings = ", ".join(f"{k} = {json.dumps(v)}" for k, v in configuration["settings"].items())
    a_cycle = counts["decisions"] / cycles
    fresh = sum(per_day["new_recommendations"]) / cycles
    yield (
        f"{configuration['name']} ({configuration['pipeline_mode']}; {settings or 'default settings'}): "
        f"{counts['decisions']:,} decisions, {a_cycle:,.1f} a cycle, {fresh:,.1f} of them new "
        f"recommendations. Of those that followed another, {percent(per_day['flip_rate'])} changed action or "
        f"mode and {percent(per_day['direction_flip_rate'])} the direction"
    )
    yield (
        f"Judged {counts['judged']:,}; not judged: {counts['without_documents']:,} without documents, "
        f"{counts['unsettled']:,} whose seven days are not settled, {counts['without_prices']:,} without "
        f"prices, {counts['unchanged_price']:,} with an unchanged price; {counts['failed']:,} failed"
    )
    base, plain = number(m["hit_rate_base"]["value"]), number(m["hit_rate_plain"]["value"])
    yield (f"Hit rate {spread(m['hit_rate'])} over {m['calls']:,} calls; base {base}, plain average {plain}")
    for name, label in pictures.LABELS.items():
        if m[f"brier_{name}"]["value"] is None:
            continue
        error = configuration["reliability"][name]["calibration_error"]
        yield (
            f"As a forecast, {label}: Brier {spread(m[f'brier_{name}'], 4)}, base rate "
            f"{number(m['brier_base']['value'], 4)}; log loss {spread(m[f'log_loss_{name}'])}, base rate "
            f"{number(m['log_loss_base']['value'])}; calibration error {number(error)}"
        )
    for name, curve in configuration["equity"].items():
        yield f"Equity of {name}: {_earned(curve)}"


def _earned(curve: Object) -> str:
    low, high = curve["earned_week"]
    return (
        f"{percent(curve['earned'], 2)} of capital [{percent(low, 2)} to {percent(high, 2)} by week] from "
        f"{curve['positions']:,} positions, {percent(curve['mean_gross'])} invested on average, deepest fall "
        f"{percent(curve['drawdown'], 2)}"
    )


def spread(measure: Object, digits: int = 3) -> str:
    """A measure with its interval by day."""
    if measure["value"] is None:
        return "–"
    low, high = measure["day"]
    return f"{number(measure['value'], digits)} [{number(low, digits)}, {number(high, digits)}]"


def document(report: Object) -> str:
    """The report as a whole file."""
    title = f"Replay {report['from'][:10]} to {report['to'][:10]}"
    sections: list[tuple[str, str]] = []
    for configuration in report["configurations"]:
        name = configuration["name"]
        first, *rest = _told(configuration, report["cycles"])
        texts = f'<p class="bold">{escape(first)}.</p>' + "".join(f"<p>{escape(text)}.</p>" for text in rest)
        sections += [
            (name, texts),
            (f"Reliability: {name}", _figure("lines: 95 % by day", pictures.reliability(configuration))),
            (f"How good: {name}", _scores(configuration)),
        ]
    sections.append(
        (
            "Equity of the sized decisions",
            _figure("at the time of the outcome; without costs", pictures.equity(report)) + _equity(report),
        )
    )
    sections += [
        (f"Decisions per cycle: {c['name']}", _figure("", pictures.decisions(report, c)))
        for c in report["configurations"]
    ]
    if len(report["configurations"]) > 1:
        sections.append((f"Compared with {report['configurations'][0]['name']}", _compared(report)))
    sections.append(
        (
            "How it is measured",
            "<dl>"
            + "".join(
                f"<dt>{escape(k.replace('_', ' '))}</dt><dd>{escape(v)}</dd>"
                for k, v in report["how"].items()
            )
            + "</dl>",
        )
    )
    told = "".join(f"<section><h2>{escape(name)}</h2>{body}</section>" for name, body in sections)
    texts = f"<p>{escape(_span(report))}.</p>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{_MORE_STYLE}</style></head><body><main>"
        f"<header><h1>{escape(title)}</h1>{texts}</header>{told}</main></body></html>\n"
    )


def _figure(caption: str, picture: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>{picture}</figure>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int = 2) -> str:
    side = [""] * left + [' class="right"'] * (len(heads) - left)
    head = "".join(f"<th{s}>{escape(h)}</th>" for s, h in zip(side, heads, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{s}>{cell}</td>" for s, cell in zip(side, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(measure: Object, digits: int = 3) -> str:
    """A measure with its intervals by day and, when pointed at, by week."""
    if measure["value"] is None:
        return "–"
    (low, high), (from_, to) = measure["day"], measure["week"]
    week = f"by week {number(from_, digits)} to {number(to, digits)}"
    return (
        f'<span title="{week}">{number(measure["value"], digits)} '
        f'<span class="range">{number(low, digits)} … {number(high, digits)}</span></span>'
    )


def _scores(configuration: Object) -> str:
    forecasts = [name for name in pictures.LABELS if name in configuration["reliability"]]
    heads = ["", "", "judged", "rises", "calls", "hit rate", "base", "plain", "Brier base"]
    heads += ["plain", *(f"Brier {name}" for name in forecasts if name != "plain")]
    logs = ["", "", "log loss base", *(f"log loss {name}" for name in forecasts)]
    logs += [f"calibr. {name}" for name in forecasts]
    briers, losses = [], []
    for dimension, name, judged, m in quality(configuration):
        key = [f'<span class="key">{escape(dimension)}</span>', f"<b>{escape(name)}</b>"]
        briers.append(
            [
                *key,
                f"{judged:,}",
                number(m["base_rate"]["value"]),
                f"{m['calls']:,}",
                _cell(m["hit_rate"]),
                number(m["hit_rate_base"]["value"]),
                number(m["hit_rate_plain"]["value"]),
                number(m["brier_base"]["value"], 4),
                number(m["brier_plain"]["value"], 4),
                *(_cell(m[f"brier_{n}"], 4) for n in forecasts if n != "plain"),
            ]
        )
        errors = configuration["scores"][dimension][name]["calibration_error"]
        losses.append(
            [
                *key,
                number(m["log_loss_base"]["value"]),
                *(_cell(m[f"log_loss_{n}"]) for n in forecasts),
                *(number(errors[n]) for n in forecasts),
            ]
        )
    return _table(heads, briers) + _table(logs, losses)


def _equity(report: Object) -> str:
    curves = [(c["name"], name, told) for c in report["configurations"] for name, told in c["equity"].items()]
    curves.append(("market", "equal parts", report["market"]))
    rows = [
        [
            escape(configuration),
            escape(name),
            f"{told['positions']:,}",
            percent(told["mean_gross"]),
            percent(told["earned"], 2),
            f"{percent(told['earned_week'][0], 2)} … {percent(told['earned_week'][1], 2)}",
            percent(told["drawdown"], 2),
        ]
        for configuration, name, told in curves
    ]
    return _table(["", "", "positions", "invested, mean", "earned", "95 % by week", "deepest fall"], rows)


def _compared(report: Object) -> str:
    wanted = (
        "hit_rate", "brier_confidence", "brier_p_bull", "log_loss_confidence", "log_loss_p_bull",
    )  # fmt: skip
    rows = [
        [
            escape(configuration["name"]),
            escape(name.replace("_", " ")),
            _cell(configuration["compared_with_first"][name], 4),
        ]
        for configuration in report["configurations"][1:]
        for name in wanted
        if configuration["compared_with_first"][name]["value"] is not None
    ]
    return _table(["", "", "difference"], rows)
