# ruff: noqa: E501, PLR0915 - written by Alembic, statement after statement
"""Every table, view and sequence of the first version."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from oracle_dagster.storage.schema import Xid8

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.execute(sa.schema.CreateSequence(sa.Sequence("cycle_sequence")))
    op.create_table(
        "agent_performance_log",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("agent_slug", sa.Text(), nullable=False),
        sa.Column("variant_id", sa.UUID(), nullable=True),
        sa.Column("success", sa.Boolean(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("duration_ms", sa.Double(), nullable=True),
        sa.Column("est_input_tokens", sa.Integer(), server_default="0", nullable=False),
        sa.Column("est_output_tokens", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agent_performance_log")),
        comment="One row per call of a model.",
    )
    op.create_index(
        "ix_agent_performance_log_variant_time",
        "agent_performance_log",
        ["variant_id", "created_at"],
        unique=False,
    )
    op.create_table(
        "ai_agents",
        sa.Column("id", sa.UUID(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), server_default="ollama", nullable=False),
        sa.Column("model_name", sa.Text(), nullable=False),
        sa.Column("prompt_version", sa.Text(), server_default="1", nullable=False),
        sa.Column("schema_version", sa.Text(), server_default="1", nullable=False),
        sa.Column("timeout_s", sa.Double(), server_default="30", nullable=False),
        sa.Column("max_retries", sa.Integer(), server_default="1", nullable=False),
        sa.Column("active", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ai_agents")),
        sa.UniqueConstraint("slug", name=op.f("uq_ai_agents_slug")),
        comment="One row per agent.",
    )
    op.create_table(
        "competitive_edges",
        sa.Column("source_entity", sa.Text(), nullable=False),
        sa.Column("target_entity", sa.Text(), nullable=False),
        sa.Column("relation_type", sa.Text(), server_default="competitor", nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("known_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("retracted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("xid", Xid8(), server_default=sa.text("pg_current_xact_id()"), nullable=False),
        sa.Column("superseded_known_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("superseded_xid", Xid8(), nullable=True),
        sa.Column("historical_correlation", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "historical_correlation BETWEEN -1 AND 1", name=op.f("ck_competitive_edges_correlation_range")
        ),
        sa.CheckConstraint("source_entity <> target_entity", name=op.f("ck_competitive_edges_no_self_edge")),
        sa.PrimaryKeyConstraint(
            "source_entity", "target_entity", "relation_type", "version", name=op.f("pk_competitive_edges")
        ),
        comment="One row per version of an undirected edge.",
    )
    op.create_index("ix_competitive_edges_target", "competitive_edges", ["target_entity"], unique=False)
    op.create_index(
        "ix_competitive_edges_superseded_xid",
        "competitive_edges",
        ["superseded_xid"],
        unique=False,
        postgresql_where=sa.text("superseded_xid IS NOT NULL"),
    )
    op.create_index("ix_competitive_edges_xid", "competitive_edges", ["xid"], unique=False)
    op.create_table(
        "cycle_failures",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("window", sa.Text(), nullable=False),
        sa.Column("as_of", sa.DateTime(timezone=True), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("failed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "stage", "entity_id", "window", name=op.f("pk_cycle_failures")),
        comment="One row per key that a run could not compute.",
    )
    op.create_table(
        "cycle_keys",
        sa.Column("as_of", sa.DateTime(timezone=True), nullable=False),
        sa.Column("config_version", sa.Integer(), nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("window", sa.Text(), nullable=False),
        sa.Column("signal_seq", sa.BigInteger(), nullable=True),
        sa.Column("trend_seq", sa.BigInteger(), nullable=True),
        sa.Column("projection_seq", sa.BigInteger(), nullable=True),
        sa.Column("decision_seq", sa.BigInteger(), nullable=True),
        sa.Column(
            "signals_skipped", sa.Integer(), nullable=True, comment="signals left out for NaN or infinity"
        ),
        sa.Column("standing_recommendation_id", sa.UUID(), nullable=True),
        sa.PrimaryKeyConstraint("entity_id", "window", "as_of", "config_version", name=op.f("pk_cycle_keys")),
        comment="One row per key and cycle: the order of first writing, and the recommendation that stands.",
    )
    op.create_table(
        "documents",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("source_id", sa.String(length=200), nullable=False),
        sa.Column("source_type", sa.Text(), nullable=True),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("url", sa.Text(), nullable=True),
        sa.Column("story_id", sa.Text(), nullable=True),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("status", sa.Text(), server_default="extracted", nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("retraction_reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "\"status\" IN ('extracted', 'failed', 'retracted')", name=op.f("ck_documents_status")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_documents")),
        comment="One row per document: its newest version, for people and as the target of evidence.",
    )
    op.create_table(
        "exposure_profiles",
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("known_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("retracted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("xid", Xid8(), server_default=sa.text("pg_current_xact_id()"), nullable=False),
        sa.Column("superseded_known_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("superseded_xid", Xid8(), nullable=True),
        sa.Column(
            "geo", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
        sa.Column(
            "supply", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
        sa.Column(
            "commodity",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column(
            "sector", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
        sa.PrimaryKeyConstraint("entity_id", "version", name=op.f("pk_exposure_profiles")),
        comment="One row per version of an entity's exposure; each dimension maps an item to a share in [0, 1].",
    )
    op.create_index(
        "ix_exposure_profiles_superseded_xid",
        "exposure_profiles",
        ["superseded_xid"],
        unique=False,
        postgresql_where=sa.text("superseded_xid IS NOT NULL"),
    )
    op.create_index("ix_exposure_profiles_xid", "exposure_profiles", ["xid"], unique=False)
    op.create_table(
        "macro_events",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("known_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("retracted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("xid", Xid8(), server_default=sa.text("pg_current_xact_id()"), nullable=False),
        sa.Column("superseded_known_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("superseded_xid", Xid8(), nullable=True),
        sa.Column("event_type", sa.Text(), nullable=True),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("estimated_duration", sa.Text(), nullable=False),
        sa.Column(
            "geo", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'"), nullable=False
        ),
        sa.Column(
            "supply", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'"), nullable=False
        ),
        sa.Column(
            "commodity",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'"),
            nullable=False,
        ),
        sa.Column(
            "sector", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'"), nullable=False
        ),
        sa.Column("occurred_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "\"direction\" IN ('positive', 'negative', 'mixed', 'neutral')",
            name=op.f("ck_macro_events_direction"),
        ),
        sa.CheckConstraint(
            "\"estimated_duration\" IN ('short_term', 'medium_term', 'long_term')",
            name=op.f("ck_macro_events_estimated_duration"),
        ),
        sa.CheckConstraint(
            "\"severity\" IN ('critical', 'high', 'moderate', 'low')", name=op.f("ck_macro_events_severity")
        ),
        sa.PrimaryKeyConstraint("id", "version", name=op.f("pk_macro_events")),
        comment="One row per version of a world event; the four item lists are JSON arrays of strings.",
    )
    op.create_index(
        "ix_macro_events_superseded_xid",
        "macro_events",
        ["superseded_xid"],
        unique=False,
        postgresql_where=sa.text("superseded_xid IS NOT NULL"),
    )
    op.create_index("ix_macro_events_xid", "macro_events", ["xid"], unique=False)
    op.create_table(
        "market_bars",
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("known_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("retracted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("xid", Xid8(), server_default=sa.text("pg_current_xact_id()"), nullable=False),
        sa.Column("superseded_known_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("superseded_xid", Xid8(), nullable=True),
        sa.Column("close", sa.Double(), nullable=False),
        sa.Column("volume", sa.Double(), nullable=True),
        sa.CheckConstraint("close > 0 AND close < 'Infinity'", name=op.f("ck_market_bars_close_positive")),
        sa.CheckConstraint(
            "volume >= 0 AND volume < 'Infinity'", name=op.f("ck_market_bars_volume_not_negative")
        ),
        sa.PrimaryKeyConstraint("entity_id", "day", "version", name=op.f("pk_market_bars")),
        comment="One row per version of an entity's daily bar.",
    )
    op.create_index(
        "ix_market_bars_superseded_xid",
        "market_bars",
        ["superseded_xid"],
        unique=False,
        postgresql_where=sa.text("superseded_xid IS NOT NULL"),
    )
    op.create_index("ix_market_bars_xid", "market_bars", ["xid"], unique=False)
    op.create_table(
        "recommendations",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("time_horizon", sa.Text(), nullable=False),
        sa.Column("thesis", sa.Text(), nullable=False),
        sa.Column("invalidation_conditions", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("allocation_pct", sa.Double(), nullable=False),
        sa.Column("max_loss_pct", sa.Double(), nullable=False),
        sa.Column("model_metadata", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("risk_classification", sa.Text(), nullable=False),
        sa.Column("pipeline_mode", sa.Text(), nullable=False),
        sa.Column("expected_value", sa.Double(), nullable=True),
        sa.Column("p_bull", sa.Double(), nullable=True),
        sa.Column("generated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("config_version", sa.Integer(), nullable=False),
        sa.CheckConstraint(
            "\"action\" IN ('act', 'defer', 'monitor', 'observe')", name=op.f("ck_recommendations_action")
        ),
        sa.CheckConstraint(
            '"allocation_pct" BETWEEN 0 AND 1', name=op.f("ck_recommendations_allocation_pct_in_0_1")
        ),
        sa.CheckConstraint('"confidence" BETWEEN 0 AND 1', name=op.f("ck_recommendations_confidence_in_0_1")),
        sa.CheckConstraint(
            '"max_loss_pct" BETWEEN 0 AND 1', name=op.f("ck_recommendations_max_loss_pct_in_0_1")
        ),
        sa.CheckConstraint(
            "\"mode\" IN ('informational', 'simulation_eligible', 'production_eligible')",
            name=op.f("ck_recommendations_mode"),
        ),
        sa.CheckConstraint(
            "\"risk_classification\" IN ('low', 'moderate', 'high', 'very_high')",
            name=op.f("ck_recommendations_risk"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_recommendations")),
        comment="One row per inserted recommendation.",
    )
    op.create_index(
        "ix_recommendations_key",
        "recommendations",
        ["entity_id", "time_horizon", sa.literal_column("generated_at DESC")],
        unique=False,
    )
    op.create_table(
        "rejected_records",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("line", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("field", sa.Text(), nullable=True),
        sa.Column("value", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("record_hash", sa.Text(), nullable=False),
        sa.Column("rejected_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("resolved_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rejected_records")),
        sa.UniqueConstraint(
            "file",
            "line",
            "kind",
            "record_hash",
            "reason",
            name=op.f("uq_rejected_records_file_line_kind_record_hash_reason"),
        ),
        comment="One row per record that could not be loaded, with its original text.",
    )
    op.create_table(
        "risk_configs",
        sa.Column("version", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("id", sa.UUID(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("active", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("config", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("changed_by", sa.Text(), server_default=sa.text("current_user"), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_risk_configs")),
        sa.UniqueConstraint("id", name=op.f("uq_risk_configs_id")),
        comment="One row per version of the configuration, append-only but for active.",
    )
    op.create_index(
        "uq_risk_configs_active", "risk_configs", ["active"], unique=True, postgresql_where=sa.text("active")
    )
    op.create_table(
        "run_batches",
        sa.Column("batch_id", sa.UUID(), nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("window", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("batch_id", "entity_id", "window", name=op.f("pk_run_batches")),
        comment="One row per key of a batch run: the set a run takes its keys from.",
    )
    op.create_table(
        "run_log",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("as_of", sa.DateTime(timezone=True), nullable=True),
        sa.Column("config_version", sa.Integer(), nullable=True),
        sa.Column("keys", sa.Integer(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column(
            "details", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
        sa.Column("logged_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_log")),
        comment="One row per stage of a run: the only place for run ids and durations.",
    )
    op.create_index("ix_run_log_run_id", "run_log", ["run_id"], unique=False)
    op.create_table(
        "source_accuracy",
        sa.Column("id", sa.UUID(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("source_id", sa.String(length=200), nullable=False),
        sa.Column("accuracy_ratio", sa.Double(), server_default="0.5", nullable=False),
        sa.Column("sample_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column(
            "last_updated", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_source_accuracy")),
        sa.UniqueConstraint("source_id", name=op.f("uq_source_accuracy_source_id")),
        comment="One row per source: its accuracy as of the newest cycle.",
    )
    op.create_index("idx_source_accuracy_source", "source_accuracy", ["source_id"], unique=False)
    op.create_table(
        "source_accuracy_history",
        sa.Column("as_of", sa.DateTime(timezone=True), nullable=False),
        sa.Column("config_version", sa.Integer(), nullable=False),
        sa.Column("source_id", sa.String(length=200), nullable=False),
        sa.Column("accuracy_ratio", sa.Double(), nullable=False),
        sa.Column("sample_count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint(
            "source_id", "as_of", "config_version", name=op.f("pk_source_accuracy_history")
        ),
        comment="One row per source and cycle.",
    )
    op.create_index("ix_source_accuracy_history_as_of", "source_accuracy_history", ["as_of"], unique=False)
    op.create_table(
        "trend_history",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("entity_type", sa.Text(), server_default="entity", nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("window", sa.Text(), nullable=False),
        sa.Column("trend_direction", sa.Text(), nullable=False),
        sa.Column("trend_strength", sa.Double(), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("contradiction_score", sa.Double(), nullable=False),
        sa.Column("disagreement_details", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("top_supporting_evidence", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("top_opposing_evidence", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("dominant_catalysts", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("material_risks", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("market_context", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("generated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("config_version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trend_history")),
        comment="One row per entity, window and cycle: every trend, append-only.",
    )
    op.create_index(
        "ix_trend_history_key",
        "trend_history",
        ["entity_type", "entity_id", "window", sa.literal_column("generated_at DESC")],
        unique=False,
    )
    op.create_table(
        "trend_windows",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("entity_type", sa.Text(), server_default="entity", nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("window", sa.Text(), nullable=False),
        sa.Column("trend_direction", sa.Text(), nullable=False),
        sa.Column("trend_strength", sa.Double(), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("contradiction_score", sa.Double(), nullable=False),
        sa.Column("disagreement_details", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("top_supporting_evidence", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("top_opposing_evidence", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("dominant_catalysts", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("material_risks", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("market_context", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("generated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("config_version", sa.Integer(), nullable=False),
        sa.CheckConstraint('"confidence" BETWEEN 0 AND 1', name=op.f("ck_trend_windows_confidence_in_0_1")),
        sa.CheckConstraint(
            '"contradiction_score" BETWEEN 0 AND 1', name=op.f("ck_trend_windows_contradiction_score_in_0_1")
        ),
        sa.CheckConstraint(
            "\"trend_direction\" IN ('positive', 'negative', 'mixed', 'neutral')",
            name=op.f("ck_trend_windows_direction"),
        ),
        sa.CheckConstraint(
            '"trend_strength" BETWEEN 0 AND 1', name=op.f("ck_trend_windows_trend_strength_in_0_1")
        ),
        sa.CheckConstraint(
            "\"window\" IN ('intraday', '1d', '7d', '30d', '90d')", name=op.f("ck_trend_windows_window")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trend_windows")),
        sa.UniqueConstraint(
            "entity_type", "entity_id", "window", name=op.f("uq_trend_windows_entity_type_entity_id_window")
        ),
        comment="One row per entity and window: the newest trend.",
    )
    op.create_table(
        "weighted_signals",
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("window", sa.Text(), nullable=False),
        sa.Column("signal_id", sa.Text(), nullable=False),
        sa.Column("layer", sa.Text(), nullable=False),
        sa.Column("source_id", sa.Text(), nullable=True),
        sa.Column("source_type", sa.Text(), nullable=True),
        sa.Column("catalyst_type", sa.Text(), nullable=True),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sentiment_value", sa.Double(), nullable=False),
        sa.Column("impact_score", sa.Double(), nullable=False),
        sa.Column("extraction_confidence", sa.Double(), nullable=True),
        sa.Column("recency", sa.Double(), nullable=False),
        sa.Column("credibility", sa.Double(), nullable=False),
        sa.Column("novelty_bonus", sa.Double(), nullable=False),
        sa.Column("confidence_gate", sa.Double(), nullable=False),
        sa.Column("market_ctx_multiplier", sa.Double(), nullable=False),
        sa.Column("sigmoid_gate", sa.Double(), nullable=True),
        sa.Column("info_gain_factor", sa.Double(), nullable=False),
        sa.Column("source_accuracy_factor", sa.Double(), nullable=False),
        sa.Column("regime_multiplier", sa.Double(), nullable=True),
        sa.Column("adaptive_half_life_hours", sa.Double(), nullable=True),
        sa.Column("layer_weight", sa.Double(), nullable=False),
        sa.Column("combined", sa.Double(), nullable=False),
        sa.Column("risk_flags", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("as_of", sa.DateTime(timezone=True), nullable=False),
        sa.Column("config_version", sa.Integer(), nullable=False),
        sa.CheckConstraint(
            "\"layer\" IN ('entity', 'macro', 'competitor', 'pattern')",
            name=op.f("ck_weighted_signals_layer"),
        ),
        sa.PrimaryKeyConstraint("entity_id", "window", "signal_id", name=op.f("pk_weighted_signals")),
        comment="One row per signal of the newest cycle of a key: every factor of its weight.",
    )
    op.create_table(
        "agent_variants",
        sa.Column("id", sa.UUID(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("agent_id", sa.UUID(), nullable=False),
        sa.Column("is_active", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("model_name", sa.Text(), nullable=True),
        sa.Column("timeout_s", sa.Double(), nullable=True),
        sa.Column("max_retries", sa.Integer(), nullable=True),
        sa.Column("hourly_token_budget", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["ai_agents.id"], name=op.f("fk_agent_variants_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agent_variants")),
        comment="One row per variant of an agent.",
    )
    op.create_index(op.f("ix_agent_variants_agent_id"), "agent_variants", ["agent_id"], unique=False)
    op.create_table(
        "cycles",
        sa.Column("as_of", sa.DateTime(timezone=True), nullable=False),
        sa.Column("config_version", sa.Integer(), nullable=False),
        sa.Column("snapshot", sa.Text(), nullable=False),
        sa.Column("pipeline_mode", sa.Text(), nullable=False),
        sa.Column("config_hash", sa.Text(), nullable=False),
        sa.Column("code_version", sa.Text(), nullable=False),
        sa.Column("library_set", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "accuracy_as_of",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="the cycle whose source accuracy was read",
        ),
        sa.Column(
            "accuracy_config_version",
            sa.Integer(),
            nullable=True,
            comment="its configuration; 0: none existed, null: not read yet",
        ),
        sa.Column(
            "first_run_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["config_version"], ["risk_configs.version"], name=op.f("fk_cycles_config_version")
        ),
        sa.PrimaryKeyConstraint("as_of", "config_version", name=op.f("pk_cycles")),
        comment="One row per cycle: what it was and the settled transactions it read (pg_snapshot as text).",
    )
    op.create_table(
        "document_intelligence",
        sa.Column("document_id", sa.UUID(), nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("known_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("retracted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("xid", Xid8(), server_default=sa.text("pg_current_xact_id()"), nullable=False),
        sa.Column("superseded_known_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("superseded_xid", Xid8(), nullable=True),
        sa.Column("source_id", sa.String(length=200), nullable=False),
        sa.Column("source_type", sa.Text(), nullable=True),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("failed", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("extraction_confidence", sa.Double(), nullable=True),
        sa.Column("credibility", sa.Double(), nullable=True),
        sa.Column("novelty", sa.Double(), nullable=True),
        sa.Column("content_hash", sa.Text(), nullable=True),
        sa.CheckConstraint(
            '"credibility" BETWEEN 0 AND 1', name=op.f("ck_document_intelligence_credibility_in_0_1")
        ),
        sa.CheckConstraint(
            '"extraction_confidence" BETWEEN 0 AND 1',
            name=op.f("ck_document_intelligence_extraction_confidence_in_0_1"),
        ),
        sa.CheckConstraint('"novelty" BETWEEN 0 AND 1', name=op.f("ck_document_intelligence_novelty_in_0_1")),
        sa.CheckConstraint(
            "known_at >= published_at", name=op.f("ck_document_intelligence_known_after_published")
        ),
        sa.ForeignKeyConstraint(
            ["document_id"], ["documents.id"], name=op.f("fk_document_intelligence_document_id")
        ),
        sa.PrimaryKeyConstraint("document_id", "version", name=op.f("pk_document_intelligence")),
        comment="One row per version of a document: everything a computation reads of it beside its impacts.",
    )
    op.create_index(
        "ix_document_intelligence_superseded_xid",
        "document_intelligence",
        ["superseded_xid"],
        unique=False,
        postgresql_where=sa.text("superseded_xid IS NOT NULL"),
    )
    op.create_index("ix_document_intelligence_xid", "document_intelligence", ["xid"], unique=False)
    op.create_table(
        "recommendation_evidence",
        sa.Column("recommendation_id", sa.UUID(), nullable=False),
        sa.Column("document_id", sa.UUID(), nullable=False),
        sa.Column("evidence_type", sa.Text(), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "\"evidence_type\" IN ('supporting', 'opposing')",
            name=op.f("ck_recommendation_evidence_evidence_type"),
        ),
        sa.ForeignKeyConstraint(
            ["document_id"], ["documents.id"], name=op.f("fk_recommendation_evidence_document_id")
        ),
        sa.ForeignKeyConstraint(
            ["recommendation_id"],
            ["recommendations.id"],
            name=op.f("fk_recommendation_evidence_recommendation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "recommendation_id", "document_id", "evidence_type", name=op.f("pk_recommendation_evidence")
        ),
        comment="One row per document that a recommendation cites.",
    )
    op.create_index(
        op.f("ix_recommendation_evidence_document_id"),
        "recommendation_evidence",
        ["document_id"],
        unique=False,
    )
    op.create_table(
        "risk_evaluations",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("recommendation_id", sa.UUID(), nullable=False),
        sa.Column("eligible", sa.Boolean(), nullable=False),
        sa.Column("allowed_mode", sa.Text(), nullable=False),
        sa.Column("rejection_reasons", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("risk_checks", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, comment="the cycle's as_of"),
        sa.ForeignKeyConstraint(
            ["recommendation_id"],
            ["recommendations.id"],
            name=op.f("fk_risk_evaluations_recommendation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_risk_evaluations")),
        sa.UniqueConstraint("recommendation_id", name=op.f("uq_risk_evaluations_recommendation_id")),
        comment="One row per recommendation: how it was decided.",
    )
    op.create_table(
        "trend_evidence",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("trend_window_id", sa.UUID(), nullable=False),
        sa.Column("document_id", sa.UUID(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("rank_position", sa.Integer(), nullable=False),
        sa.Column("rank_score", sa.Double(), nullable=False),
        sa.Column("weight_component", sa.Double(), nullable=False),
        sa.Column("impact_component", sa.Double(), nullable=False),
        sa.Column("recency_component", sa.Double(), nullable=False),
        sa.Column("confidence_component", sa.Double(), nullable=False),
        sa.Column("sentiment_value", sa.Double(), nullable=False),
        sa.CheckConstraint("\"role\" IN ('supporting', 'opposing')", name=op.f("ck_trend_evidence_role")),
        sa.ForeignKeyConstraint(
            ["document_id"], ["documents.id"], name=op.f("fk_trend_evidence_document_id")
        ),
        sa.ForeignKeyConstraint(
            ["trend_window_id"],
            ["trend_windows.id"],
            name=op.f("fk_trend_evidence_trend_window_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trend_evidence")),
        comment="One row per document that ranks as evidence of a current trend.",
    )
    op.create_index(op.f("ix_trend_evidence_document_id"), "trend_evidence", ["document_id"], unique=False)
    op.create_index(
        op.f("ix_trend_evidence_trend_window_id"), "trend_evidence", ["trend_window_id"], unique=False
    )
    op.create_table(
        "trend_projections",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("trend_window_id", sa.UUID(), nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("window", sa.Text(), nullable=False),
        sa.Column("projected_direction", sa.Text(), nullable=False),
        sa.Column("projected_strength", sa.Double(), nullable=False),
        sa.Column("projected_confidence", sa.Double(), nullable=False),
        sa.Column("projection_horizon", sa.Text(), nullable=False),
        sa.Column("driving_factors", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("macro_contribution_pct", sa.Double(), nullable=False),
        sa.Column("diverges_from_current", sa.Boolean(), nullable=False),
        sa.Column("low_confidence", sa.Boolean(), nullable=False),
        sa.Column("momentum", sa.Double(), nullable=False),
        sa.Column("blended", sa.Double(), nullable=False),
        sa.Column("macro_signed", sa.Double(), nullable=False),
        sa.Column("macro_weight", sa.Double(), nullable=False),
        sa.Column("has_macro_events", sa.Boolean(), nullable=False),
        sa.Column("computed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("config_version", sa.Integer(), nullable=False),
        sa.CheckConstraint(
            '"projected_confidence" BETWEEN 0 AND 1',
            name=op.f("ck_trend_projections_projected_confidence_in_0_1"),
        ),
        sa.CheckConstraint(
            "\"projected_direction\" IN ('positive', 'negative', 'mixed', 'neutral')",
            name=op.f("ck_trend_projections_direction"),
        ),
        sa.CheckConstraint(
            '"projected_strength" BETWEEN 0 AND 1',
            name=op.f("ck_trend_projections_projected_strength_in_0_1"),
        ),
        sa.ForeignKeyConstraint(
            ["trend_window_id"], ["trend_windows.id"], name=op.f("fk_trend_projections_trend_window_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trend_projections")),
        comment="One row per entity, window and cycle: every projection.",
    )
    op.create_index(
        "ix_trend_projections_key",
        "trend_projections",
        ["entity_id", "window", sa.literal_column("computed_at DESC")],
        unique=False,
    )
    op.create_index(
        "ix_trend_projections_trend_window_id", "trend_projections", ["trend_window_id"], unique=False
    )
    op.create_table(
        "document_impact_records",
        sa.Column("document_id", sa.UUID(), nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("entity_type", sa.Text(), server_default="entity", nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("has_impact", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("sentiment_label", sa.Text(), nullable=True),
        sa.Column("sentiment", sa.Double(), nullable=True),
        sa.Column("impact_score", sa.Double(), nullable=True),
        sa.Column("catalyst_type", sa.Text(), nullable=True),
        sa.Column(
            "risk_flags",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'"),
            nullable=False,
        ),
        sa.Column("xid", Xid8(), server_default=sa.text("pg_current_xact_id()"), nullable=False),
        sa.CheckConstraint(
            '"impact_score" BETWEEN 0 AND 1', name=op.f("ck_document_impact_records_impact_score_in_0_1")
        ),
        sa.CheckConstraint(
            "NOT has_impact OR (sentiment IS NOT NULL AND impact_score IS NOT NULL)",
            name=op.f("ck_document_impact_records_impact_complete"),
        ),
        sa.CheckConstraint(
            "sentiment BETWEEN -1 AND 1", name=op.f("ck_document_impact_records_sentiment_range")
        ),
        sa.ForeignKeyConstraint(
            ["document_id", "version"],
            ["document_intelligence.document_id", "document_intelligence.version"],
            name=op.f("fk_document_impact_records_document_id"),
        ),
        sa.PrimaryKeyConstraint(
            "document_id", "version", "entity_id", name=op.f("pk_document_impact_records")
        ),
        comment="One row per version of a document and entity it names; has_impact is false for a mere naming.",
    )
    op.create_index(
        "ix_document_impact_records_entity_time",
        "document_impact_records",
        ["entity_id", "published_at"],
        unique=False,
    )
    op.create_index("ix_document_impact_records_xid", "document_impact_records", ["xid"], unique=False)
    op.execute("""
        CREATE VIEW recommendation_evaluations AS
        SELECT * FROM risk_evaluations
    """)
    op.execute("""
        CREATE VIEW actionable_recommendations AS
        SELECT r.*
        FROM (
            SELECT DISTINCT ON (k.entity_id, k."window") k.standing_recommendation_id AS id
            FROM cycle_keys k
            WHERE k.standing_recommendation_id IS NOT NULL
            ORDER BY k.entity_id, k."window", k.as_of DESC, k.decision_seq DESC
        ) AS standing
        JOIN recommendations r USING (id)
        JOIN risk_evaluations e ON e.recommendation_id = r.id
        WHERE e.eligible AND r.mode <> 'informational'
          AND jsonb_array_length(e.risk_checks -> 'suppression_reasons') = 0
    """)
    op.execute("""
        CREATE VIEW macro_impacts AS
        SELECT DISTINCT ON (event_id, entity_id) substr(signal_id, 7)::uuid AS event_id, entity_id,
               impact_score, CASE WHEN sentiment_value > 0 THEN 'positive'
               WHEN sentiment_value < 0 THEN 'negative' ELSE 'neutral' END AS direction, as_of
        FROM weighted_signals WHERE layer = 'macro' ORDER BY event_id, entity_id, as_of DESC
    """)
    op.execute("""
        CREATE VIEW pattern_stats AS
        SELECT entity_id, "window", catalyst_type, sentiment_value, impact_score, as_of
        FROM weighted_signals WHERE layer = 'pattern'
    """)
