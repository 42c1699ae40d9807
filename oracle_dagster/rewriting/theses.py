"""Have the theses of recommendations reworded; whatever goes wrong, a recommendation keeps its own thesis.

A rewriter holds what outlives a slice of a run: the cached configuration, the connections, the count of
recommendations and the knowledge that the server is away. Which recommendations are asked about, and what is
stored, is not decided here.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Self

import tenacity

from oracle_core.rewrite import (
    KnownLabels,
    RewriteFacts,
    RewriteLimits,
    cleaned,
    estimated_tokens,
    refusal,
    system_prompt,
    user_prompt,
)
from oracle_dagster.rewriting import budget
from oracle_dagster.rewriting.agents import CACHE_SECONDS, REWRITER, AgentConfig, AgentConfigResolver
from oracle_dagster.rewriting.labels import known_labels
from oracle_dagster.rewriting.transport import HOST_VARIABLE, CallError, ModelServer
from oracle_dagster.storage.database import Database, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oracle_dagster.rewriting.agents import Clock

_log = logging.getLogger(__name__)

CONCURRENCY_VARIABLE: Final = "ORACLE_REWRITE_CONCURRENCY"
MOST_CONCURRENCY: Final = 64
SLUG: Final = REWRITER


@dataclass(frozen=True, slots=True)
class RewriteSettings:
    """How the machinery behaves; no rule of a decision depends on it.

    ``concurrency`` is as many answers as a server of default settings works on at a time. After
    ``failures_before_pause`` calls in a row without an answer, none is made for ``pause_seconds``, so that a
    dead server costs a cycle seconds and not its time-out once per recommendation.
    """

    refresh_every: int = 50
    concurrency: int = 4
    failures_before_pause: int = 5
    pause_seconds: float = 60.0
    first_wait_seconds: float = 0.2
    longest_wait_seconds: float = 5.0
    limits: RewriteLimits = field(default_factory=RewriteLimits)


@dataclass(frozen=True, slots=True)
class RewriteRequest:
    """A recommendation whose thesis may be reworded: eligible, not suppressed, no duplicate (R110)."""

    recommendation_id: str
    facts: RewriteFacts


@dataclass(frozen=True, slots=True)
class RewriteOutcome:
    """The thesis to store, without risk prefix, and the deterministic one.

    ``metadata`` says which model wrote it; None where it is the deterministic one, and ``reason`` then why
    (None where no model is configured).
    """

    recommendation_id: str
    deterministic_thesis: str
    thesis: str
    metadata: dict[str, str] | None
    reason: str | None

    @property
    def llm_used(self) -> bool:
        """Whether the wording is a model's."""
        return self.metadata is not None


def utc_now() -> datetime:
    """The time, for cache and budget; no decision depends on it."""
    return datetime.now(UTC)


def rewrite_theses(
    database: Database, decisions: Sequence[RewriteRequest], *, run_id: str, clock: Clock = utc_now
) -> list[RewriteOutcome]:
    """Have theses reworded by a rewriter made for this once; never raises. See :meth:`Rewriter.rewrite`."""
    with Rewriter(database, clock) as rewriter:
        return rewriter.rewrite(decisions, run_id=run_id)


def _told(error: Exception) -> str:
    """An error for the log: what storage says is free of prompts, of anything else only the type is safe."""
    return str(error) if isinstance(error, StorageError) else type(error).__name__


def _kept(request: RewriteRequest, reason: str | None) -> RewriteOutcome:
    thesis = request.facts.thesis
    return RewriteOutcome(request.recommendation_id, thesis, thesis, None, reason)


