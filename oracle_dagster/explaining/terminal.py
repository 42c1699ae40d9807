"""An explanation as a page for the terminal; every number on it is one that ``--json`` prints."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

Object = dict[str, Any]

FACTORS: Final = {
    "recency": "recency",
    "credibility": "credib.",
    "source_accuracy_factor": "accuracy",
    "novelty_bonus": "novelty",
    "confidence_gate": "gate",
    "sigmoid_gate": "gate",
    "market_ctx_multiplier": "market",
    "info_gain_factor": "rarity",
    "regime_multiplier": "regime",
    "layer_weight": "layer",
}
"""What the columns of the factors are called on the page."""

_LABELS: Final = {
    "not_mixed:contradiction": "contradiction that makes a weak average mixed",
    "not_mixed:average": "size of the average that is never mixed",
    "not_mixed:entropy": "entropy that makes it mixed",
    "any_evidence": "evidence on either side",
    "positive": "positive direction",
    "negative": "negative direction",
    "low_confidence": "confidence",
    "low_trend_strength": "strength",
    "high_contradiction": "contradiction",
    "insufficient_evidence": "documents cited",
    "neutral_direction": "direction is neutral",
    "act_or_defer": "strength to act or defer",
    "monitor": "confidence to monitor",
    "simulation_eligible:confidence": "confidence for simulation",
    "production_eligible:confidence": "confidence for production",
    "production_eligible:contradiction": "contradiction for production",
    "production_eligible:evidence": "documents for production",
    "low_expected_value": "expected edge",
    "ev_unavailable": "expected value known",
    "low_extraction_confidence": "mean extraction confidence",
    "stale_evidence": "age of the newest document, hours",
    "low_source_diversity": "source types",
    "high_extraction_failure_rate": "share of failed extractions",
    "insufficient_valid_documents": "valid documents",
    "low_data_quality": "data quality score",
    "macro_only": "documents beside world events",
    "pattern_only": "documents beside others' evidence",
}
_PARTS: Final = {"expected_value": "expected value"}


def number(value: float | None) -> str:
    """Four significant digits; whole numbers as such."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e6):  # noqa: PLR2004
        return f"{int(value)}"
    return f"{value:.4f}" if abs(value) >= 1e-3 else f"{value:.3g}"  # noqa: PLR2004


def percent(value: float | None) -> str:
    """A share of 1 in percent."""
    return "–" if value is None else f"{100.0 * value:.2f} %"


def moment(value: datetime) -> str:
    """A time in UTC as on the command line."""
    return value.isoformat().replace("+00:00", "Z")


def label(gate: str) -> str:
    """What a gate asks about."""
    return _LABELS.get(gate, gate)


def render(page: Object, signals: int) -> Group:
    """The page.

    Args:
        page: what :func:`oracle_dagster.explaining.gather.page` gave, with or without further sections.
        signals: number of signals listed one by one.

    """
    parts = (_section(title, body) for title, body in sections(page, signals))
    return Group(head(page), *parts)


def sections(page: Object, signals: int) -> list[tuple[str, RenderableType]]:
    """Title and body of every section; arguments as for :func:`render`."""
    found: list[tuple[str, RenderableType]] = [
        ("Gates", _gates(page["gates"])),
        ("Direction and contradiction", _direction(page)),
        ("Confidence", _confidence(page)),
        ("Size", _sizing(page)),
        ("Risk and data quality", _scores(page)),
        ("Signals by contribution", _signals(page, signals)),
        ("Layers", _layers(page["layers"])),
        ("Projection (advisory)", _projection(page["projection"])),
        ("Where it comes from", _origin(page)),
    ]
    if "what_if" in page:
        found.append(("What would change it", what_if(page["what_if"])))
    if "since" in page:
        found.append((f"Since {moment(page['since']['as_of'])}", since(page["since"])))
    return found


def _section(title: str, body: RenderableType) -> Group:
    return Group(Text(f"\n{title}", style="bold"), Padding(body, (0, 0, 0, 2)))


def _table(*names: str, right: Sequence[int] = ()) -> Table:
    columns = [
        Column(name, overflow="fold", justify="right" if at in right else "left")
        for at, name in enumerate(names)
    ]
    return Table(*columns, box=None, pad_edge=False, header_style="dim")


