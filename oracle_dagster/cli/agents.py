"""``oracle agents``: which local model rewords theses, and what it has cost so far."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oracle_dagster.cli.common import (
    HomeOption,
    JsonOption,
    connected,
    console,
    existing_home,
    folding_table,
    print_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oracle_dagster.storage.database import Database

DEFAULT_SLUG = "thesis-rewriter"
SlugArgument = Annotated[
    str, typer.Argument(metavar="[AGENT]", help="The agent; there is one, which rewords theses.")
]


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(
        help="Choose the local model that rewords theses, or switch it off.", no_args_is_help=True
    )
    group.command("list")(list_)
    group.command("set")(set_)
    group.command("disable")(disable)
    app.add_typer(group, name="agents")


@contextlib.contextmanager
def _database(home: Path | None) -> Iterator[Database]:
    from oracle_dagster.storage.database import Database

    with connected(existing_home(home)) as connections:
        database = Database(connections.domain_url)
        try:
            yield database
        finally:
            database.close()


def list_(as_json: JsonOption = False, home: HomeOption = None) -> None:
    """Print every agent with its variants and what their calls came to.

    One line per variant: calls, share of answers used, latency, estimated tokens.
    """
    from oracle_dagster.rewriting import agents, performance

    with _database(home) as database:
        found = agents.described(database)
        figures = performance.overall(database)
    if as_json:
        print_json({"agents": found, "performance": figures})
        return
    if len(found) == 0:
        print("There is no agent: theses keep their own words. `oracle agents set --model NAME` sets one up.")
        return
    _print(found, figures)


def _print(found: list[dict[str, Any]], figures: list[dict[str, Any]]) -> None:
    from rich.text import Text

    used = {(row["agent_slug"], row["variant_id"]): row for row in figures}
    names = ("agent", "variant", "active", "model", "timeout s", "retries", "tokens per hour")
    table = folding_table(*names, "calls", "used", "p50 ms", "p95 ms", "p99 ms", "est. tokens")
    for agent in found:
        chosen = any(variant["is_active"] for variant in agent["variants"])
        own = {"id": None, "is_active": not chosen, "hourly_token_budget": None}
        shown = [*agent["variants"]]
        if not chosen or (agent["slug"], None) in used:
            shown.insert(0, own)
        for variant in shown:
            settings = [
                str(agent[name] if variant.get(name) is None else variant[name])
                for name in ("model_name", "timeout_s", "max_retries")
            ]
            key = None if variant["id"] is None else str(variant["id"])
            active = "yes" if agent["active"] and variant["is_active"] else ""
            budget = variant["hourly_token_budget"]
            cells = [
                agent["slug"],
                "" if key is None else key,
                active,
                *settings,
                "" if budget is None else f"{budget:,}",
                *_figures(used.get((agent["slug"], key))),
            ]
            table.add_row(*(Text(cell) for cell in cells))
    console().print(table)


def _figures(row: dict[str, Any] | None) -> list[str]:
    if row is None:
        return ["0", "", "", "", "", "0"]
    rate = row["success_rate"]
    times = ["" if row[name] is None else f"{row[name]:.0f}" for name in ("p50_ms", "p95_ms", "p99_ms")]
    tokens = row["est_input_tokens"] + row["est_output_tokens"]
    return [f"{row['calls']:,}", "" if rate is None else f"{rate:.0%}", *times, f"{tokens:,}"]


def set_(
    agent: SlugArgument = DEFAULT_SLUG,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="The model, as the server names it.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", help="How long one answer may take; at first 30."),
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option("--retries", metavar="N", help="Further attempts after a passing fault; at first 1."),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option("--hourly-tokens", metavar="N", help="Estimated tokens that may be used in any hour."),
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option(
            "--variant",
            metavar="new|ID",
            help="Set up and use a further variant, or use the one whose id begins so.",
        ),
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Set up the agent, change it, and switch it on.

    The values go to the variant in use, else to the agent. The server is the one that OLLAMA_HOST names. Runs
    in progress notice within 50 recommendations.
    """
    from oracle_dagster.rewriting import agents

    settings = agents.Settings(
        model_name=model, timeout_s=timeout, max_retries=retries, hourly_token_budget=budget
    )
    with _database(home) as database:
        chosen = agents.configure(database, agent, settings, variant=variant)
        found = next(each for each in agents.described(database) if each["slug"] == agent)
    if as_json:
        print_json({**found, "active_variant": chosen})
        return
    place = "" if chosen is None else f", variant {chosen}"
    print(f"The agent {agent} is on{place}. `oracle agents list` shows it.")


def disable(agent: SlugArgument = DEFAULT_SLUG, as_json: JsonOption = False, home: HomeOption = None) -> None:
    """Switch the agent off; its variants and its log stay, and what it reworded."""
    from oracle_dagster.rewriting import agents

    with _database(home) as database:
        agents.disable(database, agent)
        found = next(each for each in agents.described(database) if each["slug"] == agent)
    if as_json:
        print_json(found)
        return
    print(f"The agent {agent} is off: theses keep their own words from now on.")
