"""Every benchmark, one after the other; each prints its own figures."""

from __future__ import annotations

import subprocess
import sys

BENCHMARKS = ("ingestion", "sensor_tick")


def main() -> int:
    """Run all of them, also where one fails; 1 if one did."""
    codes = []
    for name in BENCHMARKS:
        print(f"== {name}", flush=True)
        codes.append(subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode)
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
