"""Resolves constraints.txt anew from pyproject.toml: `make constraints`.

One resolution covers Python 3.11-3.14 on every supported platform, with an environment marker where a pin
differs. The pins of the present file are kept as long as they satisfy pyproject.toml; `--upgrade` takes the
newest. The result is then checked: each supported Python and platform must find a wheel for every pin.
Standard library only: it runs before anything is installed, and brings the resolver (uv) in an environment
of its own, which it removes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("dev", "bench", "mutants", "celery", "kubernetes")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28", "aarch64-apple-darwin")
# (Python, platform) -> packages without a wheel there, which need a compiler
WITHOUT_WHEEL = {("3.14", "aarch64-apple-darwin"): {"watchdog"}}

HEADER = """\
# Every package that `make` installs, at the version that is tested: Python 3.11-3.14, Linux and macOS.
# Used as constraints: pip install -c constraints.txt -e '.[dev]'. Written by `make constraints`: run it after
# a change of pyproject.toml, or with ARGS=--upgrade for the newest versions, and commit the result.
"""


def main() -> None:
    """Write constraints.txt, or stop with the resolver's message and leave the old one as it was."""
    with tempfile.TemporaryDirectory(prefix="oracle-constraints-") as scratch_name:
        scratch = Path(scratch_name)
        venv.create(scratch / "venv", with_pip=True)
        python = scratch / "venv" / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv")
        uv = scratch / "venv" / "bin" / "uv"

        pins = scratch / "constraints.txt"
        shutil.copy(ROOT / "constraints.txt", pins)
        run(
            uv, "pip", "compile", "--quiet", "--universal", "--python", python,
            "--python-version", PYTHONS[0], "--no-header", "--annotation-style", "line",
            *(f"--extra={extra}" for extra in EXTRAS),
            *sys.argv[1:], "--output-file", pins, ROOT / "pyproject.toml",
        )  # fmt: skip
        for version in PYTHONS:
            for platform in PLATFORMS:
                skipped = WITHOUT_WHEEL.get((version, platform), set())
                lines = pins.read_text().splitlines()
                wanted = scratch / "wanted.txt"
                wanted.write_text("\n".join(line for line in lines if line.partition("=")[0] not in skipped))
                run(
                    uv, "pip", "install", "--quiet", "--dry-run", "--no-deps", "--only-binary", ":all:",
                    "--python-version", version, "--python-platform", platform,
                    "--target", scratch / "target", "--requirement", wanted,
                )  # fmt: skip
                print(f"Python {version} on {platform}: a wheel for every pin")
        (ROOT / "constraints.txt").write_text(HEADER + pins.read_text())


def run(*command: str | Path) -> None:
    """Run a command in the project directory; end with its exit code if it fails."""
    done = subprocess.run([str(part) for part in command], cwd=ROOT, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
