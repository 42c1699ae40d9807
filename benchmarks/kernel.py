"""Scoring, trend and top-10 evidence in memory: the core against Python, Polars and DuckDB.

Every side starts from the same columns in no order, as its own kind of table, and ends with the same three:
``signals`` (one row per document and key, every factor of its weight), ``trends`` (one row per key) and
``evidence`` (at most ten rows per key and role). They are compared value by value before anything is timed.
Polars and DuckDB take two threads each, and so does the core, as it would in two runs of entity blocks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import Figure, Size, alternate, ratio
from oracle_core.config import OracleConfig
from oracle_core.enums import Window
from oracle_core.frames import EvidenceRows, SignalRows, TrendRows
from oracle_core.inputs import (
    US_PER_DAY,
    US_PER_HOUR,
    AccuracyRows,
    BarRows,
    CycleInputs,
    DocumentRows,
    EdgeRows,
    EventRows,
    ExposureRows,
    Keys,
    Ragged,
)
from oracle_core.market import market_context
from oracle_core.rules import rules_for
from oracle_core.scoring import score_signals
from oracle_core.trend import measured
from oracle_core.windows import LOOKBACKS_US

if TYPE_CHECKING:
    import duckdb
    import polars as pl

AS_OF_US = 20_000 * US_PER_DAY
CONFIG = OracleConfig().with_settings({"flags.macro_enabled": False, "flags.competitive_enabled": False})
SOURCE_TYPES = ("blog", "filing", "news", "social", "somewhere")
BLOCK_ENTITIES = 500
THREADS = 2
TOLERANCE = 1e-9
"""Sums are added in another order on every side; each value is within this, relative and absolute."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    documents: int
    entities: int
    rounds: int
    sample: int


SIZES: dict[Size, Sizes] = {
    "tiny": Sizes(2_000, 40, 1, 5),
    "bench": Sizes(500_000, 5_000, 5, 40),
    "full": Sizes(2_000_000, 20_000, 5, 200),
}

Table = dict[str, Any]


@dataclass(frozen=True)
class Outputs:
    """What every side makes, as columns by name."""

    signals: Table
    trends: Table
    evidence: Table


SIGNALS = tuple(
    f.name
    for f in fields(SignalRows)
    if f.name not in {"risks", "sigmoid_gate", "regime_multiplier", "adaptive_half_life_hours"}
)
"""The columns of :class:`SignalRows` without those that this mode leaves empty."""
TRENDS = (
    "direction",
    "strength",
    "average",
    "confidence",
    "contradiction",
    "evidence_count",
    "supporting_count",
    "opposing_count",
    "entity_signals",
    "unique_sources",
    "average_credibility",
    "agreement",
)
EVIDENCE = tuple(f.name for f in fields(EvidenceRows))


def documents(sizes: Sizes, seed: int = 1) -> DocumentRows:
    """Documents of the last 90 days in no order, one impact each; a fifth has no direction."""
    rng = np.random.default_rng(seed)
    n = sizes.documents
    none = np.full(n, np.nan)
    age_us = rng.integers(1, 90 * US_PER_DAY, n)
    return DocumentRows(
        entity=rng.integers(0, sizes.entities, n),
        document=rng.permutation(n),
        source=rng.integers(0, 2_000, n),
        source_type=rng.integers(0, len(SOURCE_TYPES), n),
        published_us=AS_OF_US - age_us,
        known_us=AS_OF_US - age_us,
        credibility=np.where(rng.random(n) < 0.5, none, rng.random(n)),
        novelty=np.where(rng.random(n) < 0.5, none, rng.random(n)),
        extraction_confidence=rng.random(n),
        failed=np.zeros(n, np.bool_),
        has_impact=np.ones(n, np.bool_),
        sentiment=rng.choice([1.0, 1.0, -1.0, -1.0, 0.0], n),
        impact=rng.random(n),
        catalyst=rng.integers(-1, 8, n),
        risks=Ragged.empty(n),
    )


# ------------------------------------------------------------------------------------------- the core


