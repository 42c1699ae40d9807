"""Runs the mutation tester over the rules of `oracle_core` and judges the result.

Mutated is every module of the core except configuration, enumerations and package files; the tests are those
test files that import the core and not the Dagster side, so that a mutant costs milliseconds. It runs in a
temporary copy and leaves nothing behind. Why a mutant may survive stands in `tests/mutants_survivors.toml`.
Not here: the tests themselves, and anything about the Dagster side.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SURVIVORS = ROOT / "tests" / "mutants_survivors.toml"
LEAST_KILLED = 0.95
SPINNER = tuple("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
NO_RULES = {"__init__.py", "config.py", "enums.py"}
# Looks at the clone itself, which the copy is not.
NOT_IN_COPY = {"test_project.py"}
# The condition before a raise statement is mutated; the wording of the message is no rule.
NOT_MUTATED = [r"^\s*raise "]


@dataclass(frozen=True, order=True)
class Mutant:
    """One mutant, named by what it changes, so that the name holds when code around it moves."""

    function: str
    before: str
    after: str


def main() -> int:
    """Run and print; 0 if at least 95 % were killed and every survivor is listed with a reason."""
    options = arguments()
    modules = rule_modules(options.modules)
    tests = core_tests()
    print(
        f"{len(modules)} modules against {len(tests)} test files: {' '.join(path.name for path in tests)}",
        flush=True,
    )

    if not tests:
        print("No test file imports oracle_core alone, so nothing could kill a mutant.")
        return 1

    with tempfile.TemporaryDirectory(prefix="oracle-mutants-") as scratch_name:
        scratch = Path(scratch_name)
        prepare(scratch, modules, tests)
        if not run_mutmut(scratch, options.workers):
            print("The mutation tester did not finish; its last lines are above.")
            return 1
        statuses, made_in, survivors = results(scratch, modules)

    total = sum(statuses.values())
    if total == 0:
        print("No mutants were made: the rule modules hold no functions, which cannot be right.")
        return 1
    rate = 1 - len(survivors) / total
    alive_in = Counter(survivor.function.split(".")[1] for survivor in survivors)
    for module, count in sorted(made_in.items()):
        print(f"{module:<20} {count - alive_in[module]:>5} of {count:>5} killed")
    print(f"mutants {total}: " + ", ".join(f"{name} {count}" for name, count in sorted(statuses.items())))

    listed = read_survivors(SURVIVORS)
    missing = sorted(mutant for mutant in set(survivors) if not listed.get(mutant))
    in_scope = {f"oracle_core.{path.stem}" for path in modules}
    stale = sorted(m for m in listed if m not in set(survivors) and module_of(m, in_scope) is not None)
    for mutant in missing:
        print(f"survived, no reason given: {mutant.function}\n  - {mutant.before}\n  + {mutant.after}")
    for mutant in stale:
        print(f"listed, but killed or gone: {mutant.function}\n  - {mutant.before}\n  + {mutant.after}")
    if options.write:
        append_survivors(SURVIVORS, [mutant for mutant in missing if mutant not in listed])
    print(
        f"killed {rate:.1%} of {total} (at least {LEAST_KILLED:.0%} wanted); "
        f"{len(survivors)} survived, {len(missing)} of them without a reason, {len(stale)} stale entries"
    )
    return 0 if rate >= LEAST_KILLED and not missing and not stale else 1


def arguments() -> argparse.Namespace:
    """Command line: module names (all when none is given), `--workers N`, `--write`."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument(
        "modules", nargs="*", help="names of oracle_core modules, such as trend; default: all"
    )
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--write", action="store_true", help="add unlisted survivors, reason left empty")
    return parser.parse_args()


def rule_modules(names: list[str]) -> list[Path]:
    """The modules to mutate, relative to the project; an unknown name ends the run."""
    known = {
        path.stem: path.relative_to(ROOT)
        for path in sorted((ROOT / "oracle_core").rglob("*.py"))
        if path.name not in NO_RULES
    }
    unknown = sorted(set(names) - set(known))
    if unknown:
        sys.exit(f"no rule module named {', '.join(unknown)}; there are: {', '.join(known)}")
    return [path for stem, path in known.items() if not names or stem in names]


def core_tests() -> list[Path]:
    """Test files that import the core and nothing of the Dagster side, relative to the project."""
    found = []
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        if path.name in NOT_IN_COPY:
            continue
        packages = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                packages |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                packages.add((node.module or "").partition(".")[0])
        if "oracle_core" in packages and not packages & {
            "oracle_dagster",
            "dagster",
            "psycopg",
            "sqlalchemy",
        }:
            found.append(path.relative_to(ROOT))
    return found


