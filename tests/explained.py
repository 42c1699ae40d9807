"""Re-derive an explained decision from the numbers on its page alone, as a sceptical reader would.

Formulas are written out anew from the specification; nothing of the product is imported.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

RELATIVE = 1e-9


def near(value: float) -> Any:  # noqa: ANN401 - pytest names no type for it
    return pytest.approx(value, rel=RELATIVE, abs=1e-12)


def check(page: dict[str, Any], mode: str) -> None:
    """Fail unless every number follows from those it is said to be made of."""
    check_signals(page)
    check_trend(page, mode)
    check_sums(page)
    check_sizes(page)
    check_gates(page)
    check_decision(page, mode)
    check_projection(page)


def check_signals(page: dict[str, Any]) -> None:
    direction = page["direction"]
    counted = [s for s in page["signals"] if s["counted"]]
    total = math.fsum(s["weight"] for s in counted)
    assert direction["total_weight"] == near(total)
    assert direction["counted"] == len(counted)
    assert direction["signals"] == len(page["signals"])
    for s in page["signals"]:
        product = min(math.prod(s["factors"].values()), direction["max_weight"])
        assert s["weight"] == near(product), s
        if s["counted"]:
            assert s["why_not"] is None
            assert s["weight"] > 0.0
            assert s["contribution"] == near(s["weight"] * s["impact"] * s["sentiment"] / total)
        else:
            assert s["contribution"] == 0.0
            assert s["why_not"] is not None
    sizes = [abs(s["contribution"]) for s in page["signals"]]
    assert sizes == sorted(sizes, reverse=True)
    for layer in page["layers"]:
        mine = [s for s in page["signals"] if s["layer"] == layer["layer"]]
        assert layer["signals"] == len(mine)
        assert layer["counted"] == sum(s["counted"] for s in mine)
        assert layer["weight"] == near(sum(s["weight"] for s in mine if s["counted"]))
        assert layer["contribution"] == near(sum(s["contribution"] for s in mine))


def check_trend(page: dict[str, Any], mode: str) -> None:
    direction = page["direction"]
    average = max(-1.0, min(1.0, math.fsum(s["contribution"] for s in page["signals"])))
    assert direction["average"] == near(average)
    assert direction["average"] == near(sum(layer["contribution"] for layer in page["layers"]))
    assert direction["strength"] == near(min(1.0, abs(average * direction["macro_modifier"])))
    above, below = (
        math.fsum(
            s["weight"] * s["impact"] for s in page["signals"] if s["counted"] and s["sentiment"] * sign > 0.0
        )
        for sign in (1.0, -1.0)
    )
    assert (direction["positive_weight"], direction["negative_weight"]) == (near(above), near(below))
    share = min(above, below) / (above + below) if above + below > 0.0 else 0.0
    if mode == "heuristic":
        assert direction["contradiction"] == near(share)
        assert "posterior" not in page
        return
    assert direction["contradiction"] == near(entropy(share))
    posterior = page["posterior"]
    masses = [s["mass"] for s in page["signals"]]
    bull, bear = math.fsum(m for m in masses if m > 0.0), -math.fsum(m for m in masses if m < 0.0)
    for s in page["signals"]:
        factor = direction["macro_modifier"] if s["layer"] == "entity" else 1.0
        effective = s["weight"] * s["impact"] * s["sentiment"] * factor
        assert s["mass"] == near(effective if s["counted"] else 0.0)
    alpha, beta = 1.0 + bull, 1.0 + bear
    assert (posterior["alpha"], posterior["beta"]) == (near(alpha), near(beta))
    assert posterior["log_likelihood"] == near(bull - bear)
    assert posterior["p_bull"] == near(1.0 / (1.0 + math.exp(bear - bull)))
    assert posterior["bayesian_confidence"] == near(((alpha - beta) / (alpha + beta)) ** 2)
    assert posterior["entropy"] == pytest.approx(entropy(posterior["p_bull"]), rel=1e-9, abs=1e-9)


def entropy(share: float) -> float:
    parts = [p for p in (share, 1.0 - share) if p > 0.0]
    return min(1.0, -sum(p * math.log2(p) for p in parts))


def check_sums(page: dict[str, Any]) -> None:
    sums = {
        "confidence": (page["confidence"]["value"], True),
        "risk": (page["risk"]["score"], False),
        "data_quality": (page["data_quality"]["score"], False),
    }
    for name, (value, clamped) in sums.items():
        terms = page[name]["terms"]
        for term in terms:
            assert term["value"] == near(term["weight"] * term["quantity"]), (name, term)
        total = math.fsum(term["value"] for term in terms)
        assert value == near(min(1.0, max(0.0, total)) if clamped else total), name
    assert page["decision"]["confidence"] == page["confidence"]["value"]
    assert page["decision"]["risk"] == page["risk"]["level"]
    quality = page["data_quality"]
    assert quality["total"] == quality["valid"] + quality["failed"]


def check_sizes(page: dict[str, Any]) -> None:
    for name, chain in page["sizing"].items():
        raw = chain["base"] + chain["confidence_factor"] * chain["strength_factor"] * chain["span"]
        size = raw * chain["contradiction_factor"] * chain["evidence_factor"] * chain["scale"]
        assert chain["size"] == near(min(chain["most"], max(0.0, size)))
        assert chain["base"] + chain["span"] == near(chain["most"])
        assert page["decision"][name] == chain["size"]


COMPARE = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
}


def check_gates(page: dict[str, Any]) -> None:
    for gate in page["gates"]:
        if gate["value"] is None:  # missing: it does not hold
            assert gate["margin"] is None
            assert not gate["holds"]
            continue
        assert gate["holds"] == COMPARE[gate["relation"]](gate["value"], gate["threshold"]), gate
        difference = gate["value"] - gate["threshold"]
        assert gate["margin"] == near(difference if gate["relation"] in {">=", ">"} else -difference), gate


def gate(page: dict[str, Any], part: str, name: str) -> dict[str, Any]:
    (found,) = (g for g in page["gates"] if (g["part"], g["gate"]) == (part, name))
    return found


def failing(page: dict[str, Any], part: str) -> list[str]:
    return [g["gate"] for g in page["gates"] if g["part"] == part and g["asked"] and not g["holds"]]


def check_decision(page: dict[str, Any], mode: str) -> None:
    """The decision, from the gates."""
    decision, direction = page["decision"], page["direction"]["direction"]
    holds = {(g["part"], g["gate"]): g["holds"] for g in page["gates"]}
    if mode == "heuristic":
        mixed = (
            not holds["direction", "not_mixed:contradiction"] and not holds["direction", "not_mixed:average"]
        )
        silent = False
    else:
        mixed = not holds["direction", "not_mixed:entropy"]
        silent = not holds["direction", "any_evidence"]
    expected = (
        "neutral"
        if silent
        else "mixed"
        if mixed
        else "positive"
        if holds["direction", "positive"]
        else "negative"
        if holds["direction", "negative"]
        else "neutral"
    )
    assert direction == expected
    assert decision["rejection_reasons"] == failing(page, "eligibility")
    assert decision["suppression_reasons"] == failing(page, "suppression")
    assert decision["ev_reasons"] == failing(page, "expected_value")
    assert decision["eligible"] == (not decision["rejection_reasons"])
    assert decision["suppressed"] == bool(decision["suppression_reasons"])
    sided = direction in {"positive", "negative"}
    if sided and holds["action", "act_or_defer"]:
        action = "act" if direction == "positive" else "defer"
    else:
        action = "monitor" if sided and holds["action", "monitor"] else "observe"
    assert decision["action"] == action
    highest = "informational"
    if action in {"act", "defer"}:
        production = [g["holds"] for g in page["gates"] if g["gate"].startswith("production_eligible:")]
        if holds["mode", "simulation_eligible:confidence"]:
            highest = "simulation_eligible"
        if all(production):
            highest = "production_eligible"
    if decision["rejection_reasons"] or decision["ev_reasons"]:
        highest = "informational"
    assert decision["allowed_mode"] == highest
    assert decision["mode"] == ("informational" if decision["suppressed"] else highest)


def check_projection(page: dict[str, Any]) -> None:
    p = page["projection"]
    sign = {"positive": 1.0, "negative": -1.0}.get(page["direction"]["direction"], 0.0)
    assert p["signed_strength"] == near(sign * page["direction"]["strength"])
    own = p["signed_strength"] + p["momentum_weight"] * p["momentum"]
    blended = (1.0 - p["macro_weight"]) * own + p["macro_weight"] * p["macro_signed"]
    assert p["blended"] == near(blended)
    assert p["strength"] == near(min(1.0, abs(blended)))