def inputs_of(rows: DocumentRows, entities: int, documents: int) -> CycleInputs:
    """A world of documents alone."""
    none, zero = np.zeros(0, np.int64), np.zeros(0)
    lists = Ragged.empty(0)
    return CycleInputs(
        entities=np.array([f"entity-{n:06d}" for n in range(entities)], np.object_),
        document_ids=np.array([f"{n:032x}" for n in range(documents)], np.object_),
        sources=np.array([f"source-{n:04d}" for n in range(2_000)], np.object_),
        source_types=np.array(SOURCE_TYPES, np.object_),
        catalysts=np.array([f"catalyst-{n}" for n in range(8)], np.object_),
        risk_labels=np.zeros(0, np.object_),
        event_ids=np.zeros(0, np.object_),
        items=np.zeros(0, np.object_),
        documents=rows,
        bars=BarRows(none, none, none, zero, zero),
        events=EventRows(none, none, none, none, none, none, lists, lists, lists, lists),
        exposures=ExposureRows(none, none, none, zero, none),
        edges=EdgeRows(none, none, zero, none),
        accuracy=AccuracyRows(none, zero, none),
    )


Block = tuple[SignalRows, TrendRows, EvidenceRows]


def core(read: CycleInputs, config: OracleConfig = CONFIG) -> Block:
    """The stages of the core over one block of entities, every window of each."""
    rules = rules_for(config)
    entities = len(read.entities)
    keys = Keys(np.repeat(np.arange(entities), len(Window)), np.tile(np.arange(len(Window)), entities))
    signals = score_signals(read, keys, AS_OF_US, config, rules)
    context = market_context(read.bars, entities, config.scoring.volatility_period_days).take(keys.entity)
    regimes = rules.regimes(read.bars, entities, config.regime).take(keys.entity)
    found = measured(signals, context, regimes, config, rules)
    return signals.rows, found.trends, found.evidence


# --------------------------------------------------------------------------------------------- Polars


def polars_table(rows: DocumentRows) -> pl.DataFrame:
    """The documents as Polars would have them: missing values null, small integers small."""
    import polars as pl

    return pl.DataFrame(
        {
            "entity": rows.entity.astype(np.int32),
            "document": rows.document.astype(np.int32),
            "source": rows.source.astype(np.int32),
            "source_type": rows.source_type.astype(np.int8),
            "catalyst": rows.catalyst.astype(np.int8),
            "published_us": rows.published_us,
            "credibility": pl.Series(rows.credibility, nan_to_null=True),
            "novelty": pl.Series(rows.novelty, nan_to_null=True),
            "extraction_confidence": rows.extraction_confidence,
            "sentiment": rows.sentiment,
            "impact": rows.impact,
        }
    )


