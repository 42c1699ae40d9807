"""The competitive layer: what others' evidence passes on over the graph, and what history says of a catalyst.

How far and how strongly a signal travels differs between the modes; everything else is shared. Weights of
documents do not belong here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from oracle_core.arrays import exact_sums, group_codes, group_max, group_means, group_offsets, ranges, runs
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

_WINDOWS = len(Window)
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
    """Those columns of the active signals of documents that others' signals are made of."""

    key: Int
    catalyst: Int
    published_us: Int
    sentiment: Float
    impact: Float
    extraction_confidence: Float
    recency: Float
    credibility: Float
    combined: Float


@dataclass(frozen=True, slots=True, eq=False)
class EntityLayer:
    """Active entity-layer signals of every key that a cycle needs, requested or not; rows sorted by key."""

    keys: Keys
    rows: ActiveDocuments
    offsets: Int

    @classmethod
    def of(cls, keys: Keys, rows: SignalRows) -> EntityLayer:
        """Keep the active rows."""
        active = np.flatnonzero(rows.combined > 0.0)
        kept = {field.name: getattr(rows, field.name)[active] for field in fields(ActiveDocuments)}
        return cls(keys, ActiveDocuments(**kept), group_offsets(kept["key"], len(keys)))

    def find(self, entity: Int, window: Int) -> Int:
        """Position of each key, -1 where it is not here."""
        own = self.keys.entity * _WINDOWS + self.keys.window
        order = np.argsort(own, kind="stable")
        wanted = entity * _WINDOWS + window
        place = np.minimum(np.searchsorted(own[order], wanted), max(len(own) - 1, 0))
        if len(own) == 0:
            return np.full(len(wanted), -1)
        found = order[place]
        return np.where(own[found] == wanted, found, -1)


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
    found = [(near[direct], far[direct], np.ones(int(direct.sum()), np.int64), rho[direct])]
    graph = csr_array((np.ones(len(far)), far, offsets), shape=(len(nodes), len(nodes)))
    block = max(1, _BLOCK_CELLS // max(len(nodes), 1))
    # The edges themselves are the first step; farther ones need the shortest paths.
    for first in range(0, int(starts.sum()) if reach > 1 else 0, block):
        part = np.flatnonzero(starts)[first : first + block]
        away = dijkstra(graph, directed=True, indices=part, unweighted=True, limit=reach)
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
            found.append((part[row], node, np.full(len(row), distance, np.int64), best))
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
    """Largest and smallest value of each non-empty group."""
    if len(starts) == 0:
        return np.zeros(0), np.zeros(0)
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
    keys: Keys, layer: EntityLayer, related: Relations, config: OracleConfig, rules: RuleSet
) -> tuple[SyntheticSignals, list[tuple[int, int]]]:
    """One signal ``competitor:<j>:<window>`` per key and other entity j that passes something on.

    Sentiment sign(S), impact min(1, |S|), recency the largest and credibility and confidence the means of j's
    active signals (decisions 2).

    Returns:
        The signals, and the (entity code, window code) each name stands for.

    """
    key, other = _targets(keys, related)
    place = layer.find(related.target[other], keys.window[key])
    held = (place >= 0) & (np.diff(layer.offsets, append=layer.offsets[-1])[place] > 0)
    key, other, place = key[held], other[held], place[held]
    used, place = np.unique(place, return_inverse=True)
    length = layer.offsets[used + 1] - layer.offsets[used]
    _, members = ranges(layer.offsets[used], length)
    rows = layer.rows.take(members)
    offsets = np.append(0, np.cumsum(length))
    average = weighted_averages(rows.combined, rows.impact, rows.sentiment, offsets)
    transfer = rules.propagate(
        average[place], related.rho[other], related.distance[other], config.competitive
    )
    moved = transfer != 0.0
    key, place, transfer = key[moved], place[moved], transfer[moved]
    newest = np.maximum.reduceat(rows.published_us, offsets[:-1]) if len(used) > 0 else np.zeros(0, np.int64)
    signals = SyntheticSignals(
        key=key,
        name=place,
        published_us=newest[place],
        catalyst=np.full(len(key), -1),
        sentiment=np.sign(transfer),
        impact=np.minimum(1.0, np.abs(transfer)),
        extraction_confidence=group_means(rows.extraction_confidence, offsets)[place],
        recency=group_max(rows.recency, offsets)[place],
        credibility=group_means(rows.credibility, offsets)[place],
        layer=np.full(len(key), _LAYERS[SignalLayer.COMPETITOR]),
        layer_weight=np.full(len(key), config.competitive.competitive_layer_weight),
    )
    named = zip(layer.keys.entity[used].tolist(), layer.keys.window[used].tolist(), strict=True)
    return signals, list(named)


def competitor_names(sources: list[tuple[int, int]], entities: Strings) -> list[str]:
    """Ids of the signals passed on by each (entity code, window code)."""
    windows = [window.value for window in Window]
    return [f"competitor:{entities[entity]}:{windows[window]}" for entity, window in sources]


def pattern_names(seen: list[tuple[int, int, int]], entities: Strings, catalysts: Strings) -> list[str]:
    """Ids of the pattern signals of each (entity, catalyst, window)."""
    windows = [window.value for window in Window]
    return [f"pattern:{entities[e]}:{catalysts[c]}:{windows[w]}" for e, c, w in seen]


