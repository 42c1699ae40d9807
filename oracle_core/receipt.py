"""A receipt: one JSON file with everything a decision was made of, and the checker that makes it again.

``python -m oracle_core.receipt FILE`` needs no database and no network: it reads the inputs in the file, runs
the stages of :mod:`oracle_core.cycle` on them, prints what they give and compares every value with what the
file says was stored. Floats are written so that they read back exactly, NaN as null. How the parts are read
from tables belongs elsewhere; no rule lives here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np

from oracle_core import inputs as columns
from oracle_core.config import ConfigError, OracleConfig, parse_stored
from oracle_core.cycle import (
    CODE_VERSION,
    STAGE_VERSIONS,
    assemble_trends,
    decide,
    project_trends,
    score_signals,
)
from oracle_core.eligibility import ACTIONS, EV_REASONS, MODES, REJECTIONS
from oracle_core.enums import EvidenceRole, MarketRegime, SignalLayer, TrendDirection, Window
from oracle_core.explanation import explain
from oracle_core.frames import DecisionFrame, ProjectionFrame, SignalFrame, TrendFrame
from oracle_core.inputs import EPOCH, Columns, CycleInputs, HistoryRows, Keys, Ragged, StandingRows
from oracle_core.risk import LEVELS, citation_weights
from oracle_core.rules import rules_for
from oracle_core.suppression import REASONS

FORMAT: Final = "oracle-receipt/1"
TOLERANCE: Final = 1e-12
"""Relative and absolute, on another machine or library set than the one that decided."""
_TABLES: Final = ("documents", "bars", "events", "exposures", "edges", "accuracy")
_STRINGS: Final = tuple(f.name for f in fields(CycleInputs) if f.name not in _TABLES)
_HASHED: Final = ("key", "versions", "configuration", "inputs", "earlier", "derived", "stored", "seal")
_WINDOWS: Final = tuple(window.value for window in Window)
_ENUMS: Final[dict[str, tuple[str, ...]]] = {
    name: tuple(member.value for member in members)
    for name, members in {
        "layer": SignalLayer,
        "direction": TrendDirection,
        "regime": MarketRegime,
        "role": EvidenceRole,
        "action": ACTIONS,
        "mode": MODES,
        "allowed_mode": MODES,
        "risk": LEVELS,
        "rejected": REJECTIONS,
        "suppressed_by": REASONS,
        "ev_failed": EV_REASONS,
    }.items()
}

Object = dict[str, Any]
C = TypeVar("C", bound=Columns)
F = TypeVar("F", SignalFrame, TrendFrame, ProjectionFrame, DecisionFrame)


class ReceiptError(ValueError):
    """A file that is no receipt, or of which nothing can be derived; the message says where and why."""


@dataclass(frozen=True)
class Finding:
    """Something in a receipt that does not hold: where, what the file says, what was derived.

    ``negligible`` marks numbers that are equal to ``TOLERANCE``.
    """

    path: str
    says: object
    derived: object
    negligible: bool = False


# ----------------------------------------------------------------------------------------- columns as JSON


def _plain(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """A value of an array or list as JSON can carry it."""
    if isinstance(value, np.ndarray):
        return [_plain(each) for each in value.tolist()]
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value + 0.0 if math.isfinite(value) else None
    return value


def _written(rows: Columns) -> Object:
    """Columns by name; lists of codes as lists."""
    found: Object = {}
    for f in fields(rows):  # type: ignore[arg-type]
        values = getattr(rows, f.name)
        if isinstance(values, Ragged):
            found[f.name] = [values.codes[a:b].tolist() for a, b in pairwise(values.offsets.tolist())]
        else:
            found[f.name] = _plain(values)
    return found


def _read(of: type[C], written: Mapping[str, Any], where: str) -> C:
    """The columns again."""
    names = [f.name for f in fields(of)]  # type: ignore[arg-type]
    if sorted(written) != sorted(names):
        raise ReceiptError(f"{where} must have exactly the columns {', '.join(names)}")
    values = {f.name: _column(str(f.type), written[f.name], f"{where}.{f.name}") for f in fields(of)}  # type: ignore[arg-type]
    if len({len(column) for column in values.values()}) != 1:
        raise ReceiptError(f"the columns of {where} have different lengths")
    return of(**values)


def _column(kind: str, listed: Sequence[Any], where: str) -> Any:  # noqa: ANN401 - an array of that kind
    try:
        if kind == "Ragged":
            offsets = np.zeros(len(listed) + 1, np.int64)
            np.cumsum([len(each) for each in listed], out=offsets[1:])
            return Ragged(offsets, np.array([code for each in listed for code in each], np.int64))
        if kind == "Float":
            return np.array(list(listed), np.float64)  # null is NaN
        if kind == "Strings":
            return _strings(listed)
        return np.array(list(listed), np.bool_ if kind == "Bool" else np.int64)
    except (OverflowError, TypeError, ValueError) as error:
        raise ReceiptError(f"{where} cannot be read: {error}") from None


def _strings(listed: Sequence[Any]) -> columns.Strings:
    texts = np.empty(len(listed), np.object_)
    texts[:] = list(listed)
    return texts


def written_inputs(inputs: CycleInputs) -> Object:
    """What a cycle read, as JSON."""
    return {
        **{name: getattr(inputs, name).tolist() for name in _STRINGS},
        **{name: _written(getattr(inputs, name)) for name in _TABLES},
    }


def read_inputs(written: Mapping[str, Any]) -> CycleInputs:
    """The same as columns again.

    Raises:
        ReceiptError: a column is missing or cannot be read.

    """
    if sorted(written) != sorted((*_STRINGS, *_TABLES)):
        raise ReceiptError(f"inputs must have exactly the parts {', '.join((*_STRINGS, *_TABLES))}")
    rows: dict[str, Any] = {
        "documents": columns.DocumentRows,
        "bars": columns.BarRows,
        "events": columns.EventRows,
        "exposures": columns.ExposureRows,
        "edges": columns.EdgeRows,
        "accuracy": columns.AccuracyRows,
    }
    parts: Object = {name: _strings(written[name]) for name in _STRINGS}
    parts |= {name: _read(of, written[name], f"inputs.{name}") for name, of in rows.items()}
    return CycleInputs(**parts)


# ----------------------------------------------------------------------------------------------- deriving


def _zero(frame: F) -> F:
    """The frame with 0 for -0, as the pipeline hands it on."""
    changes: Object = {
        f.name: values + 0.0
        for f in fields(frame.rows)
        if isinstance(values := getattr(frame.rows, f.name), np.ndarray) and values.dtype == np.float64
    }
    return replace(frame, rows=replace(frame.rows, **changes))


def derive(  # noqa: PLR0917 - in the order in which the stages take them
    inputs: CycleInputs,
    key: tuple[str, str],
    history: HistoryRows,
    standing: StandingRows,
    as_of_us: int,
    config: OracleConfig,
) -> Object:
    """Decide one key by the stages of the cycle and say everything that they give.

    Args:
        inputs: what the cycle read.
        key: entity and window.
        history: earlier trends of the key; ``key`` is 0.
        standing: the newest earlier recommendation; ``key`` is 0.
        as_of_us: the cycle's moment.
        config: its configuration.

    Returns:
        ``signals`` with every factor of their weight, ``trend``, ``evidence``, ``projection``, ``decision``,
        ``citations`` and ``trace``: every threshold with its value, every sum with its terms.

    """
    entities = {name: code for code, name in enumerate(inputs.entities.tolist())}
    keys = Keys(np.array([entities[key[0]]]), np.array([_WINDOWS.index(key[1])]))
    signals = _zero(score_signals(inputs, keys, as_of_us, config))
    trends = _zero(assemble_trends(signals, inputs, as_of_us, config))
    projections = _zero(project_trends(trends, inputs, history, as_of_us, config))
    decided = _zero(decide(trends, projections, inputs, standing, as_of_us, config))
    trace = explain(
        signals=signals,
        trends=trends,
        projections=projections,
        decided=decided,
        inputs=inputs,
        as_of_us=as_of_us,
        config=config,
        rules=rules_for(config),
    )
    return {
        "signals": _signals(signals),
        "trend": {
            **_named_row(trends.rows, 0),
            "supporting": trends.supporting[0],
            "opposing": trends.opposing[0],
            "disagreements": _plain_json(trends.disagreements[0]),
            "dominant_catalysts": trends.dominant_catalysts[0],
            "material_risks": trends.material_risks[0],
        },
        "evidence": [
            {**_named_row(trends.evidence, at), "signal": trends.ids[code]}
            for at, code in enumerate(trends.evidence.signal.tolist())
        ],
        "projection": {**_named_row(projections.rows, 0), "driving_factors": projections.driving_factors[0]},
        "decision": {
            **_named_row(decided.rows, 0),
            "thesis": decided.thesis[0],
            "plain_thesis": decided.plain_thesis[0],
            "invalidation_conditions": decided.invalidation_conditions[0],
        },
        "citations": _citations(trends, config),
        "trace": _plain_json(trace),
    }


def _plain_json(value: object) -> Any:  # noqa: ANN401 - any JSON value
    return json.loads(json.dumps(value, allow_nan=False))


def _signals(frame: SignalFrame) -> list[Object]:
    rows, found = frame.rows, []
    tables = {"signal": frame.ids, "source": frame.sources, "source_type": frame.source_types}
    tables["catalyst"] = frame.catalysts
    for at in range(len(rows.key)):
        row = _named_row(rows, at)
        for name, table in tables.items():
            row[name] = table[row[name]] if row[name] >= 0 else None
        row["risks"] = frame.risk_labels[rows.risks[np.array([at])].codes].tolist()
        found.append(row)
    return found


def _named_row(rows: Columns, at: int) -> Object:
    """One row by column, codes of enums as their names, flags of reasons as the reasons that apply."""
    found: Object = {}
    for f in fields(rows):  # type: ignore[arg-type]
        values = getattr(rows, f.name)
        if f.name == "key" or isinstance(values, Ragged):
            continue
        value = values[at].tolist()
        if f.name in _ENUMS and isinstance(value, list):
            value = [name for name, here in zip(_ENUMS[f.name], value, strict=True) if here]
        elif f.name in _ENUMS:
            value = _ENUMS[f.name][value] if value >= 0 else None
        found[f.name] = _plain(value)
    return found


def _citations(trends: TrendFrame, config: OracleConfig) -> list[Object]:
    """The documents that a recommendation cites, weighted by their rank among all that is cited."""
    documents = set(trends.ids[trends.evidence.signal[trends.evidence.is_document]].tolist())
    found = []
    for role, listed in (("supporting", trends.supporting[0]), ("opposing", trends.opposing[0])):
        weights = citation_weights(np.arange(len(listed)), config.risk).tolist()
        found += [
            {"document_id": name, "evidence_type": role, "weight": weight}
            for name, weight in zip(listed, weights, strict=True)
            if name in documents
        ]
    return sorted(found, key=lambda row: (row["evidence_type"], row["document_id"]))


# ------------------------------------------------------------------------------------------------ writing


def make(
    *,
    key: tuple[str, str],
    recommendation_id: str,
    as_of: str,
    as_of_us: int,
    config: OracleConfig,
    config_version: int,
    inputs: CycleInputs,
    history: HistoryRows,
    standing: StandingRows,
    stored: Mapping[str, Any],
    seal: Mapping[str, Any] | None,
    libraries: Mapping[str, str],
) -> Object:
    """Put a receipt together; see :func:`check` for what its parts are good for.

    Args:
        key: entity and window.
        recommendation_id: of the decision.
        as_of: the cycle's moment as text.
        as_of_us: the same in microseconds since 1970.
        config: the cycle's configuration.
        config_version: its number.
        inputs: what the cycle read.
        history: as for :func:`derive`.
        standing: as for :func:`derive`.
        stored: the rows ``recommendation``, ``evaluation`` and ``evidence`` as the tables hold them.
        seal: the link of the chain of hashes that covers the cycle, if it is sealed.
        libraries: versions of what beside the code decides the last bits.

    """
    receipt: Object = {
        "format": FORMAT,
        "key": {
            "recommendation_id": recommendation_id,
            "entity_id": key[0],
            "window": key[1],
            "as_of": as_of,
            "as_of_us": as_of_us,
        },
        "versions": {"code": CODE_VERSION, "stages": dict(STAGE_VERSIONS), "libraries": dict(libraries)},
        "configuration": {
            "version": config_version,
            "fingerprint": config.fingerprint(),
            "values": config.stored(),
        },
        "inputs": written_inputs(inputs),
        "earlier": {"history": _written(history), "standing": _written(standing)},
        "derived": derive(inputs, key, history, standing, as_of_us, config),
        "stored": _plain_json(stored),
        "seal": None if seal is None else dict(seal),
    }
    return {**receipt, "hashes": hashes(receipt)}


def hashes(receipt: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of every part, and of these together (``whole``)."""
    found = {name: _digest(receipt.get(name)) for name in _HASHED}
    return {**found, "whole": _digest([receipt.get("format"), found])}


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


