"""What was told of changed decisions: the right to tell of a cycle is taken once, by whoever comes first.

A message is claimed and committed before it is sent, so that a killed run or a second worker cannot send it
again. Whether anything is worth telling is not decided here.
"""

# ruff: noqa: S608 - only constants of this package are put into statements

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from oracle_dagster.storage import cycles
from oracle_dagster.storage.cycles import AS_OF, CONFIG_VERSION
from oracle_dagster.storage.schema import notice_decisions, notices
from oracle_dagster.transitions import Told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oracle_dagster.storage.cycles import Cycle, Key
    from oracle_dagster.storage.database import Bulk, Database

CLAIMED: Final = "claimed"
SENT: Final = "sent"
LOGGED: Final = "logged"
FAILED: Final = "failed"
DAY: Final = timedelta(hours=24)
_LOCK_NOTICES: Final = 7_105_020  # an advisory lock class; arbitrary, but distinct
_SAME_KEY: Final = 'c.entity_id = k.entity_id AND c."window" = k."window"'


@dataclass(frozen=True)
class Standing:
    """The decisions of one key.

    ``recent``: of its newest cycles, newest first, this one's included; ``told``: what people know: as last
    told of, else that of its very first cycle.
    """

    key: Key
    recent: tuple[Told, ...]
    told: Told | None


@dataclass(frozen=True)
class Change:
    """A decision that people are told of, and what they knew before."""

    key: Key
    before: Told
    after: Told


def moves(database: Database, cycle: Cycle, keys: Sequence[Key]) -> list[tuple[Key, Told | None, Told]]:
    """What stands for each key in a cycle, and what stood before; keys without a decision are left out."""

    def read(bulk: Bulk) -> dict[int, list[Told]]:
        cycles.enter(bulk, cycle)
        cycles.stage_keys(bulk, keys)
        return _recent(bulk, 2)

    found = database.run(read, "REPEATABLE READ")
    return [
        (key, found[at][1] if len(found[at]) > 1 else None, found[at][0])
        for at, key in enumerate(keys)
        if at in found
    ]


def standings(database: Database, cycle: Cycle, keys: Sequence[Key], cycles_back: int) -> list[Standing]:
    """The decisions of keys up to a cycle; without those of which a later cycle has decided: that is no news.

    Args:
        database: with the results.
        cycle: the newest one looked at.
        keys: whose decisions.
        cycles_back: how many cycles of each, at least 1.

    """

    def read(bulk: Bulk) -> list[Standing]:
        cycles.enter(bulk, cycle)
        cycles.stage_keys(bulk, keys)
        recent = _recent(
            bulk,
            cycles_back,
            f"""AND NOT EXISTS (
                SELECT FROM cycle_keys c WHERE {_SAME_KEY} AND c.as_of > {AS_OF}
                  AND c.standing_recommendation_id IS NOT NULL)""",
        )
        first = bulk.arrow(f"""
            SELECT k.position, r.action, r.mode, r.confidence FROM slice_keys k CROSS JOIN LATERAL (
                SELECT c.standing_recommendation_id AS id FROM cycle_keys c
                WHERE {_SAME_KEY} AND c.standing_recommendation_id IS NOT NULL AND c.as_of < {AS_OF}
                ORDER BY c.as_of, c.config_version LIMIT 1) c
            JOIN recommendations r ON r.id = c.id""").to_pylist()
        told = bulk.arrow(f"""
            SELECT k.position, c.action, c.mode, c.confidence FROM slice_keys k CROSS JOIN LATERAL (
                SELECT c.* FROM notice_decisions c JOIN notices n USING (as_of, config_version)
                WHERE {_SAME_KEY} AND c.as_of < {AS_OF} AND n.status <> '{FAILED}'
                ORDER BY c.as_of DESC, c.config_version DESC LIMIT 1) c""").to_pylist()
        known = {row["position"]: _told(row) for row in (*first, *told)}
        return [Standing(keys[at], tuple(row), known.get(at)) for at, row in recent.items()]

    return database.run(read, "REPEATABLE READ")


