"""The tables, as SQLAlchemy Core metadata; migrations create them, everything else only names them.

Inputs are versioned and append-only: a revised or retracted input is a new version, and the version before is
marked with the time from which it no longer holds (``superseded_known_at``) and the transaction that said so
(``superseded_xid``). ``xid`` is the writing transaction, so that a cycle can be repeated with exactly the
rows its first run could see. Result tables carry ``as_of`` (under the seed's name ``generated_at`` or
``computed_at``) and no run id; run ids and durations live in ``run_log`` only.

Implements: R169.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.types import UserDefinedType

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class Xid8(UserDefinedType[str]):
    """PostgreSQL's 64-bit transaction id."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """Name of the type in DDL."""
        return "xid8"


TIME = sa.DateTime(timezone=True)
WINDOWS = ("intraday", "1d", "7d", "30d", "90d")
STAGES = ("weighted_signals", "trend_windows", "trend_projections", "recommendations")
_NOW = sa.text("now()")
_XID = sa.text("pg_current_xact_id()")
_UUID = sa.text("gen_random_uuid()")


def _one_of(column: str, values: tuple[str, ...], name: str) -> sa.CheckConstraint:
    listed = ", ".join(f"'{v}'" for v in values)
    return sa.CheckConstraint(f'"{column}" IN ({listed})', name=name)


