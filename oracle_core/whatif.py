"""What would change one decision: how far the thresholds are, what carries it, how long it holds.

Every answer is found by deciding again by the rules, over other documents or at other moments; nothing is
inferred from a formula. How sets and moments are searched belongs in ``influence`` and ``shelf_life``, how
many worlds are decided at once in ``alternatives``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oracle_core.alternatives import Judged, Supposed, judge, size, that_matter, versions, with_supposed
from oracle_core.certificate import proved_safe
from oracle_core.config import OracleConfig
from oracle_core.decision import DIRECTIONS
from oracle_core.eligibility import ACTIONS, MODES
from oracle_core.explanation import every_gate, shown_gate
from oracle_core.gates import Gate
from oracle_core.influence import Influence, smallest_change
from oracle_core.inputs import Bool, CycleInputs, Float, Int, Keys, Strings
from oracle_core.rules import RuleSet
from oracle_core.shelf_life import changes, turning_points
from oracle_core.suppression import REASONS
from oracle_core.windows import LOOKBACKS_US

Object = dict[str, Any]
MOST_SUPPOSED = 40
BUDGET_ROWS = 2_000_000
BATCH_ROWS = 200_000
EVEN_MOMENTS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """One decision that is asked about: the world as known at ``as_of_us``, and under what it is decided."""

    inputs: CycleInputs
    key: Keys
    as_of_us: int
    config: OracleConfig
    rules: RuleSet

    @classmethod
    def about(
        cls, inputs: CycleInputs, key: Keys, as_of_us: int, config: OracleConfig, rules: RuleSet
    ) -> Question:
        """Cut the inputs at what is known, and leave out what cannot matter."""
        known = that_matter(inputs.known_at(as_of_us), key, as_of_us, config)
        return cls(known, key, as_of_us, config, rules)

    def decide(self, inputs: CycleInputs, keys: Keys, as_of_us: int | None = None) -> Judged:
        """Decide other keys, or at another moment, under the same configuration."""
        moment = self.as_of_us if as_of_us is None else as_of_us
        return judge(inputs, keys, moment, self.config, self.rules)

    def decision(self) -> Judged:
        """The decision itself."""
        return self.decide(self.inputs, self.key)


def outcome(judged: Judged, row: int) -> Object:
    """What was decided in one row, by name."""
    decided = judged.decided
    reasons = zip(REASONS, decided.suppressed_by[row].tolist(), strict=True)
    return {
        "action": ACTIONS[int(decided.action[row])].value,
        "mode": MODES[int(decided.mode[row])].value,
        "direction": DIRECTIONS[int(judged.trends.direction[row])].value,
        "suppression_reasons": [reason.value for reason, fires in reasons if fires],
    }


# --------------------------------------------------------------------------------------------- distance


def distance(
    question: Question, supposed: Supposed | None = None, most: int = MOST_SUPPOSED
) -> tuple[list[Object], Object]:
    """How many more documents of either side it takes to cross each threshold.

    Args:
        question: the decision.
        supposed: what the documents would be like; they would appear at ``as_of``.
        most: so many are tried, from one on, of each side alone.

    Returns:
        Per gate value, relation and threshold, and the numbers under ``positive`` and ``negative`` (None
        where ``most`` do not suffice); and the same two for the decision, with what it becomes. A number is
        the smallest that suffices.

    """
    like = supposed or Supposed()
    sentiment = np.repeat([1.0, -1.0], most)
    world = with_supposed(question.inputs, int(question.key.entity[0]), sentiment, question.as_of_us, like)
    there = len(question.inputs.documents.entity)
    kept = np.ones((1 + 2 * most, there + 2 * most), np.bool_)
    kept[:, there:] = False
    for side in (0, 1):
        rows = 1 + side * most + np.arange(most)
        kept[rows, there + side * most : there + (side + 1) * most] = np.tril(np.ones((most, most), np.bool_))
    judged = question.decide(*versions(world, question.key, kept))
    gates = every_gate(
        judged.trends, judged.decided, judged.quality, question.as_of_us, question.config, question.rules
    )
    listed: list[Object] = [
        {**shown_gate(part, gate), **_first_of_each_side(_state(gate), most)} for part, gate in gates
    ]
    decision: Object = _first_of_each_side(judged.outcome(), most)
    for name, first in (("positive", 1), ("negative", 1 + most)):
        count = decision[name]
        decision[f"{name}_becomes"] = None if count is None else outcome(judged, first + count - 1)
    return listed, decision


def _state(gate: Gate) -> Int:
    """Whether a gate is asked and how it is answered, as one number per row."""
    asked = np.ones(len(gate.value), np.bool_) if gate.applies is None else gate.applies
    return asked * 2 + gate.holds()


def _first_of_each_side(state: Int, most: int) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for side, first in (("positive", 1), ("negative", 1 + most)):
        differs = np.flatnonzero(state[first : first + most] != state[0])
        found[side] = int(differs[0]) + 1 if len(differs) > 0 else None
    return found


# -------------------------------------------------------------------------------------------- influence


def influence(
    question: Question, by: str, budget_rows: int = BUDGET_ROWS
) -> tuple[Influence, list[str], Object | None]:
    """The smallest set of documents, or of sources, without which action or mode would be another.

    Args:
        question: the decision.
        by: ``documents`` or ``sources``: what is removed whole, failed documents included.
        budget_rows: rows of documents, bars and edges that may be decided on; it sets how far the search
            goes, and so makes it repeatable on every machine.

    Returns:
        The bounds, the names of the set found, and what the decision becomes without it.

    """
    names, member = _things(question.inputs, by)
    count = len(names)
    before = int(question.decision().outcome()[0])
    toward = float(question.decision().trends.average[0])
    each = size(question.inputs) + 1

    def tried(removed: Bool) -> tuple[Bool, Float]:
        judged = question.decide(*versions(question.inputs, question.key, ~removed[:, member]))
        scores = _scores(judged)
        scores[:, 0] *= -1.0 if toward < 0.0 else 1.0  # toward 0 from either side
        return judged.outcome() != before, scores

    q = question
    proved = proved_safe(q.inputs, q.key, q.as_of_us, q.config, q.rules) if by == "documents" else 0
    found = smallest_change(
        count,
        tried,
        budget=max(1, budget_rows // each),
        batch=max(1, BATCH_ROWS // each),
        proved=proved,
        hints=(_newest_first(question.inputs, member, count),),
    )
    if found.upper is None:
        return found, [], None
    removed = np.zeros((1, count), np.bool_)
    removed[0, list(found.example)] = True
    after = question.decide(*versions(question.inputs, question.key, ~removed[:, member]))
    return found, [str(names[thing]) for thing in found.example], outcome(after, 0)


def _things(inputs: CycleInputs, by: str) -> tuple[Strings, Int]:
    """What may be removed, and which of it each document row belongs to."""
    rows, table = {
        "documents": (inputs.documents.document, inputs.document_ids),
        "sources": (inputs.documents.source, inputs.sources),
    }[by]
    codes, member = np.unique(rows, return_inverse=True)
    return table[codes], member


def _scores(judged: Judged) -> Float:
    """Ways of coming closer to another decision: weaker, less sure, more contested, less backed."""
    t = judged.trends
    return np.column_stack((t.average, t.confidence, -t.contradiction, t.evidence_count.astype(np.float64)))


def _newest_first(inputs: CycleInputs, member: Int, things: int) -> Int:
    """The things by their newest document: without these the evidence is stale."""
    newest = np.full(things, np.iinfo(np.int64).min)
    np.maximum.at(newest, member, inputs.documents.published_us)
    return np.argsort(-newest.astype(np.float64), kind="stable")


# ------------------------------------------------------------------------------------------- shelf life


def shelf_life(question: Question, until_us: int | None = None) -> Object:
    """When the decision changes, and to what, if nothing new arrives: by decay and by what leaves.

    Changes of what suppresses it are listed too; the search ends with the first change of action or mode.

    Args:
        question: the decision.
        until_us: end of the search; the moment at which the last document has left the window, and no less
            than when the evidence is stale, where None.

    """
    start = question.as_of_us
    stale_us = round(question.config.suppression.max_evidence_staleness_hours * 3_600_000_000)
    end = (
        start + max(int(LOOKBACKS_US[question.key.window[0]]), stale_us + 1) if until_us is None else until_us
    )
    asked: dict[int, Object] = {}

    def at(moment: int) -> Object:
        if moment not in asked:
            asked[moment] = outcome(question.decide(question.inputs, question.key, moment), 0)
        return asked[moment]

    even = np.linspace(start, end, EVEN_MOMENTS + 1).astype(np.int64)
    moments = turning_points(question.inputs, question.key, start, end, question.config)
    moments = np.unique(np.concatenate((moments, even)))
    listed: list[Object] = []
    for change in changes(at, moments, start):
        listed.append({"at_us": change.at_us, "before": change.before, "after": change.after})
        if _decision(change.before) != _decision(change.after):
            break
    ended = bool(listed) and _decision(listed[-1]["before"]) != _decision(listed[-1]["after"])
    return {
        "changes": listed,
        "ends": ended,
        "searched_until_us": listed[-1]["at_us"] if ended else end,
        "moments_asked": len(asked),
    }


def _decision(found: Object) -> tuple[str, str]:
    return found["action"], found["mode"]


def removed_documents(inputs: CycleInputs, names: Sequence[str], by: str) -> CycleInputs:
    """The world without some documents, or without all of some sources."""
    table, rows = {
        "documents": (inputs.document_ids, inputs.documents.document),
        "sources": (inputs.sources, inputs.documents.source),
    }[by]
    gone = np.isin(table, list(names))
    kept: Bool = ~gone[rows]
    return replace(inputs, documents=inputs.documents.take(kept))