# ----------------------------------------------------------------------------------------------- checking


def check(receipt: Mapping[str, Any]) -> tuple[Object, list[Finding]]:
    """Derive the decision of a receipt again and list all that does not hold.

    The hashes must be those of the parts; the configuration that of its fingerprint; the moment as text
    that of the number; everything derived from the inputs must be what the receipt says was derived, and
    what the stored rows say.

    Returns:
        What was derived, and the findings; none of them where the receipt holds.

    Raises:
        ReceiptError: it is no receipt, or nothing can be derived from it.

    """
    if receipt.get("format") != FORMAT:
        raise ReceiptError(f"the file says format {receipt.get('format')!r}, this checker reads {FORMAT!r}")
    parts = {"format", *_HASHED, "hashes"}
    if missing := sorted(parts - receipt.keys()):
        raise ReceiptError(f"the receipt lacks {', '.join(missing)}")
    if unknown := sorted(receipt.keys() - parts):
        raise ReceiptError(f"the receipt has parts that no receipt has: {', '.join(unknown)}")
    try:
        return _check(receipt)
    except ReceiptError:
        raise
    # A file of strangers may hold anything anywhere: a number for a list, NaN, an integer of 30 digits.
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ReceiptError(f"nothing can be derived: {type(error).__name__}: {error}") from error


