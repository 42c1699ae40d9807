"""Made-up input folders for tests that run the whole product; deterministic for a seed."""

from __future__ import annotations

import csv
import json
import random
import uuid
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

AS_OF = datetime(2026, 3, 10, 12, tzinfo=UTC)
_CATALYSTS = ("performance_report", "product_launch", "regulatory", "legal", "m_and_a", "rumour")
_SOURCE_TYPES = ("filing", "news", "blog", "social", "telegram")
_ITEMS = {
    "geo": ("us", "eu", "asia"),
    "supply": ("chips", "grain"),
    "commodity": ("oil", "gas"),
    "sector": ("tech", "energy"),
}


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def documents(
    entities: list[str], count: int, *, seed: int = 1, newest: datetime = AS_OF, days: float = 120.0
) -> list[dict[str, Any]]:
    """``count`` documents over ``entities`` in the ``days`` before ``newest``; every tenth failed."""
    rng = random.Random(seed)
    made: list[dict[str, Any]] = []
    for n in range(count):
        published = newest - timedelta(days=days) * rng.random() ** 2
        document: dict[str, Any] = {
            "document_id": _uuid(rng),
            "source_id": f"source-{rng.randrange(12)}",
            "source_type": rng.choice(_SOURCE_TYPES),
            "published_at": published.isoformat(),
            "novelty": round(rng.random(), 4),
        }
        if rng.random() < 0.5:
            document["credibility"] = round(rng.random(), 4)
        if n % 10 == 9:
            document |= {
                "extraction": {"status": "failed"},
                "impacts": [],
                "entities": [rng.choice(entities)],
            }
        else:
            named = rng.sample(entities, min(len(entities), rng.choice((1, 1, 1, 2, 3))))
            document |= {
                "extraction": {"status": "ok", "confidence": round(rng.uniform(0.2, 1.0), 3)},
                "impacts": [
                    {
                        "entity_id": entity,
                        "sentiment": rng.choice(("positive", "positive", "negative", "neutral", "mixed")),
                        "impact_score": round(rng.random(), 4),
                        "catalyst_type": rng.choice(_CATALYSTS),
                        "risks": rng.sample(("litigation", "supply shock", "liquidity"), rng.randrange(3)),
                    }
                    for entity in named
                ],
            }
        made.append(document)
    return made


def write_world(
    folder: Path, *, entities: int = 12, count: int = 300, bar_days: int = 300, seed: int = 1
) -> list[str]:
    """Write a whole input folder and return its entity ids: documents, bars, events, exposures and edges."""
    rng = random.Random(seed + 1)
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"entity-{n:03d}" for n in range(entities)]
    write_jsonl(folder / "documents.jsonl", documents(names, count, seed=seed))
    with (folder / "market_data.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("entity_id", "date", "close", "volume"))
        for name in names[: max(1, entities * 2 // 3)]:
            close = 100.0
            for back in range(bar_days, 0, -1):
                close *= 1.0 + rng.gauss(0.0, 0.02)
                day = (AS_OF - timedelta(days=back)).date()
                writer.writerow((name, day.isoformat(), round(close, 6), rng.randrange(10_000, 1_000_000)))
    events = [
        {
            "event_id": _uuid(rng),
            "occurred_at": (AS_OF - timedelta(days=rng.uniform(0.1, 60.0))).isoformat(),
            "direction": rng.choice(("positive", "negative", "mixed")),
            "severity": rng.choice(("critical", "high", "moderate", "low")),
            "estimated_duration": rng.choice(("short_term", "medium_term", "long_term")),
            **{k: rng.sample(v, rng.randrange(1, len(v) + 1)) for k, v in _ITEMS.items()},
        }
        for _ in range(6)
    ]
    write_jsonl(folder / "global_events.jsonl", events)
    exposures = [
        {"entity_id": name, **{k: {i: round(rng.random() * 0.7, 2) for i in v} for k, v in _ITEMS.items()}}
        for name in names[::2]
    ]
    write_jsonl(folder / "exposures.jsonl", exposures)
    edges = [
        {
            "source_entity": a,
            "target_entity": b,
            "relation_type": "competitor",
            "historical_correlation": round(rng.uniform(-0.9, 0.9), 3),
        }
        for a, b in pairwise(names)
        if rng.random() < 0.7
    ]
    write_jsonl(folder / "relationships.jsonl", edges)
    return names


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> None:
    """One JSON object per line."""
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