class Rewriter:
    """Rewords theses for one run over one database; may be used from several threads.

    Reads the configuration when first needed and again every ``refresh_every`` recommendations.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock = utc_now,
        settings: RewriteSettings | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Remember where configuration and labels are; nothing is read yet.

        Args:
            database: the domain database.
            clock: what time it is, for cache and budget.
            settings: the defaults, with the concurrency of the environment, where None.
            sleep: waits between attempts.

        """
        self.settings = settings or RewriteSettings(concurrency=_concurrency())
        self.resolver = AgentConfigResolver(database, clock)
        self._database = database
        self._clock = clock
        self._sleep = sleep
        self._mutex = threading.Lock()
        self._started = 0
        self._labels: tuple[datetime, KnownLabels] | None = None
        self._server: ModelServer | None = None
        self._failures = 0
        self._paused_until: datetime | None = None

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections to the model server."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def is_configured(self) -> bool:
        """Whether any thesis can be reworded now; without configuration nothing is, and nothing is said.

        Implements: R113.
        """
        return self._agent(refresh=False) is not None

    def rewrite(
        self,
        decisions: Sequence[RewriteRequest],
        *,
        run_id: str,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> list[RewriteOutcome]:
        """Have theses reworded, several at a time; never raises.

        Any failure of configuration, budget, transport or check keeps the deterministic thesis; the reason
        is logged by kind, without any text of prompt or answer.

        Args:
            decisions: what may be reworded.
            run_id: for the log.
            on_progress: called with done and all after each.

        Returns:
            One outcome per request, in their order.

        Implements: R115.
        """
        try:
            if len(decisions) == 0 or not self.is_configured():
                return [_kept(request, None) for request in decisions]
            known, server = self._known_labels(), self._model_server()
            pool = ThreadPoolExecutor(max_workers=self.settings.concurrency, thread_name_prefix="rewrite")
            try:
                outcomes = []
                for outcome in pool.map(lambda request: self._one(request, server, known), decisions):
                    outcomes.append(outcome)
                    if on_progress is not None:
                        on_progress(len(outcomes), len(decisions))
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        except Exception as error:  # noqa: BLE001 - wording must not cost a decision
            _log.warning("run %s: no thesis was reworded: %s", run_id, _told(error))
            return [_kept(request, "error") for request in decisions]
        _summarise(outcomes, run_id)
        return outcomes

    # ------------------------------------------------------------------------------ what is shared

    def _agent(self, *, refresh: bool) -> AgentConfig | None:
        try:
            return self.resolver.resolve(SLUG, refresh=refresh)
        except StorageError as error:
            _log.warning("the agent %s cannot be read and no thesis is reworded: %s", SLUG, error)
            return None

    def _next_agent(self) -> AgentConfig | None:
        """The agent of the next recommendation, read anew every so many (R112).

        Implements: R112.
        """
        with self._mutex:
            refresh = self._started > 0 and self._started % self.settings.refresh_every == 0
            self._started += 1
            return self._agent(refresh=refresh)

    def _known_labels(self) -> KnownLabels:
        now = self._clock()
        if self._labels is None or (now - self._labels[0]).total_seconds() >= CACHE_SECONDS:
            self._labels = (now, known_labels(self._database))
        return self._labels[1]

    def _model_server(self) -> ModelServer:
        if self._server is None:
            address = os.environ.get(HOST_VARIABLE, "")
            self._server = ModelServer(address, connections=self.settings.concurrency)
        return self._server

    # -------------------------------------------------------------------------- one recommendation

    def _one(self, request: RewriteRequest, server: ModelServer, known: KnownLabels) -> RewriteOutcome:
        facts = request.facts
        try:
            agent = self._next_agent()
            if agent is None:
                return _kept(request, None)
            attempts = tenacity.Retrying(
                retry=tenacity.retry_if_exception(_is_transient),
                stop=tenacity.stop_after_attempt(1 + agent.max_retries),
                wait=tenacity.wait_random_exponential(
                    multiplier=self.settings.first_wait_seconds, max=self.settings.longest_wait_seconds
                ),
                sleep=self._sleep,
                reraise=True,
            )
            thesis = attempts(self._attempt, agent, server, facts, known)
        except CallError as error:
            reason = error.kind
        except Exception as error:  # noqa: BLE001 - wording must not cost a decision
            _log.warning("%s|%s: %s", facts.entity_id, facts.window, _told(error))
            reason = "error"
        else:
            return RewriteOutcome(request.recommendation_id, facts.thesis, thesis, agent.metadata(), None)
        _log.info("the thesis of %s|%s stays as it is: %s", facts.entity_id, facts.window, reason)
        return _kept(request, reason)

    def _attempt(
        self, agent: AgentConfig, server: ModelServer, facts: RewriteFacts, known: KnownLabels
    ) -> str:
        """One call, reserved before and settled after; the answer if it passes the check."""
        limits = self.settings.limits
        system, user = system_prompt(limits), user_prompt(facts)
        self._require_server()
        call = budget.reserve(
            self._database,
            agent,
            input_tokens=estimated_tokens(system) + estimated_tokens(user),
            output_tokens=limits.answer_tokens,
            now=self._clock(),
        )
        if call is None:
            raise CallError("budget_exhausted")
        began = time.perf_counter()
        answer, failure = "", None
        try:
            answer = server.chat(
                agent.model_name, system, user, timeout_s=agent.timeout_s, answer_tokens=limits.answer_tokens
            )
        except CallError as error:
            failure = error
        self._note_server(failure)
        if failure is None:
            refused = refusal(answer, facts, known, limits)
            failure = None if refused is None else CallError(_REFUSED.format(refused.value))
        budget.settle(
            self._database,
            call,
            error=None if failure is None else failure.kind,
            duration_ms=1000.0 * (time.perf_counter() - began),
            output_tokens=min(estimated_tokens(answer), limits.answer_tokens),
        )
        if failure is not None:
            raise failure
        return cleaned(answer)

    def _require_server(self) -> None:
        with self._mutex:
            if self._paused_until is not None and self._clock() < self._paused_until:
                raise CallError("server_away")

    def _note_server(self, failure: CallError | None) -> None:
        """Count calls in a row that failed for a passing reason; too many of them pause the calls."""
        with self._mutex:
            if failure is None or not failure.transient:
                self._failures = 0
                self._paused_until = None
                return
            self._failures += 1
            if self._failures >= self.settings.failures_before_pause:
                self._paused_until = self._clock() + timedelta(seconds=self.settings.pause_seconds)


_REFUSED: Final = "answer_{}"


def _concurrency() -> int:
    """Calls at once, from the environment; the default where that is no number above 0."""
    text = os.environ.get(CONCURRENCY_VARIABLE, "").strip()
    if text.isdecimal() and int(text) > 0:
        return min(int(text), MOST_CONCURRENCY)
    if text != "":
        _log.warning("%s is no whole number above 0 and is ignored", CONCURRENCY_VARIABLE)
    return RewriteSettings().concurrency


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, CallError) and error.transient


def _summarise(outcomes: Sequence[RewriteOutcome], run_id: str) -> None:
    reasons = Counter(outcome.reason for outcome in outcomes if outcome.reason is not None)
    if reasons:
        counted = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
        _log.warning(
            "run %s: %d of %d theses were reworded, the others stay as they were: %s",
            run_id,
            sum(outcome.llm_used for outcome in outcomes),
            len(outcomes),
            counted,
        )