def prepare(scratch: Path, modules: list[Path], tests: list[Path]) -> None:
    """Copy the core, the selected tests and their helpers into `scratch` and write the settings."""
    ignore = shutil.ignore_patterns("__pycache__", "test_*.py", "mutation")
    shutil.copytree(
        ROOT / "oracle_core", scratch / "oracle_core", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(ROOT / "tests", scratch / "tests", ignore=ignore)
    for path in tests:
        shutil.copy(ROOT / path, scratch / path)
    settings = {
        "source_paths": ["oracle_core"],
        "only_mutate": [str(path) for path in modules],
        "do_not_mutate_patterns": NOT_MUTATED,
        "debug": not sys.stdout.isatty(),
        "pytest_add_cli_args": ["-q", "-x", "-p", "no:cacheprovider", "-m", "not acceptance"],
        "pytest_add_cli_args_test_selection": [str(path) for path in tests],
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pytest_ini = project["tool"]["pytest"]["ini_options"]
    # A JSON string, number or list of strings is TOML as well.
    lines = ["[tool.mutmut]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items())]
    lines += [
        "[tool.pytest.ini_options]",
        *(f"{key} = {json.dumps(value)}" for key, value in pytest_ini.items()),
    ]
    (scratch / "pyproject.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def run_mutmut(scratch: Path, workers: int) -> bool:
    """Make and run every mutant in `scratch`; True if the tester finished."""
    # The editable install puts this clone on the import path; the mutated copy has to come before it.
    # Forked workers share two cores, so the linear algebra library gets one thread each.
    environment = os.environ | {
        "PYTHONPATH": str(scratch / "mutants"),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "ORACLE_HYPOTHESIS_PROFILE": "mutants",
    }
    (scratch / "mutants").mkdir()
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(workers)]
    log = scratch / "mutmut.log"
    with log.open("wb") as sink:
        # A person sees the progress; in a log thousands of redrawn lines would hide the result.
        output = None if sys.stdout.isatty() else sink
        done = subprocess.run(
            command, cwd=scratch, env=environment, stdout=output, stderr=output, check=False
        )
    if done.returncode != 0:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        print("\n".join([line for line in lines if not line.startswith(SPINNER)][-60:]))
    return done.returncode == 0


def results(scratch: Path, modules: list[Path]) -> tuple[Counter[str], Counter[str], list[Mutant]]:
    """Mutants by outcome, mutants by module, and those that no test killed or even reached."""
    # Imported here: the library reads its settings from the current directory, and only this run installs it.
    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.stats import status_by_exit_code

    statuses: Counter[str] = Counter()
    made_in: Counter[str] = Counter()
    alive: list[Mutant] = []
    with contextlib.chdir(scratch):
        for module in modules:
            meta = scratch / "mutants" / f"{module}.meta"
            if not meta.exists():
                continue
            for name, exit_code in json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"].items():
                status = status_by_exit_code[exit_code]
                statuses[status] += 1
                made_in[module.stem] += 1
                if status not in {"killed", "timeout", "segfault"}:
                    alive.append(mutant_of(name, get_diff_for_mutant(name, path=module)))
    return statuses, made_in, alive


def mutant_of(name: str, diff: str) -> Mutant:
    """Name a mutant by its function and the lines that differ (joined with ⏎ when there are several)."""
    function = name.partition("__mutmut_")[0].replace(".x_", ".").replace(".xǁ", ".").replace("ǁ", ".")
    body = [line for line in diff.splitlines() if not line.startswith(("---", "+++", "@@"))]
    before = " ⏎ ".join(line[1:].strip() for line in body if line.startswith("-"))
    after = " ⏎ ".join(line[1:].strip() for line in body if line.startswith("+"))
    return Mutant(function, before, after)


def module_of(mutant: Mutant, modules: set[str]) -> str | None:
    """The module among `modules` that a listed mutant belongs to."""
    return next((module for module in modules if mutant.function.startswith(module + ".")), None)


def read_survivors(path: Path) -> dict[Mutant, str]:
    """Listed survivors with their reasons; a duplicate or a missing key ends the run."""
    listed: dict[Mutant, str] = {}
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("survivor", []):
        mutant = Mutant(entry["function"], entry["before"], entry["after"])
        if mutant in listed:
            sys.exit(f"{path.name} lists twice: {mutant}")
        listed[mutant] = entry["reason"].strip()
    return listed


def append_survivors(path: Path, mutants: list[Mutant]) -> None:
    """Add entries with an empty reason, to be filled in by a person."""
    with path.open("a", encoding="utf-8") as out:
        for mutant in mutants:
            fields = {
                "function": mutant.function,
                "before": mutant.before,
                "after": mutant.after,
                "reason": "",
            }
            out.write("\n[[survivor]]\n")
            out.writelines(
                f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in fields.items()
            )


if __name__ == "__main__":
    sys.exit(main())
