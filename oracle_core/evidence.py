"""Which documents argue for and against a trend, best first (R25-R29, G9).

Counting evidence for gates and sizes belongs in ``eligibility``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oracle_core.arrays import descending, divide, group_codes, runs
from oracle_core.config import TrendConfig
from oracle_core.enums import EvidenceRole, codes
from oracle_core.frames import EvidenceRows
from oracle_core.inputs import Bool, Columns, Float, Int
from oracle_core.records import RankedEvidence, WeightedSignal
from oracle_core.single import single_frame

ROLES = codes(EvidenceRole)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates(Columns):
    """Active signals in tie order (group, then newest first, then id), one row per signal.

    ``top_weight`` is the largest combined weight of the group, neutral and synthetic signals included.
    """

    group: Int
    signal: Int
    is_document: Bool
    weight: Float
    top_weight: Float
    impact: Float
    recency: Float
    extraction_confidence: Float
    sentiment: Float


def rank(candidates: Candidates, config: TrendConfig) -> EvidenceRows:
    """Rank both sides of every group and keep the best of each.

    Score ``.4 w / max w + .3 impact + .2 recency + .1 confidence``; ties keep the order of the rows. Signals
    without a direction or with impact 0 are ranked on neither side (decisions 3).

    Returns:
        At most ``max_evidence_refs`` rows per group and role, supporting (positive) first.

    Implements: R25, R26, R27, R28.

    """
    rows = candidates.take((candidates.sentiment != 0.0) & (candidates.impact > 0.0))
    weight = config.rank_weight * divide(rows.weight, rows.top_weight)
    impact = config.rank_impact * rows.impact
    recency = config.rank_recency * rows.recency
    confidence = config.rank_confidence * rows.extraction_confidence
    score = weight + impact + recency + confidence
    role = np.where(rows.sentiment > 0.0, ROLES[EvidenceRole.SUPPORTING], ROLES[EvidenceRole.OPPOSING])
    side = rows.group * len(ROLES) + role
    order = descending(side, score)
    _, offsets = runs(side[order])
    position = np.arange(len(order)) - offsets[:-1][group_codes(offsets)]
    kept = position < config.max_evidence_refs
    order, position = order[kept], position[kept]
    return EvidenceRows(
        key=rows.group[order],
        role=role[order].astype(np.int64),
        position=position,
        signal=rows.signal[order],
        is_document=rows.is_document[order],
        rank_score=score[order],
        weight_component=weight[order],
        impact_component=impact[order],
        recency_component=recency[order],
        confidence_component=confidence[order],
        sentiment_value=rows.sentiment[order],
    )


def rank_evidence_detailed(
    signals: Sequence[WeightedSignal], config: TrendConfig | None = None
) -> tuple[list[RankedEvidence], list[RankedEvidence]]:
    """Supporting and opposing evidence of one list of signals with the parts of each score, best first (R28).

    Inactive signals (combined weight 0) are no evidence.
    """
    frame = single_frame(signals)
    rows = frame.rows.take(frame.rows.combined > 0.0)
    found = rank(
        Candidates(
            group=rows.key,
            signal=rows.signal,
            is_document=np.ones(len(rows.key), np.bool_),
            weight=rows.combined,
            top_weight=np.full(len(rows.key), rows.combined.max(initial=0.0)),
            impact=rows.impact,
            recency=rows.recency,
            extraction_confidence=rows.extraction_confidence,
            sentiment=rows.sentiment,
        ),
        config or TrendConfig(),
    )
    ranked = [
        RankedEvidence(
            document_id=frame.ids[found.signal[i]],
            role=list(EvidenceRole)[found.role[i]],
            rank_score=float(found.rank_score[i]),
            weight_component=float(found.weight_component[i]),
            impact_component=float(found.impact_component[i]),
            recency_component=float(found.recency_component[i]),
            confidence_component=float(found.confidence_component[i]),
            sentiment_value=float(found.sentiment_value[i]),
        )
        for i in range(len(found.key))
    ]
    return (
        [one for one in ranked if one.role is EvidenceRole.SUPPORTING],
        [one for one in ranked if one.role is EvidenceRole.OPPOSING],
    )


def rank_evidence(
    signals: Sequence[WeightedSignal], config: TrendConfig | None = None
) -> tuple[list[str], list[str]]:
    """Ids of the supporting and the opposing evidence, best first (R29)."""
    supporting, opposing = rank_evidence_detailed(signals, config)
    return [one.document_id for one in supporting], [one.document_id for one in opposing]
