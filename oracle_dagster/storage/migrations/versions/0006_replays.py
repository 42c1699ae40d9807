"""Replayed history, apart from the live tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "replays",
        sa.Column("number", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column(
            "request_hash", sa.Text(), nullable=False, comment="of everything that decides the results"
        ),
        sa.Column("request", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("snapshot", sa.Text(), nullable=False, comment="the settled transactions it reads"),
        sa.Column("begun_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_replays")),
        comment="One row per replay of a span of history.",
    )
    op.create_index("ix_replays_request_hash", "replays", ["request_hash"], unique=False)
    op.create_table(
        "replay_configs",
        sa.Column("replay", sa.Integer(), nullable=False),
        sa.Column("position", sa.SmallInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("config", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("config_hash", sa.Text(), nullable=False),
        sa.Column("pipeline_mode", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["replay"], ["replays.number"], name=op.f("fk_replay_configs_replay"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("replay", "position", name=op.f("pk_replay_configs")),
        sa.UniqueConstraint("replay", "name", name=op.f("uq_replay_configs_replay_name")),
        comment="One row per configuration of a replay, with all its values.",
    )
    op.create_table(
        "replay_blocks",
        sa.Column("replay", sa.Integer(), nullable=False),
        sa.Column("position", sa.SmallInteger(), nullable=False),
        sa.Column("block", sa.Integer(), nullable=False),
        sa.Column("entities", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("cycles_done", sa.Integer(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(
            ["replay", "position"],
            ["replay_configs.replay", "replay_configs.position"],
            name=op.f("fk_replay_blocks_replay"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("replay", "position", "block", name=op.f("pk_replay_blocks")),
        comment="One row per configuration and block of entities of a replay: its stored cycles.",
    )
    op.create_table(
        "replay_decisions",
        sa.Column("replay", sa.Integer(), nullable=False),
        sa.Column("position", sa.SmallInteger(), nullable=False),
        sa.Column("as_of", sa.DateTime(timezone=True), nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("window", sa.Text(), nullable=False),
        sa.Column("documents", sa.Integer(), nullable=False, comment="in the window, that say something"),
        sa.Column("plain_average", sa.Double(), nullable=True, comment="of their sentiment, unweighted"),
        sa.Column(
            "source_type", sa.Text(), nullable=True, comment="the one that carries most of their weight"
        ),
        sa.Column("trend_direction", sa.Text(), nullable=False),
        sa.Column("trend_strength", sa.Double(), nullable=False),
        sa.Column("average", sa.Double(), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("contradiction_score", sa.Double(), nullable=False),
        sa.Column("evidence_count", sa.Integer(), nullable=False),
        sa.Column("p_bull", sa.Double(), nullable=True),
        sa.Column("projected_direction", sa.Text(), nullable=False),
        sa.Column("projected_strength", sa.Double(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("eligible", sa.Boolean(), nullable=False),
        sa.Column("suppressed", sa.Boolean(), nullable=False),
        sa.Column("duplicate", sa.Boolean(), nullable=False),
        sa.Column("allocation_pct", sa.Double(), nullable=False),
        sa.Column("max_loss_pct", sa.Double(), nullable=False),
        sa.Column("risk_classification", sa.Text(), nullable=False),
        sa.Column("expected_value", sa.Double(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column(
            "return_7d", sa.Double(), nullable=True, comment="of the seven days after as_of, where settled"
        ),
        sa.CheckConstraint(
            "\"outcome\" IN ('settled', 'unsettled', 'no_prices')", name=op.f("ck_replay_decisions_outcome")
        ),
        sa.ForeignKeyConstraint(
            ["replay", "position"],
            ["replay_configs.replay", "replay_configs.position"],
            name=op.f("fk_replay_decisions_replay"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "replay", "position", "entity_id", "window", "as_of", name=op.f("pk_replay_decisions")
        ),
        comment="One row per replay, configuration, cycle and key: the decision, and what followed.",
    )
    op.create_table(
        "replay_failures",
        sa.Column("replay", sa.Integer(), nullable=False),
        sa.Column("position", sa.SmallInteger(), nullable=False),
        sa.Column("as_of", sa.DateTime(timezone=True), nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("window", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["replay", "position"],
            ["replay_configs.replay", "replay_configs.position"],
            name=op.f("fk_replay_failures_replay"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "replay", "position", "entity_id", "window", "as_of", name=op.f("pk_replay_failures")
        ),
        comment="One row per key that a replayed cycle could not compute.",
    )