def _recent(bulk: Bulk, cycles_back: int, but: str = "") -> dict[int, list[Told]]:
    """The decisions of the newest cycles up to this one, newest first, of the staged keys that it decided."""
    found = bulk.arrow(f"""
        SELECT k.position, r.action, r.mode, r.confidence, c.as_of = {AS_OF} AS own
        FROM slice_keys k CROSS JOIN LATERAL (
            SELECT DISTINCT ON (c.as_of) c.as_of, c.standing_recommendation_id AS id FROM cycle_keys c
            WHERE {_SAME_KEY} AND c.standing_recommendation_id IS NOT NULL AND (
                c.as_of < {AS_OF} OR (c.as_of = {AS_OF} AND c.config_version = {CONFIG_VERSION}))
            ORDER BY c.as_of DESC, c.config_version DESC LIMIT {int(cycles_back)}) c
        JOIN recommendations r ON r.id = c.id
        WHERE TRUE {but}
        ORDER BY k.position, c.as_of DESC""").to_pylist()
    decided = {row["position"] for row in found if row["own"]}
    by_key: dict[int, list[Told]] = {}
    for row in found:
        if row["position"] in decided:
            by_key.setdefault(row["position"], []).append(_told(row))
    return by_key


def _told(row: dict[str, object]) -> Told:
    return Told(str(row["action"]), str(row["mode"]), float(str(row["confidence"])))


def claim(
    database: Database, cycle: Cycle, changes: Sequence[Change], *, run_id: str, channel: str, budget: int
) -> str | None:
    """Take the right to tell of a cycle, or learn why not.

    Taken and committed before anything is sent. A message that certainly failed may be taken again.

    Args:
        database: with the table of messages.
        cycle: told of.
        changes: what is told.
        run_id: of the run that tells.
        channel: ``webhook`` or ``log``.
        budget: messages in 24 hours at most, by the database's time.

    Returns:
        None where it is taken; else a sentence.

    """
    own = (notices.c.as_of == cycle.as_of) & (notices.c.config_version == cycle.config_version)
    with database.begin() as connection:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK_NOTICES, 0)))
        status = connection.execute(sa.select(notices.c.status).where(own)).scalar()
        if status is not None and status != FAILED:
            return f"a message about this cycle is {status} already; what is new is told with the next cycle"
        spent = connection.execute(
            sa.select(sa.func.count()).where(
                notices.c.claimed_at > sa.func.now() - DAY, notices.c.status != FAILED
            )
        ).scalar_one()
        if spent >= budget:
            return f"{spent} messages in 24 hours spent the budget of {budget}; it is told with a later cycle"
        connection.execute(notices.delete().where(own))
        whole = {"as_of": cycle.as_of, "config_version": cycle.config_version}
        connection.execute(
            notices.insert().values(
                **whole, status=CLAIMED, channel=channel, run_id=run_id, changes=len(changes)
            )
        )
        rows = [
            {
                **whole,
                "entity_id": change.key[0],
                "window": change.key[1],
                "action": change.after.action,
                "mode": change.after.mode,
                "confidence": change.after.confidence,
                "before_action": change.before.action,
                "before_mode": change.before.mode,
                "before_confidence": change.before.confidence,
            }
            for change in changes
        ]
        connection.execute(notice_decisions.insert(), rows)
    return None


def settle(database: Database, cycle: Cycle, status: str, *, attempts: int, error: str | None = None) -> None:
    """Write down what became of a claimed message."""
    with database.begin() as connection:
        connection.execute(
            notices.update()
            .where(notices.c.as_of == cycle.as_of, notices.c.config_version == cycle.config_version)
            .values(status=status, attempts=attempts, error=error, settled_at=sa.func.now())
        )