def polars_side(table: pl.DataFrame, entities: int) -> Outputs:
    """The same by lazy queries over common parts."""
    import polars as pl

    scoring, trend = CONFIG.scoring, CONFIG.trend
    usual = [scoring.credibility_by_source_type.get(n, scoring.default_credibility) for n in SOURCE_TYPES]
    scored = table.lazy().with_columns(
        age_us=AS_OF_US - pl.col("published_us"),
        credibility=pl.coalesce(
            "credibility",
            pl.col("source_type").replace_strict(list(range(len(usual))), usual, return_dtype=pl.Float64),
        ).clip(0.0, 1.0),
        novelty_bonus=1.0 + scoring.novelty_weight * pl.col("novelty").fill_null(0.0).clip(0.0, 1.0),
        confidence_gate=(pl.col("extraction_confidence") >= scoring.binary_gate_threshold).cast(pl.Float64),
    )
    parts = []
    for code, window in enumerate(Window):
        inside = scored.filter((pl.col("age_us") >= 0) & (pl.col("age_us") < int(LOOKBACKS_US[code])))
        half_life_us = scoring.half_life_hours[window] * US_PER_HOUR
        recency = (pl.col("age_us") * (-math.log(2.0) / half_life_us)).exp()
        product = recency * pl.col("credibility") * pl.col("novelty_bonus") * pl.col("confidence_gate")
        parts.append(
            inside.select(
                key=pl.col("entity") * len(Window) + code,
                signal="document",
                layer=pl.lit(0, pl.Int8),
                source="source",
                source_type="source_type",
                catalyst="catalyst",
                published_us="published_us",
                sentiment="sentiment",
                impact="impact",
                extraction_confidence="extraction_confidence",
                recency=recency,
                credibility="credibility",
                novelty_bonus="novelty_bonus",
                confidence_gate="confidence_gate",
                market_ctx_multiplier=pl.lit(1.0),
                info_gain_factor=pl.lit(1.0),
                source_accuracy_factor=pl.lit(1.0),
                layer_weight=pl.lit(scoring.entity_layer_weight),
                combined=(product * scoring.entity_layer_weight).clip(upper_bound=scoring.max_combined),
            )
        )
    signals = pl.concat(pl.collect_all(parts))
    active = signals.lazy().filter(pl.col("combined") > 0.0)
    effective, s = pl.col("combined") * pl.col("impact"), pl.col("sentiment")
    takes_part = effective > 0.0
    sums = (
        active.group_by("key")
        .agg(
            total=pl.col("combined").sum(),
            upper=(effective * s).sum(),
            positive=effective.filter(takes_part & (s > 0.0)).sum(),
            negative=effective.filter(takes_part & (s < 0.0)).sum(),
            supporting=((s > 0.0) & (pl.col("impact") > 0.0)).sum(),
            opposing=((s < 0.0) & (pl.col("impact") > 0.0)).sum(),
            up=(s > 0.0).sum(),
            down=(s < 0.0).sum(),
            unique_sources=pl.len(),
            average_credibility=pl.col("credibility").mean(),
            top_weight=pl.col("combined").max(),
        )
        .collect()
    )
    keys = pl.LazyFrame({"key": pl.int_range(entities * len(Window), dtype=pl.Int32, eager=True)})
    c = pl.col
    both = c("positive") + c("negative")
    trends = (
        keys.join(sums.lazy(), on="key", how="left", maintain_order="left")
        .with_columns(pl.exclude("key").fill_null(0))
        .with_columns(
            average=pl.when(c("total") > 0.0).then(c("upper") / c("total")).otherwise(0.0).clip(-1.0, 1.0),
            contradiction=pl.when(both > 0.0)
            .then(pl.min_horizontal("positive", "negative") / both)
            .otherwise(0.0),
            agreement=pl.max_horizontal("up", "down") / (c("up") + c("down")).clip(lower_bound=1),
            supporting_count=c("supporting").clip(upper_bound=trend.max_evidence_refs),
            opposing_count=c("opposing").clip(upper_bound=trend.max_evidence_refs),
            entity_signals="unique_sources",
        )
        .with_columns(
            direction=pl.when(
                (c("contradiction") > trend.mixed_threshold)
                & (c("average").abs() < trend.mixed_sentiment_bound)
            )
            .then(2)
            .when(c("average") >= trend.positive_threshold)
            .then(0)
            .when(c("average") <= trend.negative_threshold)
            .then(1)
            .otherwise(3),
            strength=c("average").abs().clip(upper_bound=1.0),
            confidence=(
                trend.confidence_count_weight
                * (c("unique_sources") / trend.confidence_count_divisor).clip(
                    upper_bound=trend.confidence_count_cap
                )
                + trend.confidence_credibility_weight * c("average_credibility")
                + trend.confidence_agreement_weight
                * c("agreement")
                * ((c("unique_sources") + 1.0).log(trend.confidence_dampener_base)).clip(upper_bound=1.0)
                - trend.confidence_contradiction_penalty * c("contradiction")
            ).clip(0.0, 1.0),
            evidence_count=c("supporting_count") + c("opposing_count"),
        )
        .select("key", *TRENDS)
    )
    score = c("weight_component") + c("impact_component") + c("recency_component") + c("confidence_component")
    evidence = (
        active.filter((s != 0.0) & (c("impact") > 0.0))
        .select(
            "key",
            "signal",
            "published_us",
            "combined",
            role=(s < 0.0).cast(pl.Int8),
            impact_component=trend.rank_impact * c("impact"),
            recency_component=trend.rank_recency * c("recency"),
            confidence_component=trend.rank_confidence * c("extraction_confidence"),
            sentiment_value="sentiment",
        )
        .join(sums.lazy().select("key", "top_weight"), on="key")
        .with_columns(weight_component=trend.rank_weight * c("combined") / c("top_weight"))
        .with_columns(rank_score=score)
        .sort(
            "key",
            "role",
            "rank_score",
            "published_us",
            "signal",
            descending=[False, False, True, True, False],
        )
        .with_columns(position=pl.int_range(pl.len(), dtype=pl.Int32).over("key", "role"))
        .filter(c("position") < trend.max_evidence_refs)
        .with_columns(is_document=pl.lit(value=True))
        .select(EVIDENCE)
    )
    made, ranked = pl.collect_all([trends, evidence])
    return Outputs(signals, made, ranked)


