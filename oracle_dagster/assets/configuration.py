"""The configuration as assets: one per group of sections that reaches the same stages.

A group's data version is the fingerprint of its sections, so that a changed threshold makes exactly those
partitions stale whose numbers it can change. Which stage a section reaches is stated here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import dagster as dg

from oracle_core.config import SECTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oracle_core.config import OracleConfig


@dataclass(frozen=True)
class ConfigurationGroup:
    """Sections of the configuration that reach the same assets."""

    name: str
    sections: tuple[str, ...]
    reaches: tuple[str, ...]
    describes: str

    def version(self, config: OracleConfig) -> str:
        """The data version: equal exactly where every value of the sections is equal."""
        return config.fingerprint(*self.sections)


GROUPS: Final = (
    ConfigurationGroup(
        "scoring_config",
        ("flags", "scoring", "macro", "competitive"),
        ("weighted_signals", "trend_windows", "trend_projections", "recommendations"),
        "One value per setting that weighs a signal or chooses the set of rules.",
    ),
    ConfigurationGroup(
        "accuracy_config",
        ("accuracy",),
        ("source_accuracy", "weighted_signals", "trend_windows", "trend_projections", "recommendations"),
        "One value per setting of how sources are judged by outcomes.",
    ),
    ConfigurationGroup(
        "trend_config",
        ("trend", "regime"),
        ("trend_windows", "trend_projections", "recommendations"),
        "One value per setting of direction, contradiction, evidence, confidence and regime.",
    ),
    ConfigurationGroup(
        "projection_config",
        ("projection",),
        ("trend_projections", "recommendations"),
        "One value per setting of momentum and projection.",
    ),
    ConfigurationGroup(
        "decision_config",
        ("suppression", "eligibility", "risk"),
        ("recommendations",),
        "One value per setting of data quality, gates, sizes, risk and thesis.",
    ),
)


def groups_reaching(asset: str) -> list[ConfigurationGroup]:
    """The groups whose settings can change an asset's rows."""
    return [group for group in GROUPS if asset in group.reaches]


def configuration_versions(config: OracleConfig) -> Mapping[str, str]:
    """The data version of every group's asset under a configuration."""
    return {group.name: group.version(config) for group in GROUPS}


configuration_assets: Final = [
    dg.AssetSpec(
        group.name,
        group_name="configuration",
        description=f"{group.describes} Data version: hash of {', '.join(group.sections)}.",
        kinds={"postgres"},
        metadata={"dagster/table_name": "risk_configs", "sections": list(group.sections)},
    )
    for group in GROUPS
]

if {section for group in GROUPS for section in group.sections} != set(SECTIONS):  # pragma: no cover
    raise RuntimeError("every section of the configuration belongs to exactly one group")
