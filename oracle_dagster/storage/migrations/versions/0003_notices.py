"""What was told of changed decisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "notices",
        sa.Column("as_of", sa.DateTime(timezone=True), nullable=False),
        sa.Column("config_version", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("changes", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("claimed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "\"status\" IN ('claimed', 'sent', 'logged', 'failed')", name=op.f("ck_notices_status")
        ),
        sa.PrimaryKeyConstraint("as_of", "config_version", name=op.f("pk_notices")),
        comment="One row per message about the changed decisions of a cycle; claimed before it is sent.",
    )
    op.create_index(op.f("ix_notices_claimed_at"), "notices", ["claimed_at"])
    op.create_table(
        "notice_decisions",
        sa.Column("as_of", sa.DateTime(timezone=True), nullable=False),
        sa.Column("config_version", sa.Integer(), nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("window", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("before_action", sa.Text(), nullable=False),
        sa.Column("before_mode", sa.Text(), nullable=False),
        sa.Column("before_confidence", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["as_of", "config_version"],
            ["notices.as_of", "notices.config_version"],
            name=op.f("fk_notice_decisions_as_of"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "entity_id", "window", "as_of", "config_version", name=op.f("pk_notice_decisions")
        ),
        comment="One row per decision that a message told, with what was known before.",
    )
    op.create_index("ix_notice_decisions_notice", "notice_decisions", ["as_of", "config_version"])
