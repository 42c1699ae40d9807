"""The stages of a cycle: columns in, a frame out; each asks for its set of rules once and hands it down.

Every stage looks only at what was known at ``as_of``. Nothing is computed here, stored or read from a clock.
Rows may come in any order, and a batch of keys gives the same bits as each key alone.
"""

from __future__ import annotations

from oracle_core import decision, projection, scoring, source_accuracy, trend
from oracle_core.config import OracleConfig
from oracle_core.frames import DecisionFrame, ProjectionFrame, SignalFrame, TrendFrame
from oracle_core.inputs import AccuracyRows, CycleInputs, HistoryRows, Keys, StandingRows
from oracle_core.rules import rules_for

STAGE_VERSIONS: dict[str, str] = {
    "source_accuracy": "1",
    "weighted_signals": "1",
    "trend_windows": "1",
    "trend_projections": "1",
    "recommendations": "1",
}
"""Version of the mathematics of each stage: raise it when a result may change, and old results turn stale."""

CODE_VERSION: str = ".".join(STAGE_VERSIONS.values())
"""Version of all stages together, recorded with every cycle."""


def measure_accuracy(inputs: CycleInputs, as_of_us: int, config: OracleConfig) -> AccuracyRows:
    """Accuracy of every source from the outcomes settled by ``as_of`` (R163-R167)."""
    return source_accuracy.measure_accuracy(inputs.known_at(as_of_us), as_of_us, config)


def score_signals(inputs: CycleInputs, keys: Keys, as_of_us: int, config: OracleConfig) -> SignalFrame:
    """Weighted signals of every key, all layers (R1-R7, R170-R180).

    Args:
        inputs: everything the keys can reach, and the accuracy of the sources as of ``as_of``.
        keys: entities and windows asked for.
        as_of_us: the cycle's moment.
        config: the configuration; its flag chooses the set of rules.

    """
    return scoring.score_signals(inputs.known_at(as_of_us), keys, as_of_us, config, rules_for(config))


def assemble_trends(
    signals: SignalFrame, inputs: CycleInputs, as_of_us: int, config: OracleConfig
) -> TrendFrame:
    """Trend of every key of the signals (R8-R40, R181-R186)."""
    return trend.assemble_trends(signals, inputs.known_at(as_of_us), config, rules_for(config))


def project_trends(
    trends: TrendFrame, inputs: CycleInputs, history: HistoryRows, as_of_us: int, config: OracleConfig
) -> ProjectionFrame:
    """Projection of every trend (R41-R55, R190).

    Args:
        trends: of the same cycle.
        inputs: events and exposures.
        history: signed strengths of earlier cycles; ``key`` counts the rows of ``trends``. Rows that are not
            strictly earlier than ``as_of`` are left out.
        as_of_us: the cycle's moment.
        config: the configuration.

    """
    return projection.project_trends(
        trends,
        inputs.known_at(as_of_us),
        history.take(history.as_of_us < as_of_us),
        as_of_us=as_of_us,
        config=config,
        rules=rules_for(config),
    )


def decide(  # noqa: PLR0917 - in the order in which the stages hand them on
    trends: TrendFrame,
    projections: ProjectionFrame,
    inputs: CycleInputs,
    standing: StandingRows,
    as_of_us: int,
    config: OracleConfig,
) -> DecisionFrame:
    """Decision of every trend (R64-R127, R191-R196).

    Args:
        trends: of the same cycle.
        projections: of the same keys.
        inputs: documents and bars.
        standing: newest earlier recommendation; ``key`` counts the rows of ``trends``.
        as_of_us: the cycle's moment.
        config: the configuration.

    Raises:
        ValueError: the projections are of other keys.

    """
    return decision.decide(
        trends,
        projections,
        inputs.known_at(as_of_us),
        standing,
        as_of_us=as_of_us,
        config=config,
        rules=rules_for(config),
    )
