"""How far the thresholds are and what carries a decision: every bound against trying all, nothing guessed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from oracle_core.alternatives import Supposed, judge, size, that_matter, versions, with_supposed
from oracle_core.certificate import proved_safe
from oracle_core.config import OracleConfig
from oracle_core.enums import PipelineMode, Window
from oracle_core.influence import Influence, smallest_change
from oracle_core.inputs import CycleInputs, Keys
from oracle_core.rules import rules_for
from oracle_core.whatif import Question, distance, influence, outcome, removed_documents
from tests.strategies import AS_OF_US, Bar, Document, Edge, Event, Exposure, World

CONFIGS = {
    PipelineMode.HEURISTIC: OracleConfig(),
    PipelineMode.PROBABILISTIC: OracleConfig().with_settings({"flags.probabilistic_scoring_enabled": True}),
}
MODES = pytest.mark.parametrize("mode", list(PipelineMode))
WINDOWS = list(Window)


def asked(world: World, entity: str, window: Window, config: OracleConfig) -> Question:
    key = Keys(np.array([world.names().index(entity)]), np.array([WINDOWS.index(window)]))
    return Question.about(world.inputs(), key, AS_OF_US, config, rules_for(config))


def decided(inputs: CycleInputs, question: Question) -> tuple[str, str]:
    """Action and mode of the question's key in another world, decided alone."""
    found = outcome(
        judge(inputs, question.key, AS_OF_US, question.config, question.rules),
        0,
    )
    return found["action"], found["mode"]


def mixed_world(seed: int, documents: int) -> World:
    """A world of every layer whose documents about ``a`` are few and differ in everything."""
    rng = random.Random(seed)
    made = [
        Document(
            f"d{n:02d}",
            "a" if n < documents else "b",
            age_hours=rng.choice((1.0, 20.0, 60.0, 150.0)),
            sentiment=rng.choice((1.0, 1.0, 1.0, 0.6, -1.0, 0.0)),
            impact=rng.choice((0.2, 0.8, 1.0)),
            confidence=rng.choice((0.25, 0.6, 0.95)),
            credibility=rng.choice((0.4, 0.7, 0.95)),
            catalyst=rng.choice((None, "legal", "earnings")),
            source=f"s{n % 5}",
            failed=rng.random() < 0.1,
        )
        for n in range(documents + 2)
    ]
    made = [replace(d, has_impact=not d.failed) for d in made]
    return World(
        documents=tuple(made),
        bars=tuple(Bar("a", day, 100.0 + (day * 7) % 11 - 0.2 * day) for day in range(1, 60)),
        events=(Event("e", 30.0, 1),),
        exposures=(Exposure("a", "geo", "us", 0.4),),
        edges=(Edge("a", "b", 0.9),),
        accuracy=(("s1", 0.9, 12),),
    )


# ------------------------------------------------------------------------------------ the search alone


def brute(things: int, changes: Callable[[frozenset[int]], bool]) -> int | None:
    """Size of the smallest set that changes the outcome, by trying all."""
    for members in range(1, things + 1):
        if any(changes(frozenset(c)) for c in combinations(range(things), members)):
            return members
    return None


def search(
    things: int, changes: Callable[[frozenset[int]], bool], *, budget: int, batch: int = 7
) -> tuple[Influence, list[frozenset[int]]]:
    """The search with a score that points the right way only now and then, and the sets it tried."""
    looked: list[frozenset[int]] = []

    def tried(removed: Any) -> tuple[Any, Any]:  # noqa: ANN401
        assert 1 <= len(removed) <= batch
        sets = [frozenset(np.flatnonzero(row).tolist()) for row in removed]
        looked.extend(sets)
        scores = np.array([[-float(sum(s)), float((len(s) * 7 + sum(s) * 3) % 11)] for s in sets])
        return np.array([changes(s) for s in sets], np.bool_), scores

    return smallest_change(things, tried, budget=budget, batch=batch), looked


