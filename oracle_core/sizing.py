"""How much to commit and how much loss to allow (R95-R100, R196, G27, G28).

Sizes are computed for every trend, also for one that may not be acted on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from oracle_core.config import EligibilityConfig
from oracle_core.inputs import Columns, Float, Int
from oracle_core.records import PositionSizing


class AllocationRule(Protocol):
    """Factor on the allocation of every key; the two sets of rules differ here (R196)."""

    def __call__(self, p_bull: Float) -> Float:
        """Return one factor in [0, 1] per key."""
        ...


def full_allocation(p_bull: Float) -> Float:
    """Factor 1 for every key, heuristic."""
    return np.ones(len(p_bull))


def conviction_allocation(p_bull: Float) -> Float:
    """``max(p, 1 - p)`` in [0.5, 1], probabilistic (G28); 1 where the probability is missing.

    Implements: R196.
    """
    return np.where(np.isnan(p_bull), 1.0, np.maximum(p_bull, 1.0 - p_bull))


@dataclass(frozen=True, slots=True, eq=False)
class SizeChain(Columns):
    """What one size is made of, one row per key.

    ``size = clamp((base + confidence_factor * strength_factor * span) * (contradiction_factor *
    evidence_factor) * scale, 0, most)``.
    """

    base: Float
    confidence_factor: Float
    strength_factor: Float
    span: Float
    contradiction_factor: Float
    evidence_factor: Float
    scale: Float
    most: Float
    size: Float


def position_sizes(
    *,
    strength: Float,
    confidence: Float,
    contradiction: Float,
    evidence: Int,
    scale: Float,
    config: EligibilityConfig,
) -> tuple[Float, Float]:
    """Allocation and loss limit of every key.

    ``base + (0.8 * confidence) * (0.5 + 0.5 * strength) * (max - base)``, less the penalties for
    contradiction and for thin evidence. The allocation alone is scaled. Both are clamped to [0, max]: a
    penalty may go below the base (G27).

    Args:
        strength: in [0, 1].
        confidence: in [0, 1].
        contradiction: in [0, 1].
        evidence: number of documents.
        scale: factor on the allocation, see :class:`AllocationRule`.
        config: bounds and penalties.

    Returns:
        ``(allocation, loss limit)`` as shares of 1.

    """
    allocation, loss = size_chains(
        strength=strength,
        confidence=confidence,
        contradiction=contradiction,
        evidence=evidence,
        scale=scale,
        config=config,
    )
    return allocation.size, loss.size


def size_chains(
    *,
    strength: Float,
    confidence: Float,
    contradiction: Float,
    evidence: Int,
    scale: Float,
    config: EligibilityConfig,
) -> tuple[SizeChain, SizeChain]:
    """Allocation and loss limit with the factors they are made of; arguments as for :func:`position_sizes`.

    Implements: R95, R96, R97, R98, R99.
    """
    floor, one = config.strength_sizing_floor, np.ones(len(strength))
    driven = config.confidence_sizing_weight * confidence
    strong = floor + (1.0 - floor) * strength
    agreed = 1.0 - config.contradiction_sizing_penalty * contradiction
    backed = np.select(
        (evidence < config.thin_evidence_below, evidence < config.modest_evidence_below),
        (config.thin_evidence_factor, config.modest_evidence_factor),
        1.0,
    )
    chains = []
    for base, most, factor in (
        (config.base_allocation_pct, config.max_allocation_pct, scale),
        (config.base_max_loss_pct, config.max_max_loss_pct, one),
    ):
        raw = base + driven * strong * (most - base)
        size = np.clip(raw * (agreed * backed) * factor, 0.0, most)
        span = one * (most - base)
        chains.append(SizeChain(one * base, driven, strong, span, agreed, backed, factor, one * most, size))
    return chains[0], chains[1]


def compute_position_sizing(
    *,
    strength: float,
    confidence: float,
    contradiction: float,
    evidence: int,
    p_bull: float | None = None,
    config: EligibilityConfig | None = None,
) -> PositionSizing:
    """Sizes of one trend; ``p_bull`` None means no scaling."""
    probability = np.array([np.nan if p_bull is None else p_bull])
    allocation, loss = position_sizes(
        strength=np.array([strength]),
        confidence=np.array([confidence]),
        contradiction=np.array([contradiction]),
        evidence=np.array([evidence]),
        scale=conviction_allocation(probability),
        config=config or EligibilityConfig(),
    )
    return PositionSizing(allocation_pct=float(allocation[0]), max_loss_pct=float(loss[0]))
