"""One look for new inputs: read what arrived, decide what it asks for, write down the keys to compute.

Everything is read in one transaction, so at one settled horizon; what was found is handed to the pure
functions of ``oracle_dagster.news``. Nothing is remembered here: the cursor comes in and goes out. Ended at
any point and repeated from the same cursor, a tick finds what it found before, and more.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from oracle_core.config import ConfigError
from oracle_dagster import entity_range, news, shards
from oracle_dagster.news import EVENT, LINKS, SPREADS, Cursor
from oracle_dagster.pipeline import STAGES
from oracle_dagster.storage import arrivals, configuration, inputs
from oracle_dagster.storage.cycles import Cycle

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from oracle_dagster.news import Arrival, Debounce, Horizon, Name
    from oracle_dagster.storage.configuration import ConfigVersion
    from oracle_dagster.storage.database import Bulk, Database

_log = logging.getLogger(__name__)
SOURCE_ACCURACY: Final = "source_accuracy"
_NEWS: Final = "news"
_CONFIGURATION: Final = "configuration"


@dataclass(frozen=True)
class Request:
    """One run: the entities to compute, in every window, and the assets of it that can have changed.

    Without a batch it computes no entity, but only what the parts of a divided set share. ``accuracy_first``:
    a part needs the accuracy of the sources as of the tick, whichever run measures it.
    """

    run_key: str
    batch_id: str | None
    entities: tuple[str, ...]
    assets: tuple[str, ...]
    shard: shards.Shard = shards.WHOLE
    group: str = ""
    accuracy_first: bool = False


@dataclass(frozen=True)
class Tick:
    """What a look led to: the cursor to keep, the runs to launch, the moment they look from, and why."""

    cursor: str
    moment: datetime
    requests: tuple[Request, ...] = ()
    message: str = ""


def look(database: Database, cursor_text: str | None, debounce: Debounce) -> Tick:
    """Look for new inputs and record the batches of the runs that they ask for.

    Args:
        database: the domain database.
        cursor_text: of the tick before, None at the beginning.
        debounce: how long to let news gather.

    Raises:
        CursorError: the cursor cannot be read.
        StorageError: the database cannot be used; nothing is lost, the next tick finds the same.
        ConfigError: the active configuration cannot be used.

    """
    cursor = Cursor.parse(cursor_text)
    active = configuration.active(database)
    changed = _changed_assets(database, cursor, active)
    if changed and arrivals.batch_exists(database, news.application_batch(active.version)):
        changed = ()
    found = database.run(lambda bulk: _read(bulk, cursor, active, debounce, changed), "REPEATABLE READ")
    requests = []
    told = []
    for part, (wanted, assets) in found.wanted.items():
        entities = entity_range.own(wanted)
        if entities:
            batch = news.batch_id(found.before, found.after, part)
            key = news.run_key(found.before, found.after, part)
            divided = _divided(key, batch, sorted(entities), assets)
            for request in divided:
                if request.batch_id is not None:
                    arrivals.write_batch(database, request.batch_id, request.entities)
            requests += divided
            runs = f" in {len(divided)} runs" if len(divided) > 1 else ""
            told.append(f"{len(entities)} entities to compute{runs}: {', '.join(assets)}")
    message = "; ".join(told)
    return Tick(found.after.text(), found.moment, tuple(requests), message or found.message)


def _divided(key: str, batch: str, entities: Sequence[str], assets: tuple[str, ...]) -> list[Request]:
    """One run of the entities, or one per part; then the sources are measured once, by none of the parts."""
    parts = shards.shards_of(len(entities))
    if len(parts) == 1:
        return [Request(key, batch, tuple(entities), assets)]
    measured = SOURCE_ACCURACY in assets
    requests = [Request(f"{key}-accuracy", None, (), (SOURCE_ACCURACY,), group=batch)] if measured else []
    chain = tuple(asset for asset in assets if asset != SOURCE_ACCURACY)
    for part in parts:
        own = str(shards.batch_id(uuid.UUID(batch), part.number))
        name = key if part.number == 0 else f"{key}-{part.text}"
        requests.append(Request(name, own, tuple(part.part(entities)), chain, part, batch, measured))
    return requests


def start(database: Database) -> str:
    """The cursor from which only what arrives from now on is new, for a database that was restored."""
    active = configuration.active(database)
    horizon = database.run(lambda bulk: arrivals.horizon(bulk, active.version), "REPEATABLE READ")
    return news.handled(Cursor(), horizon, {}).text()


@dataclass(frozen=True)
class _Found:
    before: Cursor
    after: Cursor
    moment: datetime
    wanted: dict[str, tuple[Collection[str], tuple[str, ...]]]
    message: str


def _changed_assets(database: Database, cursor: Cursor, active: ConfigVersion) -> tuple[str, ...]:
    """The assets that the change of configuration since the tick before can reach, upstream first."""
    if cursor.config_version in (None, active.version):
        return ()
    from oracle_dagster.assets.configuration import GROUPS  # brings the orchestrator, which takes seconds

    try:
        before = configuration.get(database, cursor.config_version).config
    except ConfigError:
        reached = {name for group in GROUPS for name in group.reaches}  # unreadable: anything may differ
    else:
        reached = {
            name
            for group in GROUPS
            if group.version(before) != group.version(active.config)
            for name in group.reaches
        }
    return tuple(name for name in (SOURCE_ACCURACY, *STAGES) if name in reached)


def _read(
    bulk: Bulk, cursor: Cursor, active: ConfigVersion, debounce: Debounce, changed: tuple[str, ...]
) -> _Found:
    horizon = arrivals.horizon(bulk, active.version)
    if horizon.xid < cursor.seen:
        _log.warning(
            "the cursor is at transaction %d but the database only at %d: it was restored from a copy. "
            "Every input counts as new; what is computed already is left out.",
            cursor.seen,
            horizon.xid,
        )
        cursor = Cursor()
    fresh = arrivals.any_between(bulk, cursor.seen, horizon.xid)
    act, kept = news.look(cursor, horizon, fresh=fresh, debounce=debounce)
    if not act:
        waits = "nothing new" if kept.since is None else f"waiting for more, since {kept.since.isoformat()}"
        return _Found(cursor, kept, horizon.moment, {}, waits)
    found = arrivals.between(bulk, cursor.xid, horizon.xid, horizon.moment)
    after = news.handled(cursor, horizon, news.put_off(cursor, found))
    cycle = Cycle(horizon.moment, active.config, active.version, arrivals.snapshot(bulk))
    # One run of the whole chain for what is new; for the rest, what a changed configuration can reach.
    whole = _by_rows(bulk, found, cursor, horizon, cycle) | _by_accuracy(bulk, cursor, horizon, cycle)
    whole = set(inputs.known_entities(bulk, cycle, among=whole)) if whole else whole
    assets: tuple[str, ...] = STAGES
    rest: set[str] = set()
    if changed:
        everything = inputs.known_entities(bulk, cycle)
        rest = set(arrivals.undecided(bulk, everything, config_version=active.version)) - whole
        if set(STAGES) <= set(changed):
            whole, rest, assets = whole | rest, set(), changed
    message = "what is new is computed already, or names no entity that is known now"
    return _Found(
        cursor, after, horizon.moment, {_NEWS: (whole, assets), _CONFIGURATION: (rest, changed)}, message
    )


def _by_rows(
    bulk: Bulk, found: Sequence[Arrival], cursor: Cursor, horizon: Horizon, cycle: Cycle
) -> set[str]:
    """The entities that new rows touch, without those that a cycle computed which could see all of them."""
    due = cursor.due(horizon.moment)
    named = {(arrival.kind, arrival.name) for arrival in found if arrival.later is None} | due
    entities = _affected(bulk, named, horizon, cycle)
    xid, known_at = news.latest(found)
    moments = [m for put_off in cursor.later.values() for m in put_off if m <= horizon.moment]
    known_at = max([known_at, *moments])
    return set(
        arrivals.undecided(bulk, entities, config_version=cycle.config_version, xid=xid, known_at=known_at)
    )


def _by_accuracy(bulk: Bulk, cursor: Cursor, horizon: Horizon, cycle: Cycle) -> set[str]:
    """The entities that a change of the sources' accuracy touches in the active mode."""
    if cursor.accuracy is None or cursor.accuracy == horizon.accuracy:
        return set()
    rows = arrivals.accuracies(bulk, cursor.accuracy, horizon.accuracy)
    before, after = (
        news.counted_factors(
            np.array([row[at] for row in rows], np.float64),
            np.array([row[at + 1] for row in rows], np.int64),
            cycle.config,
        )
        for at in (1, 3)
    )
    sources = [row[0] for row, moved in zip(rows, (before != after).tolist(), strict=True) if moved]
    if not sources:
        return set()
    named = {(SPREADS, entity) for entity in arrivals.entities_of_sources(bulk, sources, horizon.moment)}
    entities = _affected(bulk, named, horizon, cycle)
    return set(
        arrivals.undecided(bulk, entities, config_version=cycle.config_version, accuracy=horizon.accuracy)
    )


def _affected(bulk: Bulk, named: Collection[Name], horizon: Horizon, cycle: Cycle) -> set[str]:
    events = {name for kind, name in named if kind == EVENT}
    flags = cycle.config.flags
    exposed = (
        arrivals.exposed(bulk, events, cycle.config.macro, horizon.moment) if flags.macro_enabled else []
    )
    distance = news.reach(cycle.config)
    moving = {name for kind, name in named if kind in (SPREADS, LINKS)}
    edges = arrivals.edges_near(bulk, moving, distance, until=horizon.xid, moment=horizon.moment)
    return news.affected(named, exposed, edges, distance)
