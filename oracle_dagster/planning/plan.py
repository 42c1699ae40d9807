"""Plan a change of the configuration: what it would decide otherwise, why, and what has to be rebuilt.

A plan is a rehearsal of exactly the run that applying it starts: from the first stage that the changed
settings reach, of every known entity and window, once under the configuration in force and once under the
candidate, as of the same moment and over the same settled inputs. Nothing is written.

To rebuild is every key with a result that changes, from the first stage that the settings reach.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from oracle_core.enums import RiskLevel
from oracle_core.explanation import every_gate, quality_of
from oracle_core.rules import rules_for
from oracle_dagster import pipeline
from oracle_dagster.assets.configuration import GROUPS
from oracle_dagster.planning import differences
from oracle_dagster.storage import configuration, cycles, inputs, results
from oracle_dagster.storage.entities import in_service

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from oracle_core.config import OracleConfig
    from oracle_core.inputs import Bool, Float, Int
    from oracle_dagster.storage.cycles import Cycle, Failure, Key
    from oracle_dagster.storage.database import Database

    Progress = Callable[[str, int, int], None]

NOT_STORED: Final = 2**31 - 1
"""The version that a candidate has while it is only planned: later than every stored one."""
_RISKS: Final = tuple(level.value for level in RiskLevel)
_NUMBERS: Final = ("confidence", "strength", "contradiction")


@dataclass(frozen=True)
class Side:
    """A decision before or after."""

    action: str
    mode: str
    confidence: float
    allocation_pct: float
    max_loss_pct: float
    risk_classification: str
    eligible: bool

    @property
    def what(self) -> tuple[str, str]:
        """Action and mode."""
        return self.action, self.mode


@dataclass(frozen=True)
class Change:
    """One key whose decision changes, with the gates and numbers that cause it."""

    key: Key
    before: Side
    after: Side
    because: tuple[str, ...]


@dataclass
class Plan:
    """What a candidate would change.

    ``settings`` maps every changed path to its value before and after; ``transitions`` counts all keys by
    (action, mode) before and after, also those that stay; ``first_stages`` holds per key the stage from which
    on it has to be rebuilt. ``failures`` could not be planned.
    """

    base_version: int
    candidate: OracleConfig
    settings: Mapping[str, tuple[Any, Any]]
    as_of: datetime
    snapshot: str
    stages: tuple[str, ...] = ()
    transitions: Counter[tuple[tuple[str, str], tuple[str, str]]] = field(default_factory=Counter)
    changes: list[Change] = field(default_factory=list)
    first_stages: dict[Key, str] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    @property
    def rebuild(self) -> dict[str, list[Key]]:
        """The keys to rebuild, by asset; assets without any are left out."""
        found = {
            stage: [key for key, first in self.first_stages.items() if stage in _from(first)]
            for stage in pipeline.STAGES
        }
        return {stage: keys for stage, keys in found.items() if keys}


def _from(stage: str) -> tuple[str, ...]:
    return pipeline.STAGES[pipeline.STAGES.index(stage) :]


def make_plan(
    database: Database,
    candidate: OracleConfig,
    *,
    as_of: datetime | None = None,
    on_progress: Progress | None = None,
) -> Plan:
    """Compare a candidate with the configuration in force.

    Args:
        database: the domain database; nothing is written to it.
        candidate: the configuration to try.
        as_of: the moment to look from, with an offset; the database's present time where None.
        on_progress: told the keys done and all keys.

    Raises:
        ConfigError: the configuration in force cannot be used.
        StorageError: the database cannot be used.

    """
    base = configuration.active(database)
    moment = database.now() if as_of is None else as_of
    snapshot, recorded = cycles.snapshot_at(database, moment)
    plan = Plan(base.version, candidate, configuration.diff(base.config, candidate), moment, snapshot)
    reached = {
        name
        for group in GROUPS
        if group.version(base.config) != group.version(candidate)
        for name in group.reaches
    }
    plan.stages = tuple(stage for stage in pipeline.STAGES if stage in reached)
    if not plan.stages:
        return plan
    # Both as a version that nothing is stored of, so that settings alone make a difference between them.
    before = cycles.Cycle(moment, base.config, NOT_STORED, snapshot)
    after = cycles.Cycle(moment, candidate, NOT_STORED, snapshot)
    accuracy = _Accuracy(recorded, measuring="weighted_signals" in plan.stages)
    entities = in_service(database, pipeline.known_entities(database, before))
    keys = [(entity, window) for entity in entities for window in results.WINDOWS]
    reads = pipeline.Reads()
    both = (
        pipeline.rehearse(
            database, cycle, keys, plan.stages, accuracy=accuracy, on_progress=progress, reads=reads
        )
        for cycle, progress in ((before, on_progress), (after, None))
    )
    for one, other in zip(*both, strict=True):
        _compare(plan, one, other)
    return plan


@dataclass
class _Accuracy:
    """The accuracy that a run would use: what a recorded cycle chose, else what it would measure first."""

    recorded: frozenset[int]
    measuring: bool
    _measured: dict[str, tuple[pa.Array, Float, Int]] = field(default_factory=dict)

    def __call__(self, database: Database, cycle: Cycle) -> tuple[pa.Array, Float, Int]:
        if not self.measuring or cycle.config_version in self.recorded:
            return inputs.peek_accuracy(database, cycle)
        settings = cycle.config.fingerprint("accuracy")
        if settings not in self._measured:
            sources, ratio, samples = pipeline.measure_sources(database, cycle)
            self._measured[settings] = pa.array(sources, pa.string()), ratio, samples
        return self._measured[settings]


def _compare(plan: Plan, one: pipeline.Rehearsed, other: pipeline.Rehearsed) -> None:
    plan.failures += [*one.report.failures, *other.report.failures]
    found = {key for stage, key in differences.changed_keys(one.parts, other.parts) if stage in plan.stages}
    computed, now = ({key for part in of.parts for key in part.keys} for of in (one, other))
    found |= now - computed  # what could not be computed so far
    # From where the rehearsal began: a later stage alone would work on what older cycles stored.
    plan.first_stages |= dict.fromkeys(sorted(found), plan.stages[0])
    before, after = _sides(one), _sides(other)
    shared = [key for key in before if key in after]
    plan.transitions.update((before[key].what, after[key].what) for key in shared)
    changed = [key for key in shared if before[key] != after[key]]
    why = _reasons(plan, one, other, changed)
    plan.changes += [Change(key, before[key], after[key], tuple(why[key])) for key in changed]


def _sides(rehearsed: pipeline.Rehearsed) -> dict[Key, Side]:
    found: dict[Key, Side] = {}
    for part in rehearsed.parts:
        if part.trends is None or part.decided is None:
            continue
        rows = part.decided.rows
        columns = zip(
            part.keys,
            part.made,
            part.trends.rows.confidence.tolist(),
            rows.allocation_pct.tolist(),
            rows.max_loss_pct.tolist(),
            strict=True,
        )
        for key, made, confidence, allocation, loss in columns:
            found[key] = Side(made.action, made.mode, confidence, allocation, loss, made.risk, made.eligible)
    return found


@dataclass
class _Gates:
    """The gates of the chosen keys of a part, by name: value, relation, threshold and whether it passes."""

    place: dict[Key, int]
    numbers: dict[str, Float]
    gates: dict[tuple[str, str], tuple[Float, str, Float, Bool]]


def _gates(rehearsed: pipeline.Rehearsed, wanted: set[Key]) -> list[_Gates]:
    found = []
    for part in rehearsed.parts:
        if part.trends is None or part.decided is None:
            continue
        at = np.array([n for n, key in enumerate(part.keys) if key in wanted], np.int64)
        if len(at) == 0:
            continue
        keys = type(part.trends.keys)(part.trends.keys.entity[at], part.trends.keys.window[at])
        trends, decided = part.trends.rows.take(at), part.decided.rows.take(at)
        quality = quality_of(keys, part.inputs, part.cycle.as_of_us)
        config = part.cycle.config
        held: dict[tuple[str, str], tuple[Float, str, Float, Bool]] = {}
        for name, gate in every_gate(
            trends, decided, quality, part.cycle.as_of_us, config, rules_for(config)
        ):
            passes = gate.holds() if gate.applies is None else gate.holds() | ~gate.applies
            threshold = np.broadcast_to(gate.threshold, len(at)).astype(np.float64)
            held[name, gate.name] = (gate.value, gate.relation.value, threshold, passes)
        numbers = {name: getattr(trends, name) for name in _NUMBERS}
        found.append(_Gates({part.keys[n]: row for row, n in enumerate(at.tolist())}, numbers, held))
    return found


def _reasons(
    plan: Plan, one: pipeline.Rehearsed, other: pipeline.Rehearsed, changed: Sequence[Key]
) -> dict[Key, list[str]]:
    """Per key the gates that turned, with both comparisons; then the numbers that moved."""
    reasons: dict[Key, list[str]] = {key: [] for key in changed}
    wanted = set(changed)
    before = _gates(one, wanted)
    for new in _gates(other, wanted):
        for old in before:
            keys = [key for key in new.place if key in old.place]
            if keys:
                _compared(reasons, keys, old, new)
    paths = ", ".join(f"{path} {a!r} -> {b!r}" for path, (a, b) in plan.settings.items())
    for told in reasons.values():
        if not told:
            told.append(f"size or risk follows from {paths}")
    return reasons


def _compared(reasons: dict[Key, list[str]], keys: Sequence[Key], old: _Gates, new: _Gates) -> None:
    """Add to the reasons what is different for these keys."""
    was, now = (np.array([of.place[key] for key in keys], np.int64) for of in (old, new))
    for name, (value, relation, threshold, passes) in new.gates.items():
        if name not in old.gates:
            continue
        old_value, old_relation, old_threshold, old_passes = old.gates[name]
        for at in np.flatnonzero(passes[now] != old_passes[was]).tolist():
            i, j = was[at], now[at]
            verb = "passes" if passes[j] else "fails"
            reasons[keys[at]].append(
                f"{name[0]} {name[1]} {verb}: {value[j]:.6g} {relation} {threshold[j]:.6g} "
                f"(before: {old_value[i]:.6g} {old_relation} {old_threshold[i]:.6g})"
            )
    for number, values in new.numbers.items():
        a, b = old.numbers[number][was], values[now]
        for at in np.flatnonzero(a != b).tolist():
            reasons[keys[at]].append(f"{number} {a[at]:.6g} -> {b[at]:.6g}")


def as_object(plan: Plan) -> dict[str, Any]:
    """The plan for JSON; times in UTC with Z."""
    return {
        "as_of": plan.as_of.isoformat().replace("+00:00", "Z"),
        "base_version": plan.base_version,
        "config": {path: {"before": a, "after": b} for path, (a, b) in plan.settings.items()},
        "stages": list(plan.stages),
        "transitions": [
            {"before": _what(a), "after": _what(b), "count": count}
            for (a, b), count in sorted(plan.transitions.items())
        ],
        "changes": [
            {
                "entity_id": change.key[0],
                "window": change.key[1],
                "before": dataclasses.asdict(change.before),
                "after": dataclasses.asdict(change.after),
                "because": list(change.because),
            }
            for change in plan.changes
        ],
        "rebuild": {asset: ["|".join(key) for key in keys] for asset, keys in plan.rebuild.items()},
        "failures": [dataclasses.asdict(failure) for failure in plan.failures],
    }


def _what(side: tuple[str, str]) -> dict[str, str]:
    return {"action": side[0], "mode": side[1]}
