"""Every benchmark, one after the other, each in a process of its own; one table comes out.

Run with ``python -m benchmarks [--size tiny|bench|full] [--only NAME …] [--json FILE] [--markdown FILE]``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import harness

# Two threads for everything that would take as many as there are cores.
THREADS = {"POLARS_MAX_THREADS": "2", "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}


def names() -> list[str]:
    """All benchmarks: the known ones in their order, then every other module that measures figures."""
    found = [path.stem for path in sorted(Path(__file__).parent.glob("*.py"))]
    others = [
        name
        for name in found
        if name not in {*harness.BENCHMARKS, "harness"} and not name.startswith("_")
        if "\ndef figures(" in (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
    ]
    return [name for name in harness.BENCHMARKS if name in found] + others


def main() -> int:
    """Run all of them, also where one fails; 1 if one did or a bound is not kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=("tiny", "bench", "full"), default="bench")
    parser.add_argument("--only", nargs="+", choices=names(), metavar="NAME", help=", ".join(names()))
    parser.add_argument("--json", type=Path, help="write the figures as JSON")
    parser.add_argument("--markdown", type=Path, help="write the table")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside is not None:
        (name,) = arguments.only
        found = importlib.import_module(f"benchmarks.{name}").figures(arguments.size)
        arguments.inside.write_text(json.dumps(harness.as_json(found, {})), encoding="utf-8")
        return 0
    figures: list[harness.Figure] = []
    failed = []
    about = harness.surroundings()
    began = time.perf_counter()
    for name in arguments.only or names():
        started = time.perf_counter()
        print(f"{name} …", file=sys.stderr, flush=True)
        measured = _apart(name, arguments.size)
        failed += [name] if measured is None else []
        figures += measured or []
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    about |= {
        "load_after": harness.surroundings()["load"],
        "size": arguments.size,
        "minutes": round((time.perf_counter() - began) / 60.0, 1),
    }
    table = harness.markdown(figures, about)
    print(table)
    if arguments.markdown is not None:
        arguments.markdown.write_text(table, encoding="utf-8")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(harness.as_json(figures, about), indent=2), encoding="utf-8")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed or not all(one.met for one in figures) else 0


def _apart(name: str, size: str) -> list[harness.Figure] | None:
    """The figures of one benchmark, measured in a fresh process; None if that failed."""
    with tempfile.TemporaryDirectory(prefix="oracle-bench-") as folder:
        path = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "benchmarks", "--size", size, "--only", name, "--inside", str(path)]
        if subprocess.run(command, check=False, env=os.environ | THREADS).returncode != 0:
            return None
        return harness.from_json(json.loads(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
