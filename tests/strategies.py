"""Small worlds in plain rows, the columns made of them, and the Hypothesis strategies that draw them.

The rows are what a test reads and writes; ``World.inputs`` turns them into :class:`CycleInputs`. Draws favour
the edges: borders of windows, missing values, late knowledge, bars too few or without movement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from oracle_core.enums import EventDuration, Severity, Window
from oracle_core.inputs import (
    DIMENSIONS,
    US_PER_DAY,
    US_PER_HOUR,
    AccuracyRows,
    BarRows,
    CycleInputs,
    DocumentRows,
    EdgeRows,
    EventRows,
    ExposureRows,
    HistoryRows,
    Keys,
    Ragged,
    StandingRows,
)
from oracle_core.records import SignalWeight, WeightedSignal

AS_OF_DAY = 20_000
AS_OF_US = AS_OF_DAY * US_PER_DAY + 12 * US_PER_HOUR
ALWAYS = -(2**62)
NAN = float("nan")


@dataclass(frozen=True)
class Document:
    """One (document, entity) row; ``age_hours`` before AS_OF, ``known_late_hours`` after its publication."""

    id: str
    entity: str
    age_hours: float = 1.0
    sentiment: float = 1.0
    impact: float = 0.5
    confidence: float = 0.8
    credibility: float = 0.5
    novelty: float = NAN
    catalyst: str | None = None
    source: str = "source"
    source_type: str | None = "news"
    failed: bool = False
    has_impact: bool = True
    risks: tuple[str, ...] = ()
    known_late_hours: float = 0.0

    @property
    def published_us(self) -> int:
        return AS_OF_US - round(self.age_hours * US_PER_HOUR)

    @property
    def known_us(self) -> int:
        return self.published_us + round(self.known_late_hours * US_PER_HOUR)


@dataclass(frozen=True)
class Bar:
    """One daily bar; ``day`` counts back from the day of AS_OF, so 1 is the newest complete one."""

    entity: str
    day: int
    close: float
    volume: float = 1000.0
    known_late_hours: float = 0.0


@dataclass(frozen=True)
class Event:
    """A world event ``age_hours`` before AS_OF."""

    id: str
    age_hours: float = 1.0
    sign: int = 1
    severity: Severity = Severity.HIGH
    duration: EventDuration = EventDuration.MEDIUM_TERM
    items: tuple[tuple[str, str], ...] = (("geo", "us"),)
    known_late_hours: float = 0.0


@dataclass(frozen=True)
class Exposure:
    """Share of an entity in one item of a dimension."""

    entity: str
    dimension: str
    item: str
    share: float
    known_us: int = ALWAYS


@dataclass(frozen=True)
class Edge:
    """Undirected edge."""

    source: str
    target: str
    rho: float
    known_us: int = ALWAYS


@dataclass(frozen=True)
class World:
    """Everything a cycle may read, as rows."""

    documents: tuple[Document, ...] = ()
    bars: tuple[Bar, ...] = ()
    events: tuple[Event, ...] = ()
    exposures: tuple[Exposure, ...] = ()
    edges: tuple[Edge, ...] = ()
    accuracy: tuple[tuple[str, float, int], ...] = ()
    entities: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """Every entity, sorted."""
        return sorted(
            {d.entity for d in self.documents}
            | {b.entity for b in self.bars}
            | {x.entity for x in self.exposures}
            | {name for e in self.edges for name in (e.source, e.target)}
            | set(self.entities)
        )

    def known_by(self, as_of_us: int) -> World:
        """Only the rows known by then, with the same entities."""
        return replace(
            self,
            documents=tuple(d for d in self.documents if d.known_us <= as_of_us),
            bars=tuple(b for b in self.bars if _bar_known_us(b) <= as_of_us),
            events=tuple(e for e in self.events if _event_known_us(e) <= as_of_us),
            exposures=tuple(x for x in self.exposures if x.known_us <= as_of_us),
            edges=tuple(e for e in self.edges if e.known_us <= as_of_us),
            entities=tuple(self.names()),
        )

    def inputs(self) -> CycleInputs:
        """The columns, rows in the order given here."""
        entities = self.names()
        documents = _Table(d.id for d in self.documents)
        sources = _Table([d.source for d in self.documents] + [name for name, _, _ in self.accuracy])
        source_types = _Table(d.source_type for d in self.documents)
        catalysts = _Table(d.catalyst for d in self.documents)
        risks = _Table(risk for d in self.documents for risk in d.risks)
        events = _Table(e.id for e in self.events)
        items = _Table([i for e in self.events for _, i in e.items] + [x.item for x in self.exposures])
        entity = _Table(entities)
        return CycleInputs(
            entities=entity.names,
            document_ids=documents.names,
            sources=sources.names,
            source_types=source_types.names,
            catalysts=catalysts.names,
            risk_labels=risks.names,
            event_ids=events.names,
            items=items.names,
            documents=DocumentRows(
                entity=entity.codes(d.entity for d in self.documents),
                document=documents.codes(d.id for d in self.documents),
                source=sources.codes(d.source for d in self.documents),
                source_type=source_types.codes(d.source_type for d in self.documents),
                published_us=_ints(d.published_us for d in self.documents),
                known_us=_ints(d.known_us for d in self.documents),
                credibility=_floats(d.credibility for d in self.documents),
                novelty=_floats(d.novelty for d in self.documents),
                extraction_confidence=_floats(d.confidence for d in self.documents),
                failed=np.array([d.failed for d in self.documents], np.bool_),
                has_impact=np.array([d.has_impact for d in self.documents], np.bool_),
                sentiment=_floats(d.sentiment if d.has_impact else NAN for d in self.documents),
                impact=_floats(d.impact if d.has_impact else NAN for d in self.documents),
                catalyst=catalysts.codes(d.catalyst for d in self.documents),
                risks=_ragged([risks.codes(d.risks) for d in self.documents]),
            ),
            bars=BarRows(
                entity=entity.codes(b.entity for b in self.bars),
                day=_ints(AS_OF_DAY - b.day for b in self.bars),
                known_us=_ints(_bar_known_us(b) for b in self.bars),
                close=_floats(b.close for b in self.bars),
                volume=_floats(b.volume for b in self.bars),
            ),
            events=EventRows(
                event=events.codes(e.id for e in self.events),
                occurred_us=_ints(AS_OF_US - round(e.age_hours * US_PER_HOUR) for e in self.events),
                known_us=_ints(_event_known_us(e) for e in self.events),
                sign=_ints(e.sign for e in self.events),
                severity=_ints(list(Severity).index(e.severity) for e in self.events),
                duration=_ints(list(EventDuration).index(e.duration) for e in self.events),
                **{
                    name: _ragged([items.codes(i for d, i in e.items if d == name) for e in self.events])
                    for name in DIMENSIONS
                },
            ),
            exposures=ExposureRows(
                entity=entity.codes(x.entity for x in self.exposures),
                dimension=_ints(DIMENSIONS.index(x.dimension) for x in self.exposures),
                item=items.codes(x.item for x in self.exposures),
                share=_floats(x.share for x in self.exposures),
                known_us=_ints(x.known_us for x in self.exposures),
            ),
            edges=EdgeRows(
                source=entity.codes(e.source for e in self.edges),
                target=entity.codes(e.target for e in self.edges),
                rho=_floats(e.rho for e in self.edges),
                known_us=_ints(e.known_us for e in self.edges),
            ),
            accuracy=AccuracyRows(
                source=sources.codes(name for name, _, _ in self.accuracy),
                ratio=_floats(ratio for _, ratio, _ in self.accuracy),
                samples=_ints(count for _, _, count in self.accuracy),
            ),
        )

    def keys(self, windows: Sequence[Window] = tuple(Window)) -> Keys:
        """Every entity in the windows given."""
        entities = np.arange(len(self.names()))
        codes = _ints(list(Window).index(window) for window in windows)
        return Keys(np.repeat(entities, len(codes)), np.tile(codes, len(entities)))


def _bar_known_us(bar: Bar) -> int:
    return (AS_OF_DAY - bar.day + 1) * US_PER_DAY + round(bar.known_late_hours * US_PER_HOUR)


def _event_known_us(event: Event) -> int:
    return AS_OF_US + round((event.known_late_hours - event.age_hours) * US_PER_HOUR)


@dataclass
class _Table:
    """Sorted distinct strings; None has code -1."""

    values: Iterable[str | None]
    position: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.position = {v: i for i, v in enumerate(sorted({v for v in self.values if v is not None}))}

    @property
    def names(self) -> Any:  # noqa: ANN401 - an object array
        return np.array(list(self.position), np.object_).reshape(len(self.position))

    def codes(self, values: Iterable[str | None]) -> Any:  # noqa: ANN401
        return _ints(-1 if v is None else self.position[v] for v in values)


def _ints(values: Iterable[int]) -> Any:  # noqa: ANN401
    return np.array(list(values), np.int64)


def _floats(values: Iterable[float]) -> Any:  # noqa: ANN401
    return np.array(list(values), np.float64)


def _ragged(lists: Sequence[Any]) -> Ragged:
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(values) for values in lists], out=offsets[1:])
    return Ragged(offsets, np.concatenate([*lists, np.zeros(0, np.int64)]).astype(np.int64))


def no_history() -> HistoryRows:
    """No earlier cycle."""
    return HistoryRows(_ints([]), _ints([]), _floats([]))


def no_standing() -> StandingRows:
    """No earlier recommendation."""
    return StandingRows(_ints([]), _ints([]), _ints([]), _floats([]), np.zeros(0, np.object_))


# -------------------------------------------------------------------------------------------- strategies

ENTITIES = ("a", "b", "c", "d", "é f")
CATALYSTS = (None, "performance_report", "legal", "rumour")
ITEMS = (("geo", "us"), ("supply", "us"), ("commodity", "oil"), ("sector", "tech"))
UNIT = st.sampled_from((0.0, 0.1, 0.3, 0.5, 0.65, 0.7, 1.0))
AGES = st.sampled_from((0.0, 1.0, 11.9, 12.0, 24.0, 30.0, 100.0, 168.0, 400.0, 900.0, 2000.0, 5000.0, -1.0))
DELAYS = st.sampled_from((0.0, 0.0, 0.0, 2.0, 40.0, 1000.0))


@st.composite
def documents(draw: st.DrawFn, entities: Sequence[str]) -> tuple[Document, ...]:
    """Up to eight documents; one may name two entities, once each."""
    found: list[Document] = []
    for n in range(draw(st.integers(0, 8))):
        first = Document(
            id=f"document-{n:02d}",
            entity="",
            age_hours=draw(AGES),
            confidence=draw(st.one_of(UNIT, st.just(NAN))),
            credibility=draw(st.one_of(UNIT, st.just(NAN))),
            novelty=draw(st.one_of(UNIT, st.just(NAN))),
            source=draw(st.sampled_from(("s1", "s2"))),
            source_type=draw(st.sampled_from((None, "news", "filing", "odd"))),
            failed=draw(st.booleans()) and draw(st.booleans()),
            known_late_hours=draw(DELAYS),
        )
        found.extend(
            replace(
                first,
                entity=name,
                has_impact=not first.failed and draw(st.integers(0, 5)) > 0,
                sentiment=draw(st.sampled_from((1.0, -1.0, 0.0, 0.25, -0.7))),
                impact=draw(UNIT),
                catalyst=draw(st.sampled_from(CATALYSTS)),
                risks=tuple(draw(st.lists(st.sampled_from(("r1", "r2")), max_size=2, unique=True))),
            )
            for name in draw(st.lists(st.sampled_from(entities), min_size=1, max_size=2, unique=True))
        )
    return tuple(found)


@st.composite
def bars(draw: st.DrawFn, entities: Sequence[str]) -> tuple[Bar, ...]:
    """Per entity none, too few, or enough bars; the drawn moves are repeated over the days."""
    found: list[Bar] = []
    for name in entities:
        length = draw(st.sampled_from((0, 0, 5, 30, 130)))
        moves = draw(st.lists(st.integers(-4, 4), min_size=1, max_size=7))
        volumes = draw(st.lists(st.sampled_from((NAN, 0.0, 500.0, 900.0)), min_size=1, max_size=3))
        late = draw(DELAYS)
        close = 100.0
        for n in range(length):
            close *= 1.0 + moves[n % len(moves)] / 100.0
            # The newest may be dated today or later: not known at AS_OF.
            found.append(
                Bar(name, length - n - 2, close, volumes[n % len(volumes)], late if n % 11 == 0 else 0.0)
            )
    return tuple(found)


@st.composite
def events(draw: st.DrawFn) -> tuple[Event, ...]:
    """Up to three events."""
    return tuple(
        Event(
            id=f"event-{n}",
            age_hours=draw(AGES),
            sign=draw(st.integers(-1, 1)),
            severity=draw(st.sampled_from(list(Severity))),
            duration=draw(st.sampled_from(list(EventDuration))),
            items=tuple(draw(st.lists(st.sampled_from(ITEMS), max_size=3))),
            known_late_hours=draw(DELAYS),
        )
        for n in range(draw(st.integers(0, 3)))
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A world of up to five entities, any part of which may be empty."""
    entities = draw(st.lists(st.sampled_from(ENTITIES), min_size=1, max_size=5, unique=True))
    shares = draw(
        st.dictionaries(st.tuples(st.sampled_from(entities), st.sampled_from(ITEMS)), UNIT, max_size=8)
    )
    pairs = draw(
        st.lists(st.tuples(st.sampled_from(entities), st.sampled_from(entities)), max_size=6, unique=True)
    )
    known = st.sampled_from((ALWAYS, ALWAYS, AS_OF_US, AS_OF_US + 1))
    return World(
        documents=draw(documents(entities)),
        bars=draw(bars(entities)),
        events=draw(events()),
        exposures=tuple(
            Exposure(name, dimension, item, share, draw(known))
            for (name, (dimension, item)), share in shares.items()
        ),
        edges=tuple(
            Edge(a, b, draw(st.sampled_from((-1.0, -0.4, 0.0, 0.3, 0.8))), draw(known))
            for a, b in pairs
            if a != b
        ),
        accuracy=tuple((name, draw(UNIT), draw(st.sampled_from((0, 9, 10, 40)))) for name in ("s1", "s2")),
        entities=tuple(entities),
    )


