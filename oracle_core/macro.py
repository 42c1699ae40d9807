"""World events: how much one touches an entity, its signals, and how the layer enters a trend.

How an event fades until the end of a projection belongs in ``projection``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from oracle_core.arrays import group_codes, group_sums, ranges, runs
from oracle_core.config import MacroConfig, OracleConfig
from oracle_core.enums import EventDuration, Severity, SignalLayer, codes
from oracle_core.inputs import DIMENSIONS, US_PER_DAY, Bool, Columns, CycleInputs, EventRows, Float, Int, Keys
from oracle_core.synthetic import SyntheticSignals
from oracle_core.windows import in_window

if TYPE_CHECKING:
    from oracle_core.rules import RuleSet


@dataclass(frozen=True, slots=True, eq=False)
class EventImpacts(Columns):
    """One row per (event, entity) with impact above 0; ``event`` is the row in ``CycleInputs.events``."""

    event: Int
    entity: Int
    impact: Float


@dataclass(frozen=True, slots=True, eq=False)
class MacroIntegration(Columns):
    """How the macro layer enters each key: the modifier, and whether its signals leave the merged list."""

    modifier: Float
    removed: Bool


def severity_weights(severity: Int, config: MacroConfig) -> Float:
    """Weight of each severity code.

    Implements: R47.
    """
    return np.array([config.severity_weights[member] for member in Severity])[severity]


def half_lives_days(duration: Int, config: MacroConfig) -> Float:
    """Half-life of each duration code in days.

    Implements: R45.
    """
    return np.array([config.half_life_days[member] for member in EventDuration])[duration]


def linear_impact(overlap: Float, severity: Float, config: MacroConfig) -> Float:
    """``severity * sum(w O) / sum(w)`` (G13).

    Args:
        overlap: one row per pair, one column per dimension, in [0, 1].
        severity: severity weight of each row.
        config: the weights.

    Returns:
        Impact in [0, severity].

    """
    weights = _dimension_weights(config)
    total = overlap[:, 0] * weights[0]
    for column in range(1, len(weights)):
        total = total + overlap[:, column] * weights[column]
    return severity * np.minimum(1.0, total / sum(weights))


def multiplicative_impact(overlap: Float, severity: Float, config: MacroConfig) -> Float:
    """``severity * (1 - prod(1 - w O))``: exposure compounds over the dimensions (C14, G14).

    Arguments and result as for :func:`linear_impact`.

    Implements: R187.
    """
    spared = np.ones(len(overlap))
    for column, weight in enumerate(_dimension_weights(config)):
        spared = spared * (1.0 - weight * overlap[:, column])
    return severity * (1.0 - spared)


def _dimension_weights(config: MacroConfig) -> tuple[float, float, float, float]:
    return config.w_geo, config.w_supply, config.w_commodity, config.w_sector


def event_impacts(inputs: CycleInputs, entities: Int, rules: RuleSet, config: OracleConfig) -> EventImpacts:
    """Impact of every event on every wanted entity, whatever the event's age.

    Args:
        inputs: events and exposures, already cut at the moment looked at.
        entities: codes of the wanted entities.
        rules: the set of rules of the mode.
        config: the configuration.

    Returns:
        The pairs with impact above 0, sorted by (entity, event row).

    """
    entity, event, overlap = _overlaps(inputs, entities)
    severity = severity_weights(inputs.events.severity[event], config.macro)
    impact = rules.macro_impact(overlap, severity, config.macro)
    keep = impact > 0.0
    return EventImpacts(event[keep], entity[keep], impact[keep])


def _overlaps(inputs: CycleInputs, entities: Int) -> tuple[Int, Int, Float]:
    """Join events and exposures on their items.

    Returns:
        Entity, event row and overlap per dimension (``min(1, sum of shares)``) of each pair that shares an
        item, sorted by (entity, event row).

    """
    wanted = np.zeros(len(inputs.entities), np.bool_)
    wanted[entities] = True
    exposures = inputs.exposures
    exposures = exposures.take(wanted[exposures.entity] & np.isfinite(exposures.share))
    events = len(inputs.events.event)
    pair, dimension, item, share = [], [], [], []
    for code, name in enumerate(DIMENSIONS):
        rows = exposures.take(exposures.dimension == code)
        rows = rows.take(np.lexsort((rows.entity, rows.item)))
        row, wanted_item = _distinct_items(inputs.events, name, len(inputs.items))
        first = np.searchsorted(rows.item, wanted_item)
        owner, found = ranges(first, np.searchsorted(rows.item, wanted_item, side="right") - first)
        pair.append(rows.entity[found] * events + row[owner])
        dimension.append(np.full(len(found), code))
        item.append(rows.item[found])
        share.append(rows.share[found])
    pairs, items, shares = np.concatenate(pair), np.concatenate(item), np.concatenate(share)
    dimensions = np.concatenate(dimension)
    order = np.lexsort((items, dimensions, pairs))
    pairs, dimensions = pairs[order], dimensions[order]
    first, offsets = runs(pairs)
    cells = group_sums(
        shares[order],
        group_codes(offsets) * len(DIMENSIONS) + dimensions,
        len(first) * len(DIMENSIONS),
    )
    overlap = np.minimum(1.0, cells.reshape(len(first), len(DIMENSIONS)))
    return pairs[first] // max(events, 1), pairs[first] % max(events, 1), overlap


def _distinct_items(events: EventRows, dimension: str, items: int) -> tuple[Int, Int]:
    """(event row, item) pairs of a dimension; an item named twice counts once."""
    listed = getattr(events, dimension)
    row = np.repeat(np.arange(len(listed)), listed.lengths())
    pairs = np.unique(row * max(items, 1) + listed.codes)
    return pairs // max(items, 1), pairs % max(items, 1)


def macro_signals(
    inputs: CycleInputs, keys: Keys, as_of_us: int, config: OracleConfig, rules: RuleSet
) -> SyntheticSignals:
    """One signal ``macro:<event_id>`` per key and event inside its window with positive impact.

    Sentiment is the event's direction, recency ``2^(-age_days / half-life of its duration)``, credibility and
    confidence 1 (decisions 2).
    """
    impacts = event_impacts(inputs, np.unique(keys.entity), rules, config)
    first = np.searchsorted(impacts.entity, keys.entity)
    key, pair = ranges(first, np.searchsorted(impacts.entity, keys.entity, side="right") - first)
    occurred = inputs.events.occurred_us[impacts.event[pair]]
    inside = in_window(occurred, as_of_us, keys.window[key])
    key, pair, occurred = key[inside], pair[inside], occurred[inside]
    row = impacts.event[pair]
    age_days = (as_of_us - occurred) / US_PER_DAY
    one = np.ones(len(key))
    return SyntheticSignals(
        key=key,
        name=inputs.events.event[row],
        published_us=occurred,
        catalyst=np.full(len(key), -1),
        sentiment=inputs.events.sign[row].astype(np.float64),
        impact=impacts.impact[pair],
        extraction_confidence=one,
        recency=np.exp2(-age_days / half_lives_days(inputs.events.duration[row], config.macro)),
        credibility=one,
        layer=np.full(len(key), codes(SignalLayer)[SignalLayer.MACRO]),
        layer_weight=np.full(len(key), config.macro.macro_layer_weight),
    )


def macro_names(event_ids: list[str]) -> list[str]:
    """Ids of the signals of events."""
    return [f"macro:{event_id}" for event_id in event_ids]


def additive_integration(
    entity_average: Float,
    macro_average: Float,  # noqa: ARG001 - the same signature in both sets of rules
    both: Bool,
    config: MacroConfig,  # noqa: ARG001
) -> MacroIntegration:
    """Macro signals stay in the list like any other (R3)."""
    return MacroIntegration(np.ones(len(entity_average)), np.zeros_like(both))


def conditional_integration(
    entity_average: Float, macro_average: Float, both: Bool, config: MacroConfig
) -> MacroIntegration:
    """Where both layers are present the macro layer scales the entity layer instead of joining it (G16).

    ``m = 1 + clamp(sign(S_entity) * weight * S_macro, -1, 1)``; without both layers m is 1, nothing leaves.

    Args:
        entity_average: weighted average of the entity layer, its sign exact.
        macro_average: weighted average of the macro layer.
        both: keys with active signals of both layers.
        config: ``modifier_weight``.

    Implements: R188.

    """
    pull = np.clip(np.sign(entity_average) * config.modifier_weight * macro_average, -1.0, 1.0)
    return MacroIntegration(np.where(both, 1.0 + pull, 1.0), both)