def _targets(keys: Keys, related: Relations) -> tuple[Int, Int]:
    """Key position and relation row of every (key, related entity)."""
    first = np.searchsorted(related.source, keys.entity)
    return ranges(first, np.searchsorted(related.source, keys.entity, side="right") - first)


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
        wanted[documents.entity]
        & (documents.catalyst >= 0)
        & (np.abs(documents.sentiment) > 0.0)
        & (documents.published_us >= oldest_us)
        & (documents.published_us <= as_of_us - settle_us)
    )
    outcome = forward_returns(inputs.bars, rows.entity, rows.published_us, settle_us, as_of_us)
    settled = np.abs(outcome) > 0.0
    rows, outcome = rows.take(settled), outcome[settled]
    day = rows.published_us // US_PER_DAY
    order = np.lexsort((day, rows.catalyst, rows.entity))
    entity, catalyst, day = rows.entity[order], rows.catalyst[order], day[order]
    first, offsets = runs(entity, catalyst, day)
    total = exact_sums((np.sign(rows.sentiment) * outcome)[order], offsets)
    first, total = first[total != 0.0], total[total != 0.0]
    head, bounds = runs(entity[first], catalyst[first])
    positive = np.bincount(group_codes(bounds), weights=total > 0.0, minlength=len(head)).astype(np.int64)
    found = Patterns(entity[first][head], catalyst[first][head], np.diff(bounds), positive)
    return found.take(found.days >= config.pattern_min_days)


def pattern_signals(
    keys: Keys,
    layer: EntityLayer,
    related: Relations,
    known: Patterns,
    *,
    as_of_us: int,
    config: CompetitiveConfig,
) -> tuple[SyntheticSignals, list[tuple[int, int, int]]]:
    """One signal ``pattern:<entity>:<catalyst>:<window>`` per key and catalyst with trigger and history.

    The trigger is the exact sum of ``weight * impact * sentiment`` over the active entity-layer signals
    of the catalyst of the entity and its neighbours at distance 1. Sentiment ``sign(T) * sign(h - 1/2)``,
    impact ``|2 * positive days - days| / days``.

    Returns:
        The signals, and the (entity, catalyst, window) codes each name stands for.

    """
    lean = 2 * known.positive_days - known.days
    known = known.take(lean != 0)
    first = np.searchsorted(known.entity, keys.entity)
    key, pattern = ranges(first, np.searchsorted(known.entity, keys.entity, side="right") - first)
    trigger = _trigger_signs(keys, key, known.catalyst[pattern], layer, related.take(related.distance == 1))
    key, pattern, trigger = key[trigger != 0.0], pattern[trigger != 0.0], trigger[trigger != 0.0]
    lean, days = 2 * known.positive_days[pattern] - known.days[pattern], known.days[pattern]
    count = len(key)
    signals = SyntheticSignals(
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
    named = zip(
        known.entity[pattern].tolist(),
        known.catalyst[pattern].tolist(),
        keys.window[key].tolist(),
        strict=True,
    )
    return signals, list(named)


def _trigger_signs(keys: Keys, key: Int, catalyst: Int, layer: EntityLayer, neighbours: Relations) -> Float:
    """Exact sign of the trigger of each (key, catalyst)."""
    rows = layer.rows
    value = rows.combined * rows.impact * rows.sentiment
    counted = np.flatnonzero((rows.catalyst >= 0) & (value != 0.0))
    span = int(max(rows.catalyst.max(initial=0), catalyst.max(initial=0))) + 1
    code = rows.key[counted] * span + rows.catalyst[counted]
    order = np.argsort(code, kind="stable")
    counted, code = counted[order], code[order]
    first, offsets = runs(code)
    groups = code[first]
    value = value[counted]
    part = group_codes(offsets)
    totals = np.bincount(part, weights=value, minlength=len(groups))
    sizes = np.bincount(part, weights=np.abs(value), minlength=len(groups))
    # Every trigger adds the groups of the entity itself and of its neighbours.
    owner, other = _targets(Keys(keys.entity[key], keys.window[key]), neighbours)
    target = np.concatenate((np.arange(len(key)), owner))
    entity = np.concatenate((keys.entity[key], neighbours.target[other]))
    place = layer.find(entity, keys.window[key][target])
    wanted = np.where(place >= 0, place * span + catalyst[target], -1)
    group = np.searchsorted(groups, wanted)
    group = np.minimum(group, max(len(groups) - 1, 0))
    held = groups[group] == wanted if len(groups) > 0 else np.zeros(len(wanted), np.bool_)
    target, group = target[held], group[held]
    order = np.argsort(target, kind="stable")
    target, group = target[order], group[order]
    total = np.bincount(target, weights=totals[group], minlength=len(key))
    size = np.bincount(target, weights=sizes[group], minlength=len(key))
    terms = np.bincount(target, weights=np.diff(offsets)[group], minlength=len(key))
    # The float sum decides only where it exceeds its own worst error; the rest is summed exactly.
    sign = np.sign(total)
    bounds = group_offsets(target, len(key))
    doubtful = (size > 0.0) & (np.abs(total) <= 4.0 * (terms + 4.0) * np.finfo(np.float64).eps * size)
    for unsure in np.flatnonzero(doubtful).tolist():
        mine = group[bounds[unsure] : bounds[unsure + 1]]
        _, members = ranges(offsets[mine], np.diff(offsets)[mine])
        sign[unsure] = np.sign(math.fsum(value[members].tolist()))
    return sign