def head(page: Object) -> Group:
    """What was decided, in words."""
    decision = page["decision"]
    lines = [
        Text(f"{page['entity_id']} {page['window']} as of {moment(page['as_of'])}", style="bold"),
        Text(
            f"{decision['action'].upper()}, {decision['mode']}: strength {number(decision['strength'])}, "
            f"confidence {number(decision['confidence'])}, "
            f"contradiction {number(decision['contradiction'])}, "
            f"allocation {percent(decision['allocation_pct'])}, loss limit "
            f"{percent(decision['max_loss_pct'])}, risk {decision['risk']}"
        ),
        Text(decision["thesis"]),
    ]
    earlier = page["duplicate_of"]
    if earlier is None:
        lines.append(Text(f"Recommendation {page['recommendation_id']}."))
    else:
        lines.append(
            Text(
                f"This cycle's decision repeats recommendation {earlier['id']} of "
                f"{moment(earlier['generated_at'])} (confidence then {number(earlier['confidence'])}), so no "
                "new one was stored. The numbers here are this cycle's own."
            )
        )
    if page["differences"]:
        named = ", ".join(
            f"{d['what']} ({d['stored']} stored, {d['computed']} now)" for d in page["differences"]
        )
        lines.append(
            Text(
                f"CAUTION: what this cycle stored is not what its recorded inputs give now: {named}. A stage "
                "was run alone, or rows, rules or libraries changed since.",
                style="bold",
            )
        )
    return Group(*lines)


def _gates(gates: Sequence[Object]) -> Table:
    table = _table("for", "what", "value", "", "threshold", "margin", "", right=(2, 4, 5))
    for gate in gates:
        verdict = "not asked" if not gate["asked"] else "holds" if gate["holds"] else "FAILS"
        if gate["part"] in {"direction", "action", "mode"} and not gate["holds"]:
            verdict = "no"
        table.add_row(
            _PARTS.get(gate["part"], gate["part"]),
            label(gate["gate"]),
            number(gate["value"]),
            gate["relation"],
            number(gate["threshold"]),
            number(gate["margin"]),
            verdict,
        )
    return table


def _direction(page: Object) -> Group:
    d = page["direction"]
    average = (
        f"{d['direction']}: average {number(d['average'])} = {number(d['weighted_sum'])} (weight × impact × "
        f"sentiment, summed) / {number(d['total_weight'])} (weight, summed over {d['counted']} signals)"
    )
    lines = [average]
    if d["macro_modifier"] != 1.0:
        lines.append(
            f"strength {number(d['strength'])} = |average| × macro modifier {number(d['macro_modifier'])}"
        )
    lines.append(
        f"contradiction {number(d['contradiction'])}: weight × impact is {number(d['positive_weight'])} for "
        f"and {number(d['negative_weight'])} against"
    )
    lines.extend(detail["description"] for detail in d["disagreements"])
    if "posterior" in page:
        p = page["posterior"]
        lines.append(
            f"P_bull {number(p['p_bull'])} from L {number(p['log_likelihood'])} (α {number(p['alpha'])}, β "
            f"{number(p['beta'])}), entropy {number(p['entropy'])}; regime {p['regime']}, which asks for ½ ± "
            f"{number(p['direction_threshold'])}"
        )
    if d["skipped"]:
        lines.append(f"{d['skipped']} signals were skipped for a value that is not finite")
    return Group(*map(Text, lines))


def _terms(terms: Sequence[Object], total: str, value: float) -> Table:
    table = _table("", "weight", "", "quantity", "adds", right=(1, 3, 4))
    for term in terms:
        table.add_row(
            term["term"].replace("_", " "),
            number(term["weight"]),
            "×",
            number(term["quantity"]),
            number(term["value"]),
        )
    table.add_row(total, "", "", "", number(value))
    return table


def _confidence(page: Object) -> Group:
    c = page["confidence"]
    about = (
        f"{c['unique_sources']} documents, mean credibility {number(c['average_credibility'])}, agreement "
        f"{number(c['agreement'])} × {number(c['agreement_dampener'])} for their number"
    )
    return Group(_terms(c["terms"], "confidence (at least 0, at most 1)", c["value"]), Text(about))


def _sizing(page: Object) -> Table:
    heads = ("+ confidence", "× strength", "× span", "× contradiction", "× evidence", "× scale", "= size")
    table = _table("", "base", *heads, right=range(1, 9))
    names = ("base", "confidence_factor", "strength_factor", "span", "contradiction_factor")
    for name, text in (("allocation_pct", "allocation"), ("max_loss_pct", "loss limit")):
        chain = page["sizing"][name]
        table.add_row(
            text,
            *(number(chain[part]) for part in names),
            number(chain["evidence_factor"]),
            number(chain["scale"]),
            number(chain["size"]),
        )
    return table