# --------------------------------------------------------------------------------------------- DuckDB


def duckdb_table(table: pl.DataFrame) -> duckdb.DuckDBPyConnection:
    """The same documents as a native table of an in-memory database."""
    import duckdb

    connection = duckdb.connect(config={"threads": THREADS, "preserve_insertion_order": False})
    connection.register("given", table.to_arrow())
    connection.execute("CREATE TABLE documents AS SELECT * FROM given")
    connection.unregister("given")
    return connection


def duckdb_side(connection: duckdb.DuckDBPyConnection, entities: int) -> duckdb.DuckDBPyConnection:
    """The same as three tables made by SQL."""
    s, t = CONFIG.scoring, CONFIG.trend
    usual = " ".join(
        f"WHEN {code} THEN {s.credibility_by_source_type.get(name, s.default_credibility)}"
        for code, name in enumerate(SOURCE_TYPES)
    )
    windows = ", ".join(
        f"({code}, {int(LOOKBACKS_US[code])}, {s.half_life_hours[window] * US_PER_HOUR})"
        for code, window in enumerate(Window)
    )
    connection.execute(f"""
        CREATE OR REPLACE TABLE signals AS
        WITH w(code, lookback, half_life) AS (VALUES {windows}),
        d AS (
            SELECT *, {AS_OF_US} - published_us AS age,
                   least(greatest(coalesce(credibility, CASE source_type {usual} END), 0), 1) AS believed,
                   1 + {s.novelty_weight} * least(greatest(coalesce(novelty, 0), 0), 1) AS bonus,
                   (extraction_confidence >= {s.binary_gate_threshold})::DOUBLE AS gate
            FROM documents)
        SELECT (entity * {len(Window)} + code)::INTEGER AS key, document AS signal, 0::TINYINT AS layer,
               source, source_type, catalyst, published_us, sentiment, impact, extraction_confidence,
               pow(2, -age / half_life) AS recency, believed AS credibility, bonus AS novelty_bonus,
               gate AS confidence_gate, 1::DOUBLE AS market_ctx_multiplier, 1::DOUBLE AS info_gain_factor,
               1::DOUBLE AS source_accuracy_factor, {s.entity_layer_weight}::DOUBLE AS layer_weight,
               least(pow(2, -age / half_life) * believed * bonus * gate * {s.entity_layer_weight},
                     {s.max_combined}) AS combined
        FROM d JOIN w ON age >= 0 AND age < lookback""")
    connection.execute("""
        CREATE OR REPLACE TABLE sums AS
        SELECT key, sum(combined) AS total, sum(combined * impact * sentiment) AS upper,
               coalesce(sum(combined * impact) FILTER (sentiment > 0), 0) AS positive,
               coalesce(sum(combined * impact) FILTER (sentiment < 0), 0) AS negative,
               count(*) FILTER (sentiment > 0 AND impact > 0) AS supporting,
               count(*) FILTER (sentiment < 0 AND impact > 0) AS opposing,
               count(*) FILTER (sentiment > 0) AS up, count(*) FILTER (sentiment < 0) AS down,
               count(*) AS unique_sources, avg(credibility) AS average_credibility,
               max(combined) AS top_weight
        FROM signals WHERE combined > 0 GROUP BY key""")
    connection.execute(f"""
        CREATE OR REPLACE TABLE trends AS
        WITH a AS (
            SELECT k.key, coalesce(unique_sources, 0) AS unique_sources,
                   coalesce(average_credibility, 0) AS average_credibility,
                   CASE WHEN total > 0 THEN least(greatest(upper / total, -1), 1) ELSE 0 END AS average,
                   CASE WHEN positive + negative > 0
                        THEN least(positive, negative) / (positive + negative) ELSE 0 END AS contradiction,
                   coalesce(greatest(up, down) / greatest(1, up + down), 0) AS agreement,
                   least(coalesce(supporting, 0), {t.max_evidence_refs}) AS supporting_count,
                   least(coalesce(opposing, 0), {t.max_evidence_refs}) AS opposing_count
            FROM range({entities * len(Window)}) k(key) LEFT JOIN sums USING (key))
        SELECT key,
               CASE WHEN contradiction > {t.mixed_threshold}
                         AND abs(average) < {t.mixed_sentiment_bound} THEN 2
                    WHEN average >= {t.positive_threshold} THEN 0
                    WHEN average <= {t.negative_threshold} THEN 1 ELSE 3 END AS direction,
               least(abs(average), 1) AS strength, average,
               least(greatest(
                   {t.confidence_count_weight}
                   * least(unique_sources / {t.confidence_count_divisor}, {t.confidence_count_cap})
                   + {t.confidence_credibility_weight} * average_credibility
                   + {t.confidence_agreement_weight} * agreement
                   * least(ln(unique_sources + 1) / ln({t.confidence_dampener_base}), 1)
                   - {t.confidence_contradiction_penalty} * contradiction, 0), 1) AS confidence,
               contradiction, supporting_count + opposing_count AS evidence_count, supporting_count,
               opposing_count, unique_sources AS entity_signals, unique_sources, average_credibility,
               agreement
        FROM a""")
    connection.execute(f"""
        CREATE OR REPLACE TABLE evidence AS
        WITH c AS (
            SELECT key, (sentiment < 0)::TINYINT AS role, signal, published_us,
                   {t.rank_weight} * combined / top_weight AS weight_component,
                   {t.rank_impact} * impact AS impact_component,
                   {t.rank_recency} * recency AS recency_component,
                   {t.rank_confidence} * extraction_confidence AS confidence_component,
                   sentiment AS sentiment_value
            FROM signals JOIN sums USING (key) WHERE combined > 0 AND sentiment <> 0 AND impact > 0),
        r AS (
            SELECT *, weight_component + impact_component + recency_component + confidence_component
                   AS rank_score FROM c)
        SELECT key, role, row_number() OVER best - 1 AS position, signal, true AS is_document, rank_score,
               weight_component, impact_component, recency_component, confidence_component, sentiment_value
        FROM r WINDOW best AS (PARTITION BY key, role ORDER BY rank_score DESC, published_us DESC, signal)
        QUALIFY row_number() OVER best <= {t.max_evidence_refs}""")
    return connection


