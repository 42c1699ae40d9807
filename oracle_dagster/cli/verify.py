"""``oracle verify``, ``oracle receipt`` and ``oracle leaks``: is what is stored what the rules make of it?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oracle_dagster.cli.common import (
    AsOf,
    CommandError,
    HomeOption,
    JsonOption,
    iso,
    note,
    opened,
    print_json,
    progress,
)

if TYPE_CHECKING:
    from oracle_dagster.storage.database import Database
    from oracle_dagster.storage.seals import ChainReport
    from oracle_dagster.verification.recompute import CycleReport

SHOWN = 20
DEFAULT_SAMPLE = 100


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("verify")(verify)
    app.command("receipt")(receipt)
    app.command("leaks")(leaks)


def verify(
    recommendation: Annotated[
        str | None,
        typer.Argument(metavar="REC_ID", help="Only this recommendation.", show_default=False),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Recompute every stored cycle, not a sample.")
    ] = False,
    sample: Annotated[
        int,
        typer.Option("--sample", metavar="N", min=0, help="Recompute this many recommendations."),
    ] = DEFAULT_SAMPLE,
    seed: Annotated[str, typer.Option("--seed", help="Another seed draws another sample.")] = "",
    seal: Annotated[
        bool, typer.Option("--seal", help="First seal what killed runs have left unsealed.")
    ] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Recompute what is stored and check the chain of hashes; exit 1 if anything differs.

    Trends, projections, decisions and their evidence are computed again from the stored inputs and the
    recorded configuration, and every stored field is compared bit for bit (to 1e-12 where the cycle ran on
    another machine or with other libraries). The chain of hashes finds any row that was altered, added or
    deleted since it was sealed, inputs and configurations included, and names the first. Nothing is changed,
    except that --seal adds missing links.
    """
    from oracle_dagster.storage import migrate, seals

    with opened(home) as database:
        migrate.check(database)
        sealed = seals.seal_leftovers(database) if seal else 0
        if sealed:
            note(f"sealed {sealed} links that killed runs had left open, as the rows are now")
        with progress("checking the chain") as advance:
            chain = seals.check(database, on_progress=advance)
        reports = _recomputed(database, recommendation, sample, seed, everything=everything)
    if as_json:
        print_json(_as_object(chain, reports))
    else:
        _print(chain, reports)
    faults = len(chain.faults) + sum(len(r.differences) + len(r.failures) for r in reports)
    if faults:
        raise CommandError(_first(chain, reports, faults))


def _recomputed(
    database: Database, recommendation: str | None, sample: int, seed: str, *, everything: bool
) -> list[CycleReport]:
    from oracle_dagster.verification import recompute

    wanted: dict[recompute.CycleId, list[tuple[str, str]] | None] = {}
    if everything:
        wanted.update(dict.fromkeys(recompute.stored_cycles(database)))
    else:
        ids = [recommendation] if recommendation is not None else recompute.sample(database, sample, seed)
        wanted.update(recompute.keys_of(database, ids) if ids else {})
    reports = []
    with progress("recomputing") as advance:
        for done, (which, keys) in enumerate(wanted.items()):

            def told(_phase: str, keys_done: int, keys_all: int, done: int = done) -> None:
                part = keys_done / keys_all if keys_all else 1.0
                advance(done + part, len(wanted), f"recomputing: cycle {done + 1:,} of {len(wanted):,}")

            reports.append(recompute.verify_cycle(database, which, keys, on_progress=told))
    return reports


