"""Write recommendations with their evidence and evaluation, and read the one that stands (R121-R127).

A decision that equals the standing recommendation adds no row; the key's cycle then points to that one. Every
inserted recommendation is kept. Works on the keys staged as ``slice_keys``, like ``results.py``.
"""

# ruff: noqa: S608 - only constants of this package are put into statements

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from oracle_core.enums import (
    Action,
    EvidenceRole,
    EvReason,
    Mode,
    PipelineMode,
    RejectionReason,
    RiskLevel,
    SuppressionReason,
)
from oracle_core.inputs import StandingRows
from oracle_core.risk import citation_weights
from oracle_dagster.storage import columns
from oracle_dagster.storage.cycles import AS_OF, CONFIG_VERSION, Cycle, Key, number_keys
from oracle_dagster.storage.identity import is_document_id, row_id
from oracle_dagster.storage.results import content_hash, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oracle_core.frames import DecisionFrame, TrendFrame
    from oracle_core.inputs import Bool
    from oracle_dagster.storage.database import Bulk

_ACTIONS: Final = columns.members(Action)
_MODES: Final = columns.members(Mode)
_RISKS: Final = columns.members(RiskLevel)
_REJECTIONS: Final = tuple(r.value for r in RejectionReason)
_SUPPRESSIONS: Final = tuple(r.value for r in SuppressionReason)
_EV_REASONS: Final = tuple(r.value for r in EvReason)
_PLAIN: Final = (
    "action, mode, confidence, thesis, allocation_pct, max_loss_pct, pipeline_mode, expected_value, p_bull"
)
_CHANGED: Final = (
    f"{_PLAIN}, invalidation_conditions, model_metadata, risk_classification, generated_at, config_version"
)
_EVALUATED: Final = "eligible, allowed_mode, rejection_reasons, risk_checks, created_at"
MODEL: Final = {
    "provider": "deterministic",
    "model_name": "rules",
    "prompt_version": "1",
    "schema_version": "1",
}
"""``model_metadata`` of a thesis that no model has touched, beside the thesis itself (C22)."""


@dataclass(frozen=True)
class Decision:
    """One decision as it is stored: everything of a recommendation and its evaluation but ids and times."""

    recommendation_id: str
    duplicate: bool
    action: str
    mode: str
    allowed_mode: str
    eligible: bool
    risk: str
    rejection_reasons: list[str]
    suppression_reasons: list[str]
    risk_checks: dict[str, Any]
    model_metadata: dict[str, Any]


@dataclass(frozen=True)
class Wording:
    """The words of a recommendation: its thesis with the risk prefix, and what is said of their origin."""

    thesis: str
    model_metadata: dict[str, Any]


def read_wordings(bulk: Bulk, cycle: Cycle, keys: Sequence[Key]) -> dict[str, Wording]:
    """The words of the recommendations that this cycle has stored for these keys, by id (R109)."""
    own = [row_id("recommendation", *key, cycle.as_of_us, cycle.config_version) for key in keys]
    found = bulk.arrow(
        """SELECT id::text AS id, thesis, model_metadata::text AS model_metadata
           FROM recommendations WHERE id = ANY($1::text[]::uuid[])""",
        (own,),
    )
    return {row["id"]: Wording(row["thesis"], json.loads(row["model_metadata"])) for row in found.to_pylist()}


def read_standing(bulk: Bulk) -> StandingRows:
    """The newest earlier recommendation of the staged keys (R127, G36).

    Of cycles with a smaller ``as_of``; on a repeat only of such that were there before the decision's own
    first writing. Of several configurations of one ``as_of`` the latest.
    """
    found = bulk.arrow(f"""
        SELECT k.position, r.action, r.mode, r.confidence, r.id::text AS id FROM slice_keys k
        LEFT JOIN cycle_keys own ON own.entity_id = k.entity_id AND own."window" = k."window"
          AND own.as_of = {AS_OF} AND own.config_version = {CONFIG_VERSION}
        CROSS JOIN LATERAL (
            SELECT c.standing_recommendation_id AS id FROM cycle_keys c
            WHERE c.entity_id = k.entity_id AND c."window" = k."window" AND c.as_of < {AS_OF}
              AND c.standing_recommendation_id IS NOT NULL
              AND (own.decision_seq IS NULL OR c.decision_seq < own.decision_seq)
            ORDER BY c.as_of DESC, c.config_version DESC LIMIT 1) c
        JOIN recommendations r ON r.id = c.id
        ORDER BY k.position""")
    return StandingRows(
        key=columns.ints(found.column("position")),
        action=columns.codes(found.column("action"), _ACTIONS),
        mode=columns.codes(found.column("mode"), _MODES),
        confidence=columns.floats(found.column("confidence")),
        recommendation_id=columns.strings(found.column("id")),
    )


