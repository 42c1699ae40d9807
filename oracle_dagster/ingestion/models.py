"""The records of an input folder and the rules a record must meet; what each failure is called.

The pydantic models are the one definition of a valid record; ``columns.py`` only recognises, a block at a
time, records that obviously meet it. Nothing here reads files, writes tables or knows the time.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from datetime import date as Date  # noqa: N812 - a record has a field called date
from enum import StrEnum
from typing import Annotated, Final, NoReturn, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from oracle_core.enums import EventDirection, EventDuration, Sentiment, Severity

MAX_NAME_CHARACTERS: Final = 200
MAX_ITEMS_SHOWN: Final = 5
MAX_VALUE_SHOWN: Final = 200
MAX_BRIEF: Final = 60
EARLIEST: Final = datetime(1900, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC)
FORBIDDEN_IN_ENTITY_IDS: Final = ("|", ",", "[", "]", "...")

UUID_PATTERN: Final = r"^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"
_UUID = re.compile(UUID_PATTERN.replace("$", r"\Z"))
_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d([.,]\d+)?)?(?P<offset>[Zz]|[+-]\d\d:?\d\d(:\d\d)?|[+-]\d\d)?",
    re.ASCII,
)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


class Kind(StrEnum):
    """The five kinds of records; the value is the stem of the file's name."""

    DOCUMENTS = "documents"
    MARKET_DATA = "market_data"
    GLOBAL_EVENTS = "global_events"
    EXPOSURES = "exposures"
    RELATIONSHIPS = "relationships"


class Reason(StrEnum):
    """Why a record, or what remained of a file, was not loaded."""

    BROKEN_JSON = "broken_json"
    NOT_UTF8 = "not_utf8"
    NUL_CHARACTER = "nul_character"
    LINE_TOO_LONG = "line_too_long"
    WRONG_TYPE = "wrong_type"
    MISSING_FIELD = "missing_field"
    UNKNOWN_FIELD = "unknown_field"
    DUPLICATE_FIELD = "duplicate_field"
    NOT_FINITE = "not_finite"
    OUT_OF_RANGE = "out_of_range"
    UNKNOWN_VALUE = "unknown_value"
    EMPTY_VALUE = "empty_value"
    TOO_LONG = "too_long"
    CONTROL_CHARACTER = "control_character"
    BAD_UUID = "bad_uuid"
    BAD_ENTITY_ID = "bad_entity_id"
    NAIVE_TIMESTAMP = "naive_timestamp"
    BAD_TIMESTAMP = "bad_timestamp"
    KNOWN_TOO_EARLY = "known_too_early"
    DUPLICATE_ENTITY = "duplicate_entity"
    DUPLICATE_ITEM = "duplicate_item"
    SELF_EDGE = "self_edge"
    CONFLICT = "conflict"
    WRONG_SEPARATOR = "wrong_separator"
    WRONG_COLUMNS = "wrong_columns"
    TRUNCATED_FILE = "truncated_file"
    UNREADABLE_FILE = "unreadable_file"