def _as_object(chain: ChainReport, reports: list[CycleReport]) -> dict[str, Any]:
    return {
        "sound": chain.sound and all(report.sound for report in reports),
        "chain": {
            "seals": chain.seals,
            "rows": chain.rows,
            "newest_hash": chain.newest_hash,
            "starts_at": None if chain.start is None else iso(chain.start),
            "late_seals": chain.late,
            "open_runs": chain.open_runs,
            "unsealed": [
                {"as_of": iso(as_of), "config_version": version, "keys": keys}
                for (as_of, version), keys in sorted(chain.unsealed.items())
            ],
            "unsealed_inputs": chain.unsealed_inputs,
            "faults": [
                {
                    "seal": fault.number,
                    "table": fault.table,
                    "key": fault.key,
                    "as_of": None if fault.as_of is None else iso(fault.as_of),
                    "config_version": fault.config_version,
                    "what": fault.what,
                }
                for fault in chain.faults
            ],
        },
        "cycles": [
            {
                "as_of": iso(report.cycle.as_of),
                "config_version": report.cycle.config_version,
                "keys": report.keys,
                "exact": report.exact,
                "rows": report.rows,
                "notes": report.notes,
                "failures": [
                    {"stage": f.stage, "entity_id": f.entity_id, "window": f.window, "message": f.message}
                    for f in report.failures
                ],
                "differences": [
                    {
                        "table": d.table,
                        "entity_id": d.entity_id,
                        "window": d.window,
                        "field": d.field,
                        "stored": d.stored,
                        "recomputed": d.recomputed,
                    }
                    for d in report.differences
                ],
            }
            for report in reports
        ],
    }


def _print(chain: ChainReport, reports: list[CycleReport]) -> None:
    _print_chain(chain)
    keys = sum(report.keys for report in reports)
    rows = sum(sum(report.rows.values()) for report in reports)
    print(f"Recomputed: {keys:,} decisions of {len(reports):,} cycles, {rows:,} rows compared")
    for text in dict.fromkeys(text for report in reports for text in report.notes):
        print(f"  {text}")
    lines = []
    for report in reports:
        when = f"as of {iso(report.cycle.as_of)}"
        lines += [
            f"CANNOT BE COMPUTED: {f.entity_id} {f.window} {when}: {f.message}" for f in report.failures
        ]
        lines += [
            f"DIFFERS: {d.table} {d.entity_id} {d.window} {when}: "
            f"{d.field} is {d.stored!r}, recomputed {d.recomputed!r}"
            for d in report.differences
        ]
    for line in lines[:SHOWN]:
        print(f"  {line}")
    if len(lines) > SHOWN:
        print(f"  and {len(lines) - SHOWN:,} more (--json lists them all)")


def _print_chain(chain: ChainReport) -> None:
    print(f"Chain of hashes: {chain.seals:,} links over {chain.rows:,} rows, newest {chain.newest_hash}")
    if chain.start is not None:
        print(f"  cycles before {iso(chain.start)} were pruned; from there on every row must be there")
    if chain.late:
        print(
            f"  {len(chain.late):,} links were made later than the rows, by another run or by --seal: "
            f"{_few(chain.late)}"
        )
    for (as_of, version), keys in sorted(chain.unsealed.items())[:SHOWN]:
        print(
            f"  NOT SEALED: {keys:,} keys of the cycle as of {iso(as_of)}, configuration {version}: the next "
            "run seals them if theirs was killed, and --seal does"
        )
    if chain.unsealed_inputs:
        print(f"  {chain.unsealed_inputs:,} input rows have arrived since the newest link")
    for fault in chain.faults[:SHOWN]:
        print(f"  FAULT at link {fault.number}: {_place(fault)}: {fault.what}")


def _place(fault: Any) -> str:  # noqa: ANN401 - a ChainFault, imported late
    cycle = "" if fault.as_of is None else f" of the cycle as of {iso(fault.as_of)}"
    version = "" if fault.as_of is None else f", configuration {fault.config_version}"
    return f"{fault.table} {fault.key}{cycle}{version}"


def _few(numbers: list[int]) -> str:
    more = f" and {len(numbers) - 5:,} more" if len(numbers) > 5 else ""  # noqa: PLR2004 - a handful
    return ", ".join(map(str, numbers[:5])) + more