# --------------------------------------------------------------------------------------------- Python


@dataclass(frozen=True)
class Document:
    """One document of the sample."""

    entity: int
    document: int
    source: int
    source_type: int
    catalyst: int
    published_us: int
    credibility: float | None
    novelty: float | None
    extraction_confidence: float
    sentiment: float
    impact: float


def documents_of(rows: DocumentRows, entities: int) -> list[Document]:
    """The documents of the first entities as objects, as a program would get them from a database."""
    part = rows.take(np.flatnonzero(rows.entity < entities))
    names = [f.name for f in fields(Document)]
    columns = zip(*(getattr(part, name).tolist() for name in names), strict=True)
    return [
        Document(
            **{
                n: None if isinstance(v, float) and math.isnan(v) else v
                for n, v in zip(names, row, strict=True)
            }
        )
        for row in columns
    ]


@dataclass(frozen=True)
class Signal:
    """One weighted signal."""

    key: int
    signal: int
    layer: int
    source: int
    source_type: int
    catalyst: int
    published_us: int
    sentiment: float
    impact: float
    extraction_confidence: float
    recency: float
    credibility: float
    novelty_bonus: float
    confidence_gate: float
    market_ctx_multiplier: float
    info_gain_factor: float
    source_accuracy_factor: float
    layer_weight: float
    combined: float


