"""The chain of hashes over cycles."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "cycle_seals",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("as_of", sa.DateTime(timezone=True), nullable=True),
        sa.Column("config_version", sa.Integer(), nullable=True),
        sa.Column(
            "before",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="of a checkpoint: results of earlier cycles may be gone",
        ),
        sa.Column("snapshot", sa.Text(), nullable=False, comment="inputs settled by it are covered"),
        sa.Column(
            "parts",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=False,
            comment="by table: number of rows and root hash",
        ),
        sa.Column("sealed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("previous_hash", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.CheckConstraint("\"kind\" IN ('run', 'late', 'checkpoint')", name=op.f("ck_cycle_seals_kind")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_cycle_seals")),
        sa.UniqueConstraint("hash", name=op.f("uq_cycle_seals_hash")),
        comment="One row per link of the chain of hashes, append-only.",
    )
    op.create_index("ix_cycle_seals_cycle", "cycle_seals", ["as_of", "config_version"], unique=False)
    op.create_table(
        "cycle_seal_parts",
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("table_name", sa.Text(), nullable=False),
        sa.Column("chunk", sa.Integer(), nullable=False),
        sa.Column("row_keys", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("leaves", sa.LargeBinary(), nullable=False, comment="16 bytes per key, in their order"),
        sa.ForeignKeyConstraint(["number"], ["cycle_seals.number"], name=op.f("fk_cycle_seal_parts_number")),
        sa.PrimaryKeyConstraint("number", "table_name", "chunk", name=op.f("pk_cycle_seal_parts")),
        comment="One row per table that a link covers, or part of a large one: a hash per key.",
    )
    op.create_table(
        "unsealed_runs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("as_of", sa.DateTime(timezone=True), nullable=False),
        sa.Column("config_version", sa.Integer(), nullable=False),
        sa.Column("begun_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_unsealed_runs")),
        comment="One row per run that has begun to write and has not sealed yet.",
    )