def _first(chain: ChainReport, reports: list[CycleReport], faults: int) -> str:
    if chain.faults:
        first = chain.faults[0]
        return (
            f"{faults:,} faults. The first altered in the order of the chain is {_place(first)} (link "
            f"{first.number}): {first.what}. A run that was killed while it repeated a cycle under changed "
            "rules looks alike; running that cycle again then heals it. Else restore a backup."
        )
    report = next(r for r in reports if not r.sound)
    if report.differences:
        d = report.differences[0]
        return (
            f"{faults:,} stored values are not what the rules make of the stored inputs. The first is "
            f"{d.table}.{d.field} of {d.entity_id} {d.window} as of {iso(report.cycle.as_of)}: stored "
            f"{d.stored!r}, recomputed {d.recomputed!r}."
        )
    return f"{faults:,} keys cannot be computed again: {report.failures[0].message}"


def receipt(
    recommendation: Annotated[str, typer.Argument(metavar="REC_ID", help="A recommendation's id.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write here instead of stdout.", show_default=False),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Write the receipt of a recommendation: one JSON file with all that it was made of.

    Inputs, configuration, every weight with its factors, every threshold with its value, the stored rows and
    hashes. `python -m oracle_core.receipt FILE` derives the decision from it again, without a database.
    """
    from oracle_dagster.storage import migrate
    from oracle_dagster.verification import receipts

    with opened(home) as database:
        migrate.check(database)
        made = receipts.make(database, recommendation)
    if out is None:
        print_json(made)
        return
    text = json.dumps(made, indent=1, ensure_ascii=False, allow_nan=False)
    out.write_text(text + "\n", encoding="utf-8")
    note(f"wrote {out} ({len(text):,} characters); check it with `python -m oracle_core.receipt {out}`")


def leaks(
    as_of: AsOf = None,
    probes: Annotated[
        int, typer.Option("--probes", metavar="N", min=1, help="Disturbances to try; each has its own seed.")
    ] = 20,
    entities: Annotated[
        int,
        typer.Option("--entities", metavar="N", min=1, help="Look at this many entities per disturbance."),
    ] = 20,
    seed: Annotated[int, typer.Option("--seed", help="The first seed.")] = 0,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Look for leaks: does anything known only after a cycle change its results?

    Disturbs documents, bars, events, exposures, relationships, accuracies, trends, decisions and
    configurations dated or known after the cycle (the newest one, or that of --as-of), computes it again and
    requires every result to stay bit for bit the same. All of it in transactions that are rolled back:
    nothing is changed. Exit code 1 names what leaked.
    """
    from oracle_dagster.storage import migrate
    from oracle_dagster.verification import leaks as prober

    with opened(home) as database:
        migrate.check(database)
        cycle = prober.choose_cycle(database, as_of)
        with progress("probing") as advance:
            found = prober.probe(
                database, cycle, probes=probes, entities=entities, seed=seed, on_progress=advance
            )
    if as_json:
        print_json(
            {
                "as_of": iso(cycle.as_of),
                "config_version": cycle.config_version,
                "probes": found.probes,
                "keys": found.keys,
                "disturbed_rows": found.disturbed,
                "leaks": [
                    {
                        "kind": leak.kind,
                        "seed": leak.seed,
                        "stage": leak.stage,
                        "entity_id": leak.entity_id,
                        "window": leak.window,
                    }
                    for leak in found.leaks
                ],
            }
        )
    else:
        print(
            f"Cycle as of {iso(cycle.as_of)}, configuration {cycle.config_version}: {found.probes:,} "
            f"disturbances of its future, {sum(found.disturbed.values()):,} rows, {found.keys:,} decisions "
            "computed again"
        )
        for kind, rows in sorted(found.disturbed.items()):
            print(f"  {kind}: {rows:,} rows")
        for leak in found.leaks[:SHOWN]:
            print(f"  LEAK by {leak.kind}: {leak.stage} of {leak.entity_id} {leak.window} (seed {leak.seed})")
    if found.leaks:
        first = found.leaks[0]
        raise CommandError(
            f"{len(found.leaks):,} results change with what became known after the cycle, the first by "
            f"{first.kind}: {first.stage} of {first.entity_id} {first.window}. Decisions of the past looked "
            "better than they were; mend the reader or rule, raise its version and run the cycles again."
        )
    if not as_json:
        print("No result changes.")
