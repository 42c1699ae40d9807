"""What a cycle is computed over: entity x window partitions, and which of them one run takes.

Holds the partition definitions, the registration of entities and the choice of keys. Reads no table and
computes no result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import dagster as dg

from oracle_core.enums import Window
from oracle_dagster import entity_range, shards

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

Key = tuple[str, str]
"""(entity_id, window)"""

ENTITIES: Final = dg.DynamicPartitionsDefinition(name="entity")
WINDOWS: Final = dg.StaticPartitionsDefinition([window.value for window in Window])
# The orchestrator joins the dimensions in the order of their names: `entity|window`.
KEYS: Final = dg.MultiPartitionsDefinition({"entity": ENTITIES, "window": WINDOWS})

RANGE_START_TAG: Final = "dagster/asset_partition_range_start"
RANGE_END_TAG: Final = "dagster/asset_partition_range_end"
BATCH_TAG: Final = "oracle/batch"

_WINDOW_ORDER: Final = {window.value: position for position, window in enumerate(Window)}
_REGISTERED_AT_ONCE: Final = 1000


@dataclass(frozen=True)
class UnknownKey:
    """A requested key that no cycle can compute, and why."""

    entity_id: str
    window: str
    reason: str


@dataclass(frozen=True)
class KeyChoice:
    """The keys of one run: those to compute, ordered by entity then window, and those that cannot be."""

    keys: Sequence[Key]
    unknown: Sequence[UnknownKey] = ()


def key_text(key: Key) -> str:
    """The partition key of (entity, window): ``entity|window``."""
    return f"{key[0]}|{key[1]}"


def split_key(text: str) -> Key:
    """Undo :func:`key_text`; a text without ``|`` gives an empty window, which no cycle knows."""
    entity_id, _, window = text.partition("|")
    return entity_id, window


def partition_tags(key: Key) -> Mapping[str, str]:
    """The tags by which the orchestrator files an event under both dimensions of its key."""
    return {"dagster/partition/entity": key[0], "dagster/partition/window": key[1]}


def batch_tags(batch_id: str, keys: Sequence[Key]) -> Mapping[str, str]:
    """The tags of a run over a scattered set of keys.

    The range names one key of the batch only: without any partition tag the orchestrator cannot place the
    run's inputs, and a range over all keys would be a rectangle.
    """
    first = key_text(keys[0])
    return {RANGE_START_TAG: first, RANGE_END_TAG: first, BATCH_TAG: batch_id}


def order_keys(keys: Iterable[Key]) -> list[Key]:
    """Every key once, by entity, then window from the shortest to the longest."""
    return sorted(set(keys), key=lambda key: (key[0], _WINDOW_ORDER.get(key[1], len(_WINDOW_ORDER))))


def all_keys(entities: Iterable[str]) -> list[Key]:
    """Every window of every entity."""
    return order_keys((entity, window) for entity in entities for window in _WINDOW_ORDER)


def choose_keys(
    *,
    batch: Sequence[Key] | None,
    inline: Sequence[str],
    partitions: Sequence[str] | None,
    known: Collection[str],
    shard: shards.Shard = shards.WHOLE,
) -> KeyChoice:
    """Decide which keys a run computes.

    A batch wins, then keys written into the run's configuration, then the run's partition or range; a run
    with none of these takes all keys of the cycle. A batch run carries the tag of one key, so its range must
    not count.

    Args:
        batch: keys of the run's batch; None where it names none.
        inline: ``entity|window`` from the configuration; empty where none are given.
        partitions: ``entity|window`` of the run's partition or range; None where it has neither.
        known: the entities of the cycle.
        shard: the part of all these that the run takes, by sorted entity.

    Returns:
        The keys to compute, each once and in canonical order, and the requested ones that do not exist.

    """
    if batch is not None:
        wanted: Iterable[Key] = batch
    elif inline:
        wanted = map(split_key, inline)
    elif partitions is not None:
        wanted = map(split_key, partitions)
    else:
        return KeyChoice(all_keys(shard.part(sorted(known))))
    entities = set(known)
    keys: list[Key] = []
    unknown: list[UnknownKey] = []
    for entity_id, window in shards.keys_of(order_keys(wanted), shard):
        if window not in _WINDOW_ORDER:
            expected = ", ".join(_WINDOW_ORDER)
            unknown.append(
                UnknownKey(
                    entity_id, window, f"no window {window!r}; a key is entity|window with one of {expected}"
                )
            )
        elif entity_id not in entities:
            unknown.append(
                UnknownKey(
                    entity_id,
                    window,
                    f"no entity {entity_id!r} in this cycle: nothing that is known at its as_of names it",
                )
            )
        else:
            keys.append((entity_id, window))
    return KeyChoice(keys, unknown)


def register_entities(instance: dg.DagsterInstance, entities: Iterable[str]) -> list[str]:
    """Make partitions of the entities that have none yet, and return those, in the order given.

    Entities that another installation computes get none.
    """
    present = set(instance.get_dynamic_partitions("entity"))
    new = [entity for entity in entity_range.own(dict.fromkeys(entities)) if entity not in present]
    for start in range(0, len(new), _REGISTERED_AT_ONCE):
        instance.add_dynamic_partitions("entity", new[start : start + _REGISTERED_AT_ONCE])
    return new