def _check(receipt: Mapping[str, Any]) -> tuple[Object, list[Finding]]:
    findings = list(_differences("hashes", receipt["hashes"], hashes(receipt)))
    config = _configuration(receipt["configuration"], findings)
    key, earlier = receipt["key"], receipt["earlier"]
    moment = EPOCH + timedelta(microseconds=key["as_of_us"])
    findings += _differences("key.as_of", key["as_of"], moment.isoformat())
    derived = derive(
        read_inputs(receipt["inputs"]),
        (key["entity_id"], key["window"]),
        _read(HistoryRows, earlier["history"], "earlier.history"),
        _read(StandingRows, earlier["standing"], "earlier.standing"),
        key["as_of_us"],
        config,
    )
    findings += _differences("derived", receipt["derived"], derived)
    findings += _differences("stored", receipt["stored"], _as_stored(receipt, derived, config))
    return derived, findings


def _configuration(written: Mapping[str, Any], findings: list[Finding]) -> OracleConfig:
    try:
        config, _ = parse_stored(written["values"])
    except (ConfigError, LookupError, TypeError) as error:
        raise ReceiptError(f"the configuration cannot be used: {error}") from None
    findings += _differences("configuration.fingerprint", written.get("fingerprint"), config.fingerprint())
    return config


def _as_stored(receipt: Mapping[str, Any], derived: Object, config: OracleConfig) -> Object:
    """The stored rows as they must be; the words of a model are taken as they are."""
    key, decision, trend, stored = receipt["key"], derived["decision"], derived["trend"], receipt["stored"]
    metadata = stored.get("recommendation", {}).get("model_metadata", {})
    worded = metadata.get("llm_used") is True
    recommendation = {
        "id": key["recommendation_id"],
        "entity_id": key["entity_id"],
        "time_horizon": key["window"],
        "action": decision["action"],
        "mode": decision["mode"],
        "confidence": trend["confidence"],
        "thesis": stored["recommendation"]["thesis"] if worded else decision["thesis"],
        "invalidation_conditions": decision["invalidation_conditions"],
        "allocation_pct": decision["allocation_pct"],
        "max_loss_pct": decision["max_loss_pct"],
        "risk_classification": decision["risk"],
        "pipeline_mode": config.pipeline_mode.value,
        "expected_value": decision["expected_value"],
        "p_bull": trend["p_bull"],
        "generated_at_us": key["as_of_us"],
        "config_version": receipt["configuration"]["version"],
        "model_metadata": {**metadata, "deterministic_thesis": decision["plain_thesis"]},
    }
    evaluation = stored.get("evaluation", {})
    checks = {
        **evaluation.get("risk_checks", {}),
        "time_horizon": key["window"],
        "suppression_reasons": decision["suppressed_by"],
        "ev_reasons": decision["ev_failed"],
        "data_quality_score": decision["data_quality_score"],
        "risk_classification": decision["risk"],
        "invalidation_conditions": decision["invalidation_conditions"],
        "position_sizing": {
            "allocation_pct": decision["allocation_pct"],
            "max_loss_pct": decision["max_loss_pct"],
        },
    }
    for name, value in (
        ("ev", decision["expected_value"]),
        ("p_bull", trend["p_bull"]),
        ("r_up", decision["r_up"]),
        ("r_down", decision["r_down"]),
        ("pipeline_mode", config.pipeline_mode.value),
        ("ev_threshold", config.eligibility.ev_threshold),
    ):
        if name in checks:  # in the probabilistic mode only
            checks[name] = value
    return {
        "recommendation": recommendation,
        "evaluation": {
            "eligible": decision["eligible"],
            "allowed_mode": decision["allowed_mode"],
            "rejection_reasons": decision["rejected"],
            "risk_checks": checks,
        },
        "evidence": derived["citations"],
    }


