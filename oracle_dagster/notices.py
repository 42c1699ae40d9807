"""Tell people of changed decisions: one message per cycle, to a webhook or the log, and not of every wobble.

A change is told once it has lasted, or is large; see :class:`oracle_dagster.limits.NoticeSettings`. What
cannot be told now is told with a later cycle, because each decision is compared with the one last told.
Nothing that goes wrong here fails a cycle.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import httpx
import tenacity

from oracle_dagster.as_of import format_as_of
from oracle_dagster.limits import LimitError, NoticeSettings
from oracle_dagster.storage import notices
from oracle_dagster.storage.database import StorageError
from oracle_dagster.storage.identity import row_id
from oracle_dagster.storage.notices import FAILED, LOGGED, SENT, Change, Standing
from oracle_dagster.transitions import Told, kind, level, summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from oracle_dagster.storage.cycles import Cycle, Key
    from oracle_dagster.storage.database import Database

LISTED: Final = 50
"""Changes that a message spells out; it counts the others."""
WEBHOOK: Final = "webhook"
LOG: Final = "log"
_DUST: Final = 1e-9
_log = logging.getLogger(__name__)


class _Again(Exception):  # noqa: N818 - a signal to the retrying, not an error of its own
    """The receiver could not be reached or asked for patience."""


class _Refused(Exception):  # noqa: N818 - ends the attempts
    """The receiver answered, and asking again would not help."""


def changed(standing: Standing, settings: NoticeSettings) -> Change | None:
    """The change to tell of a key, if there is one.

    Told is a decision whose action or mode differs from what people know, once it stands for
    ``notice_cycles`` cycles of its key in a row, or at once where the confidence differs by
    ``notice_margin``. Nothing is told of a key whose first cycle this is.
    """
    before, now = standing.told, standing.recent[0]
    if before is None or kind(before, now) is None:
        return None
    same = 0
    for each in standing.recent:
        if level(each) != level(now):
            break
        same += 1
    large = abs(now.confidence - before.confidence) >= settings.notice_margin - _DUST
    return Change(standing.key, before, now) if large or same >= settings.notice_cycles else None


def message(cycle: Cycle, changes: Sequence[Change]) -> dict[str, Any]:
    """What is sent: a sentence for chats (``text``) and the same for programs; the largest steps first."""

    def step(change: Change) -> tuple[int, int, Key]:
        old, new = level(change.before), level(change.after)
        return -abs(new[0] - old[0]), -abs(new[1] - old[1]), change.key

    ordered = sorted(changes, key=step)
    told = summary((change.before, change.after) for change in changes)
    lines = [f"{c.key[0]}|{c.key[1]}: {_words(c.before)} → {_words(c.after)}" for c in ordered[:LISTED]]
    more = len(ordered) - len(lines)
    head = f"Decisions as of {format_as_of(cycle.as_of)}: {told}"
    return {
        "id": row_id("notice", cycle.as_of_us, cycle.config_version),
        "text": "\n".join([head, *lines, *([f"and {more} more"] if more else [])]),
        "as_of": format_as_of(cycle.as_of),
        "config_version": cycle.config_version,
        "summary": told,
        "changes": [
            {
                "entity_id": change.key[0],
                "window": change.key[1],
                "moved": kind(change.before, change.after),
                "before": change.before._asdict(),
                "after": change.after._asdict(),
            }
            for change in ordered[:LISTED]
        ],
        "more": more,
    }


def _words(told: Told) -> str:
    return f"{told.action} ({told.mode.replace('_', ' ')}, confidence {told.confidence:.2f})"


@dataclass(frozen=True)
class Outcome:
    """What became of a message."""

    sent: bool
    attempts: int
    error: str | None = None


def send(body: dict[str, Any], settings: NoticeSettings) -> Outcome:
    """Post a message; again where the receiver cannot be reached, is too slow, or is in trouble itself.

    Each attempt carries the same ``Idempotency-Key``, by which a receiver can tell a repeat: a message whose
    answer got lost may have arrived. Redirects are not followed, so it goes where the operator said. Takes at
    most ``webhook_attempts`` times ``webhook_timeout_seconds``, and the pauses. Never raises.
    """
    attempts = 0
    url = httpx.URL(settings.webhook_url)
    try:
        with httpx.Client(
            timeout=settings.webhook_timeout_seconds,
            follow_redirects=False,
            auth=(url.username, url.password) if url.username != "" else None,
            headers={"Idempotency-Key": str(body["id"])},
        ) as client:
            for attempt in tenacity.Retrying(
                retry=tenacity.retry_if_exception_type(_Again),
                stop=tenacity.stop_after_attempt(settings.webhook_attempts),
                wait=tenacity.wait_random_exponential(multiplier=settings.pause_seconds, max=5.0),
                reraise=True,
            ):
                with attempt:
                    attempts += 1
                    _post(client, url.copy_with(userinfo=b""), body)
    except (_Again, _Refused) as fault:
        return Outcome(sent=False, attempts=attempts, error=str(fault))
    return Outcome(sent=True, attempts=attempts)


def _post(client: httpx.Client, url: httpx.URL, body: dict[str, Any]) -> None:
    try:
        with client.stream("POST", url, json=body) as answer:  # whose body nobody reads
            status = answer.status_code
    except httpx.TimeoutException:
        raise _Again(f"{url.host} did not answer in time") from None
    except httpx.HTTPError as error:
        raise _Again(f"{url.host} cannot be reached ({type(error).__name__})") from None
    if 200 <= status < 300:  # noqa: PLR2004 - the class of status that means success
        return
    if status == httpx.codes.TOO_MANY_REQUESTS or status >= httpx.codes.INTERNAL_SERVER_ERROR:
        raise _Again(f"{url.host} answered {status}")
    redirect = ", a redirect, which is not followed: name the final address" if 300 <= status < 400 else ""  # noqa: PLR2004
    raise _Refused(f"{url.host} answered {status}{redirect}")


def tell(
    database: Database,
    cycle: Cycle,
    keys: Iterable[Key],
    *,
    run_id: str,
    settings: NoticeSettings | None = None,
    log: logging.Logger | None = None,
) -> str:
    """Tell of the decisions of a cycle that changed, unless that was done; never raises for a failed message.

    Args:
        database: with decisions and messages.
        cycle: just computed.
        keys: whose decisions were made.
        run_id: of the run.
        settings: from the environment where None.
        log: told where there is no webhook, and of what went wrong.

    Returns:
        What was done, in a sentence.

    """
    told = _log if log is None else log
    try:
        chosen = NoticeSettings.from_environment() if settings is None else settings
        done = _tell(database, cycle, list(keys), run_id=run_id, settings=chosen, log=told)
    except (LimitError, StorageError) as fault:
        told.warning("Changed decisions were not told: %s", fault)
        return f"not told: {fault}"
    told.debug("Notice: %s", done)
    return done


def _tell(
    database: Database,
    cycle: Cycle,
    keys: Sequence[Key],
    *,
    run_id: str,
    settings: NoticeSettings,
    log: logging.Logger,
) -> str:
    if settings.notice_daily_budget == 0:
        return "switched off"
    found = notices.standings(database, cycle, keys, settings.notice_cycles) if keys else []
    changes = [change for each in found if (change := changed(each, settings)) is not None]
    if not changes:
        return "no decision changed for long enough"
    channel = LOG if settings.webhook_url == "" else WEBHOOK
    refused = notices.claim(
        database, cycle, changes, run_id=run_id, channel=channel, budget=settings.notice_daily_budget
    )
    if refused is not None:
        log.info("%d changed decisions are not told now: %s", len(changes), refused)
        return refused
    body = message(cycle, changes)
    if channel == LOG:
        log.info("%s", body["text"])
        notices.settle(database, cycle, LOGGED, attempts=1)
        return f"{body['summary']}, in the log"
    outcome = send(body, settings)
    status = SENT if outcome.sent else FAILED
    notices.settle(database, cycle, status, attempts=outcome.attempts, error=outcome.error)
    if outcome.sent:
        return f"{body['summary']}, sent to {httpx.URL(settings.webhook_url).host}"
    log.warning(
        "The message about %d changed decisions was not delivered (%s, %d attempts); they are told with the "
        "next cycle.\n%s",
        len(changes),
        outcome.error,
        outcome.attempts,
        body["text"],
    )
    return f"not delivered: {outcome.error}"