def decisions(
    cycle: Cycle, keys: Sequence[Key], frame: DecisionFrame, trends: TrendFrame, standing: StandingRows
) -> list[Decision]:
    """Every decision as it is stored.

    Args:
        cycle: whose configuration names the mode the trends were computed in (C39).
        keys: the keys of the frame.
        frame: the decisions.
        trends: what they were made from.
        standing: what they were compared with.

    Implements: R193.
    """
    rows = frame.rows
    probabilistic = cycle.config.pipeline_mode is PipelineMode.PROBABILISTIC
    standing_id = dict(zip(standing.key.tolist(), standing.recommendation_id.tolist(), strict=True))
    values = {
        "data_quality_score": rows.data_quality_score.tolist(),
        "allocation_pct": rows.allocation_pct.tolist(),
        "max_loss_pct": rows.max_loss_pct.tolist(),
        "duplicate": rows.duplicate.tolist(),
        "eligible": rows.eligible.tolist(),
        "action": columns.named(rows.action, _ACTIONS).to_pylist(),
        "mode": columns.named(rows.mode, _MODES).to_pylist(),
        "allowed": columns.named(rows.allowed_mode, _MODES).to_pylist(),
        "risk": columns.named(rows.risk, _RISKS).to_pylist(),
        "ev": columns.nullable(rows.expected_value).to_pylist(),
        "p_bull": columns.nullable(trends.rows.p_bull).to_pylist(),
        "r_up": columns.nullable(rows.r_up).to_pylist(),
        "r_down": columns.nullable(rows.r_down).to_pylist(),
    }
    found = []
    for at, key in enumerate(keys):
        suppressed = _reasons(rows.suppressed_by, at, _SUPPRESSIONS)
        checks: dict[str, Any] = {
            "time_horizon": key[1],
            "position_sizing": {
                "allocation_pct": values["allocation_pct"][at],
                "max_loss_pct": values["max_loss_pct"][at],
            },
            "invalidation_conditions": frame.invalidation_conditions[at],
            "risk_classification": values["risk"][at],
            "suppression_reasons": suppressed,
            "data_quality_score": values["data_quality_score"][at],
            "ev_reasons": _reasons(rows.ev_failed, at, _EV_REASONS),
        }
        if probabilistic:
            checks |= {name: values[name][at] for name in ("ev", "p_bull", "r_up", "r_down")}
            checks |= {
                "pipeline_mode": cycle.config.pipeline_mode.value,
                "ev_threshold": cycle.config.eligibility.ev_threshold,
            }
        own = row_id("recommendation", *key, cycle.as_of_us, cycle.config_version)
        duplicate = values["duplicate"][at]
        found.append(
            Decision(
                recommendation_id=standing_id[at] if duplicate else own,
                duplicate=duplicate,
                action=values["action"][at],
                mode=values["mode"][at],
                allowed_mode=values["allowed"][at],
                eligible=values["eligible"][at],
                risk=values["risk"][at],
                rejection_reasons=_reasons(rows.rejected, at, _REJECTIONS),
                suppression_reasons=suppressed,
                risk_checks=checks,
                model_metadata={
                    **MODEL,
                    "deterministic_thesis": frame.plain_thesis[at],
                    "llm_used": False,
                },
            )
        )
    return found


def _reasons(failed: Bool, row: int, names: Sequence[str]) -> list[str]:
    return [name for name, here in zip(names, failed[row].tolist(), strict=True) if here]


