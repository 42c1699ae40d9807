"""``oracle demo``: the 2016 polls, decided on the eve of the election."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oracle_dagster.cli.common import (
    DEMO_MARK,
    HomeOption,
    JsonOption,
    console,
    iso,
    note,
    print_json,
    progress,
    resolve_home,
)

if TYPE_CHECKING:
    from rich.console import Console

    from oracle_dagster.demo import Demo, Reworded

WIDE = 100
_PHASES = {"computing": "computing the cycle", "rewording": "rewording theses"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    thesis_model: Annotated[
        str | None,
        typer.Option(
            "--thesis-model",
            metavar="NAME",
            help="Have theses reworded by this model of the server at OLLAMA_HOST (default 127.0.0.1:11434).",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Decide on the polls of the 2016 US election.

    Loads 4,208 bundled polls into a home of its own (the folder demo in the home, always with the embedded
    database), runs the cycle as of the eve of the election and prints the 30-day window with its score
    against the certified results. Safe to repeat; never touches other tables.
    """
    from oracle_dagster.home import Home

    with progress("starting") as advance:
        from oracle_dagster import demo as demonstration

        place = resolve_home(demonstration.demo_home(Home.resolve(home), DEMO_MARK).path)
        if sys.stderr.isatty():
            result = demonstration.run(
                place,
                say=lambda text: advance(0, None, text),
                on_keys=lambda phase, done, total: advance(done, total, _PHASES.get(phase, phase)),
                thesis_model=thesis_model,
            )
        else:
            result = demonstration.run(
                place, say=note, on_keys=lambda _phase, _done, _total: None, thesis_model=thesis_model
            )
    if as_json:
        print_json(
            {
                "home": str(place.path),
                "run_id": result.outcome.run_id,
                "as_of": iso(result.outcome.as_of),
                "window": demonstration.WINDOW,
                "documents": result.documents,
                "rows": [asdict(row) for row in result.rows],
                "score": asdict(result.score),
                "reworded": None if result.reworded is None else asdict(result.reworded),
                "seconds": {name: round(value, 3) for name, value in _seconds(result).items()},
            }
        )
    else:
        show(result, console())


def show(result: Demo, out: Console) -> None:
    """Print the demo's result."""
    from rich.table import Table
    from rich.text import Text

    colours = {"positive": "blue", "negative": "red", "mixed": "yellow", "neutral": "dim"}
    table = Table(box=None, padding=(0, 1, 0, 0))
    for name in ("entity", "direction"):
        table.add_column(name, no_wrap=True)
    for name in ("strength", "confi-\ndence", "contra-\ndiction"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("action", "mode"):
        table.add_column(name, no_wrap=True)
    wide = out.width >= WIDE
    for row in result.rows:
        table.add_row(
            Text(row.entity_id),
            Text(row.direction, style=colours.get(row.direction, "")),
            f"{row.strength:.3f}",
            f"{row.confidence:.3f}",
            f"{row.contradiction:.3f}",
            Text(row.action, style="bold" if row.action in {"act", "defer"} else ""),
            row.mode if wide else row.mode.removesuffix("_eligible"),
        )
    out.print(f"Polls of 30 days as of {iso(result.outcome.as_of)} (positive Clinton, negative Trump)")
    out.print()
    out.print(table)
    out.print()
    tally = ", ".join(
        f"{sum(modes.values())} {action} ({', '.join(f'{n} {mode}' for mode, n in modes.items())})"
        for action, modes in result.tally().items()
    )
    out.print(f"{len(result.rows)} entities: {tally}.")
    out.print()
    misses = ", ".join(
        f"{name} ({direction})" if direction == "mixed" else name for name, direction in result.score.misses
    )
    out.print(
        f"Score: the sign of the average calls {result.score.right} of {result.score.of} states (with DC) as "
        f"certified. Misses: {misses}. A trend that is mixed is never acted on."
    )
    out.print()
    if result.reworded is not None:
        _show_reworded(result.reworded, out)
    times = Table(box=None, padding=(0, 2, 0, 0), title="Where the time went", title_justify="left")
    times.add_column("step")
    times.add_column("seconds", justify="right")
    for name, value in _seconds(result).items():
        times.add_row(name, f"{value:.2f}")
    out.print(times)
    out.print()
    command = f"{_oracle()} dev --home {shlex.quote(_short(result.home.path))}"
    out.print("Look at it in the user interface, with every number's evidence:")
    out.print(f"  {command}", soft_wrap=True, highlight=False)


def _show_reworded(reworded: Reworded, out: Console) -> None:
    out.print(
        f"{reworded.model} reworded {reworded.used} of the {reworded.of} theses it may; the others keep "
        "their own words, because its answer was missing or said something else."
    )
    if reworded.example is not None:
        own, words = reworded.example
        out.print(f"  own words:  {own}", markup=False)
        out.print(f"  reworded:   {words}", markup=False)
    out.print()


def _seconds(result: Demo) -> dict[str, float]:
    """The steps of the demo, then the phases inside the cycle, then all together."""
    inside = {f"  {name.replace('_', ' ')}": value for name, value in result.outcome.seconds.items()}
    found: dict[str, float] = {}
    for name, value in result.seconds.items():
        found[name] = value
        if name == "compute the cycle":
            rest = value - sum(inside.values())
            found |= {**inside, "  orchestrator and the rest": rest}
    return {**found, "all": sum(result.seconds.values())}


def _oracle() -> str:
    """How this program can be started again from here."""
    started = Path(sys.argv[0])
    if started.name != "oracle":
        return f"{shlex.quote(sys.executable)} -m oracle_dagster.cli"
    found = shutil.which("oracle")
    if found is not None and Path(found).resolve() == started.resolve():
        return "oracle"
    return shlex.quote(_short(started.absolute()))


def _short(path: Path) -> str:
    """A path relative to the current folder where it lies below, else as it is."""
    try:
        return os.path.join(".", path.relative_to(Path.cwd()))  # noqa: PTH118 - Path drops the leading ./
    except ValueError:
        return str(path)