def rules_of(seed: int, things: int) -> Callable[[frozenset[int]], bool]:
    """An arbitrary answer per set: some smallest sets, and supersets that change it back."""
    rng = random.Random(seed)
    kind = rng.randrange(4)
    wanted = [frozenset(rng.sample(range(things), rng.randint(1, things))) for _ in range(rng.randint(0, 3))]
    if kind == 0:
        return lambda s: s in wanted
    if kind == 1:
        return lambda s: any(w <= s for w in wanted)
    if kind == 2:
        return lambda s: any(w <= s for w in wanted) and len(s) % 3 != 2
    weights = [rng.random() for _ in range(things)]
    limit = rng.uniform(0.3, 0.9) * sum(weights)
    return lambda s: sum(weights[i] for i in s) > limit


@pytest.mark.parametrize("things", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("seed", range(12))
def test_with_budget_enough_the_answer_is_that_of_trying_all(things: int, seed: int) -> None:
    changes = rules_of(seed, things)
    expected = brute(things, changes)
    found, _ = search(things, changes, budget=10 * 2**things + 400)
    assert found.exact
    assert found.upper == expected
    assert found.impossible == (expected is None)
    if expected is not None:
        assert (found.lower, len(found.example)) == (expected, expected)
        assert changes(frozenset(found.example))


@pytest.mark.parametrize("budget", [0, 1, 5, 20, 60, 200, 700])
@pytest.mark.parametrize("seed", range(10))
def test_with_any_budget_both_bounds_hold_and_nothing_is_called_exact_that_is_not(
    budget: int, seed: int
) -> None:
    things = 9
    changes = rules_of(seed + 100, things)
    expected = brute(things, changes)
    found, looked = search(things, changes, budget=budget)
    assert found.tried == len(looked) <= max(1, budget)
    assert found.lower >= 1
    if expected is None:
        assert found.upper is None
        assert found.example == ()
    else:
        assert found.lower <= expected
        assert found.upper is None or found.upper >= expected
    if found.upper is not None:
        assert len(found.example) == found.upper
        assert changes(frozenset(found.example))
    if found.exact:
        assert found.upper == expected
    # What a lower bound claims was tried, set by set.
    tried = set(looked)
    for members in range(1, found.lower):
        assert all(frozenset(c) in tried for c in combinations(range(things), members))


@pytest.mark.acceptance
def test_up_to_14_things_both_bounds_are_those_of_trying_all() -> None:
    counts = {"exact": 0, "bounded": 0}
    for seed in range(40):
        for things in (10, 12, 14):
            changes = rules_of(seed + 1000, things)
            expected = brute(things, changes)
            for budget in (50, 3000, 10**6):
                found, _ = search(things, changes, budget=budget, batch=500)
                counts["exact" if found.exact else "bounded"] += 1
                if expected is not None:
                    assert found.lower <= expected
                    assert found.upper is None or found.upper >= expected
                if found.exact:
                    assert found.upper == expected
    print(counts)


def test_nothing_to_remove_changes_nothing() -> None:
    found, looked = search(0, lambda _s: True, budget=100)
    assert (found.impossible, found.exact, found.upper, found.tried, looked) == (True, True, None, 0, [])


def test_a_good_set_is_thinned_out() -> None:
    """The orders lead to a set with members that are not needed; leaving them out finds the small one."""
    found, _ = search(12, lambda s: {0, 11} <= s, budget=300, batch=50)
    assert (found.upper, found.example) == (2, (0, 11))


def test_the_scores_lead_where_no_budget_could() -> None:
    """A third of 60 sets are too few for anything but following the first column."""
    found, _ = search(20, lambda s: {19, 18, 17} <= s, budget=120, batch=50)
    assert found.upper == 3
    assert found.lower == 2
    assert not found.exact


def test_a_hint_is_tried_and_what_is_proved_is_not_tried_again() -> None:
    wanted = frozenset({3, 8, 14})
    looked: list[int] = []

    def tried(removed: Any) -> tuple[Any, Any]:  # noqa: ANN401
        looked.extend(removed.sum(axis=1).tolist())
        changed = np.array([wanted <= frozenset(np.flatnonzero(row).tolist()) for row in removed], np.bool_)
        return changed, np.zeros((len(removed), 1))

    hint = np.array([8, 3, 14, *(n for n in range(20) if n not in wanted)])
    found = smallest_change(20, tried, budget=3000, batch=100, proved=2, hints=(hint,))
    assert (found.lower, found.upper, found.example, found.exact) == (3, 3, (3, 8, 14), True)
    assert found.tried < 120
    plain = smallest_change(20, tried, budget=90, batch=100)
    assert not plain.exact


# ----------------------------------------------------------------------------------- versions of a world


@MODES
@pytest.mark.parametrize("seed", range(2))
def test_every_version_is_decided_as_it_would_be_alone(mode: PipelineMode, seed: int) -> None:
    """Bit for bit, in every number of the trend and the decision."""
    question = asked(mixed_world(seed, 8), "a", Window.SEVEN_DAYS, CONFIGS[mode])
    rng = np.random.default_rng(seed)
    kept = rng.random((12, len(question.inputs.documents.entity))) < 0.7
    together = question.decide(*versions(question.inputs, question.key, kept))
    for at, rows in enumerate(kept):
        alone = replace(question.inputs, documents=question.inputs.documents.take(rows))
        one = question.decide(alone, question.key)
        for part in ("trends", "decided", "quality"):
            for name in getattr(one, part).__dataclass_fields__:
                several = getattr(getattr(together, part), name)[at]
                assert np.array_equal(several, getattr(getattr(one, part), name)[0], equal_nan=True), name
    assert len(set(together.trends.average.tolist())) > 5


@MODES
def test_what_is_left_out_of_the_question_does_not_matter(mode: PipelineMode) -> None:
    world = mixed_world(5, 8)
    old = tuple(
        Document(f"old{n}", "a", 24.0 * (10 + n), -1.0, catalyst=("legal", None)[n % 2]) for n in range(12)
    )
    world = replace(world, documents=world.documents + old)
    config = CONFIGS[mode]
    question = asked(world, "a", Window.SEVEN_DAYS, config)
    whole = judge(world.inputs(), question.key, AS_OF_US, config, question.rules)
    assert question.decision().trends.average.tolist() == whole.trends.average.tolist()
    assert outcome(question.decision(), 0) == outcome(whole, 0)
    names = {str(question.inputs.document_ids[code]) for code in question.inputs.documents.document.tolist()}
    assert "old0" in names, "it teaches a pattern"
    assert "old1" not in names, "without a catalyst it teaches none"
    off = config.with_settings({"flags.competitive_enabled": False})
    inputs = world.inputs()
    assert len(that_matter(inputs, question.key, AS_OF_US, off).documents.entity) == len(world.documents) - 12
    without = replace(inputs, bars=inputs.bars.take(np.zeros(len(inputs.bars.entity), np.bool_)))
    kept = that_matter(without, question.key, AS_OF_US, config)
    assert len(kept.documents.entity) == len(world.documents) - 12


def test_a_question_sees_nothing_that_was_not_known() -> None:
    late = Document("late", "a", 1.0, known_late_hours=2.0)
    question = asked(World(documents=(Document("d", "a"), late)), "a", Window.ONE_DAY, OracleConfig())
    assert len(question.inputs.documents.entity) == 1


def test_the_size_of_a_world_counts_every_row() -> None:
    world = mixed_world(1, 8)
    assert size(world.inputs()) == 10 + 59 + 1 + 1 + 2


# --------------------------------------------------------------------------------------------- influence


@MODES
@pytest.mark.parametrize("by", ["documents", "sources"])
@pytest.mark.parametrize("seed", range(2))
def test_both_bounds_of_a_decision_against_trying_all(mode: PipelineMode, by: str, seed: int) -> None:
    check_bounds(mode, by, seed, 4)


@pytest.mark.acceptance
@MODES
def test_both_bounds_of_decisions_on_up_to_14_documents(mode: PipelineMode) -> None:
    """Trying all is a decision per set, so the full size is for the long run."""
    for seed in range(6):
        check_bounds(mode, "documents", 100 + seed, 12)
        check_bounds(mode, "sources", 100 + seed, 12)
    print(f"{mode}: 12 decisions, 14 documents each")


def check_bounds(mode: PipelineMode, by: str, seed: int, documents: int) -> None:
    question = asked(mixed_world(seed, documents), "a", Window.SEVEN_DAYS, CONFIGS[mode])
    before = decided(question.inputs, question)
    table, codes = {
        "documents": (question.inputs.document_ids, question.inputs.documents.document),
        "sources": (question.inputs.sources, question.inputs.documents.source),
    }[by]
    names = [str(table[code]) for code in np.unique(codes).tolist()]

    def changes(gone: frozenset[int]) -> bool:
        left = removed_documents(question.inputs, [names[n] for n in gone], by)
        return decided(left, question) != before

    expected = brute(len(names), changes)
    for budget_rows in (0, 40 * size(question.inputs), 10**7):
        found, example, after = influence(question, by, budget_rows)
        assert found.things == len(names)
        assert found.lower <= (expected or len(names) + 1)
        if found.exact:
            assert found.upper == expected
        if found.upper is None:
            assert (example, after) == ([], None)
            continue
        assert expected is not None
        assert found.upper >= expected
        assert len(example) == found.upper
        left = removed_documents(question.inputs, example, by)
        assert after is not None
        assert decided(left, question) == (after["action"], after["mode"]) != before
    assert found.exact


def alone_world(seed: int, documents: int) -> World:
    """Documents about one entity and nothing else, mostly of one mind, so that a proof can hold."""
    rng = random.Random(seed)
    kind = seed % 4
    return World(
        documents=tuple(
            Document(
                f"d{n:02d}",
                "a",
                age_hours=rng.choice((1.0, 20.0, 60.0, 150.0, 160.0) if kind else (1.0, 167.0)),
                sentiment=rng.choice(
                    ((1.0, 0.6, 0.9), (1.0, -1.0, 0.9, 1.0), (-1.0, -0.5), (0.2, 0.3, 0.0))[kind]
                ),
                impact=rng.choice((0.5, 0.8, 1.0, 0.0)),
                confidence=rng.choice((0.25, 0.45, 0.6, 0.95)),
                credibility=rng.choice((0.4, 0.7, 0.95)),
                source=f"s{n}",
                source_type=rng.choice(("news", "poll", None)),
                failed=rng.random() < 0.15,
            )
            for n in range(documents)
        )
    )


def check_proof(seed: int, documents: int, config: OracleConfig) -> tuple[int, int | None]:
    """What is proved, and the size of the smallest set by trying all."""
    world = alone_world(seed, documents)
    world = replace(world, documents=tuple(replace(d, has_impact=not d.failed) for d in world.documents))
    question = asked(world, "a", Window.SEVEN_DAYS, config)
    proved = proved_safe(question.inputs, question.key, AS_OF_US, config, question.rules)
    count = len(question.inputs.documents.entity)
    sets = np.array([[bool(s >> n & 1) for n in range(count)] for s in range(2**count)], np.bool_)
    outcomes = question.decide(*versions(question.inputs, question.key, ~sets)).outcome()
    changed = sets[outcomes != outcomes[0]].sum(axis=1)
    return proved, int(changed.min()) if len(changed) else None


PROOF_CONFIGS = (
    OracleConfig(),
    OracleConfig().with_settings(
        {
            "suppression.min_valid_documents": 0,
            "suppression.min_source_types": 0,
            "eligibility.min_evidence": 0,
            "trend.max_evidence_refs": 3,
        }
    ),
    OracleConfig().with_settings(
        {"suppression.min_source_types": 2, "suppression.min_avg_extraction_confidence": 0.5}
    ),
    OracleConfig().with_settings({"suppression.max_extraction_failure_rate": 0.1}),
)


def test_a_proof_never_claims_a_set_that_changes_the_decision() -> None:
    """Against all sets of up to nine documents, under limits of every kind; and it does prove something."""
    total = 0
    for seed in range(24):
        for config in PROOF_CONFIGS:
            proved, smallest = check_proof(seed, 5 + seed % 5, config)
            assert smallest is None or proved < smallest, (seed, config)
            total += proved
    assert total > 12


@pytest.mark.acceptance
def test_a_proof_never_claims_a_set_that_changes_the_decision_on_up_to_14_documents() -> None:
    total = 0
    for seed in range(200, 260):
        for config in PROOF_CONFIGS:
            proved, smallest = check_proof(seed, 10 + seed % 5, config)
            assert smallest is None or proved < smallest, (seed, config)
            total += proved
    print(f"240 decisions of 10 to 14 documents, {total / 240:.2f} proved on average")


def test_many_documents_of_one_mind_are_proved_far_beyond_what_could_be_tried() -> None:
    """30 documents, all alike: the evidence is stale once the 20 of the last week are gone."""
    documents = tuple(
        Document(f"d{n:02d}", "a", 100.0 if n < 20 else 170.0, 1.0, 0.9, 0.9, 0.9, source=f"s{n}")
        for n in range(30)
    )
    question = asked(World(documents=documents), "a", Window.THIRTY_DAYS, OracleConfig())
    found, example, after = influence(question, "documents")
    assert (found.lower, found.upper, found.exact) == (20, 20, True)
    assert sorted(example) == [f"d{n:02d}" for n in range(20)]
    assert after is not None
    assert after["suppression_reasons"] == ["stale_evidence"]
    assert found.tried < 5000


@pytest.mark.parametrize(
    "more",
    [
        {"events": (Event("e", 1.0, -1),), "exposures": (Exposure("a", "geo", "us", 1.0),)},
        {"edges": (Edge("a", "b", 1.0),), "documents": (Document("b", "b", 1.0, -1.0),)},
        {"bars": (Bar("a", 2, 100.0), Bar("a", 1, 101.0))},
    ],
)
def test_nothing_is_proved_where_more_than_the_own_documents_counts(more: dict[str, Any]) -> None:
    documents = tuple(Document(f"d{n:02d}", "a", 10.0, 1.0, 0.9, 0.9, 0.9, source=f"s{n}") for n in range(20))
    plain = World(documents=documents)

    def proved(world: World, config: OracleConfig) -> int:
        question = asked(world, "a", Window.SEVEN_DAYS, config)
        return proved_safe(question.inputs, question.key, AS_OF_US, config, question.rules)

    assert proved(plain, OracleConfig()) > 5
    assert proved(plain, CONFIGS[PipelineMode.PROBABILISTIC]) == 0
    richer = replace(plain, **{**more, "documents": (*documents, *more.get("documents", ()))})
    assert proved(richer, OracleConfig()) == 0
    if "events" not in more:
        off = OracleConfig().with_settings({"flags.competitive_enabled": False})
        assert proved(richer, off) > 5


# ---------------------------------------------------------------------------------------------- distance


@MODES
def test_so_many_documents_cross_the_threshold_and_one_fewer_does_not(mode: PipelineMode) -> None:
    """Added one by one to the world, and decided alone."""
    question = asked(mixed_world(3, 7), "a", Window.SEVEN_DAYS, CONFIGS[mode])
    like = Supposed(credibility=0.7, impact=0.8, extraction_confidence=0.9)
    gates, decision = distance(question, like, most=12)

    def after(count: int, sign: float) -> tuple[list[dict[str, Any]], tuple[str, str]]:
        world = with_supposed(
            question.inputs, int(question.key.entity[0]), np.full(count, sign), AS_OF_US, like
        )
        other = replace(question, inputs=world)
        return distance(other, like, most=1)[0], decided(world, question)

    start = {(g["part"], g["gate"]): (g["asked"], g["holds"]) for g in gates}
    before = decided(question.inputs, question)
    crossed = 0
    for side, sign in (("positive", 1.0), ("negative", -1.0)):
        states = [after(count, sign) for count in range(13)]
        for gate in gates:
            name = (gate["part"], gate["gate"])
            seen = [
                next((g["asked"], g["holds"]) for g in state if (g["part"], g["gate"]) == name)
                for state, _ in states
            ]
            assert seen[0] == start[name]
            first = next((n for n, found in enumerate(seen) if found != seen[0]), None)
            assert gate[side] == first, name
            crossed += first is not None
        first = next((n for n, (_, found) in enumerate(states) if found != before), None)
        assert decision[side] == first
        if first is not None:
            becomes = decision[f"{side}_becomes"]
            assert (becomes["action"], becomes["mode"]) == states[first][1]
        else:
            assert decision[f"{side}_becomes"] is None
    assert crossed >= 4


def test_supposed_documents_are_what_they_are_said_to_be() -> None:
    world = mixed_world(2, 4).inputs()
    like = Supposed(credibility=0.6, impact=0.5, extraction_confidence=0.8)
    rows = with_supposed(world, 0, np.array([1.0, -1.0]), AS_OF_US, like).documents
    there = len(world.documents.entity)
    added = rows.take(np.arange(there, there + 2))
    assert added.sentiment.tolist() == [1.0, -1.0]
    assert added.credibility.tolist() == [0.6, 0.6]
    assert added.impact.tolist() == [0.5, 0.5]
    assert added.extraction_confidence.tolist() == [0.8, 0.8]
    assert added.published_us.tolist() == added.known_us.tolist() == [AS_OF_US, AS_OF_US]
    assert np.isnan(added.novelty).all()
    assert added.source_type.tolist() == added.catalyst.tolist() == [-1, -1]
    assert added.has_impact.all()
    assert not added.failed.any()
    assert len(set(added.document.tolist())) == len(set(added.source.tolist())) == 2
    assert added.entity.tolist() == [0, 0]


def test_supposed_documents_leave_the_others_and_the_accuracy_of_their_sources_alone() -> None:
    world = mixed_world(2, 4).inputs()
    grown = with_supposed(world, 0, np.array([1.0]), AS_OF_US, Supposed())
    there = len(world.documents.entity)
    for table, column in (("document_ids", "document"), ("sources", "source")):
        old = getattr(world, table)[getattr(world.documents, column)]
        new = getattr(grown, table)[getattr(grown.documents, column)]
        assert new[:there].tolist() == old.tolist()
        assert sorted(getattr(grown, table).tolist()) == getattr(grown, table).tolist()
    assert grown.sources[grown.accuracy.source].tolist() == world.sources[world.accuracy.source].tolist()
    assert grown.document_ids[grown.documents.document[there]] == "~0000"


def test_the_defaults_are_a_document_of_a_usual_source() -> None:
    assert Supposed() == Supposed(0.7, 0.8, 0.9)
    lonely = asked(World(documents=(Document("d", "a", 1.0),)), "a", Window.ONE_DAY, OracleConfig())
    gates, decision = distance(lonely)
    evidence = next(g for g in gates if g["gate"] == "insufficient_evidence")
    assert (evidence["value"], evidence["positive"], evidence["negative"]) == (1.0, 1, 1)
    assert decision["positive"] == 2
    assert decision["positive_becomes"] == {
        "action": "act",
        "mode": "simulation_eligible",
        "direction": "positive",
        "suppression_reasons": [],
    }
