"""What new inputs ask for: whether to act now, and which entities must be computed again.

Pure functions of what was found and of a cursor; no database, no orchestrator and no clock. A cursor is a
place in the order of *ended transactions*: rows are read from it up to the settled horizon, below which no
transaction is running any more. A row that commits late therefore lies above every horizon read before, and
is found by the tick after; ids or times of creation, which are taken before the commit, would lose it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np

from oracle_core.config import OracleConfig
from oracle_core.inputs import Float, Int
from oracle_core.rules import rules_for
from oracle_core.scoring import Evidence
from oracle_core.source_accuracy import accuracy_factors
from oracle_dagster.storage.identity import row_id

# How far news of each kind travels, beside the entity that it names.
SPREADS: Final = "spreads"  # documents and bars: as far as the mode propagates
LINKS: Final = "links"  # edges: one edge less, for an edge is itself the first step
STAYS: Final = "stays"  # exposures: the entity alone
EVENT: Final = "event"  # world events: whoever is exposed
KEPT_MOMENTS: Final = 50
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Name = tuple[str, str]
"""(how it travels, entity or event)"""


class CursorError(ValueError):
    """A text that is no cursor; the message says how to start anew."""


@dataclass(frozen=True)
class Debounce:
    """When to act on news: after ``quiet`` without more of it, but at most ``longest`` after the first."""

    quiet: timedelta = timedelta(0)
    longest: timedelta = timedelta(0)


@dataclass(frozen=True)
class Horizon:
    """What the database was like at one moment.

    ``xid``: every transaction below it has ended. ``moment`` is the database's time. ``accuracy`` names the
    newest measurement of the sources, empty where there is none.
    """

    xid: int
    moment: datetime
    config_version: int
    accuracy: str = ""


@dataclass(frozen=True)
class Cursor:
    """How far news was handled, and what is being waited for.

    ``xid``: everything below is handled; ``seen``: everything below was looked at. ``since`` and ``last``:
    when the first and the newest of the waiting news were seen; None where nothing waits. ``config_version``
    and ``accuracy``: those that all entities were computed with; None before the first tick. ``later``: what
    becomes known at a moment to come, by ``kind:name``.
    """

    xid: int = 0
    seen: int = 0
    since: datetime | None = None
    last: datetime | None = None
    config_version: int | None = None
    accuracy: str | None = None
    later: Mapping[str, Sequence[datetime]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> Cursor:
        """Read what :meth:`text` wrote; None and the empty text are the beginning, before every input.

        Raises:
            CursorError: not a cursor.

        """
        if text is None or text.strip() == "":
            return cls()
        try:
            values: dict[str, Any] = json.loads(text)
            for name in ("since", "last"):
                values[name] = None if values.get(name) is None else _moment(values[name])
            values["later"] = {n: tuple(map(_moment, m)) for n, m in values.get("later", {}).items()}
            return cls(**{**values, "xid": int(values["xid"]), "seen": int(values["seen"])})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CursorError(
                f"The sensor's cursor cannot be read ({error}). Set it to the empty text in the user "
                "interface: every input then counts as new, and what is computed already is left out."
            ) from None

    def text(self) -> str:
        """The cursor as the orchestrator keeps it."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["later"] = {name: [m.isoformat() for m in ms] for name, ms in sorted(self.later.items())}
        for name in ("since", "last"):
            values[name] = None if values[name] is None else values[name].isoformat()
        return json.dumps({n: v for n, v in values.items() if v is not None and v != {}}, ensure_ascii=False)

    @property
    def place(self) -> str:
        """What was handled, without what is waited for: two ticks from one place to another are the same."""
        return f"{self.xid}/{self.config_version}/{self.accuracy}"

    def due(self, moment: datetime) -> set[Name]:
        """What has become known by ``moment`` since it was put off."""
        return {_name(text) for text, moments in self.later.items() if min(moments) <= moment}


@dataclass(frozen=True)
class Arrival:
    """News of one name: ``later`` where it is known only then, ``xid`` and ``known_at`` the newest of it."""

    kind: str
    name: str
    later: datetime | None = None
    xid: int = 0
    known_at: datetime | None = None


def look(cursor: Cursor, horizon: Horizon, *, fresh: bool, debounce: Debounce) -> tuple[bool, Cursor]:
    """Decide whether to act on what waits.

    Args:
        cursor: of the tick before.
        horizon: of this tick.
        fresh: whether rows lie between ``cursor.seen`` and the horizon.
        debounce: how long to wait.

    Returns:
        Whether to act now, and the cursor to keep if not; if so, that is the one to handle from.

    """
    waiting = (
        fresh
        or horizon.config_version != _or(cursor.config_version, horizon.config_version)
        or horizon.accuracy != _or(cursor.accuracy, horizon.accuracy)
        or len(cursor.due(horizon.moment)) > 0
    )
    if cursor.since is None and not waiting:
        return False, handled(cursor, horizon, cursor.later)
    now = horizon.moment
    since = now if cursor.since is None else min(cursor.since, now)
    last = now if fresh or cursor.last is None else min(cursor.last, now)
    ripe = now - last >= debounce.quiet or now - since >= debounce.longest
    return ripe, replace(cursor, seen=horizon.xid, since=since, last=last)


