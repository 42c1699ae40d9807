"""Many versions of one world at once: the same key with some documents left out, or others added.

Every version is a copy of the entities, documents, bars, exposures and edges under names of its own, so that
one call of the rules decides all of them, each exactly as it would be decided alone. No rule lives here, and
which versions are worth a look is not decided here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from oracle_core.arrays import concatenate, merge_tables
from oracle_core.config import OracleConfig
from oracle_core.decision import decision_rows
from oracle_core.enums import Mode
from oracle_core.frames import DecisionRows, QualityRows, TrendRows
from oracle_core.inputs import (
    BarRows,
    Bool,
    CycleInputs,
    DocumentRows,
    EdgeRows,
    ExposureRows,
    Float,
    Int,
    Keys,
    Ragged,
    StandingRows,
)
from oracle_core.rules import RuleSet
from oracle_core.scoring import score_signals
from oracle_core.suppression import quality_rows
from oracle_core.trend import measure_trends
from oracle_core.windows import in_window

SYNTHETIC = "~"
"""Begins the ids of documents that are only supposed; it stands behind every letter and digit."""


@dataclass(frozen=True, slots=True)
class Supposed:
    """What a supposed document is like: each a source of its own, of no type and no catalyst.

    All in [0, 1]; its sentiment is +1 or -1.
    """

    credibility: float = 0.7
    impact: float = 0.8
    extraction_confidence: float = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Trend, decision and data quality of every version, one row each."""

    trends: TrendRows
    decided: DecisionRows
    quality: QualityRows

    def outcome(self) -> Int:
        """One number per version for its action and mode; equal where both are."""
        return self.decided.action * len(Mode) + self.decided.mode


def judge(inputs: CycleInputs, keys: Keys, as_of_us: int, config: OracleConfig, rules: RuleSet) -> Judged:
    """Decide every key, without texts and without looking at earlier cycles.

    Args:
        inputs: everything that may count, already cut at what is known; rows dated after ``as_of_us`` count
            as they do for the rules.
        keys: the keys.
        as_of_us: the moment looked from, which may be later than what is known.
        config: the configuration.
        rules: the set of rules of the mode.

    """
    signals = score_signals(inputs, keys, as_of_us, config, rules)
    trends = measure_trends(signals, inputs, config, rules)
    none = np.zeros(0, np.int64)
    standing = StandingRows(none, none, none, np.zeros(0), np.zeros(0, np.object_))
    decided = decision_rows(keys, trends, inputs, standing, as_of_us=as_of_us, config=config, rules=rules)
    quality = quality_rows(keys, inputs.documents, len(inputs.entities), as_of_us)
    return Judged(trends, decided, quality)


def that_matter(inputs: CycleInputs, key: Keys, as_of_us: int, config: OracleConfig) -> CycleInputs:
    """Leave out the documents that cannot change the decision of a key, at this moment or later.

    What can: the documents inside the window, and, for patterns, the own ones with a catalyst, where there
    are prices to learn from.

    Args:
        inputs: of the key and whatever it can reach.
        key: one key.
        as_of_us: the moment looked from.
        config: whether patterns count.

    """
    rows, own = inputs.documents, int(key.entity[0])
    learns = config.flags.competitive_enabled and bool((inputs.bars.entity == own).any())
    past = (rows.entity == own) & (rows.catalyst >= 0) & learns
    inside = in_window(rows.published_us, as_of_us, key.window[0])
    return replace(inputs, documents=rows.take(inside | past))


def versions(inputs: CycleInputs, key: Keys, kept: Bool) -> tuple[CycleInputs, Keys]:
    """Copy the world once per row of ``kept``.

    Args:
        inputs: the world.
        key: one key.
        kept: which rows of ``inputs.documents`` each version has; one row per version.

    Returns:
        All copies in one, and the key of each.

    """
    count, entities = len(kept), len(inputs.entities)
    version, row = np.nonzero(kept)
    documents = inputs.documents.take(row)
    digits = len(str(count))
    names = [f"{at:0{digits}d}/{name}" for at in range(count) for name in inputs.entities]
    table = np.empty(len(names), np.object_)
    table[:] = names
    every = np.arange(count)
    copied = replace(
        inputs,
        entities=table,
        documents=replace(documents, entity=documents.entity + version * entities),
        bars=_bars(inputs.bars, every, entities),
        exposures=_exposures(inputs.exposures, every, entities),
        edges=_edges(inputs.edges, every, entities),
    )
    return copied, Keys(key.entity[0] + every * entities, np.repeat(key.window, count))


def _bars(rows: BarRows, every: Int, entities: int) -> BarRows:
    version, row = _repeated(every, len(rows.entity))
    taken = rows.take(row)
    return replace(taken, entity=taken.entity + version * entities)


def _exposures(rows: ExposureRows, every: Int, entities: int) -> ExposureRows:
    version, row = _repeated(every, len(rows.entity))
    taken = rows.take(row)
    return replace(taken, entity=taken.entity + version * entities)


def _edges(rows: EdgeRows, every: Int, entities: int) -> EdgeRows:
    version, row = _repeated(every, len(rows.source))
    taken, shift = rows.take(row), version * entities
    return replace(taken, source=taken.source + shift, target=taken.target + shift)


def _repeated(every: Int, rows: int) -> tuple[Int, Int]:
    return np.repeat(every, rows), np.tile(np.arange(rows), len(every))


def size(inputs: CycleInputs) -> int:
    """Rows that one copy of a world costs at most."""
    counts = (len(inputs.documents.entity), len(inputs.bars.entity), len(inputs.exposures.entity))
    return sum(counts) + len(inputs.edges.source) + len(inputs.entities)


def with_supposed(
    inputs: CycleInputs, entity: int, sentiment: Float, as_of_us: int, supposed: Supposed
) -> CycleInputs:
    """Add documents about an entity, published and known at ``as_of_us``, behind the rows that are there.

    Args:
        inputs: the world.
        entity: code of the entity.
        sentiment: one per document to add.
        as_of_us: when they appear.
        supposed: what they are like otherwise.

    """
    count = len(sentiment)
    names = np.empty(count, np.object_)
    names[:] = [f"{SYNTHETIC}{at:04d}" for at in range(count)]
    document_ids, old, new = merge_tables(inputs.document_ids, names)
    sources, old_source, new_source = merge_tables(inputs.sources, names)
    rows = inputs.documents
    there = replace(rows, document=old[rows.document], source=recoded(rows.source, old_source))
    one, none = np.ones(count), np.full(count, -1)
    added = DocumentRows(
        entity=np.full(count, entity),
        document=new,
        source=new_source,
        source_type=none,
        published_us=np.full(count, as_of_us),
        known_us=np.full(count, as_of_us),
        credibility=one * supposed.credibility,
        novelty=one * np.nan,
        extraction_confidence=one * supposed.extraction_confidence,
        failed=np.zeros(count, np.bool_),
        has_impact=np.ones(count, np.bool_),
        sentiment=sentiment,
        impact=one * supposed.impact,
        catalyst=none,
        risks=Ragged.empty(count),
    )
    accuracy = replace(inputs.accuracy, source=recoded(inputs.accuracy.source, old_source))
    return replace(
        inputs,
        document_ids=document_ids,
        sources=sources,
        documents=concatenate([there, added]),
        accuracy=accuracy,
    )


def recoded(code: Int, new: Int) -> Int:
    """Codes in another table; -1 stays."""
    return np.append(new, -1)[code]