@st.composite
def histories(draw: st.DrawFn, keys: int) -> HistoryRows:
    """Up to four earlier cycles for some keys."""
    rows = [
        (key, AS_OF_US - back * US_PER_DAY, draw(st.floats(-1.0, 1.0)))
        for key in draw(st.lists(st.integers(0, max(keys - 1, 0)), max_size=4, unique=True))
        if key < keys
        for back in range(1, draw(st.integers(2, 5)))
    ]
    return HistoryRows(_ints(r[0] for r in rows), _ints(r[1] for r in rows), _floats(r[2] for r in rows))


# ---------------------------------------------------------------------------------------- single signals


def signal(
    name: str = "document",
    combined: float = 1.0,
    sentiment: float = 1.0,
    impact: float = 1.0,
    **more: Any,  # noqa: ANN401 - the fields of both records
) -> WeightedSignal:
    """A signal whose factors are 1 unless given; ``more`` names fields of SignalWeight or WeightedSignal."""
    factors = {
        "recency": 1.0,
        "credibility": 0.5,
        "novelty_bonus": 1.0,
        "confidence_gate": 1.0,
        "market_ctx_multiplier": 1.0,
    }
    weight = SignalWeight(**{k: more.pop(k, v) for k, v in factors.items()}, combined=combined)
    return WeightedSignal(name, weight, sentiment, impact, **more)


def signals(min_size: int = 0, max_size: int = 12) -> st.SearchStrategy[list[WeightedSignal]]:
    """Lists of signals with distinct names, weights up to 3, any sign."""
    one = st.builds(
        lambda combined, sentiment, impact: signal("", combined, sentiment, impact),
        st.floats(0.0, 3.0),
        st.floats(-1.0, 1.0),
        st.floats(0.0, 1.0),
    )
    return st.lists(one, min_size=min_size, max_size=max_size).map(
        lambda found: [replace(s, document_id=f"d{n:03d}") for n, s in enumerate(found)]
    )
