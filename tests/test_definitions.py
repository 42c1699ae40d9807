"""What the orchestrator loads: without any database, with every edge of lineage that can change a number."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from oracle_core.config import SECTIONS, OracleConfig
from oracle_core.cycle import STAGE_VERSIONS
from oracle_dagster import dev
from oracle_dagster.assets.configuration import GROUPS, configuration_versions
from oracle_dagster.definitions import LOCATION, MODULE, build_defs
from oracle_dagster.jobs import CYCLE_JOB
from oracle_dagster.partitions import ENTITIES, KEYS
from oracle_dagster.pipeline import STAGES
from tests.chain_runs import QUIET, of_key

REPOSITORY = Path(__file__).parents[1]
GRAPH = build_defs().resolve_asset_graph()
SETTINGS = {
    "source_accuracy": {"accuracy_config"},
    "weighted_signals": {"scoring_config", "accuracy_config"},
    "trend_windows": {"scoring_config", "accuracy_config", "trend_config"},
    "trend_projections": {"scoring_config", "accuracy_config", "trend_config", "projection_config"},
    "recommendations": {
        "scoring_config",
        "accuracy_config",
        "trend_config",
        "projection_config",
        "decision_config",
    },
}
DATA = {
    "source_accuracy": {"documents", "market_bars"},
    "weighted_signals": {
        "documents",
        "market_bars",
        "exposure_profiles",
        "competitive_edges",
        "macro_events",
        "source_accuracy",
    },
    "trend_windows": {"weighted_signals", "market_bars"},
    "trend_projections": {"trend_windows", "market_bars", "exposure_profiles", "macro_events"},
    "recommendations": {"trend_windows", "trend_projections", "documents", "market_bars"},
}


def _parents(asset: str) -> set[str]:
    return {key.to_user_string() for key in GRAPH.get(dg.AssetKey(asset)).parent_keys}


@pytest.mark.parametrize("asset", SETTINGS)
def test_every_asset_depends_directly_on_what_can_change_it(asset: str) -> None:
    """dagster.md 7: staleness goes one hop, so an edge over another asset would not do."""
    assert _parents(asset) == SETTINGS[asset] | DATA[asset]


def test_every_setting_belongs_to_one_group_and_changes_its_version_alone() -> None:
    sections = [section for group in GROUPS for section in group.sections]
    assert sorted(sections) == sorted(SECTIONS)
    before = configuration_versions(OracleConfig())
    for path, group in (
        ("eligibility.min_confidence", "decision_config"),
        ("risk.dedup_tolerance", "decision_config"),
        ("suppression.min_valid_documents", "decision_config"),
        ("projection.vol_floor", "projection_config"),
        ("trend.max_risks", "trend_config"),
        ("regime.flat_tolerance", "trend_config"),
        ("accuracy.factor_base", "accuracy_config"),
        ("macro.w_geo", "scoring_config"),
        ("competitive.flat_transfer", "scoring_config"),
        ("scoring.novelty_weight", "scoring_config"),
        ("flags.probabilistic_scoring_enabled", "scoring_config"),
    ):
        value = OracleConfig().settings()[path]
        changed = (
            (not value) if isinstance(value, bool) else value + 1 if isinstance(value, int) else value / 2
        )
        after = configuration_versions(OracleConfig().with_settings({path: changed}))
        assert [name for name in before if before[name] != after[name]] == [group], path


def test_the_chain_is_partitioned_by_entity_and_window_and_inputs_by_entity() -> None:
    """dagster.md 7: one new document must not touch other entities."""
    for asset in STAGES:
        assert GRAPH.get(dg.AssetKey(asset)).partitions_def == KEYS
    for asset in ("documents", "market_bars", "exposure_profiles", "competitive_edges"):
        assert GRAPH.get(dg.AssetKey(asset)).partitions_def == ENTITIES
    for asset in ("macro_events", "source_accuracy", *(group.name for group in GROUPS)):
        assert GRAPH.get(dg.AssetKey(asset)).partitions_def is None


@pytest.mark.parametrize("asset", STAGES)
def test_an_asset_of_the_chain_says_what_one_row_is_and_which_mathematics_made_it(asset: str) -> None:
    node = GRAPH.get(dg.AssetKey(asset))
    assert (node.description or "").startswith("One row per ")
    assert node.code_version == STAGE_VERSIONS[asset]
    assert node.metadata["dagster/table_name"] == asset
    assert node.backfill_policy == dg.BackfillPolicy.single_run()


def test_every_asset_has_a_description_and_a_group() -> None:
    for key in GRAPH.get_all_asset_keys():
        node = GRAPH.get(key)
        assert (node.description or "").startswith("One "), key
        assert node.group_name in {"inputs", "configuration", "decisions", "agents"}, key


def test_the_checks_of_the_chain_belong_to_its_own_step() -> None:
    """dagster.md 3: a separate check on an asset that reports its partitions itself is always skipped."""
    found = {(key.asset_key.to_user_string(), key.name) for key in GRAPH.asset_check_keys}
    found.remove(("source_accuracy", "no_look_ahead"))  # of an asset that is not partitioned, in its own job
    assert found == {
        ("weighted_signals", "ranges_and_invariants"),
        ("weighted_signals", "nothing_from_the_future"),
        ("weighted_signals", "inputs_are_fresh"),
        ("weighted_signals", "few_records_rejected"),
        ("trend_windows", "ranges_and_invariants"),
        ("trend_windows", "evidence_exists"),
        ("trend_windows", "nothing_from_the_future"),
        ("trend_windows", "history_has_no_gap"),
        ("trend_windows", "confidence_has_not_drifted"),
        ("trend_windows", "contradiction_has_not_drifted"),
        ("trend_projections", "ranges_and_invariants"),
        ("recommendations", "ranges_and_invariants"),
        ("recommendations", "evidence_exists"),
        ("recommendations", "nothing_from_the_future"),
        ("recommendations", "few_suppressed"),
    }
    step = build_defs().resolve_assets_def("recommendations")
    assert {spec.asset_key.to_user_string() for spec in step.check_specs} == set(STAGES)


def test_the_job_runs_accuracy_then_the_chain_in_two_steps_of_one_process() -> None:
    job = build_defs().resolve_job_def(CYCLE_JOB)
    assert {node.name for node in job.nodes} == {"source_accuracy", "decision_chain"}
    assert job.executor_def.name == "in_process"


def test_resources_can_be_replaced_by_name_and_by_keyword_only() -> None:
    marker = dg.ResourceDefinition.hardcoded_resource("other")
    resources = build_defs(resources={"database": marker}).resources
    assert resources is not None
    assert resources["database"] is marker
    with pytest.raises(TypeError, match="positional"):
        build_defs({})  # type: ignore[call-arg]


def test_one_name_of_the_code_location_everywhere() -> None:
    """The command line's runs are found in the user interface by this name."""
    workspace = (REPOSITORY / "workspace.yaml").read_text()
    assert f"location_name: {LOCATION}\n" in workspace
    assert f"module_name: {MODULE}\n" in workspace
    assert (dev.LOCATION, dev.DEFINITIONS) == (LOCATION, MODULE)


def test_definitions_validate_and_a_run_says_what_is_missing_where_there_is_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "no home"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ORACLE_", "DAGSTER_"))}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "dagster",
            "definitions",
            "validate",
            "-w",
            str(REPOSITORY / "workspace.yaml"),
        ],
        cwd=REPOSITORY,
        env={**environment, "ORACLE_HOME": str(home), "DAGSTER_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not home.exists(), "loading created something"

    monkeypatch.setenv("ORACLE_HOME", str(home))
    with dg.DagsterInstance.ephemeral() as instance:
        result = (
            build_defs()
            .resolve_job_def(CYCLE_JOB)
            .execute_in_process(
                instance=instance, run_config=QUIET, tags=of_key("A", "7d"), raise_on_error=False
            )
        )
    assert not result.success
    told = " ".join(
        str(event.step_failure_data.error) for event in result.all_events if event.is_step_failure
    )
    for word in (str(home), "`oracle init`", "ORACLE_HOME", "ORACLE_DATABASE_URL"):
        assert word in told
    assert not home.exists(), "a run must not create a database"