def write_decisions(
    bulk: Bulk,
    cycle: Cycle,
    keys: Sequence[Key],
    *,
    frame: DecisionFrame,
    trends: TrendFrame,
    made: Sequence[Decision],
) -> int:
    """Insert the recommendations that are no duplicates, with evidence and evaluation (R121-R126, R193).

    Args:
        bulk: the transaction that staged the keys and read what stands.
        cycle: the cycle.
        keys: the staged keys.
        frame: the decisions.
        trends: what they were made from.
        made: given by :func:`decisions`.

    Returns:
        Recommendations written.

    Implements: R121, R125.
    """
    number_keys(bulk, "recommendations")
    bulk.stage(
        "slice_decisions",
        pa.table(
            {
                "position": np.arange(len(keys)),
                "standing_id": pa.array([d.recommendation_id for d in made], pa.string()),
                "own_id": pa.array(
                    [row_id("recommendation", *k, cycle.as_of_us, cycle.config_version) for k in keys],
                    pa.string(),
                ),
                "evaluation_id": pa.array(
                    [row_id("evaluation", *k, cycle.as_of_us, cycle.config_version) for k in keys],
                    pa.string(),
                ),
                "duplicate": pa.array([d.duplicate for d in made], pa.bool_()),
                "action": pa.array([d.action for d in made], pa.string()),
                "mode": pa.array([d.mode for d in made], pa.string()),
                "confidence": columns.nullable(trends.rows.confidence),
                "thesis": pa.array(frame.thesis, pa.string()),
                "conditions": pa.array([to_json(c) for c in frame.invalidation_conditions], pa.string()),
                "allocation_pct": columns.nullable(frame.rows.allocation_pct),
                "max_loss_pct": columns.nullable(frame.rows.max_loss_pct),
                "model_metadata": pa.array([to_json(d.model_metadata) for d in made], pa.string()),
                "risk": pa.array([d.risk for d in made], pa.string()),
                "pipeline_mode": pa.array([cycle.config.pipeline_mode.value] * len(keys), pa.string()),
                "expected_value": columns.nullable(frame.rows.expected_value),
                "p_bull": columns.nullable(trends.rows.p_bull),
                "eligible": pa.array([d.eligible for d in made], pa.bool_()),
                "allowed_mode": pa.array([d.allowed_mode for d in made], pa.string()),
                "rejections": pa.array([to_json(d.rejection_reasons) for d in made], pa.string()),
                "checks": pa.array([to_json(d.risk_checks) for d in made], pa.string()),
            }
        ),
    )
    bulk.execute(f"""
        INSERT INTO recommendations (id, entity_id, time_horizon, {_CHANGED})
        SELECT d.own_id::uuid, k.entity_id, k."window", {", ".join(f"d.{c}" for c in _PLAIN.split(", "))},
               d.conditions::jsonb, d.model_metadata::jsonb, d.risk, {AS_OF}, {CONFIG_VERSION}
        FROM slice_decisions d JOIN slice_keys k USING (position) WHERE NOT d.duplicate
        ON CONFLICT (id) DO UPDATE SET {_excluded(_CHANGED)}""")
    bulk.execute(f"""
        INSERT INTO risk_evaluations (id, recommendation_id, {_EVALUATED})
        SELECT d.evaluation_id::uuid, d.own_id::uuid, d.eligible, d.allowed_mode, d.rejections::jsonb,
               d.checks::jsonb, {AS_OF}
        FROM slice_decisions d WHERE NOT d.duplicate
        ON CONFLICT (id) DO UPDATE SET {_excluded(_EVALUATED)}""")
    _write_citations(bulk, cycle, trends, made)
    bulk.execute(f"""
        UPDATE cycle_keys c SET standing_recommendation_id = d.standing_id::uuid
        FROM slice_decisions d JOIN slice_keys k USING (position)
        WHERE c.entity_id = k.entity_id AND c."window" = k."window" AND c.as_of = {AS_OF}
          AND c.config_version = {CONFIG_VERSION}
          AND c.standing_recommendation_id IS DISTINCT FROM d.standing_id::uuid""")
    # A cycle run again under changed rules may find a duplicate where it once inserted a recommendation.
    bulk.execute("""
        DELETE FROM recommendations r USING slice_decisions d WHERE d.duplicate AND r.id = d.own_id::uuid
          AND NOT EXISTS (SELECT FROM cycle_keys c JOIN slice_keys k USING (entity_id, "window")
                          WHERE k.position = d.position AND c.standing_recommendation_id = r.id)""")
    return sum(not d.duplicate for d in made)


def _excluded(names: str) -> str:
    return ", ".join(f"{name} = excluded.{name}" for name in names.split(", "))


def _write_citations(bulk: Bulk, cycle: Cycle, trends: TrendFrame, made: Sequence[Decision]) -> None:
    """Replace the cited documents, weighted by their rank among all cited ids (R122-R124, G30).

    Implements: R122.
    """
    owners: list[str] = []
    cited: list[str] = []
    roles: list[str] = []
    ranks: list[int] = []
    sides = {EvidenceRole.SUPPORTING.value: trends.supporting, EvidenceRole.OPPOSING.value: trends.opposing}
    for at, decision in enumerate(made):
        if decision.duplicate:
            continue
        for role, lists in sides.items():
            for rank, signal_id in enumerate(lists[at]):
                if is_document_id(signal_id):
                    owners.append(decision.recommendation_id)
                    cited.append(signal_id)
                    roles.append(role)
                    ranks.append(rank)
    bulk.stage(
        "slice_citations",
        pa.table(
            {
                "recommendation_id": pa.array(owners, pa.string()),
                "document_id": pa.array(cited, pa.string()),
                "evidence_type": pa.array(roles, pa.string()),
                "weight": citation_weights(np.array(ranks, np.int64), cycle.config.risk),
            }
        ),
    )
    bulk.execute("""
        DELETE FROM recommendation_evidence e USING slice_decisions d
        WHERE NOT d.duplicate AND e.recommendation_id = d.own_id::uuid""")
    bulk.execute("""
        INSERT INTO recommendation_evidence (recommendation_id, document_id, evidence_type, weight)
        SELECT recommendation_id::uuid, document_id::uuid, evidence_type, weight FROM slice_citations""")


def decision_versions(frame: DecisionFrame, trends: TrendFrame, made: Sequence[Decision]) -> list[str]:
    """A hash per key of its decision's content, whether or not it was inserted."""
    rows = zip(
        made,
        frame.thesis,
        trends.rows.confidence.tolist(),
        trends.supporting,
        trends.opposing,
        strict=True,
    )
    return [
        content_hash(
            to_json((d.action, d.mode, d.allowed_mode, d.eligible, d.risk_checks, d.rejection_reasons, *rest))
        )
        for d, *rest in rows
    ]