REMEDIES: Final[dict[Reason, str]] = {
    Reason.BROKEN_JSON: "write one complete JSON object per line (RFC 8259)",
    Reason.NOT_UTF8: "save the file as UTF-8",
    Reason.NUL_CHARACTER: "remove the NUL character; PostgreSQL cannot store it",
    Reason.LINE_TOO_LONG: "split the record; one line may be at most 32 MiB long",
    Reason.WRONG_TYPE: "give a value of that type",
    Reason.MISSING_FIELD: "add the field",
    Reason.UNKNOWN_FIELD: "remove the field or correct its name",
    Reason.DUPLICATE_FIELD: "keep one of the two",
    Reason.NOT_FINITE: "give a finite number or leave the field out",
    Reason.OUT_OF_RANGE: "correct the value; values from outside are refused, not clamped",
    Reason.UNKNOWN_VALUE: "use one of the listed values",
    Reason.EMPTY_VALUE: "give a value or, where it is optional, leave the field out",
    Reason.TOO_LONG: f"shorten it to {MAX_NAME_CHARACTERS} characters",
    Reason.CONTROL_CHARACTER: "remove the control character",
    Reason.BAD_UUID: "give a UUID such as 3f2b8c1e-6a54-5d0e-9b7f-2a1c4d5e6f70",
    Reason.BAD_ENTITY_ID: (
        f"use 1 to {MAX_NAME_CHARACTERS} characters in Unicode NFC, without control characters, without "
        "'|', ',', '[', ']', '...' and without a space at either end"
    ),
    Reason.NAIVE_TIMESTAMP: "add the offset from UTC, for example 2016-11-08T00:00:00Z or +02:00",
    Reason.BAD_TIMESTAMP: "write it as 2016-11-08T00:00:00Z (a day as 2016-11-08), years 1900 to 9999",
    Reason.KNOWN_TOO_EARLY: "correct known_at, or leave it out",
    Reason.DUPLICATE_ENTITY: "merge the two into one; a document has one impact per entity",
    Reason.DUPLICATE_ITEM: "name each item once",
    Reason.SELF_EDGE: "name two different entities",
    Reason.CONFLICT: "load it with --revise if it replaces what is stored, else give it an id of its own",
    Reason.WRONG_SEPARATOR: "separate the columns by ',' and write decimals with '.'",
    Reason.WRONG_COLUMNS: "correct the header line",
    Reason.TRUNCATED_FILE: "load the complete file again; what is already loaded is recognised",
    Reason.UNREADABLE_FILE: "make it a readable file of the format its name says",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one record: the first failing field, its value as text, the reason, a sentence."""

    reason: Reason
    message: str
    field: str | None = None
    value: str | None = None


def fault(reason: Reason, what: str, *, field: str | None = None, value: object = None) -> Fault:
    """Build a fault whose message says what is wrong and ends with the remedy."""
    text = None if value is None else shown(value)
    return Fault(reason, f"{what}: {REMEDIES[reason]}", field, text)


def shown(value: object) -> str:
    """``value`` as short text that PostgreSQL can store."""
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    if len(text) > MAX_VALUE_SHOWN:
        text = f"{text[:MAX_VALUE_SHOWN]}… ({len(text)} characters)"
    return storable(text)


def storable(text: str) -> str:
    """``text`` with NUL and lone surrogates escaped, neither of which PostgreSQL can store."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def _fail(reason: Reason, what: str, *, field: str = "", value: object = None) -> NoReturn:
    """Refuse a value; a rule about several fields names the one to correct, and its value."""
    # Not in the template itself, where braces would be read as fields.
    raise PydanticCustomError(reason.value, "{what}", {"what": what, "field": field, "value": value})


# ------------------------------------------------------------------------------------------------- rules


def entity_id_problem(name: str) -> str | None:  # noqa: PLR0911 - one per rule
    """Why ``name`` cannot be an entity id (decisions 6), or None."""
    if name == "":
        return "is empty"
    if len(name) > MAX_NAME_CHARACTERS:
        return f"has {len(name)} characters"
    if any(unicodedata.category(character) in {"Cc", "Zl", "Zp"} for character in name):
        return "contains a control character"
    for forbidden in FORBIDDEN_IN_ENTITY_IDS:
        if forbidden in name:
            return f"contains '{forbidden}'"
    if name != name.strip():
        return "begins or ends with a space"
    if not unicodedata.is_normalized("NFC", name):
        return "is not in Unicode normal form C (NFC)"
    return None


def label_problem(text: str) -> Reason | None:
    """Why ``text`` cannot be a short name (a source, a type, a catalyst, a risk, an item), or None."""
    if text.strip() == "":
        return Reason.EMPTY_VALUE
    if len(text) > MAX_NAME_CHARACTERS:
        return Reason.TOO_LONG
    if any(unicodedata.category(character) == "Cc" for character in text):
        return Reason.CONTROL_CHARACTER
    return None


def _entity_id(name: str) -> str:
    problem = entity_id_problem(name)
    if problem is not None:
        _fail(Reason.BAD_ENTITY_ID, problem)
    return name


def _label(text: str) -> str:
    problem = label_problem(text)
    if problem is not None:
        what = {
            Reason.EMPTY_VALUE: "is empty",
            Reason.TOO_LONG: f"has {len(text)} characters",
            Reason.CONTROL_CHARACTER: "contains a control character",
        }
        _fail(problem, what[problem])
    return text


def _text(text: str) -> str:
    if "\x00" in text:
        _fail(Reason.NUL_CHARACTER, "contains a NUL character")
    return text


def _uuid(text: str) -> str:
    if _UUID.match(text) is None:
        _fail(Reason.BAD_UUID, "is not a UUID")
    return text.lower()


def _timestamp(value: object) -> datetime:
    if isinstance(value, datetime):
        parsed = value
    elif not isinstance(value, str):
        _fail(Reason.WRONG_TYPE, "is not a timestamp in a string")
    else:
        match = _TIMESTAMP.fullmatch(value)
        try:
            parsed = datetime.fromisoformat(value)
        except ValueError:
            match = None
        if match is None:
            _fail(Reason.BAD_TIMESTAMP, "is not an ISO 8601 timestamp")
    if parsed.tzinfo is None:
        _fail(Reason.NAIVE_TIMESTAMP, "has no offset from UTC, so the moment it means is unknown")
    try:
        parsed = parsed.astimezone(UTC)
        in_range = EARLIEST <= parsed < LATEST
    except OverflowError:
        in_range = False
    if not in_range:
        _fail(Reason.BAD_TIMESTAMP, "lies outside the years 1900 to 9999")
    return parsed


def _day(value: object) -> Date:
    if isinstance(value, Date) and not isinstance(value, datetime):
        parsed = value
    elif not isinstance(value, str):
        _fail(Reason.WRONG_TYPE, "is not a day in a string")
    else:
        try:
            parsed = Date.fromisoformat(value)
        except ValueError:
            _fail(Reason.BAD_TIMESTAMP, "is not a day")
        if _DAY.fullmatch(value) is None:
            _fail(Reason.BAD_TIMESTAMP, "is not a day")
    if not EARLIEST.date() <= parsed < LATEST.date():
        _fail(Reason.BAD_TIMESTAMP, "lies outside the years 1900 to 9999")
    return parsed


def _distinct(items: tuple[str, ...]) -> tuple[str, ...]:
    seen: set[str] = set()
    for item in items:
        if item in seen:
            _fail(Reason.DUPLICATE_ITEM, f"names '{item}' twice")
        seen.add(item)
    return items


EntityId = Annotated[str, AfterValidator(_entity_id)]
Label = Annotated[str, AfterValidator(_label)]
Text = Annotated[str, AfterValidator(_text)]
Uuid = Annotated[str, AfterValidator(_uuid)]
Timestamp = Annotated[
    datetime,
    PlainValidator(_timestamp),
    PlainSerializer(lambda moment: moment.isoformat(timespec="microseconds"), return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Day = Annotated[
    Date,
    PlainValidator(_day),
    PlainSerializer(lambda day: day.isoformat(), return_type=str),
    WithJsonSchema({"type": "string", "format": "date"}),
]
Unit = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Signed = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]
Items = Annotated[tuple[Label, ...], AfterValidator(_distinct)]
Shares = dict[Label, Unit]

# ----------------------------------------------------------------------------------------------- records


class Record(BaseModel):
    """A record of an input file: frozen, strictly typed, unknown fields forbidden."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


class Impact(Record):
    """What one document says about one entity.

    ``sentiment_value`` in [-1, 1] overrides the label ``sentiment``; at least one of them is given.
    ``impact_score`` is in [0, 1].
    """

    entity_id: EntityId
    sentiment: Sentiment | None = None
    sentiment_value: Signed | None = None
    impact_score: Unit
    catalyst_type: Label | None = None
    risks: tuple[Label, ...] | None = None

    @model_validator(mode="after")
    def _has_sentiment(self) -> Self:
        if self.sentiment is None and self.sentiment_value is None:
            _fail(Reason.MISSING_FIELD, "is missing, and so is sentiment_value", field="sentiment")
        return self


class ExtractionStatus(StrEnum):
    """Whether a document's content could be extracted."""

    OK = "ok"
    FAILED = "failed"


class Extraction(Record):
    """How the extraction went; ``confidence`` in [0, 1] is required unless it failed."""

    status: ExtractionStatus
    confidence: Unit | None = None

    @model_validator(mode="after")
    def _has_confidence(self) -> Self:
        if self.status is ExtractionStatus.OK and self.confidence is None:
            _fail(Reason.MISSING_FIELD, "is missing although the status is ok", field="confidence")
        return self


class DocumentRecord(Record):
    """A document: what it says about entities, and which it merely names (``entities``)."""

    document_id: Uuid
    source_id: Label
    source_type: Label | None = None
    published_at: Timestamp
    known_at: Timestamp | None = None
    credibility: Unit | None = None
    novelty: Unit | None = None
    extraction: Extraction
    impacts: tuple[Impact, ...] | None = None
    entities: tuple[EntityId, ...] | None = None
    title: Text | None = None
    url: Text | None = None
    story_id: Text | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _known_not_before(self.known_at, self.published_at, "published_at")
        seen: set[str] = set()
        for position, impact in enumerate(self.impacts or ()):
            if impact.entity_id in seen:
                field, name = f"impacts[{position}].entity_id", impact.entity_id
                what = "is the entity of an earlier impact too"
                _fail(Reason.DUPLICATE_ENTITY, what, field=field, value=name)
            seen.add(impact.entity_id)
        return self


class BarRecord(Record):
    """A daily bar: close > 0, volume >= 0 or missing; complete, and so known, from the next day on."""

    entity_id: EntityId
    date: Day
    close: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    volume: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    known_at: Timestamp | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        complete = datetime(self.date.year, self.date.month, self.date.day, tzinfo=UTC) + timedelta(days=1)
        _known_not_before(self.known_at, complete, "the end of its day (UTC)")
        return self


class EventRecord(Record):
    """A world event and the items it touches per dimension."""

    event_id: Uuid
    occurred_at: Timestamp
    known_at: Timestamp | None = None
    event_type: Label | None = None
    title: Text | None = None
    direction: EventDirection
    severity: Severity
    estimated_duration: EventDuration
    geo: Items | None = None
    supply: Items | None = None
    commodity: Items | None = None
    sector: Items | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _known_not_before(self.known_at, self.occurred_at, "occurred_at")
        return self


class ExposureRecord(Record):
    """How exposed an entity is: per dimension a share in [0, 1] of each item."""

    entity_id: EntityId
    known_at: Timestamp | None = None
    geo: Shares | None = None
    supply: Shares | None = None
    commodity: Shares | None = None
    sector: Shares | None = None


class RelationshipRecord(Record):
    """An undirected edge between two entities; ``historical_correlation`` in [-1, 1]."""

    source_entity: EntityId
    target_entity: EntityId
    relation_type: Label = "competitor"
    historical_correlation: Signed
    known_at: Timestamp | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.source_entity == self.target_entity:
            what = "is the source_entity too"
            _fail(Reason.SELF_EDGE, what, field="target_entity", value=self.target_entity)
        return self


def _known_not_before(known_at: datetime | None, earliest: datetime, name: str) -> None:
    if known_at is not None and known_at < earliest:
        _fail(
            Reason.KNOWN_TOO_EARLY,
            f"is before {name} {earliest.isoformat()}, so it would have been known before it existed",
            field="known_at",
            value=known_at.isoformat(),
        )


MODELS: Final[dict[Kind, type[Record]]] = {
    Kind.DOCUMENTS: DocumentRecord,
    Kind.MARKET_DATA: BarRecord,
    Kind.GLOBAL_EVENTS: EventRecord,
    Kind.EXPOSURES: ExposureRecord,
    Kind.RELATIONSHIPS: RelationshipRecord,
}

# ----------------------------------------------------------------------------------------------- judging

_REASONS: Final[dict[str, Reason]] = {
    "json_invalid": Reason.BROKEN_JSON,
    "missing": Reason.MISSING_FIELD,
    "extra_forbidden": Reason.UNKNOWN_FIELD,
    "finite_number": Reason.NOT_FINITE,
    "greater_than": Reason.OUT_OF_RANGE,
    "greater_than_equal": Reason.OUT_OF_RANGE,
    "less_than": Reason.OUT_OF_RANGE,
    "less_than_equal": Reason.OUT_OF_RANGE,
    "enum": Reason.UNKNOWN_VALUE,
}

_OWN_REASONS: Final = frozenset(reason.value for reason in Reason)


def judge_json(kind: Kind, line: bytes) -> Record | Fault:
    """Validate one JSON line; a fault names the first failing field and lists up to five."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        return fault(
            Reason.NOT_UTF8, f"byte {error.start + 1} of the line is not UTF-8", value=storable_bytes(line)
        )
    if "\x00" in text:
        return fault(Reason.NUL_CHARACTER, "the line contains a NUL character", value=text)
    try:
        record = MODELS[kind].model_validate_json(text)
    except ValidationError as error:
        return _fault_of(error)
    repeated = _repeated_field(text)
    if repeated is not None:
        return fault(Reason.DUPLICATE_FIELD, f"the field {repeated} is given twice", field=repeated)
    return record


def judge_fields(kind: Kind, fields: dict[str, object]) -> Record | Fault:
    """Validate fields that were read from columns; numbers must be numbers already."""
    try:
        return MODELS[kind].model_validate(fields)
    except ValidationError as error:
        return _fault_of(error)


def storable_bytes(raw: bytes) -> str:
    """Bytes as text that PostgreSQL can store: UTF-8 where it is, escapes where it is not."""
    return raw.decode("utf-8", "backslashreplace").replace("\x00", "\\x00")


def _repeated_field(text: str) -> str | None:
    repeated: list[str] = []

    def collect(pairs: list[tuple[str, object]]) -> None:
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                repeated.append(name)
            names.add(name)

    json.loads(text, object_pairs_hook=collect, parse_int=str)
    return repeated[0] if repeated else None


def _fault_of(error: ValidationError) -> Fault:
    details = error.errors(include_url=False)
    sentences = [_sentence(detail) for detail in details[:MAX_ITEMS_SHOWN]]
    if len(details) > MAX_ITEMS_SHOWN:
        sentences.append(f"and {len(details) - MAX_ITEMS_SHOWN} more")
    reason, path, value = _place(details[0])
    text = None if reason in {Reason.MISSING_FIELD, Reason.BROKEN_JSON} else shown(value)
    return Fault(reason, storable("; ".join(sentences)), storable(path) or None, text)


def _place(detail: ErrorDetails) -> tuple[Reason, str, object]:
    """The reason of one error, the path of the field to correct, and the value there."""
    path = ""
    context = detail.get("ctx", {})
    own_field = context.get("field", "")
    for part in (*detail["loc"], *([own_field] if own_field != "" else [])):
        if isinstance(part, int):
            path += f"[{part}]"
        elif part != "[key]":
            path += part if path == "" else f".{part}"
    own = detail["type"] in _OWN_REASONS
    reason = Reason(detail["type"]) if own else _REASONS.get(detail["type"], Reason.WRONG_TYPE)
    return reason, path, context["value"] if own_field != "" else detail["input"]


def _sentence(detail: ErrorDetails) -> str:
    reason, path, value = _place(detail)
    context = detail.get("ctx", {})
    if reason is Reason.BROKEN_JSON:
        return f"the line is not JSON ({context.get('error', detail['msg'])}): {REMEDIES[reason]}"
    what = {
        Reason.MISSING_FIELD: "is missing",
        Reason.UNKNOWN_FIELD: "is not a field of this record",
        Reason.NOT_FINITE: "is not a finite number",
    }.get(reason, detail["msg"].replace("Input should", "should"))
    what = str(context.get("what", what))
    given = "" if reason is Reason.MISSING_FIELD or isinstance(value, dict) else f" ({_brief(value)})"
    return f"{path or 'the record'}{given} {what}: {REMEDIES[reason]}"


def _brief(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= MAX_BRIEF else f"{text[:MAX_BRIEF]}…"
