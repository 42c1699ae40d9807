"""What the user interface asks of its server, for tests that operate the product as a person does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from oracle_dagster.as_of import AS_OF_TAG
from oracle_dagster.definitions import LOCATION
from oracle_dagster.jobs import CYCLE_JOB
from oracle_dagster.pipeline import STAGES

REPOSITORY = {"repositoryName": "__repository__", "repositoryLocationName": LOCATION}
ENDED_RUNS = {"SUCCESS", "FAILURE", "CANCELED"}
ENDED_BACKFILLS = {"COMPLETED", "COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED"}
_ERRORS = "... on PythonError { message } ... on UnauthorizedError { message }"


@dataclass(frozen=True)
class Backfill:
    """How far a backfill is: its status, its runs, and by asset (targeted, materialised, failed)."""

    status: str
    runs: Mapping[str, str]
    counts: Mapping[str, tuple[int, int, int]]

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.status in ENDED_BACKFILLS


class Client:
    """The GraphQL interface of a running `oracle dev`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, query: str, **variables: object) -> Any:  # noqa: ANN401 - decoded JSON
        """The answer to a query; an error of the query itself fails the test."""
        answer = httpx.post(
            f"{self.url}/graphql", json={"query": query, "variables": variables}, timeout=60, trust_env=False
        ).json()
        assert "errors" not in answer, answer["errors"]
        return answer["data"]

    def backfill(self, *, as_of: str, assets: Sequence[str] = STAGES, **selection: object) -> str:
        """Launch a backfill as of a moment; ``selection`` as in the interface's `LaunchBackfillParams`."""
        return self._launch_backfill(
            as_of, {"assetSelection": [{"path": [asset]} for asset in assets], **selection}
        )

    def range(self, *, as_of: str, start: str, end: str) -> str:
        """Launch a backfill of the rectangle between two keys, as of a moment."""
        ranges = {"ranges": [{"start": start, "end": end}]}
        by_asset = [{"assetKey": {"path": [asset]}, "partitions": ranges} for asset in STAGES]
        return self._launch_backfill(as_of, {"partitionsByAssets": by_asset})

    def _launch_backfill(self, as_of: str, selection: Mapping[str, object]) -> str:
        found = self.ask(
            "mutation($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) { __typename"
            f" ... on LaunchBackfillSuccess {{ backfillId }} {_ERRORS} }} }}",
            p={"tags": [{"key": AS_OF_TAG, "value": as_of}], **selection},
        )["launchPartitionBackfill"]
        assert found["__typename"] == "LaunchBackfillSuccess", found
        return str(found["backfillId"])

    def look(self, backfill_id: str) -> Backfill:
        """How far a backfill is."""
        found = self.ask(
            "query($b: String!) { partitionBackfillOrError(backfillId: $b) { __typename"
            " ... on PartitionBackfill { status runs(limit: 500) { id status }"
            " assetBackfillData { assetBackfillStatuses {"
            " ... on AssetPartitionsStatusCounts { assetKey { path } numPartitionsTargeted"
            " numPartitionsMaterialized numPartitionsFailed } } } } } }",
            b=backfill_id,
        )["partitionBackfillOrError"]
        assert found["__typename"] == "PartitionBackfill", found
        data = found["assetBackfillData"] or {"assetBackfillStatuses": []}
        return Backfill(
            found["status"],
            {run["id"]: run["status"] for run in found["runs"]},
            {
                status["assetKey"]["path"][-1]: (
                    status["numPartitionsTargeted"],
                    status["numPartitionsMaterialized"],
                    status["numPartitionsFailed"],
                )
                for status in data["assetBackfillStatuses"]
            },
        )

    def finished(self, backfill_id: str) -> Backfill | None:
        """The backfill once it and all its runs have ended."""
        found = self.look(backfill_id)
        return found if found.ended and set(found.runs.values()) <= ENDED_RUNS else None

    def cancel_backfill(self, backfill_id: str) -> None:
        """Cancel it, its runs included."""
        found = self.ask(
            f"mutation($b: String!) {{ cancelPartitionBackfill(backfillId: $b) {{ __typename {_ERRORS} }} }}",
            b=backfill_id,
        )["cancelPartitionBackfill"]
        assert found["__typename"] == "CancelBackfillSuccess", found

    def launch(self, config: Mapping[str, object], *, job: str = CYCLE_JOB, **tags: str) -> str:
        """Launch a job with a configuration, as from the launchpad."""
        found = self.ask(
            "mutation($e: ExecutionParams!) { launchPipelineExecution(executionParams: $e) { __typename"
            f" ... on LaunchRunSuccess {{ run {{ runId }} }} {_ERRORS}"
            " ... on RunConfigValidationInvalid { errors { message } } } }",
            e={
                "selector": {**REPOSITORY, "pipelineName": job},
                "runConfigData": config,
                "mode": "default",
                "executionMetadata": {"tags": [{"key": k, "value": v} for k, v in tags.items()]},
            },
        )["launchPipelineExecution"]
        assert found["__typename"] == "LaunchRunSuccess", found
        return str(found["run"]["runId"])

    def status(self, run_id: str) -> str:
        """The status of a run."""
        found = self.ask("query($r: ID!) { runOrError(runId: $r) { ... on Run { status } } }", r=run_id)
        return str(found["runOrError"]["status"])

    def ended(self, run_id: str) -> str | None:
        """How a run ended; None while it goes on."""
        status = self.status(run_id)
        return status if status in ENDED_RUNS else None

    def terminate(self, run_id: str) -> None:
        """Cancel a run."""
        found = self.ask(
            "mutation($r: String!) { terminateRun(runId: $r) { __typename"
            f" ... on TerminateRunFailure {{ message }} {_ERRORS} }} }}",
            r=run_id,
        )["terminateRun"]
        assert found["__typename"] == "TerminateRunSuccess", found

    def execute_again(self, run_id: str, strategy: str = "FROM_FAILURE") -> str:
        """Re-execute a run that failed or was cancelled."""
        found = self.ask(
            "mutation($p: ReexecutionParams!) { launchRunReexecution(reexecutionParams: $p) { __typename"
            f" ... on LaunchRunSuccess {{ run {{ runId }} }} {_ERRORS} }} }}",
            p={"parentRunId": run_id, "strategy": strategy},
        )["launchRunReexecution"]
        assert found["__typename"] == "LaunchRunSuccess", found
        return str(found["run"]["runId"])

    def start_sensor(self, name: str) -> None:
        """Switch a sensor on."""
        found = self.ask(
            f"mutation($s: SensorSelector!) {{ startSensor(sensorSelector: $s) {{ __typename {_ERRORS} }} }}",
            s={**REPOSITORY, "sensorName": name},
        )["startSensor"]
        assert found["__typename"] == "Sensor", found
