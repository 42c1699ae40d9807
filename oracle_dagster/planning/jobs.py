"""Planning and applying a configuration from the user interface: the two commands, as jobs.

``plan_configuration`` writes nothing and shows the plan in its run; ``apply_configuration`` also makes the
settings active and executes the run over what the plan names, exactly as the command does. Configuration::

    ops:
      plan:                                      # or apply, which also takes a `reason`
        config:
          set: ["eligibility.min_confidence=0.45"]
          file: ""                               # the content of a settings file, TOML or JSON
          as_of: "2016-11-08T00:00:00Z"          # default: now
"""

# No `from __future__ import annotations`: the orchestrator reads the parameters' classes, not their names.

import contextlib
import getpass
from collections.abc import Iterator, Sequence
from typing import Any, Final

import dagster as dg
from pydantic import Field

from oracle_core.config import ConfigError
from oracle_dagster.as_of import AsOfError, parse_as_of
from oracle_dagster.planning import settings as written
from oracle_dagster.resources import OracleDatabase
from oracle_dagster.storage import applications, configuration, migrate
from oracle_dagster.storage.database import Database, StorageError

PLAN_JOB: Final = "plan_configuration"
APPLY_JOB: Final = "apply_configuration"
PLAN_STEP: Final = "plan"
APPLY_STEP: Final = "apply"
SHOWN_CHANGES: Final = 200
"""Changed decisions that the run shows; the command and its page list all."""
_ASK: Final = (
    "name what to change in `set`, like eligibility.min_confidence=0.45, or put a file's text in `file`"
)

Object = dict[str, Any]


class PlanSettings(dg.Config):
    """What to change, and the moment to look from."""

    set: list[str] = Field(
        default=[], description="Settings as path=value, such as eligibility.min_confidence=0.45."
    )
    file: str = Field(
        default="",
        description="The content of a settings file by section, TOML or JSON; `set` comes on top.",
    )
    as_of: str | None = Field(
        default=None, description="The moment to look from, like 2016-11-08T00:00:00Z. Default: now."
    )


class ApplySettings(PlanSettings):
    """The same, and why."""

    reason: str = Field(
        default="applied in the user interface", description="For the history of the configuration."
    )


@dg.op(
    name=PLAN_STEP,
    out=dg.Out(dg.Nothing),
    description="What other settings would decide, and why; writes nothing. The step's metadata show it.",
)
def _plan(context: dg.OpExecutionContext, config: PlanSettings, database: OracleDatabase) -> None:
    """Show the plan."""
    tables = database.open()
    with _clearly():
        migrate.check(tables)
        waiting = applications.unfinished(tables)
        if waiting:
            versions = ", ".join(str(one.config_version) for one in waiting)
            context.log.warning(
                "The configuration of version %s is active, but its run did not end: %s finishes it.",
                versions,
                APPLY_JOB,
            )
        _show(context, _made(config, tables))


@dg.op(
    name=APPLY_STEP,
    out=dg.Out(dg.Nothing),
    description="Plan, make the settings the active configuration, and rebuild exactly what the plan names.",
)
def _apply(context: dg.OpExecutionContext, config: ApplySettings, database: OracleDatabase) -> None:
    """Finish what an earlier application left, then apply."""
    from oracle_dagster import launch  # it loads the definitions, which load this

    tables = database.open()
    with _clearly(launch.LaunchError):
        migrate.check(tables)
        finished = launch.finish_within(context.instance, tables)
        for outcome in finished:
            _tell(context, outcome)
        if finished and not config.set and config.file.strip() == "":
            return
        made = _made(config, tables)
        _show(context, made)
        if not made.settings:
            return
        applied = launch.apply_within(
            context.instance, tables, made, changed_by=getpass.getuser(), reason=config.reason
        )
    if applied is None:
        context.log.info("The settings are active; nothing had to be rebuilt.")
    else:
        _tell(context, applied)


@contextlib.contextmanager
def _clearly(*also: type[Exception]) -> Iterator[None]:
    """Fail the step by the message alone where it says place, value and remedy."""
    known: tuple[type[Exception], ...] = (
        ConfigError, written.SettingsError, AsOfError, StorageError, *also,
    )  # fmt: skip
    try:
        yield
    except known as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error


def _made(config: PlanSettings, database: Database) -> Any:  # noqa: ANN401 - a Plan, whose module takes a second
    from oracle_dagster.planning.plan import make_plan

    wanted = written.document(config.file, "`file`") if config.file.strip() else {}
    wanted |= written.assignments(config.set)
    if not wanted:
        raise written.SettingsError(f"Nothing to plan: {_ASK}.")
    as_of = None if config.as_of is None else parse_as_of(config.as_of, "`as_of`")
    candidate = configuration.active(database).config.with_settings(wanted)
    return make_plan(database, candidate, as_of=as_of)


