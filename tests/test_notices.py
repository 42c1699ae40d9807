"""Changed decisions are told once, when they lasted or are large, and a broken receiver harms nothing."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psycopg
import pytest

from oracle_dagster import notices
from oracle_dagster.limits import LimitError, Limits, NoticeSettings
from oracle_dagster.storage import cycles
from oracle_dagster.storage import notices as stored
from oracle_dagster.storage.cycles import Cycle
from oracle_dagster.storage.database import Database
from oracle_dagster.storage.notices import Change, Standing
from oracle_dagster.transitions import Told, kind, summary, table
from tests.storage_rows import AS_OF, rows

OBSERVE = Told("observe", "informational", 0.2)
MONITOR = Told("monitor", "informational", 0.3)
ACT = Told("act", "simulation_eligible", 0.7)
QUICK = NoticeSettings(pause_seconds=0.01, webhook_timeout_seconds=1.0)
KEYS = [("A", "1d"), ("B", "7d")]


@dataclass
class Receiver:
    """A server that keeps what it is sent and answers each request as it was told to."""

    answers: list[int] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks/secret-part"


@contextmanager
def receiving(*answers: int) -> Iterator[Receiver]:
    """A receiver on a free port; the answer 0 is none at all until it ends, further ones are 204."""
    receiver = Receiver(list(answers))

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            receiver.paths.append(f"GET {self.path}")
            self.send_response(200)
            self.end_headers()

        def do_POST(self) -> None:
            receiver.paths.append(f"POST {self.path}")
            receiver.headers.append(dict(self.headers))
            receiver.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status = receiver.answers.pop(0) if receiver.answers else 204
            if status == 0:
                receiver.hold.wait(30)
                return
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", f"http://127.0.0.1:{receiver.port}/elsewhere")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.hold.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture
def database(migrated_url: str) -> Iterator[Database]:
    database = Database(migrated_url)
    yield database
    database.close()


def decide(database: Database, hours: int, decisions: Mapping[tuple[str, str], Told]) -> Cycle:
    """A cycle that many hours after the first, with these decisions standing."""
    as_of = AS_OF + timedelta(hours=hours)
    cycle = cycles.open_cycle(database, as_of, code_version="1")
    with psycopg.connect(database._conninfo) as connection:
        for (entity, window), told in decisions.items():
            connection.execute(
                """WITH made AS (
                       INSERT INTO recommendations (id, entity_id, time_horizon, action, mode, confidence,
                           thesis, invalidation_conditions, allocation_pct, max_loss_pct, model_metadata,
                           risk_classification, pipeline_mode, generated_at, config_version)
                       VALUES (gen_random_uuid(), %s, %s, %s, %s, %s, '', '[]', 0, 0, '{}', 'low',
                           'heuristic', %s, 1) RETURNING id)
                   INSERT INTO cycle_keys (as_of, config_version, entity_id, "window", decision_seq,
                                           standing_recommendation_id)
                   SELECT %s, 1, %s, %s, nextval('cycle_sequence'), id FROM made""",
                (entity, window, *told, as_of, as_of, entity, window),
            )
    return cycle


def tell(database: Database, cycle: Cycle, settings: NoticeSettings, run_id: str = "run") -> str:
    return notices.tell(database, cycle, KEYS, run_id=run_id, settings=settings)


def states(database: Database) -> list[tuple[datetime, str, int]]:
    return rows(database._conninfo, "SELECT as_of, status, attempts FROM notices ORDER BY as_of")  # type: ignore[return-value]


def test_the_order_of_decisions_is_action_first_and_then_mode() -> None:
    defer = Told("defer", "informational", 0.9)
    assert [kind(a, b) for a, b in ((OBSERVE, MONITOR), (MONITOR, defer), (defer, ACT))] == ["escalated"] * 3
    assert kind(ACT, ACT._replace(mode="informational")) == "de-escalated"
    assert kind(ACT, OBSERVE) == "de-escalated"
    assert kind(ACT, ACT._replace(confidence=0.1)) is None
    moves = [(OBSERVE, ACT), (OBSERVE, ACT), (OBSERVE, MONITOR), (ACT, MONITOR), (None, ACT), (ACT, ACT)]
    assert summary(moves) == "3 escalated, 1 de-escalated, 1 new, 1 unchanged"
    assert [(row["before"], row["after"], row["moved"], row["keys"]) for row in table(moves)] == [
        ("observe / informational", "act / simulation_eligible", "escalated", 2),
        ("observe / informational", "monitor / informational", "escalated", 1),
        ("act / simulation_eligible", "monitor / informational", "de-escalated", 1),
        ("-", "act / simulation_eligible", "new", 1),
    ]


@pytest.mark.parametrize(
    ("recent", "told", "expected"),
    [
        ([MONITOR], None, False),  # its first cycle
        ([MONITOR, OBSERVE], OBSERVE, False),  # not long enough
        ([MONITOR, MONITOR], OBSERVE, True),
        ([MONITOR, OBSERVE], MONITOR, False),  # back at what people know
        ([ACT, OBSERVE], OBSERVE, True),  # large
        ([Told("monitor", "informational", 0.4), OBSERVE], OBSERVE, True),  # exactly the margin
        ([Told("monitor", "informational", 0.39), OBSERVE], OBSERVE, False),
        ([OBSERVE._replace(confidence=0.9)], OBSERVE, False),  # the decision is the same
    ],
)
def test_a_change_is_told_when_it_lasted_or_is_large(
    recent: list[Told], told: Told | None, expected: bool
) -> None:
    found = notices.changed(Standing(("A", "1d"), tuple(recent), told), QUICK)
    assert found == (Change(("A", "1d"), told, recent[0]) if expected and told is not None else None)


def test_a_flapping_decision_is_never_told_and_one_that_stays_is_told_once(database: Database) -> None:
    with receiving() as receiver:
        settings = replace(QUICK, webhook_url=receiver.url)
        for hour in range(6):
            cycle = decide(database, hour, {KEYS[0]: (OBSERVE, MONITOR)[hour % 2], KEYS[1]: MONITOR})
            tell(database, cycle, settings)
        assert receiver.bodies == []
        for hour in range(6, 9):
            cycle = decide(database, hour, {KEYS[0]: MONITOR, KEYS[1]: MONITOR})
            tell(database, cycle, settings)
        (body,) = receiver.bodies
        assert body["summary"] == "1 escalated"
        assert body["as_of"] == "2026-03-10T18:00:00Z", "the second cycle in a row"
        assert body["changes"] == [
            {
                "entity_id": "A",
                "window": "1d",
                "moved": "escalated",
                "before": OBSERVE._asdict(),
                "after": MONITOR._asdict(),
            }
        ]
        assert "A|1d: observe (informational, confidence 0.20) → monitor" in body["text"]
        assert [status for _, status, _ in states(database)] == ["sent"]
        decide(database, 9, {KEYS[0]: OBSERVE})
        tell(database, decide(database, 10, {KEYS[0]: OBSERVE}), settings)
        assert receiver.bodies[-1]["summary"] == "1 de-escalated", "compared with what was told last"


def test_several_workers_and_repeats_of_one_cycle_send_one_message(database: Database) -> None:
    decide(database, 0, {KEYS[0]: OBSERVE})
    cycle = decide(database, 1, {KEYS[0]: ACT})
    with receiving() as receiver:
        settings = replace(QUICK, webhook_url=receiver.url)
        with ThreadPoolExecutor(6) as pool:
            done = list(pool.map(lambda n: tell(database, cycle, settings, f"run {n}"), range(6)))
        assert len(receiver.bodies) == 1
        assert sum("sent to 127.0.0.1" in each for each in done) == 1
        assert "already" in tell(database, cycle, settings)
        assert len(receiver.bodies) == 1


def test_a_run_that_was_killed_while_sending_does_not_send_again(database: Database) -> None:
    decide(database, 0, {KEYS[0]: OBSERVE})
    cycle = decide(database, 1, {KEYS[0]: ACT})
    change = Change(KEYS[0], OBSERVE, ACT)
    taken = stored.claim(database, cycle, [change], run_id="killed", channel="webhook", budget=9)
    assert taken is None
    with receiving() as receiver:
        settings = replace(QUICK, webhook_url=receiver.url)
        assert "claimed already" in tell(database, cycle, settings)
        tell(database, decide(database, 2, {KEYS[0]: ACT}), settings)
        assert receiver.bodies == [], "nobody knows whether it arrived, so it counts as told"


@pytest.mark.parametrize(
    ("answers", "status", "attempts", "error"),
    [
        ([500, 503, 204], "sent", 3, None),
        ([429, 200], "sent", 2, None),
        ([500, 502, 500, 204], "failed", 3, "127.0.0.1 answered 500"),
        ([302], "failed", 1, "a redirect, which is not followed"),
        ([404], "failed", 1, "127.0.0.1 answered 404"),
        ([0, 204], "sent", 2, None),  # no answer in time
    ],
)
def test_a_receiver_in_trouble_is_asked_again_a_few_times_and_never_fails_the_cycle(
    database: Database, answers: list[int], status: str, attempts: int, error: str | None
) -> None:
    decide(database, 0, {KEYS[0]: OBSERVE})
    cycle = decide(database, 1, {KEYS[0]: ACT})
    with receiving(*answers) as receiver:
        settings = replace(QUICK, webhook_url=receiver.url, webhook_timeout_seconds=0.3)
        done = tell(database, cycle, settings)
        assert states(database) == [(cycle.as_of, status, attempts)]
        assert len(receiver.bodies) == attempts
        assert len({headers["Idempotency-Key"] for headers in receiver.headers}) == 1
        assert set(receiver.paths) == {"POST /hooks/secret-part"}, "a redirect would be followed by GET"
        if error is None:
            return
        assert error in done
        assert "secret-part" not in done
        receiver.answers.clear()
        tell(database, decide(database, 2, {KEYS[0]: ACT}), settings)
        assert receiver.bodies[-1]["summary"] == "1 escalated", "told with the next cycle"


def test_nobody_listening_is_a_failed_message_and_a_warning_without_the_address(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    decide(database, 0, {KEYS[0]: OBSERVE})
    cycle = decide(database, 1, {KEYS[0]: ACT})
    with receiving() as receiver:
        closed = receiver.url
    with caplog.at_level(logging.WARNING):
        assert "cannot be reached (ConnectError)" in tell(database, cycle, replace(QUICK, webhook_url=closed))
    assert states(database) == [(cycle.as_of, "failed", 3)]
    assert "A|1d: observe" in caplog.text
    assert "secret-part" not in caplog.text


def test_the_budget_of_a_day_holds_messages_back_and_loses_none(database: Database) -> None:
    with receiving() as receiver:
        settings = replace(QUICK, webhook_url=receiver.url, notice_daily_budget=1)
        decide(database, 0, dict.fromkeys(KEYS, OBSERVE))
        tell(database, decide(database, 1, {KEYS[0]: ACT, KEYS[1]: OBSERVE}), settings)
        held = tell(database, decide(database, 2, {KEYS[0]: ACT, KEYS[1]: ACT}), settings)
        assert "budget of 1" in held
        assert len(receiver.bodies) == 1
        with psycopg.connect(database._conninfo) as connection:
            connection.execute("UPDATE notices SET claimed_at = claimed_at - interval '25 hours'")
        tell(database, decide(database, 3, dict.fromkeys(KEYS, ACT)), settings)
        assert [change["entity_id"] for change in receiver.bodies[-1]["changes"]] == ["B"]
        off = replace(settings, notice_daily_budget=0)
        assert tell(database, decide(database, 4, dict.fromkeys(KEYS, OBSERVE)), off) == "switched off"


def test_without_a_webhook_the_log_is_told(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    decide(database, 0, {KEYS[0]: OBSERVE})
    cycle = decide(database, 1, {KEYS[0]: ACT})
    with caplog.at_level(logging.INFO):
        assert tell(database, cycle, QUICK) == "1 escalated, in the log"
    assert "Decisions as of 2026-03-10T13:00:00Z: 1 escalated\nA|1d: observe" in caplog.text
    assert states(database) == [(cycle.as_of, "logged", 1)]


def test_a_cycle_of_the_past_is_no_news(database: Database) -> None:
    decide(database, 0, {KEYS[0]: OBSERVE})
    cycle = decide(database, 1, {KEYS[0]: ACT})
    decide(database, 2, {KEYS[0]: OBSERVE})
    assert tell(database, cycle, QUICK) == "no decision changed for long enough"


def test_a_long_message_names_the_largest_steps_and_counts_the_others() -> None:
    cycle = Cycle(AS_OF, None, 1, "")  # type: ignore[arg-type]
    small = [Change((f"small-{n}", "1d"), OBSERVE, MONITOR) for n in range(60)]
    body = notices.message(cycle, [*small, Change(("large", "1d"), ACT, OBSERVE)])
    assert body["changes"][0]["entity_id"] == "large"
    assert (len(body["changes"]), body["more"]) == (50, 11)
    assert body["text"].endswith("and 11 more")
    assert body["summary"] == "60 escalated, 1 de-escalated"


@pytest.mark.parametrize(
    ("variable", "value", "read"),
    [
        ("ORACLE_WEBHOOK_URL", "ftp://example.org/x", NoticeSettings.from_environment),
        ("ORACLE_WEBHOOK_URL", "example.org/secret-part", NoticeSettings.from_environment),
        ("ORACLE_WEBHOOK_URL", "http://example.org:99999/secret-part", NoticeSettings.from_environment),
        ("ORACLE_NOTICE_MARGIN", "1.5", NoticeSettings.from_environment),
        ("ORACLE_NOTICE_CYCLES", "0", NoticeSettings.from_environment),
        ("ORACLE_NOTICE_CYCLES", "2.5", NoticeSettings.from_environment),
        ("ORACLE_NOTICE_DAILY_BUDGET", "nan", NoticeSettings.from_environment),
        ("ORACLE_FRESH_BARS_HOURS", "-1", Limits.from_environment),
        ("ORACLE_MAX_DRIFT", "nan", Limits.from_environment),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_and_never_fails_a_cycle(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, read: Callable[[], object]
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(LimitError, match=variable) as raised:
        read()
    assert "secret-part" not in str(raised.value)
    cycle = Cycle(AS_OF, None, 1, "")  # type: ignore[arg-type]
    if read == NoticeSettings.from_environment:
        nowhere = Database("postgresql://127.0.0.1:1/nowhere")  # and is not asked
        assert variable in notices.tell(nowhere, cycle, KEYS, run_id="run")


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert NoticeSettings.from_environment() == NoticeSettings()
    monkeypatch.setenv("ORACLE_WEBHOOK_URL", "https://chat.example.org/hooks/x")
    monkeypatch.setenv("ORACLE_NOTICE_CYCLES", "4")
    monkeypatch.setenv("ORACLE_MAX_REJECTED_SHARE", "0")
    found = NoticeSettings.from_environment()
    assert (found.webhook_url, found.notice_cycles) == ("https://chat.example.org/hooks/x", 4)
    assert Limits.from_environment() == Limits(max_rejected_share=0.0)
