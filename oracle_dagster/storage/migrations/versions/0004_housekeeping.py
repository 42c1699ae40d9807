"""Retired and renamed entities."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    now, user = sa.text("now()"), sa.text("current_user")
    op.create_table(
        "entity_names",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("renamed_at", sa.DateTime(timezone=True), server_default=now, nullable=False),
        sa.Column("renamed_by", sa.Text(), server_default=user, nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_entity_names")),
        comment="One row per renaming of an entity, append-only: its id stays, its newest name is current.",
    )
    op.create_index(op.f("ix_entity_names_name"), "entity_names", ["name"])
    op.create_index(op.f("ix_entity_names_entity_id"), "entity_names", ["entity_id"])
    op.create_table(
        "entity_retirements",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("retired_at", sa.DateTime(timezone=True), server_default=now, nullable=False),
        sa.Column("retired_by", sa.Text(), server_default=user, nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("revived_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revived_by", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_entity_retirements")),
        comment="One row per retirement of an entity; it lasts until it is revived.",
    )
    op.create_index(
        "uq_entity_retirements_standing",
        "entity_retirements",
        ["entity_id"],
        unique=True,
        postgresql_where=sa.text("revived_at IS NULL"),
    )
