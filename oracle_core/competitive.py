"""The competitive layer: what others' evidence passes on over the graph, and what history says of a catalyst.

How far and how strongly a signal travels differs between the modes; everything else is shared. Weights of
documents do not belong here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from oracle_core.arrays import (
    exact_sums,
    group_codes,
    group_max,
    group_means,
    group_offsets,
    ranges,
    runs,
)
from oracle_core.config import CompetitiveConfig, OracleConfig
from oracle_core.enums import SignalLayer, Window, codes
from oracle_core.frames import SignalRows
from oracle_core.inputs import (
    US_PER_DAY,
    Columns,
    CycleInputs,
    DocumentRows,
    EdgeRows,
    Float,
    Int,
    Keys,
    Strings,
)
from oracle_core.market import forward_returns
from oracle_core.synthetic import SyntheticSignals
from oracle_core.trend import weighted_averages

if TYPE_CHECKING:
    from oracle_core.rules import RuleSet

_BLOCK_CELLS = 4_000_000
_LAYERS = codes(SignalLayer)


@dataclass(frozen=True, slots=True, eq=False)
class Relations(Columns):
    """Pairs of entities within reach, sorted by (source, target).

    ``distance`` counts edges of the shortest path, at least 1; ``rho`` is the product of the correlations
    along it, of several the one with the largest magnitude (the positive one where two tie).
    """

    source: Int
    target: Int
    distance: Int
    rho: Float


@dataclass(frozen=True, slots=True, eq=False)
class ActiveDocuments(Columns):
    """Active entity-layer signals of every key that a cycle needs, requested or not.

    Sorted by ``code`` (see :func:`key_code`), within a key newest first.
    """

    code: Int
    catalyst: Int
    published_us: Int
    sentiment: Float
    impact: Float
    extraction_confidence: Float
    recency: Float
    credibility: Float
    combined: Float


def key_code(entity: Int, window: Int) -> Int:
    """One number for an (entity, window)."""
    return entity * len(Window) + window


def active_documents(keys: Keys, rows: SignalRows) -> ActiveDocuments:
    """Keep what is active, by key code; the rows of a key stand together and newest first already."""
    code = key_code(keys.entity, keys.window)[rows.key]
    active = np.flatnonzero(rows.combined > 0.0)
    order = active[np.argsort(code[active], kind="stable")]
    names = (field.name for field in fields(ActiveDocuments) if field.name != "code")
    return ActiveDocuments(code=code[order], **{name: getattr(rows, name)[order] for name in names})


def relations(edges: EdgeRows, sources: Int, reach: int) -> Relations:
    """Find everything within ``reach`` edges of the given entities.

    Args:
        edges: undirected edges known at the moment looked at; a pair may occur several times.
        sources: entity codes to start from.
        reach: largest distance.

    """
    nodes = np.unique(np.concatenate((edges.source, edges.target)))
    near, far, rho = _adjacency(edges, nodes)
    offsets = group_offsets(near, len(nodes))
    starts = np.isin(nodes, sources)
    direct = starts[near]
    found = [(near[direct], far[direct], np.ones_like(near[direct]), rho[direct])]
    graph = csr_array((np.ones(len(far)), far, offsets), shape=(len(nodes), len(nodes)))
    block = 1 + _BLOCK_CELLS // (1 + len(nodes))
    # The edges themselves are the first step; farther ones need the shortest paths.
    for first in range(0, int(starts.sum()) if reach > 1 else 0, block):
        part = np.flatnonzero(starts)[first : first + block]
        away = dijkstra(graph, indices=part, limit=reach)
        # Largest and smallest product over the shortest paths: a later edge may swap them.
        high, low = np.zeros_like(away), np.zeros_like(away)
        owner, edge = ranges(offsets[part], offsets[part + 1] - offsets[part])
        high[owner, far[edge]] = low[owner, far[edge]] = rho[edge]
        rows, others = np.nonzero(np.isfinite(away))
        steps = away[rows, others]
        for distance in range(2, reach + 1):
            row, node = rows[steps == distance], others[steps == distance]
            owner, edge = ranges(offsets[node], offsets[node + 1] - offsets[node])
            last = away[row[owner], far[edge]] == distance - 1
            owner, edge = owner[last], edge[last]
            first_edge = np.searchsorted(owner, np.arange(len(row)))
            products = [extreme[row[owner], far[edge]] * rho[edge] for extreme in (high, low)]
            high[row, node] = _extremes(np.maximum(*products), first_edge)[0]
            low[row, node] = _extremes(np.minimum(*products), first_edge)[1]
            best = _larger(high[row, node], low[row, node])
            found.append((part[row], node, np.full(len(row), distance), best))
    source, target, distances, rhos = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.lexsort((target, source))
    return Relations(nodes[source[order]], nodes[target[order]], distances[order], rhos[order])


def _adjacency(edges: EdgeRows, nodes: Int) -> tuple[Int, Int, Float]:
    """Both directions of every edge, sorted, parallel edges joined, self-edges dropped, as node positions."""
    source = np.searchsorted(nodes, np.concatenate((edges.source, edges.target)))
    target = np.searchsorted(nodes, np.concatenate((edges.target, edges.source)))
    rho = np.clip(np.nan_to_num(np.concatenate((edges.rho, edges.rho))), -1.0, 1.0)
    order = np.lexsort((rho, target, source))
    order = order[source[order] != target[order]]
    source, target, rho = source[order], target[order], rho[order]
    first, _ = runs(source, target)
    return source[first], target[first], _larger(*_extremes(rho, first))


def _extremes(values: Float, starts: Int) -> tuple[Float, Float]:
    """Largest and smallest value of each group, none of them empty."""
    return np.maximum.reduceat(values, starts), np.minimum.reduceat(values, starts)


def _larger(high: Float, low: Float) -> Float:
    """The value of the larger magnitude; of a tie the positive one."""
    return np.where(high >= -low, high, low)


def flat_reach(config: CompetitiveConfig) -> int:  # noqa: ARG001 - the same signature in both sets of rules
    """Heuristic propagation reaches neighbours only."""
    return 1


def graded_reach(config: CompetitiveConfig) -> int:
    """Probabilistic propagation reaches this many edges."""
    return config.max_distance


def flat_transfer(average: Float, rho: Float, distance: Int, config: CompetitiveConfig) -> Float:  # noqa: ARG001
    """A fixed share of the source's average, at distance 1 only (G33)."""
    return np.where(distance == 1, config.flat_transfer * average, 0.0)


