"""The user interface in a real browser: the graph is there, and a partition can be materialised in it."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.services import service, wait_for

CHROMIUM = Path("/usr/bin/chromium")
# Without a network: what Chromium would look up on its own is refused many times a second otherwise.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
CHAIN = ("weighted_signals", "trend_windows", "trend_projections", "recommendations")
STATES = {"Maine", "Ohio", "Utah"}
PATIENCE_MS = 120_000

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium() -> Path:
    """Debian's Chromium; missing, it skips the test, or fails it where it is required."""
    if not CHROMIUM.exists():
        reason = f"there is no {CHROMIUM} (Debian: apt-get install chromium)"
        if "chromium" in os.environ.get("ORACLE_REQUIRE", ""):
            pytest.fail(reason)
        pytest.skip(reason)
    return CHROMIUM


@pytest.fixture(scope="module")
def home(chromium: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the polls of three states and one cycle."""
    folder = tmp_path_factory.mktemp("browser")
    packed = (resources.files("oracle_dagster") / "data/polls2016/documents.jsonl.gz").read_bytes()
    lines = gzip.decompress(packed).decode().splitlines()
    few = [line for line in lines if json.loads(line)["impacts"][0]["entity_id"] in STATES]
    (folder / "documents.jsonl").write_text("\n".join(few) + "\n")
    for arguments in (
        ("ingest", str(folder / "documents.jsonl"), "--known-at", "published"),
        ("run", "--as-of", "2016-11-08T00:00:00Z"),
    ):
        subprocess.run(
            [sys.executable, "-m", "oracle_dagster.cli", *arguments, "--home", str(folder / "home")],
            check=True,
            capture_output=True,
        )
    return folder / "home"


@pytest.fixture
def page(chromium: Path) -> Iterator[Page]:
    """An empty page in a browser with a profile of its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), headless=True, args=list(FLAGS))
        try:
            opened = browser.new_page(viewport={"width": 1500, "height": 1000})
            opened.set_default_timeout(PATIENCE_MS)
            yield opened
        finally:
            browser.close()


def ended(url: str, run_id: str) -> str | None:
    """How the run ended; None while it goes on."""
    query = f'{{runOrError(runId:"{run_id}"){{... on Run{{status}}}}}}'
    answer = httpx.post(f"{url}/graphql", json={"query": query}, timeout=30, trust_env=False).json()
    status: str = answer["data"]["runOrError"]["status"]
    return status if status in {"SUCCESS", "FAILURE", "CANCELED"} else None


@pytest.mark.timeout(600)
def test_a_person_sees_the_graph_and_materialises_a_partition(home: Path, page: Page, tmp_path: Path) -> None:
    expect.set_options(timeout=PATIENCE_MS)
    with service(home) as dev:
        url = dev.ready()
        try:
            page.goto(f"{url}/locations/oracle/asset-groups/decisions/lineage")
            for name in CHAIN:
                expect(page.get_by_text(name, exact=True).first).to_be_visible()

            page.goto(f"{url}/assets/recommendations?view=partitions&partition=Maine%7C30d")
            expect(page.get_by_text("Latest materialization")).to_be_visible()
            expect(page.get_by_text("2016-11-08T00:00:00Z", exact=True)).to_be_visible()
            expect(
                page.get_by_text(re.compile(r"Maine shows a positive trend over the 30d window"))
            ).to_be_visible()

            page.get_by_role("button", name="Materialize").first.click()
            expect(page.get_by_text("Launch runs to materialize recommendations")).to_be_visible()
            with page.expect_response(
                lambda r: "LaunchPipelineExecution" in (r.request.post_data or "")
            ) as got:
                page.get_by_role("button", name="Launch 1 run").click()
            run_id = got.value.json()["data"]["launchPipelineExecution"]["run"]["id"]
            assert wait_for("the run ends", lambda: ended(url, run_id), 300) == "SUCCESS"

            # It looked from when it was created, so the moment on the newest materialisation has changed.
            page.reload()
            expect(page.get_by_text(re.compile(r"View all historical events \(2\)"))).to_be_visible()
            expect(page.get_by_text("2016-11-08T00:00:00Z", exact=True)).to_have_count(0)
            for name in ("as_of", "config_version", "action", "thesis", "sql"):
                expect(page.get_by_text(name, exact=True).first).to_be_visible()
        finally:
            page.screenshot(path=tmp_path / "page.png")
