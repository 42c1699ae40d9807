"""How far the evidence disagrees, and where (R17-R24, R183).

What a contradiction does to direction and confidence belongs in ``trend``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle_core.arrays import divide, group_codes, group_sums, runs
from oracle_core.bayesian import entropy
from oracle_core.inputs import Bool, Columns, Float, Int, Strings
from oracle_core.records import CatalystEntry, ContradictionResult, DisagreementDetail, WeightedSignal
from oracle_core.single import single_frame


@dataclass(frozen=True, slots=True, eq=False)
class Sides(Columns):
    """Participating signals, sorted by group; ``weight`` is the effective weight, above 0 (R18).

    ``name`` indexes the table of ids, ``catalyst`` that of catalysts (-1 for none).
    """

    group: Int
    name: Int
    catalyst: Int
    positive: Bool
    weight: Float


def participants(group: Int, name: Int, catalyst: Int, sentiment: Float, weight: Float) -> Sides:
    """Signals that take part: positive effective weight and a direction.

    Args:
        group: group of each signal, sorted.
        name: code of its id.
        catalyst: code of its catalyst, -1 for none.
        sentiment: in [-1, 1].
        weight: effective weight, combined weight times impact.

    Implements: R18.

    """
    rows = Sides(group, name, catalyst, sentiment > 0.0, weight)
    return rows.take((weight > 0.0) & (sentiment != 0.0))


def side_weights(sides: Sides, groups: int) -> tuple[Float, Float]:
    """Effective weight of the positive and of the negative side of each group."""
    above = sides.positive
    return (
        group_sums(sides.weight[above], sides.group[above], groups),
        group_sums(sides.weight[~above], sides.group[~above], groups),
    )


def minority_share(positive: Float, negative: Float) -> Float:
    """``minority / total`` in [0, 0.5]; 0 when one-sided or empty.

    Implements: R22, R23.
    """
    return divide(np.minimum(positive, negative), positive + negative)


def disagreement_entropy(positive: Float, negative: Float) -> Float:
    """Entropy of the positive share of the weight, in [0, 1]; 0 when one-sided or empty.

    Implements: R183.
    """
    share = divide(np.minimum(positive, negative), positive + negative)
    return entropy(share)


def disagreements(
    sides: Sides, groups: int, names: Strings, catalysts: Strings
) -> list[list[dict[str, Any]]]:
    """Details of every group in which both sides are present, as stored in JSON.

    One of dimension ``sentiment``, then one ``catalyst:<type>`` per catalyst that has both sides, by name.
    Documents stand in the order of the rows.

    Implements: R19, R20, R21.
    """
    result: list[list[dict[str, Any]]] = [[] for _ in range(groups)]
    _describe(result, sides, -np.ones_like(sides.group), names, catalysts)
    typed = np.flatnonzero(sides.catalyst >= 0)
    typed = typed[np.lexsort((sides.catalyst[typed], sides.group[typed]))]
    sorted_sides = sides.take(typed)
    _describe(result, sorted_sides, sorted_sides.catalyst, names, catalysts)
    return result


def _describe(
    result: list[list[dict[str, Any]]], sides: Sides, dimension: Int, names: Strings, catalysts: Strings
) -> None:
    """Append the detail of every run of (group, dimension) that has both sides."""
    first, offsets = runs(sides.group, dimension)
    part = group_codes(offsets)
    positives = np.bincount(part, weights=sides.positive).astype(np.int64)
    split = (positives > 0) & (positives < np.diff(offsets))
    # Only runs with both sides are described; in a run the positive rows come first, each side in its order.
    rows = np.flatnonzero(split[part])
    rows = rows[np.lexsort((~sides.positive[rows], part[rows]))]
    above = sides.positive[rows]
    count = int(split.sum())
    run = np.cumsum(split)[part[rows]] - 1
    ratios = minority_share(
        group_sums(sides.weight[rows][above], run[above], count),
        group_sums(sides.weight[rows][~above], run[~above], count),
    ).tolist()
    weights, ids = sides.weight[rows].tolist(), names[sides.name[rows]].tolist()
    ends = np.cumsum(np.diff(offsets)[split]).tolist()
    heads = zip(
        sides.group[first[split]].tolist(),
        dimension[first[split]].tolist(),
        positives[split].tolist(),
        strict=True,
    )
    start = 0
    for (group, code, up), end, ratio in zip(heads, ends, ratios, strict=True):
        middle = start + up
        title = "Sentiment" if code < 0 else f"Catalyst {catalysts[code]}"
        result[group].append(
            {
                "dimension": "sentiment" if code < 0 else f"catalyst:{catalysts[code]}",
                "description": (
                    f"{title} split: {up} positive vs {end - middle} negative signals "
                    f"(minority weight ratio {ratio:.0%})"
                ),
                "positive": {"document_ids": ids[start:middle], "weights": weights[start:middle]},
                "negative": {"document_ids": ids[middle:end], "weights": weights[middle:end]},
            }
        )
        start = end


def catalyst_entries(signals: Sequence[WeightedSignal]) -> list[CatalystEntry]:
    """Entries of the signals that name a catalyst (R21)."""
    return [
        CatalystEntry(
            document_id=s.document_id,
            catalyst_type=s.catalyst_type,
            sentiment_value=s.sentiment_value,
            effective_weight=s.weight.combined * s.impact_score,
        )
        for s in signals
        if s.catalyst_type is not None
    ]


def detect_contradictions(
    signals: Sequence[WeightedSignal],
    score: Callable[[Float, Float], Float] = minority_share,
) -> ContradictionResult:
    """Score and disagreements of one list of signals.

    Args:
        signals: any order; those with weight, sentiment or impact that is not finite are skipped.
        score: the mode's rule, :func:`minority_share` or :func:`disagreement_entropy`.

    Implements: R17.

    """
    frame = single_frame(signals)
    rows = frame.rows
    sides = participants(rows.key, rows.signal, rows.catalyst, rows.sentiment, rows.combined * rows.impact)
    details = disagreements(sides, 1, frame.ids, frame.catalysts)[0]
    return ContradictionResult(
        score=float(score(*side_weights(sides, 1))[0]),
        disagreements=tuple(
            DisagreementDetail(
                dimension=detail["dimension"],
                description=detail["description"],
                positive_document_ids=tuple(detail["positive"]["document_ids"]),
                positive_weights=tuple(detail["positive"]["weights"]),
                negative_document_ids=tuple(detail["negative"]["document_ids"]),
                negative_weights=tuple(detail["negative"]["weights"]),
            )
            for detail in details
        ),
    )