def attenuated_transfer(average: Float, rho: Float, distance: Int, config: CompetitiveConfig) -> Float:
    """``S * rho * e^(-decay * d)`` for 1 <= d <= max distance, else 0 (G15).

    Args:
        average: the source's average in [-1, 1].
        rho: correlation along the path, clamped to [-1, 1].
        distance: edges between source and target.
        config: decay and largest distance.

    Implements: R189.

    """
    passed = average * np.clip(rho, -1.0, 1.0) * np.exp(-config.distance_decay * distance)
    return np.where((distance >= 1) & (distance <= config.max_distance), passed, 0.0)


def competitor_signals(
    keys: Keys, layer: ActiveDocuments, related: Relations, config: OracleConfig, rules: RuleSet
) -> tuple[SyntheticSignals, Int]:
    """One signal ``competitor:<j>:<window>`` per key and other entity j that passes something on.

    Sentiment sign(S), impact min(1, |S|), recency the largest and credibility and confidence the means of j's
    active signals (decisions 2).

    Returns:
        The signals, and the key code of j that each name stands for.

    """
    key, other = _targets(keys.entity, related)
    sources, source = np.unique(key_code(related.target[other], keys.window[key]), return_inverse=True)
    first = np.searchsorted(layer.code, sources)
    length = np.searchsorted(layer.code, sources, side="right") - first
    _, members = ranges(first, length)
    rows, offsets = layer.take(members), np.append(0, np.cumsum(length))
    average = weighted_averages(rows.combined, rows.impact, rows.sentiment, offsets)
    transfer = rules.propagate(
        average[source], related.rho[other], related.distance[other], config.competitive
    )
    moved = transfer != 0.0
    key, source, transfer = key[moved], source[moved], transfer[moved]
    signals = SyntheticSignals(
        key=key,
        name=source,
        published_us=layer.published_us[first[source]],  # the newest
        catalyst=np.full(len(key), -1),
        sentiment=np.sign(transfer),
        impact=np.minimum(1.0, np.abs(transfer)),
        extraction_confidence=group_means(rows.extraction_confidence, offsets)[source],
        recency=group_max(rows.recency, offsets)[source],
        credibility=group_means(rows.credibility, offsets)[source],
        layer=np.full(len(key), _LAYERS[SignalLayer.COMPETITOR]),
        layer_weight=np.full(len(key), config.competitive.competitive_layer_weight),
    )
    return signals, sources


def competitor_names(sources: Int, entities: Strings) -> list[str]:
    """Ids of the signals passed on by each key code."""
    windows = [window.value for window in Window]
    parts = [divmod(code, len(windows)) for code in sources.tolist()]
    return [f"competitor:{entities[entity]}:{windows[window]}" for entity, window in parts]


def pattern_names(signals: SyntheticSignals, keys: Keys, entities: Strings, catalysts: Strings) -> list[str]:
    """Ids of pattern signals."""
    windows = [window.value for window in Window]
    columns = (keys.entity[signals.key], signals.catalyst, keys.window[signals.key])
    rows = np.column_stack(columns).tolist()
    return [f"pattern:{entities[e]}:{catalysts[c]}:{windows[w]}" for e, c, w in rows]


def _targets(entity: Int, related: Relations) -> tuple[Int, Int]:
    """Position and relation row of every (entity of the list, related entity)."""
    first = np.searchsorted(related.source, entity)
    return ranges(first, np.searchsorted(related.source, entity, side="right") - first)


@dataclass(frozen=True, slots=True, eq=False)
class Patterns(Columns):
    """What followed a catalyst at an entity, sorted by (entity, catalyst): days with an outcome, up days."""

    entity: Int
    catalyst: Int
    days: Int
    positive_days: Int


