"""The README does what it says: its commands run, its set-up is two commands, its lists are complete."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from oracle_dagster.export import exportable
from oracle_dagster.home import Home
from tests.command import oracle

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
UNLISTED = {"run_batches", "config_applications", "ai_agents", "agent_variants", "agent_performance_log"}


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCK.findall(README) if name == language]


def commands() -> list[str]:
    """The commands of all console blocks in order; ``> `` continues one."""
    found: list[str] = []
    for line in "".join(blocks("console")).splitlines():
        if line.startswith("$ "):
            found.append(line[2:])
        else:
            assert line.startswith("> "), f"neither a command nor its continuation: {line!r}"
            found[-1] += "\n" + line[2:]
    return found


def shown_output() -> dict[str, str]:
    """The text blocks right below a command: what the page says it prints; … leaves something out."""
    found: dict[str, str] = {}
    blocks_in_order = list(BLOCK.finditer(README))
    for block, following in pairwise(blocks_in_order):
        below = README[block.end() : following.start()].strip() == ""
        if below and (block[1], following[1]) == ("console", "text"):
            found[block[2].rstrip().rpartition("$ ")[2]] = following[2]
    return found


def test_every_block_says_what_it_is() -> None:
    assert {name for name, _ in BLOCK.findall(README)} == {"sh", "console", "mermaid", "text"}


def test_the_set_up_is_exactly_two_commands() -> None:
    (setup,) = blocks("sh")
    assert [line.split("#")[0].strip() for line in setup.splitlines()] == ["make demo", "make test"]


@pytest.mark.timeout(600)
def test_the_commands_work_in_the_order_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one new folder, as a reader would type them; each must succeed.

    Those of oracle run in this process: starting Python and the orchestrator's libraries anew for each would
    take minutes and show nothing more.
    """
    for name in [name for name in os.environ if name.startswith("ORACLE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    typed = commands()
    assert len(typed) >= 15
    printed: dict[str, str] = {}
    # Held from here, so that the embedded server does not start and stop with every command.
    with Home(tmp_path / ".oracle").connect():
        for command in typed:
            if command.startswith("oracle "):
                done = oracle(*shlex.split(command)[1:])
                assert done.code == 0, f"{command}\n{done.out}\n{done.err}"
                printed[command] = done.out
            else:
                subprocess.run(["sh", "-c", command], check=True)
    assert (tmp_path / "recommendations.jsonl").read_text().count('"ACME"') == 5
    assert (tmp_path / "evaluations.parquet").stat().st_size > 0
    assert (tmp_path / "wisconsin.html").read_text(encoding="utf-8").count("<svg") == 4
    shown = shown_output()
    assert len(shown) >= 2
    for command, text in shown.items():
        whole = " ".join(printed[command].split())
        for part in text.split("…\n"):
            assert " ".join(part.split()) in whole, f"{command} does not print:\n{part}"


def test_every_command_that_is_mentioned_exists() -> None:
    from oracle_dagster import cli

    known = {name for module in [cli.build_app()] for name in _names(module)}
    for name in set(re.findall(r"`oracle ([a-z]+)", README)):
        assert name in known


def _names(app: object) -> set[str]:
    import typer.main

    group = typer.main.get_command(app)  # type: ignore[arg-type]
    return set(group.commands)  # type: ignore[attr-defined]


def test_the_list_of_tables_is_complete() -> None:
    section = README.split("## Tables")[1].split("\n## ")[0]
    views = {"recommendation_evaluations", "macro_impacts", "pattern_stats"}  # other names for what is listed
    missing = [name for name in exportable() if f"`{name}`" not in section and name not in UNLISTED | views]
    assert missing == []


def test_every_link_leads_to_a_file() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("https://"):
            assert (ROOT / target).is_file(), target