def handled(cursor: Cursor, horizon: Horizon, later: Mapping[str, Sequence[datetime]]) -> Cursor:
    """The cursor after everything up to the horizon was handled or found to be nothing."""
    kept = {name: tuple(m for m in moments if m > horizon.moment) for name, moments in later.items()}
    return replace(
        cursor,
        xid=horizon.xid,
        seen=horizon.xid,
        since=None,
        last=None,
        config_version=horizon.config_version,
        accuracy=horizon.accuracy,
        later={name: moments for name, moments in kept.items() if moments},
    )


def put_off(cursor: Cursor, arrivals: Iterable[Arrival]) -> dict[str, tuple[datetime, ...]]:
    """What is known later, with what was put off before; of one name at most ``KEPT_MOMENTS`` moments."""
    found: dict[str, set[datetime]] = {name: set(moments) for name, moments in cursor.later.items()}
    for arrival in arrivals:
        if arrival.later is not None:
            found.setdefault(f"{arrival.kind}:{arrival.name}", set()).add(arrival.later)
    # The last one is kept whatever happens: by then everything before it is known as well.
    return {
        name: (*sorted(moments)[: KEPT_MOMENTS - 1], max(moments))
        if len(moments) > KEPT_MOMENTS
        else tuple(sorted(moments))
        for name, moments in found.items()
    }


def reach(config: OracleConfig) -> int:
    """How many edges far the active mode's propagation carries what is new about an entity."""
    if not config.flags.competitive_enabled:
        return 0
    return rules_for(config).propagation_reach(config.competitive)


def affected(
    names: Collection[Name], exposed: Collection[str], edges: Iterable[tuple[str, str]], distance: int
) -> set[str]:
    """The entities whose results may change.

    Args:
        names: what the new rows name.
        exposed: the entities that are exposed to the new events among them.
        edges: undirected, at least those within ``distance`` of the names.
        distance: how far the mode propagates, at least 0.

    Returns:
        The named entities, those within ``distance`` edges of an entity with new documents or bars, those
        within ``distance - 1`` edges of an end of a new edge, and the exposed ones.

    """
    near: dict[str, set[str]] = {}
    for a, b in edges:
        near.setdefault(a, set()).add(b)
        near.setdefault(b, set()).add(a)
    found = {name for kind, name in names if kind != EVENT} | set(exposed)
    # Far news first: what links meet on the way of news that spreads farther is not walked twice.
    border = {name for kind, name in names if kind == SPREADS}
    walked = set(border)
    for step in range(distance):
        border = {other for name in border for other in near.get(name, ())} - walked
        if step == 0:
            # An end of a new edge has as far to go as what is one step away.
            border |= {name for kind, name in names if kind == LINKS} - walked
        walked |= border
    return found | walked


def counted_factors(ratio: Float, samples: Int, config: OracleConfig) -> Float:
    """The factor in a document's weight that the active mode makes of an accuracy, 1 where it uses none."""
    one = np.ones(len(ratio))
    evidence = Evidence(
        **{f.name: one for f in fields(Evidence) if f.name != "accuracy_factor"},
        accuracy_factor=accuracy_factors(ratio, samples, config.accuracy),
    )
    return rules_for(config).score_documents(evidence, config.scoring).source_accuracy_factor


def batch_id(before: Cursor, after: Cursor, part: str) -> str:
    """The id of the batch of a tick; the same whenever the same news is handled again."""
    return row_id("batch", run_key(before, after, part))


def application_batch(config_version: int) -> str:
    """The id under which whoever applies a configuration version records the keys computed for it.

    Where it exists, the change of configuration is not followed by a refresh of every entity.
    """
    return row_id("application", config_version)


def run_key(before: Cursor, after: Cursor, part: str) -> str:
    """The key by which the orchestrator launches the run of a tick once."""
    # What was put off may come due without a transaction in between, so it belongs to the key.
    put_off = {moment for moments in before.later.values() for moment in moments}
    kept = {moment for moments in after.later.values() for moment in moments}
    due = max(put_off - kept, default=None)
    return f"{before.place}-{after.place}{'' if due is None else f'@{due.isoformat()}'}-{part}"


def _or(value: Any, otherwise: Any) -> Any:  # noqa: ANN401 - any field of a cursor
    return otherwise if value is None else value


def _name(text: str) -> Name:
    kind, _, name = text.partition(":")
    return kind, name


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no offset")
    return moment.astimezone(UTC)


def latest(arrivals: Iterable[Arrival]) -> tuple[int, datetime]:
    """The newest transaction and the newest moment of knowing among what is known already."""
    known = [arrival for arrival in arrivals if arrival.later is None]
    moments = [arrival.known_at for arrival in known if arrival.known_at is not None]
    return max((arrival.xid for arrival in known), default=0), max(moments, default=_EPOCH)