def _differences(path: str, says: object, derived: object) -> Iterator[Finding]:
    if isinstance(says, Mapping) and isinstance(derived, Mapping):
        for name in sorted({*says, *derived}):
            if name not in says or name not in derived:
                there = (says.get(name, "nothing"), derived.get(name, "nothing"))
                yield Finding(f"{path}.{name}", *there)
            else:
                yield from _differences(f"{path}.{name}", says[name], derived[name])
    elif isinstance(says, list) and isinstance(derived, list) and len(says) == len(derived):
        for at, (a, b) in enumerate(zip(says, derived, strict=True)):
            yield from _differences(f"{path}[{at}]", a, b)
    elif type(says) is not type(derived) or says != derived:
        numbers = isinstance(says, float) and isinstance(derived, float)
        near = numbers and math.isclose(says, derived, rel_tol=TOLERANCE, abs_tol=TOLERANCE)  # type: ignore[arg-type]
        yield Finding(path, says, derived, near)


# ------------------------------------------------------------------------------------------ as a program


def report(receipt: Mapping[str, Any]) -> tuple[str, bool]:
    """What the checker prints about a receipt, and whether the receipt holds."""
    try:
        derived, findings = check(receipt)
    except ReceiptError as error:
        return f"This receipt does not hold: {error}.", False
    key, decision, trend = receipt["key"], derived["decision"], derived["trend"]
    documents, days = receipt["inputs"]["documents"]["document"], receipt["inputs"]["bars"]["day"]
    eligible = "eligible" if decision["eligible"] else "not eligible"
    lines = [
        f"{key['entity_id']} over {key['window']} as of {key['as_of']}, by code {CODE_VERSION}:",
        f"  from {len(documents)} impacts of documents and {len(days)} bars",
        f"  {decision['action']}, {decision['mode']}, {eligible}, risk {decision['risk']}",
        f"  direction {trend['direction']}, strength {trend['strength']!r}",
        f"  confidence {trend['confidence']!r}, contradiction {trend['contradiction']!r}",
        f"  allocation {decision['allocation_pct']!r}, largest loss {decision['max_loss_pct']!r}",
        f"  {decision['thesis']}",
    ]
    lines += [
        f"  {gate['part']}: {gate['gate']} {gate['value']!r} {gate['relation']} {gate['threshold']!r} "
        f"{'holds' if gate['holds'] else 'fails'}"
        for gate in derived["trace"]["gates"]
        if gate["asked"]
    ]
    versions = receipt["versions"]
    if isinstance(versions, Mapping) and versions.get("code") != CODE_VERSION:
        lines.append(f"Written by code {versions.get('code')}, checked by {CODE_VERSION}: the rules changed.")
    grave = [finding for finding in findings if not finding.negligible]
    for finding in grave:
        lines.append(f"DIFFERS {finding.path}: the file says {finding.says!r}, derived {finding.derived!r}")
    if grave:
        lines.append(f"This receipt does not hold: {len(grave)} values differ.")
    elif findings:
        lines.append(
            f"This receipt holds to {TOLERANCE:g}, not bit for bit: {len(findings)} numbers differ in their "
            "last digits, as on another machine or with other libraries."
        )
    else:
        lines.append("This receipt holds, bit for bit.")
    return "\n".join(lines), not grave


def main(arguments: Sequence[str] | None = None) -> int:
    """Check one file; 0 if it holds, 1 if not, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m oracle_core.receipt",
        description="Derive the decision of a receipt from the inputs in it and compare. No database, no "
        "network. Exit code 0: it holds, 1: it does not.",
    )
    parser.add_argument("file", metavar="FILE", help="a receipt, written by `oracle receipt`")
    name = parser.parse_args(arguments).file
    try:
        with open(name, encoding="utf-8") as file:  # noqa: PTH123 - the core imports no pathlib
            receipt = json.load(file)
    except (OSError, RecursionError, ValueError) as error:
        print(f"{name} cannot be read: {error}")  # noqa: T201 - a program
        return 1
    if not isinstance(receipt, dict):
        print(f"{name} is no receipt: it holds no JSON object")  # noqa: T201 - a program
        return 1
    text, holds = report(receipt)
    print(text)  # noqa: T201 - a program
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
