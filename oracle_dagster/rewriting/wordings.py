"""Between decisions and their storing: whose thesis may be reworded, and which words a row then gets.

Pure: decisions in, requests or decisions out. Only words change, and what ``model_metadata`` says of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from oracle_core.decision import DIRECTIONS
from oracle_core.enums import Action, Mode, RiskLevel
from oracle_core.rewrite import RewriteFacts
from oracle_core.thesis import with_risk_prefix
from oracle_dagster.rewriting.theses import RewriteOutcome, RewriteRequest
from oracle_dagster.storage.decisions import Decision, Wording

if TYPE_CHECKING:
    from oracle_core.frames import DecisionFrame, TrendFrame
    from oracle_dagster.storage.cycles import Key


def requests(
    keys: Sequence[Key],
    frame: DecisionFrame,
    trends: TrendFrame,
    made: Sequence[Decision],
    *,
    settled: Collection[str],
) -> list[RewriteRequest]:
    """Ask for new words for what is eligible and not suppressed, and will be stored as a new row.

    Args:
        keys: of the frame.
        frame: the decisions.
        trends: what they were made from.
        made: the decisions as they are stored.
        settled: ids of recommendations whose words are settled already.

    Implements: R110.
    """
    columns = {
        name: getattr(trends.rows, name).tolist()
        for name in ("direction", "strength", "confidence", "contradiction")
    }
    return [
        RewriteRequest(
            decision.recommendation_id,
            RewriteFacts(
                entity_id=key[0],
                window=key[1],
                direction=DIRECTIONS[columns["direction"][at]],
                strength=columns["strength"][at],
                confidence=columns["confidence"][at],
                contradiction=columns["contradiction"][at],
                catalysts=tuple(trends.dominant_catalysts[at]),
                risks=tuple(trends.material_risks[at]),
                action=Action(decision.action),
                mode=Mode(decision.mode),
                thesis=frame.plain_thesis[at],
            ),
        )
        for at, (key, decision) in enumerate(zip(keys, made, strict=True))
        if may_be_reworded(decision) and decision.recommendation_id not in settled
    ]


def may_be_reworded(decision: Decision) -> bool:
    """Whether a decision is eligible, not suppressed and a row of its own (C37)."""
    return decision.eligible and len(decision.suppression_reasons) == 0 and not decision.duplicate


def wordings(outcomes: Sequence[RewriteOutcome], made: Sequence[Decision]) -> dict[str, Wording]:
    """The words a model found, as they would be stored, by recommendation."""
    risks = {decision.recommendation_id: RiskLevel(decision.risk) for decision in made}
    found = {}
    for outcome in outcomes:
        if outcome.metadata is not None:
            thesis = with_risk_prefix(outcome.thesis, risks[outcome.recommendation_id])
            found[outcome.recommendation_id] = Wording(
                thesis,
                {**outcome.metadata, "deterministic_thesis": outcome.deterministic_thesis, "llm_used": True},
            )
    return found


def applied(
    frame: DecisionFrame,
    made: Sequence[Decision],
    *,
    stored: Mapping[str, Wording],
    found: Mapping[str, Wording],
) -> tuple[list[str], list[Decision]]:
    """The theses and decisions to store.

    What a row already says stays, so that a repeat writes the same, as long as it says it of the same
    deterministic thesis; else the words just found, else the deterministic ones.

    Args:
        frame: the decisions, with deterministic words.
        made: the same as they are stored.
        stored: the words of rows that exist.
        found: the words of a model.

    Returns:
        Theses with risk prefix, and the decisions with their ``model_metadata``.

    """
    theses, worded = list(frame.thesis), list(made)
    for at, decision in enumerate(made):
        if not may_be_reworded(decision):
            continue
        prefix = with_risk_prefix("", RiskLevel(decision.risk))
        for words in (stored.get(decision.recommendation_id), found.get(decision.recommendation_id)):
            if words is None or words.model_metadata.get("deterministic_thesis") != frame.plain_thesis[at]:
                continue
            if words.thesis.startswith(prefix):
                theses[at] = words.thesis
                worded[at] = dataclasses.replace(decision, model_metadata=words.model_metadata)
            break
    return theses, worded
