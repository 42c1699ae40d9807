"""Write the receipt of a recommendation: what its cycle read, what was stored, and the seal over it.

What a receipt is and how it is checked stands in :mod:`oracle_core.receipt`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from oracle_core import receipt as core
from oracle_dagster import pipeline
from oracle_dagster.storage import cycles
from oracle_dagster.storage.cycles import SEQUENCES
from oracle_dagster.storage.schema import (
    cycle_keys,
    cycle_seals,
    recommendation_evidence,
    recommendations,
    risk_evaluations,
)
from oracle_dagster.storage.schema import cycles as cycles_table
from oracle_dagster.verification.recompute import CycleId, keys_of

if TYPE_CHECKING:
    from oracle_dagster.storage.cycles import Key
    from oracle_dagster.storage.database import Database

_LEFT_OUT = {"generated_at"}


class ReceiptError(RuntimeError):
    """No receipt can be given; the message says why and what to do."""


def make(database: Database, recommendation_id: str) -> dict[str, Any]:
    """The receipt of one recommendation, checked before it is given.

    Raises:
        ReceiptError: it was made of an earlier cycle's trend, or what is stored does not follow from what was
            read.
        StorageError: there is no such recommendation, or the database cannot be used.

    """
    ((which, (key,)),) = keys_of(database, [recommendation_id]).items()
    _require_whole(database, which, key)
    cycle = cycles.read_cycle(database, which.as_of, which.config_version)
    (rehearsed,) = pipeline.rehearse(database, cycle, [key], pipeline.STAGES)
    for failure in rehearsed.report.failures:
        raise ReceiptError(f"{key[0]} {key[1]} cannot be computed again: {failure.message}")
    (part,) = rehearsed.parts
    if part.history is None or part.standing is None:
        raise AssertionError
    libraries, seal = _around(database, which)
    receipt = core.make(
        key=key,
        recommendation_id=recommendation_id,
        as_of=cycle.as_of.isoformat(),
        as_of_us=cycle.as_of_us,
        config=cycle.config,
        config_version=cycle.config_version,
        inputs=part.inputs,
        history=part.history,
        standing=part.standing,
        stored=_stored(database, recommendation_id),
        seal=seal,
        libraries=libraries,
    )
    _, findings = core.check(receipt)
    grave = [finding for finding in findings if not finding.negligible]
    if grave:
        raise ReceiptError(
            f"what is stored of recommendation {recommendation_id} does not follow from what its cycle read: "
            f"{grave[0].path} is {grave[0].says!r}, derived is {grave[0].derived!r} ({len(grave)} values "
            f"differ). Remedy: `oracle verify {recommendation_id}` names every difference."
        )
    return receipt


def _require_whole(database: Database, which: CycleId, key: Key) -> None:
    query = sa.select(*(cycle_keys.c[name] for name in SEQUENCES.values())).where(
        cycle_keys.c.as_of == which.as_of,
        cycle_keys.c.config_version == which.config_version,
        cycle_keys.c.entity_id == key[0],
        cycle_keys.c.window == key[1],
    )
    with database.begin() as connection:
        row = connection.execute(query).first()
    made = [] if row is None else [s for s, number in zip(SEQUENCES, row, strict=True) if number is not None]
    missing = [stage for stage in SEQUENCES if stage not in made]
    if missing:
        raise ReceiptError(
            f"{key[0]} {key[1]} was decided as of {which.as_of.isoformat()} on an earlier cycle's results: "
            f"{', '.join(missing)} did not run for it then. A receipt needs the whole chain of one cycle; "
            f"`oracle verify` checks this decision against what it was made of."
        )


def _around(database: Database, which: CycleId) -> tuple[dict[str, str], dict[str, Any] | None]:
    """The libraries of the cycle, and the newest link that covers it."""
    seals = (
        sa.select(cycle_seals.c.number, cycle_seals.c.hash, cycle_seals.c.previous_hash)
        .where(cycle_seals.c.as_of == which.as_of, cycle_seals.c.config_version == which.config_version)
        .order_by(cycle_seals.c.number.desc())
        .limit(1)
    )
    record = sa.select(cycles_table.c.library_set, cycles_table.c.snapshot).where(
        cycles_table.c.as_of == which.as_of, cycles_table.c.config_version == which.config_version
    )
    with database.begin() as connection:
        seal = connection.execute(seals).first()
        cycle = connection.execute(record).one()
    return dict(cycle.library_set), None if seal is None else dict(seal._mapping)  # noqa: SLF001 - its public dict


def _stored(database: Database, recommendation_id: str) -> dict[str, Any]:
    """The rows as the tables hold them."""
    cited = recommendation_evidence.c
    with database.begin() as connection:
        row = connection.execute(
            sa.select(recommendations).where(recommendations.c.id == recommendation_id)
        ).one()
        evaluation = connection.execute(
            sa.select(
                risk_evaluations.c.eligible,
                risk_evaluations.c.allowed_mode,
                risk_evaluations.c.rejection_reasons,
                risk_evaluations.c.risk_checks,
            ).where(risk_evaluations.c.recommendation_id == recommendation_id)
        ).first()
        evidence = connection.execute(
            sa.select(sa.cast(cited.document_id, sa.Text), cited.evidence_type, cited.weight).where(
                cited.recommendation_id == recommendation_id
            )
        ).all()
    recommendation = {name: v for name, v in row._mapping.items() if name not in _LEFT_OUT}  # noqa: SLF001 - the same
    recommendation |= {"id": str(row.id), "generated_at_us": cycles.microseconds(row.generated_at)}
    return {
        "recommendation": recommendation,
        "evaluation": {} if evaluation is None else dict(evaluation._mapping),  # noqa: SLF001 - the same
        "evidence": sorted(
            (
                {"document_id": document, "evidence_type": role, "weight": weight}
                for document, role, weight in evidence
            ),
            key=lambda cited: (cited["evidence_type"], cited["document_id"]),
        ),
    }