def _scores(page: Object) -> Group:
    risk, quality = page["risk"], page["data_quality"]
    return Group(
        _terms(risk["terms"], f"risk score: {risk['level']}", risk["score"]),
        Text(""),
        _terms(quality["terms"], "data quality score", quality["score"]),
    )


def _signals(page: Object, shown: int) -> Group:
    items = page["signals"]
    used = [name for name in FACTORS if any(name in item["factors"] for item in items)]
    table = _table(
        "contribution", "signal", "published", *(FACTORS[n] for n in used), "= weight", "impact", "sentiment",
        right=(0, *range(3, 6 + len(used))),
    )  # fmt: skip
    for item in items[:shown]:
        name = item["title"] or item["source_id"] or item["id"]
        about = f"{name} ({item['id'][:8]})" if item["layer"] == "entity" else item["id"]
        table.add_row(
            f"{item['contribution']:+.4f}",
            about if item["counted"] else f"{about}: not counted, {item['why_not']}",
            moment(item["published_at"]),
            *(number(item["factors"].get(factor)) for factor in used),
            number(item["weight"]),
            number(item["impact"]),
            number(item["sentiment"]),
        )
    rest = items[shown:]
    table.add_row(
        f"{sum(item['contribution'] for item in rest):+.4f}" if rest else "",
        f"{len(rest)} further signals (--signals {len(items)} lists all)" if rest else "",
    )
    table.add_row(f"{page['direction']['average']:+.4f}", "average")
    return Group(table, Text("contribution = weight × impact × sentiment / all weight"))


def _layers(layers: Sequence[Object]) -> Table:
    table = _table("layer", "signals", "counted", "weight", "contribution", right=(1, 2, 3, 4))
    for layer in layers:
        table.add_row(
            layer["layer"],
            number(layer["signals"]),
            number(layer["counted"]),
            number(layer["weight"]),
            f"{layer['contribution']:+.4f}",
        )
    return table


def _projection(p: Object) -> Text:
    return Text(
        f"{p['direction']}, strength {number(p['strength'])}, confidence {number(p['confidence'])}: "
        f"(1 − {number(p['macro_weight'])}) × (signed strength {number(p['signed_strength'])} + "
        f"{number(p['momentum_weight'])} × momentum {number(p['momentum'])}) + {number(p['macro_weight'])} × "
        f"world events {number(p['macro_signed'])} = {number(p['blended'])}"
    )


def _origin(page: Object) -> Group:
    o = page["origin"]
    state = "active" if o["config_active"] else "not active now"
    runs = ", ".join(run["run_id"] for run in o["runs"]) or "not in the run log"
    libraries = ", ".join(f"{name} {version}" for name, version in o["library_set"].items())
    code = f"code {o['code_version']}"
    if o["code_version"] != o["code_version_now"]:
        code += f" (now {o['code_version_now']})"
    accuracy = "none" if o["accuracy_as_of"] is None else f"as of {moment(o['accuracy_as_of'])}"
    return Group(
        Text(
            f"configuration {o['config_version']} ({state}; by {o['config_changed_by']}: "
            f"{o['config_reason']}), {page['pipeline_mode']} mode, hash {o['config_hash']}"
        ),
        Text(f"{code}; {libraries}; source accuracy {accuracy}"),
        Text(f"run {runs}"),
    )


# ------------------------------------------------------------------------------------- further sections


def what_if(found: Object) -> Group:
    """What would change the decision: distance, influence, shelf life."""
    return Group(
        Text("Distance", style="dim"),
        *_distance(found["distance"]),
        Text("Influence", style="dim"),
        *(_influence(by, found["influence"][by]) for by in ("documents", "sources")),
        Text("Shelf life", style="dim"),
        *_shelf_life(found),
    )


def _distance(distance: Object) -> list[RenderableType]:
    like = distance["supposed"]
    decision = distance["decision"]
    lines: list[RenderableType] = [
        Text(
            "documents that would be needed, each from a source of its own, published at this moment, with "
            f"credibility {number(like['credibility'])}, impact {number(like['impact'])} and extraction "
            f"confidence {number(like['extraction_confidence'])}; found by adding them and deciding again:"
        )
    ]
    for side in ("positive", "negative"):
        count = decision[side]
        if count is None:
            lines.append(
                Text(f"no number of {side} documents up to {distance['tried']} changes the decision")
            )
        else:
            lines.append(Text(f"{_more(count, side)}: {_decision(decision[f'{side}_becomes'])}"))
    table = _table(
        "for", "threshold crossed", "value", "", "threshold", "positive", "negative", right=(2, 4, 5, 6)
    )
    for gate in distance["gates"]:
        if gate["positive"] is not None or gate["negative"] is not None:
            table.add_row(
                _PARTS.get(gate["part"], gate["part"]),
                label(gate["gate"]),
                number(gate["value"]),
                gate["relation"],
                number(gate["threshold"]),
                number(gate["positive"]),
                number(gate["negative"]),
            )
    return [*lines, table]


