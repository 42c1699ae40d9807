"""What must hold of the rows that a run has written: one aggregate check per asset and question.

Bad data fails a check, with the keys in its metadata; a database that cannot be read raises. A check blocks
nothing: the pipeline holds back the keys whose rows break a rule, and good ones proceed beside them. What
only should be looked at warns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from oracle_dagster import watching
from oracle_dagster.limits import LimitError, Limits
from oracle_dagster.partitions import key_text
from oracle_dagster.reporting import readable
from oracle_dagster.storage.invariants import RANGES, RULES, Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oracle_dagster.pipeline import StageReport
    from oracle_dagster.storage.cycles import Cycle, Failure
    from oracle_dagster.storage.database import Database
    from oracle_dagster.watching import Watched

_LISTED_KEYS: Final = 100


def specs() -> list[dg.AssetCheckSpec]:
    """The checks of the chain, for the step that reports them.

    Not separate check definitions: those of an asset that reports its partitions itself are always skipped.
    """
    return [
        *(dg.AssetCheckSpec(rule.check, asset=rule.asset, description=rule.asks) for rule in RULES),
        *(
            dg.AssetCheckSpec(check, asset=asset, description=asks)
            for (asset, check), asks in watching.ASKS.items()
        ),
    ]


def evaluation(asset: str, check: str, checked: int, faults: Sequence[Fault]) -> dg.AssetCheckEvaluation:
    """One evaluation over all keys of a run; passed only if none fails."""
    metadata: dict[str, dg.MetadataValue[Any]] = {
        "checked_keys": dg.MetadataValue.int(checked),
        "failed_keys": dg.MetadataValue.int(len({fault.key for fault in faults})),
    }
    if faults:
        records = [
            dg.TableRecord({"key": key_text(fault.key), "reason": fault.reason})
            for fault in faults[:_LISTED_KEYS]
        ]
        metadata["failing"] = dg.MetadataValue.table(records)
    return dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey(asset),
        check_name=check,
        passed=not faults,
        severity=dg.AssetCheckSeverity.ERROR,
        metadata=metadata,
        description=None if not faults else f"{faults[0].key[0]}|{faults[0].key[1]}: {faults[0].reason}",
    )


def warning(asset: str, check: str, answer: Watched) -> dg.AssetCheckEvaluation:
    """One evaluation of what only should be looked at."""
    metadata = readable(answer.shown)
    if answer.keys:
        records = [dg.TableRecord({"key": key_text(key)}) for key in answer.keys[:_LISTED_KEYS]]
        metadata["look_at"] = dg.MetadataValue.table(records)
    return dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey(asset),
        check_name=check,
        passed=answer.passed,
        severity=dg.AssetCheckSeverity.WARN,
        metadata=metadata,
        description=answer.why,
    )


def report(
    context: dg.AssetExecutionContext,
    database: Database,
    cycle: Cycle,
    report: StageReport,
    failures: Sequence[Failure],
) -> None:
    """Record one evaluation for each selected check over what a run has computed.

    Args:
        context: of the running step.
        database: with the results.
        cycle: that was computed.
        report: of the pipeline, with the faults it found in what it wrote.
        failures: the keys that could not be computed or went no further; a key that failed in a stage is
            missing in the later ones too, and fails the ranges check of each asset that it is missing in.

    """
    for (asset, check), faults in report.faults.items():
        written = {(each.entity_id, each.window) for each in report.keys[asset]}
        reasons = {(failure.entity_id, failure.window): failure.message for failure in reversed(failures)}
        reasons |= {(f.entity_id, f.window): f.message for f in failures if f.stage == asset}
        not_computed = [
            Fault(key, reason) for key, reason in reasons.items() if key not in written and check == RANGES
        ]
        if dg.AssetCheckKey(dg.AssetKey(asset), check) in context.selected_asset_check_keys:
            checked = len(written) + len(not_computed)
            # Logged, because a result that the step returns would need a partition of its own.
            context.log_event(evaluation(asset, check, checked, [*not_computed, *faults]))
    try:
        limits = Limits.from_environment()
    except LimitError as fault:  # a slip of the operator's, which must not stop decisions
        context.log.warning("Warnings are judged by the default limits: %s", fault)
        limits = Limits()
    for (asset, check), answer in watching.watch_cycle(database, cycle, report.keys, limits).items():
        if dg.AssetCheckKey(dg.AssetKey(asset), check) in context.selected_asset_check_keys:
            context.log_event(warning(asset, check, answer))
            if not answer.passed:
                context.log.warning("%s, %s: %s", asset, check, answer.why)