def _unit(column: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(f'"{column}" BETWEEN 0 AND 1', name=f"{column}_in_0_1")


def _window() -> sa.Column[str]:
    return sa.Column("window", sa.Text, nullable=False)


def _superseded(table: str) -> sa.Index:
    """What was replaced lately, found without the many rows that never were."""
    return sa.Index(
        f"ix_{table}_superseded_xid", "superseded_xid", postgresql_where=sa.text("superseded_xid IS NOT NULL")
    )


def _version_columns() -> tuple[sa.Column[object], ...]:
    return (
        sa.Column("version", sa.Integer, nullable=False, server_default="1"),
        sa.Column("known_at", TIME, nullable=False, server_default=_NOW),
        sa.Column("retracted", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("xid", Xid8, nullable=False, server_default=_XID),
        sa.Column("superseded_known_at", TIME),
        sa.Column("superseded_xid", Xid8),
    )


# ----------------------------------------------------------------------------------------------- inputs

documents = sa.Table(
    "documents",
    metadata,
    sa.Column("id", pg.UUID, primary_key=True),
    sa.Column("source_id", sa.String(200), nullable=False),
    sa.Column("source_type", sa.Text),
    sa.Column("title", sa.Text),
    sa.Column("url", sa.Text),
    sa.Column("story_id", sa.Text),
    sa.Column("published_at", TIME, nullable=False),
    sa.Column("status", sa.Text, nullable=False, server_default="extracted"),
    sa.Column("version", sa.Integer, nullable=False, server_default="1"),
    sa.Column("retraction_reason", sa.Text),
    sa.Column("created_at", TIME, nullable=False, server_default=_NOW),
    _one_of("status", ("extracted", "failed", "retracted"), "status"),
    comment="One row per document: its newest version, for people and as the target of evidence.",
)

document_intelligence = sa.Table(
    "document_intelligence",
    metadata,
    sa.Column("document_id", pg.UUID, sa.ForeignKey("documents.id"), nullable=False),
    *_version_columns(),
    sa.Column("source_id", sa.String(200), nullable=False),
    sa.Column("source_type", sa.Text),
    sa.Column("published_at", TIME, nullable=False),
    sa.Column("failed", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("extraction_confidence", sa.Double),
    sa.Column("credibility", sa.Double),
    sa.Column("novelty", sa.Double),
    sa.Column("content_hash", sa.Text),
    sa.PrimaryKeyConstraint("document_id", "version"),
    _unit("extraction_confidence"),
    _unit("credibility"),
    _unit("novelty"),
    sa.CheckConstraint("known_at >= published_at", name="known_after_published"),
    sa.Index("ix_document_intelligence_xid", "xid"),
    _superseded("document_intelligence"),
    comment="One row per version of a document: everything a computation reads of it beside its impacts.",
)

document_impact_records = sa.Table(
    "document_impact_records",
    metadata,
    sa.Column("document_id", pg.UUID, nullable=False),
    sa.Column("version", sa.Integer, nullable=False, server_default="1"),
    sa.Column("entity_type", sa.Text, nullable=False, server_default="entity"),
    sa.Column("entity_id", sa.Text, nullable=False),
    sa.Column("published_at", TIME, nullable=False),
    sa.Column("has_impact", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("sentiment_label", sa.Text),
    sa.Column("sentiment", sa.Double),
    sa.Column("impact_score", sa.Double),
    sa.Column("catalyst_type", sa.Text),
    sa.Column("risk_flags", pg.JSONB, nullable=False, server_default=sa.text("'[]'")),
    sa.Column("xid", Xid8, nullable=False, server_default=_XID),
    sa.PrimaryKeyConstraint("document_id", "version", "entity_id"),
    sa.ForeignKeyConstraint(
        ["document_id", "version"], ["document_intelligence.document_id", "document_intelligence.version"]
    ),
    sa.CheckConstraint("sentiment BETWEEN -1 AND 1", name="sentiment_range"),
    _unit("impact_score"),
    sa.CheckConstraint(
        "NOT has_impact OR (sentiment IS NOT NULL AND impact_score IS NOT NULL)", name="impact_complete"
    ),
    sa.Index("ix_document_impact_records_entity_time", "entity_id", "published_at"),
    sa.Index("ix_document_impact_records_xid", "xid"),
    comment="One row per version of a document and entity it names; has_impact is false for a mere naming.",
)

market_bars = sa.Table(
    "market_bars",
    metadata,
    sa.Column("entity_id", sa.Text, nullable=False),
    sa.Column("day", sa.Date, nullable=False),
    *_version_columns(),
    sa.Column("close", sa.Double, nullable=False),
    sa.Column("volume", sa.Double),
    sa.PrimaryKeyConstraint("entity_id", "day", "version"),
    sa.CheckConstraint("close > 0 AND close < 'Infinity'", name="close_positive"),
    sa.CheckConstraint("volume >= 0 AND volume < 'Infinity'", name="volume_not_negative"),
    sa.Index("ix_market_bars_xid", "xid"),
    _superseded("market_bars"),
    comment="One row per version of an entity's daily bar.",
)

macro_events = sa.Table(
    "macro_events",
    metadata,
    sa.Column("id", pg.UUID, nullable=False),
    *_version_columns(),
    sa.Column("event_type", sa.Text),
    sa.Column("title", sa.Text),
    sa.Column("direction", sa.Text, nullable=False),
    sa.Column("severity", sa.Text, nullable=False),
    sa.Column("estimated_duration", sa.Text, nullable=False),
    sa.Column("geo", pg.JSONB, nullable=False, server_default=sa.text("'[]'")),
    sa.Column("supply", pg.JSONB, nullable=False, server_default=sa.text("'[]'")),
    sa.Column("commodity", pg.JSONB, nullable=False, server_default=sa.text("'[]'")),
    sa.Column("sector", pg.JSONB, nullable=False, server_default=sa.text("'[]'")),
    sa.Column("occurred_at", TIME, nullable=False),
    sa.PrimaryKeyConstraint("id", "version"),
    _one_of("direction", ("positive", "negative", "mixed", "neutral"), "direction"),
    _one_of("severity", ("critical", "high", "moderate", "low"), "severity"),
    _one_of("estimated_duration", ("short_term", "medium_term", "long_term"), "estimated_duration"),
    sa.Index("ix_macro_events_xid", "xid"),
    _superseded("macro_events"),
    comment="One row per version of a world event; the four item lists are JSON arrays of strings.",
)

exposure_profiles = sa.Table(
    "exposure_profiles",
    metadata,
    sa.Column("entity_id", sa.Text, nullable=False),
    *_version_columns(),
    sa.Column("geo", pg.JSONB, nullable=False, server_default=sa.text("'{}'")),
    sa.Column("supply", pg.JSONB, nullable=False, server_default=sa.text("'{}'")),
    sa.Column("commodity", pg.JSONB, nullable=False, server_default=sa.text("'{}'")),
    sa.Column("sector", pg.JSONB, nullable=False, server_default=sa.text("'{}'")),
    sa.PrimaryKeyConstraint("entity_id", "version"),
    sa.Index("ix_exposure_profiles_xid", "xid"),
    _superseded("exposure_profiles"),
    comment="One row per version of an entity's exposure; each dimension maps an item to a share in [0, 1].",
)

competitive_edges = sa.Table(
    "competitive_edges",
    metadata,
    sa.Column("source_entity", sa.Text, nullable=False),
    sa.Column("target_entity", sa.Text, nullable=False),
    sa.Column("relation_type", sa.Text, nullable=False, server_default="competitor"),
    *_version_columns(),
    sa.Column("historical_correlation", sa.Double, nullable=False),
    sa.PrimaryKeyConstraint("source_entity", "target_entity", "relation_type", "version"),
    sa.CheckConstraint("historical_correlation BETWEEN -1 AND 1", name="correlation_range"),
    sa.CheckConstraint("source_entity <> target_entity", name="no_self_edge"),
    sa.Index("ix_competitive_edges_target", "target_entity"),
    sa.Index("ix_competitive_edges_xid", "xid"),
    _superseded("competitive_edges"),
    comment="One row per version of an undirected edge.",
)

rejected_records = sa.Table(
    "rejected_records",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("file", sa.Text, nullable=False),
    sa.Column("line", sa.BigInteger, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("field", sa.Text),
    sa.Column("value", sa.Text),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("record", sa.Text, nullable=False),
    sa.Column("record_hash", sa.Text, nullable=False),
    sa.Column("rejected_at", TIME, nullable=False, server_default=_NOW),
    sa.Column("resolved_at", TIME),
    sa.UniqueConstraint("file", "line", "kind", "record_hash", "reason"),
    comment="One row per record that could not be loaded, with its original text.",
)

entity_names = sa.Table(
    "entity_names",
    metadata,
    sa.Column("number", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("entity_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("renamed_at", TIME, nullable=False, server_default=_NOW),
    sa.Column("renamed_by", sa.Text, nullable=False, server_default=sa.text("current_user")),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Index("ix_entity_names_name", "name"),
    sa.Index("ix_entity_names_entity_id", "entity_id"),
    comment="One row per renaming of an entity, append-only: its id stays, its newest name is current.",
)

entity_retirements = sa.Table(
    "entity_retirements",
    metadata,
    sa.Column("number", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("entity_id", sa.Text, nullable=False),
    sa.Column("retired_at", TIME, nullable=False, server_default=_NOW),
    sa.Column("retired_by", sa.Text, nullable=False, server_default=sa.text("current_user")),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("revived_at", TIME),
    sa.Column("revived_by", sa.Text),
    sa.Index(
        "uq_entity_retirements_standing",
        "entity_id",
        unique=True,
        postgresql_where=sa.text("revived_at IS NULL"),
    ),
    comment="One row per retirement of an entity; it lasts until it is revived.",
)

# ---------------------------------------------------------------------------------- configuration, cycles

risk_configs = sa.Table(
    "risk_configs",
    metadata,
    sa.Column("version", sa.Integer, sa.Identity(), primary_key=True),
    sa.Column("id", pg.UUID, nullable=False, unique=True, server_default=_UUID),
    sa.Column("active", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("config", pg.JSONB, nullable=False),
    sa.Column("changed_by", sa.Text, nullable=False, server_default=sa.text("current_user")),
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("updated_at", TIME, nullable=False, server_default=_NOW),
    sa.Index("uq_risk_configs_active", "active", unique=True, postgresql_where=sa.text("active")),
    comment="One row per version of the configuration, append-only but for active.",
)

cycles = sa.Table(
    "cycles",
    metadata,
    sa.Column("as_of", TIME, nullable=False),
    sa.Column("config_version", sa.Integer, sa.ForeignKey("risk_configs.version"), nullable=False),
    sa.Column("snapshot", sa.Text, nullable=False),
    sa.Column("pipeline_mode", sa.Text, nullable=False),
    sa.Column("config_hash", sa.Text, nullable=False),
    sa.Column("code_version", sa.Text, nullable=False),
    sa.Column("library_set", pg.JSONB, nullable=False),
    sa.Column("accuracy_as_of", TIME, comment="the cycle whose source accuracy was read"),
    sa.Column(
        "accuracy_config_version",
        sa.Integer,
        comment="its configuration; 0: none existed, null: not read yet",
    ),
    sa.Column("first_run_at", TIME, nullable=False, server_default=_NOW),
    sa.PrimaryKeyConstraint("as_of", "config_version"),
    comment="One row per cycle: what it was and the settled transactions it read (pg_snapshot as text).",
)

cycle_keys = sa.Table(
    "cycle_keys",
    metadata,
    sa.Column("as_of", TIME, nullable=False),
    sa.Column("config_version", sa.Integer, nullable=False),
    sa.Column("entity_id", sa.Text, nullable=False),
    _window(),
    sa.Column("signal_seq", sa.BigInteger),
    sa.Column("trend_seq", sa.BigInteger),
    sa.Column("projection_seq", sa.BigInteger),
    sa.Column("decision_seq", sa.BigInteger),
    sa.Column("signals_skipped", sa.Integer, comment="signals left out for NaN or infinity"),
    sa.Column("standing_recommendation_id", pg.UUID),
    sa.PrimaryKeyConstraint("entity_id", "window", "as_of", "config_version"),
    comment="One row per key and cycle: the order of first writing, and the recommendation that stands.",
)
cycle_sequence = sa.Sequence("cycle_sequence", metadata=metadata)

run_log = sa.Table(
    "run_log",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("stage", sa.Text, nullable=False),
    sa.Column("as_of", TIME),
    sa.Column("config_version", sa.Integer),
    sa.Column("keys", sa.Integer, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("details", pg.JSONB, nullable=False, server_default=sa.text("'{}'")),
    sa.Column("logged_at", TIME, nullable=False, server_default=_NOW),
    sa.Index("ix_run_log_run_id", "run_id"),
    comment="One row per stage of a run: the only place for run ids and durations.",
)

cycle_failures = sa.Table(
    "cycle_failures",
    metadata,
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("stage", sa.Text, nullable=False),
    sa.Column("entity_id", sa.Text, nullable=False),
    _window(),
    sa.Column("as_of", TIME, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("failed_at", TIME, nullable=False, server_default=_NOW),
    sa.PrimaryKeyConstraint("run_id", "stage", "entity_id", "window"),
    comment="One row per key that a run could not compute.",
)

run_batches = sa.Table(
    "run_batches",
    metadata,
    sa.Column("batch_id", pg.UUID, nullable=False),
    sa.Column("entity_id", sa.Text, nullable=False),
    _window(),
    sa.Column("created_at", TIME, nullable=False, server_default=_NOW),
    sa.Column("first_stage", sa.Text, comment="only this asset of the chain and those after it; else all"),
    sa.PrimaryKeyConstraint("batch_id", "entity_id", "window"),
    _one_of("first_stage", STAGES, "first_stage"),
    comment="One row per key of a batch run: the set a run takes its keys from.",
)

config_applications = sa.Table(
    "config_applications",
    metadata,
    sa.Column("config_version", sa.Integer, sa.ForeignKey("risk_configs.version"), primary_key=True),
    sa.Column("batch_id", pg.UUID, nullable=False, unique=True),
    sa.Column("as_of", TIME, nullable=False),
    sa.Column("keys", sa.Integer, nullable=False),
    sa.Column("applied_at", TIME, nullable=False, server_default=_NOW),
    sa.Column("finished_at", TIME, comment="when its run had ended; null: it has to be repeated"),
    comment="One row per configuration version that became active by a plan: what it was to rebuild.",
)

notices = sa.Table(
    "notices",
    metadata,
    sa.Column("as_of", TIME, nullable=False),
    sa.Column("config_version", sa.Integer, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("changes", sa.Integer, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("error", sa.Text),
    sa.Column("claimed_at", TIME, nullable=False, server_default=_NOW),
    sa.Column("settled_at", TIME),
    sa.PrimaryKeyConstraint("as_of", "config_version"),
    _one_of("status", ("claimed", "sent", "logged", "failed"), "status"),
    sa.Index("ix_notices_claimed_at", "claimed_at"),
    comment="One row per message about the changed decisions of a cycle; claimed before it is sent.",
)

notice_decisions = sa.Table(
    "notice_decisions",
    metadata,
    sa.Column("as_of", TIME, nullable=False),
    sa.Column("config_version", sa.Integer, nullable=False),
    sa.Column("entity_id", sa.Text, nullable=False),
    _window(),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("mode", sa.Text, nullable=False),
    sa.Column("confidence", sa.Double, nullable=False),
    sa.Column("before_action", sa.Text, nullable=False),
    sa.Column("before_mode", sa.Text, nullable=False),
    sa.Column("before_confidence", sa.Double, nullable=False),
    sa.PrimaryKeyConstraint("entity_id", "window", "as_of", "config_version"),
    sa.ForeignKeyConstraint(
        ["as_of", "config_version"], ["notices.as_of", "notices.config_version"], ondelete="CASCADE"
    ),
    sa.Index("ix_notice_decisions_notice", "as_of", "config_version"),
    comment="One row per decision that a message told, with what was known before.",
)

# ---------------------------------------------------------------------------------------------- results


def _cycle_columns(as_of: str) -> tuple[sa.Column[object], ...]:
    return (
        sa.Column(as_of, TIME, nullable=False),
        sa.Column("config_version", sa.Integer, nullable=False),
    )


weighted_signals = sa.Table(
    "weighted_signals",
    metadata,
    sa.Column("entity_id", sa.Text, nullable=False),
    _window(),
    sa.Column("signal_id", sa.Text, nullable=False),
    sa.Column("layer", sa.Text, nullable=False),
    sa.Column("source_id", sa.Text),
    sa.Column("source_type", sa.Text),
    sa.Column("catalyst_type", sa.Text),
    sa.Column("published_at", TIME, nullable=False),
    sa.Column("sentiment_value", sa.Double, nullable=False),
    sa.Column("impact_score", sa.Double, nullable=False),
    sa.Column("extraction_confidence", sa.Double),
    sa.Column("recency", sa.Double, nullable=False),
    sa.Column("credibility", sa.Double, nullable=False),
    sa.Column("novelty_bonus", sa.Double, nullable=False),
    sa.Column("confidence_gate", sa.Double, nullable=False),
    sa.Column("market_ctx_multiplier", sa.Double, nullable=False),
    sa.Column("sigmoid_gate", sa.Double),
    sa.Column("info_gain_factor", sa.Double, nullable=False),
    sa.Column("source_accuracy_factor", sa.Double, nullable=False),
    sa.Column("regime_multiplier", sa.Double),
    sa.Column("adaptive_half_life_hours", sa.Double),
    sa.Column("layer_weight", sa.Double, nullable=False),
    sa.Column("combined", sa.Double, nullable=False),
    sa.Column("risk_flags", pg.JSONB, nullable=False),
    *_cycle_columns("as_of"),
    sa.PrimaryKeyConstraint("entity_id", "window", "signal_id"),
    _one_of("layer", ("entity", "macro", "competitor", "pattern"), "layer"),
    comment="One row per signal of the newest cycle of a key: every factor of its weight.",
)

_TREND = (
    ("trend_direction", sa.Text, False),
    ("trend_strength", sa.Double, False),
    ("confidence", sa.Double, False),
    ("contradiction_score", sa.Double, False),
    ("disagreement_details", pg.JSONB, False),
    ("top_supporting_evidence", pg.JSONB, False),
    ("top_opposing_evidence", pg.JSONB, False),
    ("dominant_catalysts", pg.JSONB, False),
    ("material_risks", pg.JSONB, False),
    ("market_context", pg.JSONB, False),
)


def _trend_columns() -> tuple[sa.Column[object], ...]:
    return tuple(sa.Column(n, t, nullable=null) for n, t, null in _TREND)


_DIRECTIONS = ("positive", "negative", "mixed", "neutral")

trend_windows = sa.Table(
    "trend_windows",
    metadata,
    sa.Column("id", pg.UUID, primary_key=True),
    sa.Column("entity_type", sa.Text, nullable=False, server_default="entity"),
    sa.Column("entity_id", sa.Text, nullable=False),
    _window(),
    *_trend_columns(),
    *_cycle_columns("generated_at"),
    sa.UniqueConstraint("entity_type", "entity_id", "window"),
    _one_of("trend_direction", _DIRECTIONS, "direction"),
    _one_of("window", WINDOWS, "window"),
    _unit("trend_strength"),
    _unit("confidence"),
    _unit("contradiction_score"),
    comment="One row per entity and window: the newest trend.",
)

trend_history = sa.Table(
    "trend_history",
    metadata,
    sa.Column("id", pg.UUID, primary_key=True),
    sa.Column("entity_type", sa.Text, nullable=False, server_default="entity"),
    sa.Column("entity_id", sa.Text, nullable=False),
    _window(),
    *_trend_columns(),
    *_cycle_columns("generated_at"),
    sa.Index("ix_trend_history_key", "entity_type", "entity_id", "window", sa.text("generated_at DESC")),
    comment="One row per entity, window and cycle: every trend, append-only.",
)

trend_evidence = sa.Table(
    "trend_evidence",
    metadata,
    sa.Column("id", pg.UUID, primary_key=True),
    sa.Column(
        "trend_window_id",
        pg.UUID,
        sa.ForeignKey("trend_windows.id", ondelete="CASCADE"),
        nullable=False,
        index=True,
    ),
    sa.Column("document_id", pg.UUID, sa.ForeignKey("documents.id"), nullable=False, index=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("rank_position", sa.Integer, nullable=False),
    sa.Column("rank_score", sa.Double, nullable=False),
    sa.Column("weight_component", sa.Double, nullable=False),
    sa.Column("impact_component", sa.Double, nullable=False),
    sa.Column("recency_component", sa.Double, nullable=False),
    sa.Column("confidence_component", sa.Double, nullable=False),
    sa.Column("sentiment_value", sa.Double, nullable=False),
    _one_of("role", ("supporting", "opposing"), "role"),
    comment="One row per document that ranks as evidence of a current trend.",
)

trend_projections = sa.Table(
    "trend_projections",
    metadata,
    sa.Column("id", pg.UUID, primary_key=True),
    sa.Column("trend_window_id", pg.UUID, sa.ForeignKey("trend_windows.id"), nullable=False),
    sa.Column("entity_id", sa.Text, nullable=False),
    _window(),
    sa.Column("projected_direction", sa.Text, nullable=False),
    sa.Column("projected_strength", sa.Double, nullable=False),
    sa.Column("projected_confidence", sa.Double, nullable=False),
    sa.Column("projection_horizon", sa.Text, nullable=False),
    sa.Column("driving_factors", pg.JSONB, nullable=False),
    sa.Column("macro_contribution_pct", sa.Double, nullable=False),
    sa.Column("diverges_from_current", sa.Boolean, nullable=False),
    sa.Column("low_confidence", sa.Boolean, nullable=False),
    sa.Column("momentum", sa.Double, nullable=False),
    sa.Column("blended", sa.Double, nullable=False),
    sa.Column("macro_signed", sa.Double, nullable=False),
    sa.Column("macro_weight", sa.Double, nullable=False),
    sa.Column("has_macro_events", sa.Boolean, nullable=False),
    *_cycle_columns("computed_at"),
    _one_of("projected_direction", _DIRECTIONS, "direction"),
    _unit("projected_strength"),
    _unit("projected_confidence"),
    sa.Index("ix_trend_projections_key", "entity_id", "window", sa.text("computed_at DESC")),
    sa.Index("ix_trend_projections_trend_window_id", "trend_window_id"),
    comment="One row per entity, window and cycle: every projection.",
)

recommendations = sa.Table(
    "recommendations",
    metadata,
    sa.Column("id", pg.UUID, primary_key=True),
    sa.Column("entity_id", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("mode", sa.Text, nullable=False),
    sa.Column("confidence", sa.Double, nullable=False),
    sa.Column("time_horizon", sa.Text, nullable=False),
    sa.Column("thesis", sa.Text, nullable=False),
    sa.Column("invalidation_conditions", pg.JSONB, nullable=False),
    sa.Column("allocation_pct", sa.Double, nullable=False),
    sa.Column("max_loss_pct", sa.Double, nullable=False),
    sa.Column("model_metadata", pg.JSONB, nullable=False),
    sa.Column("risk_classification", sa.Text, nullable=False),
    sa.Column("pipeline_mode", sa.Text, nullable=False),
    sa.Column("expected_value", sa.Double),
    sa.Column("p_bull", sa.Double),
    *_cycle_columns("generated_at"),
    _one_of("action", ("act", "defer", "monitor", "observe"), "action"),
    _one_of("mode", ("informational", "simulation_eligible", "production_eligible"), "mode"),
    _one_of("risk_classification", ("low", "moderate", "high", "very_high"), "risk"),
    _unit("confidence"),
    _unit("allocation_pct"),
    _unit("max_loss_pct"),
    sa.Index("ix_recommendations_key", "entity_id", "time_horizon", sa.text("generated_at DESC")),
    comment="One row per inserted recommendation.",
)

recommendation_evidence = sa.Table(
    "recommendation_evidence",
    metadata,
    sa.Column(
        "recommendation_id", pg.UUID, sa.ForeignKey("recommendations.id", ondelete="CASCADE"), nullable=False
    ),
    sa.Column("document_id", pg.UUID, sa.ForeignKey("documents.id"), nullable=False, index=True),
    sa.Column("evidence_type", sa.Text, nullable=False),
    sa.Column("weight", sa.Double, nullable=False),
    sa.PrimaryKeyConstraint("recommendation_id", "document_id", "evidence_type"),
    _one_of("evidence_type", ("supporting", "opposing"), "evidence_type"),
    comment="One row per document that a recommendation cites.",
)

risk_evaluations = sa.Table(
    "risk_evaluations",
    metadata,
    sa.Column("id", pg.UUID, primary_key=True),
    sa.Column(
        "recommendation_id",
        pg.UUID,
        sa.ForeignKey("recommendations.id", ondelete="CASCADE"),
        nullable=False,
        unique=True,
    ),
    sa.Column("eligible", sa.Boolean, nullable=False),
    sa.Column("allowed_mode", sa.Text, nullable=False),
    sa.Column("rejection_reasons", pg.JSONB, nullable=False),
    sa.Column("risk_checks", pg.JSONB, nullable=False),
    sa.Column("created_at", TIME, nullable=False, comment="the cycle's as_of"),
    comment="One row per recommendation: how it was decided.",
)

source_accuracy = sa.Table(
    "source_accuracy",
    metadata,
    sa.Column("id", pg.UUID, primary_key=True, server_default=_UUID),
    sa.Column("source_id", sa.String(200), nullable=False, unique=True),
    sa.Column("accuracy_ratio", sa.Double, nullable=False, server_default="0.5"),
    sa.Column("sample_count", sa.Integer, nullable=False, server_default="0"),
    sa.Column("last_updated", TIME, nullable=False, server_default=_NOW),
    sa.Column("created_at", TIME, nullable=False, server_default=_NOW),
    sa.Index("idx_source_accuracy_source", "source_id"),
    comment="One row per source: its accuracy as of the newest cycle.",
)

source_accuracy_history = sa.Table(
    "source_accuracy_history",
    metadata,
    sa.Column("as_of", TIME, nullable=False),
    sa.Column("config_version", sa.Integer, nullable=False),
    sa.Column("source_id", sa.String(200), nullable=False),
    sa.Column("accuracy_ratio", sa.Double, nullable=False),
    sa.Column("sample_count", sa.Integer, nullable=False),
    sa.PrimaryKeyConstraint("source_id", "as_of", "config_version"),
    sa.Index("ix_source_accuracy_history_as_of", "as_of"),
    comment="One row per source and cycle.",
)

# ------------------------------------------------------------------------------------------------ seals

cycle_seals = sa.Table(
    "cycle_seals",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("as_of", TIME),
    sa.Column("config_version", sa.Integer),
    sa.Column("before", TIME, comment="of a checkpoint: results of earlier cycles may be gone"),
    sa.Column("snapshot", sa.Text, nullable=False, comment="inputs settled by it are covered"),
    sa.Column("parts", pg.JSONB, nullable=False, comment="by table: number of rows and root hash"),
    sa.Column("sealed_at", TIME, nullable=False),
    sa.Column("previous_hash", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False, unique=True),
    _one_of("kind", ("run", "late", "checkpoint"), "kind"),
    sa.Index("ix_cycle_seals_cycle", "as_of", "config_version"),
    comment="One row per link of the chain of hashes, append-only.",
)

cycle_seal_parts = sa.Table(
    "cycle_seal_parts",
    metadata,
    sa.Column("number", sa.BigInteger, sa.ForeignKey("cycle_seals.number"), nullable=False),
    sa.Column("table_name", sa.Text, nullable=False),
    sa.Column("chunk", sa.Integer, nullable=False),
    sa.Column("row_keys", pg.ARRAY(sa.Text), nullable=False),
    sa.Column("leaves", sa.LargeBinary, nullable=False, comment="16 bytes per key, in their order"),
    sa.PrimaryKeyConstraint("number", "table_name", "chunk"),
    comment="One row per table that a link covers, or part of a large one: a hash per key.",
)

unsealed_runs = sa.Table(
    "unsealed_runs",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("as_of", TIME, nullable=False),
    sa.Column("config_version", sa.Integer, nullable=False),
    sa.Column("begun_at", TIME, nullable=False, server_default=_NOW),
    comment="One row per run that has begun to write and has not sealed yet.",
)

# ---------------------------------------------------------------------------------------------- replays

replays = sa.Table(
    "replays",
    metadata,
    sa.Column("number", sa.Integer, sa.Identity(), primary_key=True),
    sa.Column("request_hash", sa.Text, nullable=False, comment="of everything that decides the results"),
    sa.Column("request", pg.JSONB, nullable=False),
    sa.Column("snapshot", sa.Text, nullable=False, comment="the settled transactions it reads"),
    sa.Column("begun_at", TIME, nullable=False, server_default=_NOW),
    sa.Column("finished_at", TIME),
    sa.Index("ix_replays_request_hash", "request_hash"),
    comment="One row per replay of a span of history.",
)


def _replayed(*columns: str) -> tuple[sa.ForeignKeyConstraint, ...]:
    keys = [f"replay_configs.{column}" for column in columns]
    return (sa.ForeignKeyConstraint(columns, keys, ondelete="CASCADE"),)


replay_configs = sa.Table(
    "replay_configs",
    metadata,
    sa.Column("replay", sa.Integer, sa.ForeignKey("replays.number", ondelete="CASCADE"), nullable=False),
    sa.Column("position", sa.SmallInteger, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("config", pg.JSONB, nullable=False),
    sa.Column("config_hash", sa.Text, nullable=False),
    sa.Column("pipeline_mode", sa.Text, nullable=False),
    sa.PrimaryKeyConstraint("replay", "position"),
    sa.UniqueConstraint("replay", "name"),
    comment="One row per configuration of a replay, with all its values.",
)

replay_blocks = sa.Table(
    "replay_blocks",
    metadata,
    sa.Column("replay", sa.Integer, nullable=False),
    sa.Column("position", sa.SmallInteger, nullable=False),
    sa.Column("block", sa.Integer, nullable=False),
    sa.Column("entities", pg.ARRAY(sa.Text), nullable=False),
    sa.Column("cycles_done", sa.Integer, nullable=False, server_default="0"),
    sa.PrimaryKeyConstraint("replay", "position", "block"),
    *_replayed("replay", "position"),
    comment="One row per configuration and block of entities of a replay: its stored cycles.",
)

replay_decisions = sa.Table(
    "replay_decisions",
    metadata,
    sa.Column("replay", sa.Integer, nullable=False),
    sa.Column("position", sa.SmallInteger, nullable=False),
    sa.Column("as_of", TIME, nullable=False),
    sa.Column("entity_id", sa.Text, nullable=False),
    _window(),
    sa.Column("documents", sa.Integer, nullable=False, comment="in the window, that say something"),
    sa.Column("plain_average", sa.Double, comment="of their sentiment, unweighted"),
    sa.Column("source_type", sa.Text, comment="the one that carries most of their weight"),
    sa.Column("trend_direction", sa.Text, nullable=False),
    sa.Column("trend_strength", sa.Double, nullable=False),
    sa.Column("average", sa.Double, nullable=False),
    sa.Column("confidence", sa.Double, nullable=False),
    sa.Column("contradiction_score", sa.Double, nullable=False),
    sa.Column("evidence_count", sa.Integer, nullable=False),
    sa.Column("p_bull", sa.Double),
    sa.Column("projected_direction", sa.Text, nullable=False),
    sa.Column("projected_strength", sa.Double, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("mode", sa.Text, nullable=False),
    sa.Column("eligible", sa.Boolean, nullable=False),
    sa.Column("suppressed", sa.Boolean, nullable=False),
    sa.Column("duplicate", sa.Boolean, nullable=False),
    sa.Column("allocation_pct", sa.Double, nullable=False),
    sa.Column("max_loss_pct", sa.Double, nullable=False),
    sa.Column("risk_classification", sa.Text, nullable=False),
    sa.Column("expected_value", sa.Double),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("return_7d", sa.Double, comment="of the seven days after as_of, where settled"),
    sa.PrimaryKeyConstraint("replay", "position", "entity_id", "window", "as_of"),
    *_replayed("replay", "position"),
    _one_of("outcome", ("settled", "unsettled", "no_prices"), "outcome"),
    comment="One row per replay, configuration, cycle and key: the decision, and what followed.",
)

replay_failures = sa.Table(
    "replay_failures",
    metadata,
    sa.Column("replay", sa.Integer, nullable=False),
    sa.Column("position", sa.SmallInteger, nullable=False),
    sa.Column("as_of", TIME, nullable=False),
    sa.Column("entity_id", sa.Text, nullable=False),
    _window(),
    sa.Column("message", sa.Text, nullable=False),
    sa.PrimaryKeyConstraint("replay", "position", "entity_id", "window", "as_of"),
    *_replayed("replay", "position"),
    comment="One row per key that a replayed cycle could not compute.",
)

# ----------------------------------------------------------------------------------------------- agents

ai_agents = sa.Table(
    "ai_agents",
    metadata,
    sa.Column("id", pg.UUID, primary_key=True, server_default=_UUID),
    sa.Column("slug", sa.Text, nullable=False, unique=True),
    sa.Column("provider", sa.Text, nullable=False, server_default="ollama"),
    sa.Column("model_name", sa.Text, nullable=False),
    sa.Column("prompt_version", sa.Text, nullable=False, server_default="1"),
    sa.Column("schema_version", sa.Text, nullable=False, server_default="1"),
    sa.Column("timeout_s", sa.Double, nullable=False, server_default="30"),
    sa.Column("max_retries", sa.Integer, nullable=False, server_default="1"),
    sa.Column("active", sa.Boolean, nullable=False, server_default=sa.true()),
    comment="One row per agent.",
)

agent_variants = sa.Table(
    "agent_variants",
    metadata,
    sa.Column("id", pg.UUID, primary_key=True, server_default=_UUID),
    sa.Column(
        "agent_id", pg.UUID, sa.ForeignKey("ai_agents.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    sa.Column("is_active", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("model_name", sa.Text),
    sa.Column("timeout_s", sa.Double),
    sa.Column("max_retries", sa.Integer),
    sa.Column("hourly_token_budget", sa.Integer),
    comment="One row per variant of an agent.",
)

agent_performance_log = sa.Table(
    "agent_performance_log",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("agent_slug", sa.Text, nullable=False),
    sa.Column("variant_id", pg.UUID),
    sa.Column("success", sa.Boolean),
    sa.Column("error", sa.Text),
    sa.Column("duration_ms", sa.Double),
    sa.Column("est_input_tokens", sa.Integer, nullable=False, server_default="0"),
    sa.Column("est_output_tokens", sa.Integer, nullable=False, server_default="0"),
    sa.Column("created_at", TIME, nullable=False, server_default=_NOW),
    sa.Index("ix_agent_performance_log_variant_time", "variant_id", "created_at"),
    comment="One row per call of a model.",
)

VIEWS: dict[str, str] = {
    "recommendation_evaluations": "SELECT * FROM risk_evaluations",
    "actionable_recommendations": """
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
          AND jsonb_array_length(e.risk_checks -> 'suppression_reasons') = 0""",
    "macro_impacts": """
        SELECT DISTINCT ON (event_id, entity_id) substr(signal_id, 7)::uuid AS event_id, entity_id,
               impact_score, CASE WHEN sentiment_value > 0 THEN 'positive'
               WHEN sentiment_value < 0 THEN 'negative' ELSE 'neutral' END AS direction, as_of
        FROM weighted_signals WHERE layer = 'macro' ORDER BY event_id, entity_id, as_of DESC""",
    "pattern_stats": """
        SELECT entity_id, "window", catalyst_type, sentiment_value, impact_score, as_of
        FROM weighted_signals WHERE layer = 'pattern'""",
}