def _more(count: int, side: str) -> str:
    return f"{count} more {side} document{'s' if count != 1 else ''}"


def _decision(found: Object) -> str:
    text = f"{found['action'].upper()}, {found['mode']}, direction {found['direction']}"
    reasons = found["suppression_reasons"]
    return f"{text}, suppressed for {', '.join(reasons)}" if reasons else text


def _influence(by: str, found: Object) -> Text:
    one = by.removesuffix("s")
    if found["impossible"]:
        return Text(f"{by}: no set of the {found['of']} changes action or mode (all were tried)")
    if found["upper"] is None:
        return Text(
            f"{by}: no set was found that changes action or mode; it would have at least {found['lower']} of "
            f"the {found['of']} (no smaller one does)"
        )
    if found["exact"]:
        count = found["upper"]
        size = f"exactly {count} of {found['of']} {one if count == 1 else by}"
    else:
        size = f"at least {found['lower']} and at most {found['upper']} of {found['of']} {by}"
    names = "; ".join(_named(item) for item in found["example"])
    return Text(
        f"{by}: {size} must go for action or mode to change; without {names}: {_decision(found['becomes'])}"
    )


def _named(item: Object) -> str:
    if "published_at" not in item:
        return str(item["id"])
    return f"{item['title'] or item['source_id']} of {moment(item['published_at'])[:10]} ({item['id'][:8]})"


def _shelf_life(found: Object) -> list[Text]:
    life = found["shelf_life"]
    lines = [
        Text(f"{moment(change['at'])}: {_decision(change['after'])}, if nothing new arrives")
        for change in life["changes"]
    ]
    until = moment(life["searched_until"])
    if not life["ends"]:
        lines.append(Text(f"action and mode were not seen to change up to {until}"))
    lines.append(
        Text(
            f"searched up to {until} at {life['moments_asked']} moments, among them each at which something "
            "leaves or settles; a change is exact to the microsecond, one that is undone between two of "
            "these moments is not seen"
        )
    )
    return lines


_CAUSES: Final = {
    "new_documents": "new documents",
    "ageing": "ageing",
    "left_the_window": "what left the window",
    "late_or_revised": "late or revised documents",
    "market_context": "market context",
    "source_accuracy": "source accuracy",
    "events_and_relations": "world events and relations",
    "configuration": "configuration",
    "code": "code (stored, but not by today's rules)",
}


def cause(name: str) -> str:
    """What a cause is called on the page."""
    return _CAUSES[name]


def since(found: Object) -> Group:
    """Why the decision differs from an earlier cycle's."""
    table = _table("", "average", "confidence", right=(1, 2))
    before, after, change = found["before"], found["after"], found["change"]
    table.add_row(
        f"then: {before['action'].upper()}, {before['mode']}", *(number(before[m]) for m in _MEASURES)
    )
    for name, part in found["parts"].items():
        count = len(found["documents"].get(name, ()))
        label = f"{cause(name)} ({count})" if count else cause(name)
        table.add_row(label, *(f"{part[m]:+.4f}" for m in _MEASURES))
    table.add_row("change", *(f"{change[m]:+.4f}" for m in _MEASURES))
    table.add_row(f"now: {after['action'].upper()}, {after['mode']}", *(number(after[m]) for m in _MEASURES))
    lines: list[RenderableType] = [table]
    for path, values in found["settings"].items():
        lines.append(Text(f"setting {path}: {values['before']} before, {values['after']} now"))
    for name, items in found["documents"].items():
        shown = "; ".join(_named(item) for item in items[:_SHOWN])
        rest = f"; and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
        if items:
            lines.append(Text(f"{cause(name)}: {shown}{rest}"))
    lines.append(
        Text(
            "each part is the cause's mean effect over all orders in which the causes can be switched on "
            "(Shapley's value); the parts add up to the change"
        )
    )
    return Group(*lines)


_MEASURES: Final = ("average", "confidence")
_SHOWN: Final = 5


def print_page(console: Console, page: Object, signals: int) -> None:
    """Print the page."""
    console.print(render(page, signals))
