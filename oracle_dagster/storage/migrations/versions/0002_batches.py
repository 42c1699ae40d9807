"""The first stage of a key in a batch, so that an applied plan rebuilds exactly what it named."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column(
        "run_batches",
        sa.Column(
            "first_stage",
            sa.Text(),
            nullable=True,
            comment="only this asset of the chain and those after it; else all",
        ),
    )
    op.create_check_constraint(
        op.f("ck_run_batches_first_stage"),
        "run_batches",
        "\"first_stage\" IN ('weighted_signals', 'trend_windows', 'trend_projections', 'recommendations')",
    )
    op.create_table(
        "config_applications",
        sa.Column("config_version", sa.Integer(), nullable=False),
        sa.Column("batch_id", sa.UUID(), nullable=False),
        sa.Column("as_of", sa.DateTime(timezone=True), nullable=False),
        sa.Column("keys", sa.Integer(), nullable=False),
        sa.Column("applied_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column(
            "finished_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="when its run had ended; null: it has to be repeated",
        ),
        sa.ForeignKeyConstraint(
            ["config_version"],
            ["risk_configs.version"],
            name=op.f("fk_config_applications_config_version"),
        ),
        sa.PrimaryKeyConstraint("config_version", name=op.f("pk_config_applications")),
        sa.UniqueConstraint("batch_id", name=op.f("uq_config_applications_batch_id")),
        comment="One row per configuration version that became active by a plan: what it was to rebuild.",
    )