def score_document(document: Document, window: Window, code: int) -> Signal:
    """Weight of one document in one window, factor by factor."""
    config = CONFIG.scoring
    age_hours = max(0.0, (AS_OF_US - document.published_us) / US_PER_HOUR)
    recency = 2.0 ** (-age_hours / config.half_life_hours[window])
    credibility = document.credibility
    if credibility is None:
        name = SOURCE_TYPES[document.source_type]
        credibility = config.credibility_by_source_type.get(name, config.default_credibility)
    credibility = min(1.0, max(0.0, credibility))
    novelty = document.novelty if document.novelty is not None else 0.0
    novelty_bonus = 1.0 + config.novelty_weight * min(1.0, max(0.0, novelty))
    gate = 1.0 if document.extraction_confidence >= config.binary_gate_threshold else 0.0
    market = 1.0
    product = recency * credibility * novelty_bonus * gate * market * config.entity_layer_weight
    return Signal(
        key=document.entity * len(Window) + code,
        signal=document.document,
        layer=0,
        source=document.source,
        source_type=document.source_type,
        catalyst=document.catalyst,
        published_us=document.published_us,
        sentiment=document.sentiment,
        impact=document.impact,
        extraction_confidence=document.extraction_confidence,
        recency=recency,
        credibility=credibility,
        novelty_bonus=novelty_bonus,
        confidence_gate=gate,
        market_ctx_multiplier=market,
        info_gain_factor=1.0,
        source_accuracy_factor=1.0,
        layer_weight=config.entity_layer_weight,
        combined=min(config.max_combined, product),
    )