def _tell(context: dg.OpExecutionContext, outcome: Any) -> None:  # noqa: ANN401 - a RunOutcome
    """Say what became of the batch run; a failed one fails this one too."""
    counts = ", ".join(f"{asset} {number:,}" for asset, number in outcome.computed.items())
    context.log.info("Run %s ended as %s: %s", outcome.run_id, outcome.status, counts)
    if outcome.status != "success":
        raise dg.Failure(
            description=f"The configuration is active, but its run {outcome.run_id} ended as "
            f"{outcome.status}. `oracle run --failed {outcome.run_id}` repeats what failed; running "
            f"{APPLY_JOB} again finishes a run that did not end. {outcome.message}".strip(),
            allow_retries=False,
        )


def _show(context: dg.OpExecutionContext, made: Any) -> None:  # noqa: ANN401 - a Plan
    from oracle_dagster.planning.plan import as_object

    plan = as_object(made)
    shown = metadata(plan)
    context.add_output_metadata(shown)
    flips = sum(_what(change["before"]) != _what(change["after"]) for change in plan["changes"])
    context.log.info(
        "As of %s: %d decisions change, %d of them in action or mode; to rebuild: %s",
        plan["as_of"],
        len(plan["changes"]),
        flips,
        ", ".join(f"{asset} {len(keys)}" for asset, keys in plan["rebuild"].items()) or "nothing",
    )


# ------------------------------------------------------------------------------------------ what is shown


def metadata(plan: Object) -> dict[str, dg.MetadataValue[Any]]:
    """A plan (as JSON) as metadata of a run: Markdown for a person, JSON of what a program wants."""
    changes = plan["changes"]
    told = {**plan, "changes": changes[:SHOWN_CHANGES]}
    told["rebuild"] = {asset: keys[:SHOWN_CHANGES] for asset, keys in plan["rebuild"].items()}
    return {
        "as_of": dg.MetadataValue.text(plan["as_of"]),
        "decisions_changed": dg.MetadataValue.int(len(changes)),
        "settings": dg.MetadataValue.md(
            _table(
                ("setting", "before", "after"),
                [(f"`{path}`", of["before"], of["after"]) for path, of in plan["config"].items()],
                empty="No setting changes, so that the plan is empty.",
            )
        ),
        "transitions": dg.MetadataValue.md(
            _table(
                ("before", "after", "keys"),
                [(_what(t["before"]), _what(t["after"]), t["count"]) for t in plan["transitions"]],
                empty="Nothing was decided.",
            )
        ),
        "changes": dg.MetadataValue.md(_changes(changes)),
        "rebuild": dg.MetadataValue.md(
            _table(
                ("asset", "partitions", "keys"),
                [(asset, len(keys), _listed(keys)) for asset, keys in plan["rebuild"].items()],
                empty="Nothing has to be rebuilt.",
            )
        ),
        "plan": dg.MetadataValue.json(told),
    }


def _what(side: Object) -> str:
    return f"{side['action']} {side['mode']}"


def _changes(changes: Sequence[Object]) -> str:
    listed = sorted(changes, key=lambda c: _what(c["before"]) == _what(c["after"]))
    rows = [
        (
            f"{c['entity_id']} {c['window']}",
            _what(c["before"]),
            _what(c["after"]),
            *_sizes(c),
            "; ".join(c["because"]),
        )
        for c in listed[:SHOWN_CHANGES]
    ]
    more = len(changes) - len(rows)
    rest = f"\n\nand {more:,} more, which `oracle plan --json` lists" if more > 0 else ""
    heads = ("key", "before", "after", "allocation", "risk", "because")
    return _table(heads, rows, empty="No decision changes.") + rest


def _sizes(change: Object) -> tuple[str, str]:
    before, after = change["before"], change["after"]
    a, b = before["allocation_pct"], after["allocation_pct"]
    risks = (before["risk_classification"], after["risk_classification"])
    return (
        f"{a:.4g}" if a == b else f"{a:.4g} → {b:.4g}",
        risks[0] if risks[0] == risks[1] else " → ".join(risks),
    )


def _listed(keys: Sequence[str]) -> str:
    shown = ", ".join(keys[:20])
    return shown if len(keys) <= 20 else f"{shown} and {len(keys) - 20:,} more"  # noqa: PLR2004


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> str:
    if not rows:
        return empty
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(value: object) -> str:
    """Text that neither ends its cell nor becomes markup."""
    text = " ".join(str(value).split()).replace("\\", "\\\\").replace("|", "\\|")
    return text.replace("<", "&lt;") if not text.startswith("`") else text


plan_configuration: Final = dg.GraphDefinition(name=PLAN_JOB, node_defs=[_plan]).to_job(
    name=PLAN_JOB, description=_plan.description, executor_def=dg.in_process_executor
)
apply_configuration: Final = dg.GraphDefinition(name=APPLY_JOB, node_defs=[_apply]).to_job(
    name=APPLY_JOB, description=_apply.description, executor_def=dg.in_process_executor
)