def patterns(
    inputs: CycleInputs, documents: DocumentRows, entities: Int, as_of_us: int, config: CompetitiveConfig
) -> Patterns:
    """How often the market followed the news of a catalyst (decisions 2).

    One outcome per UTC day of publication: the mean of ``sign(sentiment) * 7-day return`` over the entity's
    own documents of that day. Days that average exactly 0 are dropped, then catalysts with too few days.

    Args:
        inputs: the bars, already cut at ``as_of_us``.
        documents: valid documents with an impact, any order.
        entities: codes of the wanted entities.
        as_of_us: the moment looked at.
        config: lookback, horizon and least number of days.

    """
    wanted = np.zeros(len(inputs.entities), np.bool_)
    wanted[entities] = True
    settle_us = round(config.pattern_settle_days * US_PER_DAY)
    oldest_us = as_of_us - round(config.pattern_lookback_days * US_PER_DAY)
    rows = documents.take(
        wanted[documents.entity] & (documents.catalyst >= 0) & (documents.published_us >= oldest_us)
    )
    # What is too young has no settled return, which is NaN.
    moved = forward_returns(inputs.bars, rows.entity, rows.published_us, settle_us, as_of_us)
    outcome = np.sign(rows.sentiment) * moved
    counted = np.abs(outcome) > 0.0
    rows, outcome, day = rows.take(counted), outcome[counted], rows.published_us[counted] // US_PER_DAY
    order = np.lexsort((day, rows.catalyst, rows.entity))
    entity, catalyst = rows.entity[order], rows.catalyst[order]
    first, offsets = runs(entity, catalyst, day[order])
    total = exact_sums(outcome[order], offsets)
    first, total = first[total != 0.0], total[total != 0.0]
    head, bounds = runs(entity[first], catalyst[first])
    positive = np.bincount(group_codes(bounds)[total > 0.0], minlength=len(head))
    found = Patterns(entity[first][head], catalyst[first][head], np.diff(bounds), positive)
    return found.take(found.days >= config.pattern_min_days)


def pattern_signals(
    keys: Keys,
    layer: ActiveDocuments,
    related: Relations,
    known: Patterns,
    *,
    as_of_us: int,
    config: CompetitiveConfig,
) -> SyntheticSignals:
    """One signal ``pattern:<entity>:<catalyst>:<window>`` per key and catalyst with trigger and history.

    The trigger is the exact sum of ``weight * impact * sentiment`` over the active entity-layer signals
    of the catalyst of the entity and its neighbours at distance 1. Sentiment ``sign(T) * sign(h - 1/2)``,
    impact ``|2 * positive days - days| / days``.
    """
    lean = 2 * known.positive_days - known.days
    known = known.take(lean != 0)
    first = np.searchsorted(known.entity, keys.entity)
    key, pattern = ranges(first, np.searchsorted(known.entity, keys.entity, side="right") - first)
    trigger = _trigger_signs(keys, key, known.catalyst[pattern], layer, related.take(related.distance == 1))
    key, pattern, trigger = key[trigger != 0.0], pattern[trigger != 0.0], trigger[trigger != 0.0]
    lean, days = 2 * known.positive_days[pattern] - known.days[pattern], known.days[pattern]
    count = len(key)
    return SyntheticSignals(
        key=key,
        name=np.arange(count),
        published_us=np.full(count, as_of_us),
        catalyst=known.catalyst[pattern],
        sentiment=trigger * np.sign(lean),
        impact=np.abs(lean) / days,
        extraction_confidence=np.full(count, config.pattern_confidence),
        recency=np.ones(count),
        credibility=np.full(count, config.pattern_credibility),
        layer=np.full(count, _LAYERS[SignalLayer.PATTERN]),
        layer_weight=np.full(count, config.competitive_layer_weight),
    )


def _trigger_signs(
    keys: Keys, key: Int, catalyst: Int, layer: ActiveDocuments, neighbours: Relations
) -> Float:
    """Exact sign of the trigger of each (key, catalyst)."""
    span = int(max(layer.catalyst.max(initial=0), catalyst.max(initial=0))) + 2
    # Code 0 of each key is that of the signals without a catalyst, which no one asks for.
    code = layer.code * span + layer.catalyst + 1
    order = np.argsort(code, kind="stable")
    code = code[order]
    value = (layer.combined * layer.impact * layer.sentiment)[order]
    owner, other = _targets(keys.entity[key], neighbours)
    target = np.concatenate((np.arange(len(key)), owner))
    entity = np.concatenate((keys.entity[key], neighbours.target[other]))
    wanted = key_code(entity, keys.window[key][target]) * span + catalyst[target] + 1
    first = np.searchsorted(code, wanted)
    part, members = ranges(first, np.searchsorted(code, wanted, side="right") - first)
    trigger = target[part]
    order = np.argsort(trigger, kind="stable")
    return np.sign(exact_sums(value[members][order], group_offsets(trigger, len(key))))