def trend_of(key: int, signals: list[Signal]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Trend of the signals of one key, and its evidence, best first."""
    config = CONFIG.trend
    active = [signal for signal in signals if signal.combined > 0.0]
    total = sum(signal.combined for signal in active)
    upper = sum(signal.combined * signal.impact * signal.sentiment for signal in active)
    average = min(1.0, max(-1.0, upper / total)) if total > 0.0 else 0.0
    positive = sum(signal.combined * signal.impact for signal in active if signal.sentiment > 0.0)
    negative = sum(signal.combined * signal.impact for signal in active if signal.sentiment < 0.0)
    both = positive + negative
    contradiction = min(positive, negative) / both if both > 0.0 else 0.0
    if contradiction > config.mixed_threshold and abs(average) < config.mixed_sentiment_bound:
        direction = 2
    elif average >= config.positive_threshold:
        direction = 0
    elif average <= config.negative_threshold:
        direction = 1
    else:
        direction = 3
    up = sum(1 for signal in active if signal.sentiment > 0.0)
    down = sum(1 for signal in active if signal.sentiment < 0.0)
    sources = len({signal.signal for signal in active})
    credibility = sum(signal.credibility for signal in active) / len(active) if active else 0.0
    agreement = max(up, down) / max(1, up + down)
    dampener = min(1.0, math.log2(sources + 1.0) / math.log2(config.confidence_dampener_base))
    confidence = (
        config.confidence_count_weight
        * min(sources / config.confidence_count_divisor, config.confidence_count_cap)
        + config.confidence_credibility_weight * credibility
        + config.confidence_agreement_weight * agreement * dampener
        - config.confidence_contradiction_penalty * contradiction
    )
    top = max((signal.combined for signal in active), default=0.0)
    evidence: list[dict[str, Any]] = []
    counts = []
    for role, sign in enumerate((1.0, -1.0)):
        side = [signal for signal in active if signal.sentiment * sign > 0.0 and signal.impact > 0.0]
        ranked = [
            {
                "key": key,
                "role": role,
                "signal": signal.signal,
                "is_document": True,
                "weight_component": (weight := config.rank_weight * signal.combined / top),
                "impact_component": (impact := config.rank_impact * signal.impact),
                "recency_component": (recency := config.rank_recency * signal.recency),
                "confidence_component": (sure := config.rank_confidence * signal.extraction_confidence),
                "rank_score": weight + impact + recency + sure,
                "sentiment_value": signal.sentiment,
                "published_us": signal.published_us,
            }
            for signal in side
        ]
        ranked.sort(key=lambda one: (-one["rank_score"], -one["published_us"], one["signal"]))
        best = ranked[: config.max_evidence_refs]
        evidence += [one | {"position": place} for place, one in enumerate(best)]
        counts.append(len(best))
    trend = {
        "direction": direction,
        "strength": min(1.0, abs(average)),
        "average": average,
        "confidence": min(1.0, max(0.0, confidence)),
        "contradiction": contradiction,
        "evidence_count": sum(counts),
        "supporting_count": counts[0],
        "opposing_count": counts[1],
        "entity_signals": len(active),
        "unique_sources": sources,
        "average_credibility": credibility,
        "agreement": agreement,
    }
    return trend, evidence


def python_side(
    sample: list[Document], entities: int
) -> tuple[list[Signal], list[dict[str, Any]], list[dict[str, Any]]]:
    """Document by document, then key by key."""
    signals = []
    for document in sample:
        for code, window in enumerate(Window):
            if 0 <= AS_OF_US - document.published_us < int(LOOKBACKS_US[code]):
                signals.append(score_document(document, window, code))
    by_key: defaultdict[int, list[Signal]] = defaultdict(list)
    for signal in signals:
        by_key[signal.key].append(signal)
    trends, evidence = [], []
    for key in range(entities * len(Window)):
        trend, ranked = trend_of(key, by_key[key])
        trends.append(trend)
        evidence += ranked
    return signals, trends, evidence


# ------------------------------------------------------------------------------------------ comparing


def core_outputs(made: list[Block]) -> Outputs:
    """The frames of the blocks as three tables of columns."""

    def joined(place: int, names: tuple[str, ...]) -> Table:
        return {name: np.concatenate([getattr(block[place], name) for block in made]) for name in names}

    return Outputs(joined(0, SIGNALS), joined(1, TRENDS), joined(2, EVIDENCE))


def polars_outputs(made: Outputs) -> Outputs:
    """The data frames as columns."""
    return Outputs(
        {name: made.signals[name].to_numpy() for name in SIGNALS},
        {name: made.trends.sort("key")[name].to_numpy() for name in TRENDS},
        {name: made.evidence[name].to_numpy() for name in EVIDENCE},
    )


def duckdb_outputs(connection: duckdb.DuckDBPyConnection) -> Outputs:
    """The tables as columns."""

    def read(table: str, names: tuple[str, ...], order: str) -> Table:
        found = connection.sql(f"SELECT * FROM {table} ORDER BY {order}").to_arrow_table()
        return {name: found.column(name).to_numpy() for name in names}

    return Outputs(
        read("signals", SIGNALS, "key, signal"),
        read("trends", TRENDS, "key"),
        read("evidence", EVIDENCE, "key, role, position"),
    )


def python_outputs(
    made: tuple[list[Signal], list[dict[str, Any]], list[dict[str, Any]]],
) -> Outputs:
    """The objects as columns."""
    signals, trends, evidence = made
    return Outputs(
        {name: np.array([getattr(one, name) for one in signals]) for name in SIGNALS},
        {name: np.array([one[name] for one in trends]) for name in TRENDS},
        {name: np.array([one[name] for one in evidence]) for name in EVIDENCE},
    )


def require_equal(ours: Outputs, theirs: Outputs, whose: str) -> None:
    """Same rows, whole numbers equal, the others within :data:`TOLERANCE`."""
    orders = {"signals": ("signal", "key"), "trends": (), "evidence": ("position", "role", "key")}
    for table, by in orders.items():
        left, right = getattr(ours, table), getattr(theirs, table)
        assert set(left) == set(right), f"{whose}, {table}: other columns"
        rows = {len(column) for column in (*left.values(), *right.values())}
        assert len(rows) == 1, f"{whose}, {table}: {rows} rows"
        places = [np.lexsort([side[name] for name in by]) if by else slice(None) for side in (left, right)]
        for name, column in left.items():
            mine, other = column[places[0]], right[name][places[1]]
            if mine.dtype.kind == "f":
                np.testing.assert_allclose(
                    other.astype(float),
                    mine,
                    rtol=TOLERANCE,
                    atol=TOLERANCE,
                    err_msg=f"{whose}, {table}.{name}",
                )
            else:
                np.testing.assert_array_equal(
                    other.astype(mine.dtype), mine, err_msg=f"{whose}, {table}.{name}"
                )


# ---------------------------------------------------------------------------------------- measuring


def core_side(read: CycleInputs) -> list[Block]:
    """The documents dealt out to blocks of entities, as the product works on them, by two threads."""
    rows, entities = read.documents, len(read.entities)
    block = (rows.entity // BLOCK_ENTITIES).astype(np.uint16)
    order = np.argsort(block, kind="stable")
    firsts = range(0, entities, BLOCK_ENTITIES)
    ends = np.cumsum(np.bincount(block, minlength=len(firsts))).tolist()

    def compute(first: int, start: int, end: int) -> Block:
        mine = rows.take(order[start:end])
        mine = replace(mine, entity=mine.entity - first)
        return core(replace(read, entities=read.entities[first : first + BLOCK_ENTITIES], documents=mine))

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(compute, firsts, [0, *ends[:-1]], ends))


def global_outputs(made: list[Block]) -> Outputs:
    """The frames of the blocks as three tables of columns, with keys counted over all blocks."""
    shift = BLOCK_ENTITIES * len(Window)
    moved = [
        (replace(s, key=s.key + n * shift), t, replace(e, key=e.key + n * shift))
        for n, (s, t, e) in enumerate(made)
    ]
    return core_outputs(moved)


def figures(size: Size) -> list[Figure]:
    """The core against each of the three, after all of them were found to say the same."""
    sizes = SIZES[size]
    rows = documents(sizes)
    read, table = inputs_of(rows, sizes.entities, sizes.documents), polars_table(rows)
    connection = duckdb_table(table)
    sample = documents_of(rows, sizes.sample)
    part = inputs_of(rows.take(rows.entity < sizes.sample), sizes.sample, sizes.documents)
    ours = global_outputs(core_side(read))
    require_equal(ours, polars_outputs(polars_side(table, sizes.entities)), "Polars")
    require_equal(ours, duckdb_outputs(duckdb_side(connection, sizes.entities)), "DuckDB")
    signals = len(ours.signals["key"])
    require_equal(core_outputs(core_side(part)), python_outputs(python_side(sample, sizes.sample)), "Python")
    del ours
    seconds = alternate(
        {
            "Python": lambda: python_side(sample, sizes.sample),
            "core": lambda: core_side(read),
            "Polars": lambda: polars_side(table, sizes.entities),
            "DuckDB": lambda: duckdb_side(connection, sizes.entities),
        },
        sizes.rounds,
        warm=size != "tiny",
    )
    connection.close()
    text = (
        f"{sizes.documents:,} documents of {sizes.entities:,} entities, {len(Window)} windows, "
        f"{signals:,} weighted signals"
    )
    per_document = {name: 1e9 * median(spent) / sizes.documents for name, spent in seconds.items()}
    per_document["Python"] *= sizes.documents / len(sample)
    notes: dict[str, float | int | str] = {"core ns per document": per_document["core"]}
    scale = sizes.documents / len(sample)
    found = [
        Figure(
            "kernel",
            "Python document by document",
            "core",
            ratio(seconds, "Python", "core", scale),
            100.0,
            at_most=False,
            sizes=f"{text}; Python on {len(sample):,} of the documents",
            notes={**notes, "Python ns per document": per_document["Python"]},
        )
    ]
    for other in ("Polars", "DuckDB"):
        more = {**notes, f"{other} ns per document": per_document[other]}
        found.append(
            Figure(
                "kernel",
                "core",
                other,
                ratio(seconds, "core", other),
                1.0,
                at_most=True,
                sizes=text,
                notes=more,
            )
        )
    return found
