"""The files of deploy/, as far as they can be checked without an engine; deploy/README.md states the rest."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster._config import process_config, resolve_to_config_type
from dagster_k8s import K8sRunLauncher

from oracle_dagster import celery_app, cli, memory, shards
from oracle_dagster.definitions import LOCATION, MODULE
from oracle_dagster.home import BROKER_VARIABLE, DATABASE_VARIABLE

DEPLOY = Path(__file__).parents[1] / "deploy"
PINNED = re.compile(r"[a-z0-9-]+:\d+(\.\d+)+([.-][a-z0-9.-]+)?")


def loaded(name: str) -> Any:  # noqa: ANN401 - YAML
    """A file of the folder."""
    return yaml.safe_load((DEPLOY / name).read_text())


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The Compose file, anchors merged."""
    found = loaded("compose.yaml")
    assert isinstance(found, dict)
    return found


# ------------------------------------------------------------------------------------------- Compose


def test_the_services_are_those_that_work_together(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == {
        "postgres", "redis", "tables", "code", "daemon", "webserver", "worker",
    }  # fmt: skip
    assert services["worker"]["deploy"]["replicas"] >= 2
    for name, service in services.items():
        unknown = set(service.get("depends_on", {})) - set(services)
        assert not unknown, (name, unknown)
    named = {volume.split(":")[0] for s in services.values() for volume in s.get("volumes", [])}
    assert named == set(compose["volumes"])


def test_nothing_is_reachable_from_another_machine(compose: dict[str, Any]) -> None:
    ports = {name: service.get("ports", []) for name, service in compose["services"].items()}
    assert {name for name, found in ports.items() if found} == {"postgres", "webserver"}
    for found in ports.values():
        assert all(port.startswith("127.0.0.1:") for port in found), found


def test_images_are_pinned_and_have_plain_names(compose: dict[str, Any]) -> None:
    images = [service["image"] for service in compose["services"].values()]
    images += re.findall(r"^FROM (\S+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert len(images) == 8
    for image in images:
        assert PINNED.fullmatch(image), image


def test_every_process_has_the_databases_the_queue_and_the_limits(compose: dict[str, Any]) -> None:
    for name in ("tables", "code", "daemon", "webserver", "worker"):
        environment = compose["services"][name]["environment"]
        assert {DATABASE_VARIABLE, BROKER_VARIABLE, shards.SHARD_VARIABLE, memory.MEMORY_VARIABLE} <= set(
            environment
        ), name
    assert "POSTGRES_PASSWORD" in compose["services"]["postgres"]["environment"]
    passwords = re.findall(r"ORACLE_POSTGRES_PASSWORD([^}]*)}", (DEPLOY / "compose.yaml").read_text())
    assert passwords
    assert all(found.startswith(":?") for found in passwords), "no password stands in the file"


def test_every_command_of_a_service_exists(compose: dict[str, Any]) -> None:
    import typer

    commands = set(typer.main.get_command(cli.build_app()).commands)  # type: ignore[attr-defined]
    for service in compose["services"].values():
        command = service.get("command", [])
        if command and command[0] == "oracle":
            assert command[1] in commands, command
            if command[1] == "exec":
                assert (Path(sys.executable).parent / command[2]).exists(), command
            if "-m" in command:
                assert command[command.index("-m") + 1] == MODULE


def test_the_code_location_is_where_webserver_and_daemon_look_for_it(compose: dict[str, Any]) -> None:
    (location,) = (entry["grpc_server"] for entry in loaded("workspace.yaml")["load_from"])
    assert location["location_name"] == LOCATION
    code = compose["services"][location["host"]]
    assert code["expose"] == [str(location["port"])]
    assert str(location["port"]) in code["command"]
    for name in ("daemon", "webserver"):
        assert compose["services"][name]["command"][-1].endswith("/deploy/workspace.yaml")
    copied = re.findall(r"^COPY (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    for line in copied:
        for source in line.split()[:-1]:
            assert (DEPLOY.parent / source).exists(), source


def test_the_worker_ends_its_run_before_it_is_killed(compose: dict[str, Any]) -> None:
    worker = compose["services"]["worker"]
    assert worker["stop_grace_period"] == "10m"
    limit = int(worker["environment"][memory.MEMORY_VARIABLE].rpartition("-")[2].rstrip("}"))
    assert limit < int(worker["deploy"]["resources"]["limits"]["memory"].rstrip("g")) * 1024


def test_compose_itself_accepts_the_file() -> None:
    """By whatever Compose is installed; it needs no engine for this."""
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("docker-compose is not on the PATH (Debian: apt-get install docker-compose)")
    found = subprocess.run(
        [program, "-f", str(DEPLOY / "compose.yaml"), "config", "--quiet"],
        env={**os.environ, "ORACLE_POSTGRES_PASSWORD": "secret"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr


# --------------------------------------------------------------------------------------------- Helm


def snake(name: str) -> str:
    """How the chart's template writes a name of its values into dagster.yaml."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def launcher_config(values: dict[str, Any]) -> dict[str, Any]:
    """The launcher's part of dagster.yaml, as the chart's template makes it of the values."""
    given = values["runLauncher"]["config"]["k8sRunLauncher"]
    made = {snake(name): value for name, value in given.items()}
    made["env_secrets"] = [secret["name"] for secret in given["envSecrets"]]
    made["run_k8s_config"] = {snake(name): value for name, value in given["runK8sConfig"].items()}
    return {
        "service_account_name": "dagster",
        "instance_config_map": "dagster-instance",
        "postgres_password_secret": "dagster-postgresql-secret",
        "dagster_home": values["global"]["dagsterHome"],
        **made,
    }


def test_the_launcher_accepts_the_values() -> None:
    values = loaded("helm-values.yaml")
    assert values["runLauncher"]["type"] == "K8sRunLauncher"
    wanted = launcher_config(values)
    checked = process_config(resolve_to_config_type(K8sRunLauncher.config_type()), wanted)
    assert checked.success, checked.errors
    broken = process_config(
        resolve_to_config_type(K8sRunLauncher.config_type()), {**wanted, "job_namspace": "oracle"}
    )
    assert not broken.success, "a misspelt setting is found"


def test_every_pod_of_the_chart_knows_the_limits_and_the_code() -> None:
    values = loaded("helm-values.yaml")
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    assert deployment["name"] == LOCATION
    assert MODULE in deployment["codeServerArgs"]
    assert deployment["image"]["tag"] == "0.1.0"
    launcher = values["runLauncher"]["config"]["k8sRunLauncher"]
    runs = dict(line.split("=", 1) for line in launcher["envVars"])
    assert runs[memory.MEMORY_VARIABLE] == deployment["env"][memory.MEMORY_VARIABLE]
    assert int(runs[memory.MEMORY_VARIABLE]) < int(launcher["resources"]["requests"]["memory"].rstrip("Mi"))
    secret = {"name": "oracle-databases"}
    assert secret in launcher["envSecrets"]
    assert secret in deployment["envSecrets"]
    assert values["dagsterDaemon"]["runRetries"]["enabled"], "a run whose pod is gone is repeated"


def test_what_was_not_tried_is_said() -> None:
    said = (DEPLOY / "README.md").read_text()
    assert "## Not verified" in said
    assert "python -m benchmarks.worker" in said


def test_the_worker_serves_the_orchestrators_own_tasks() -> None:
    app = celery_app.app
    assert {"execute_job", "resume_job"} <= set(app.tasks)
    assert [queue.name for queue in app.conf.task_queues] == ["dagster"]
