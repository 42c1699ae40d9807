"""A person's path through the user interface in a real browser; a screenshot of each step is kept."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from oracle_dagster.home import Home
from oracle_dagster.planning.jobs import APPLY_JOB, APPLY_STEP, PLAN_JOB, PLAN_STEP
from tests import worlds
from tests.command import oracle
from tests.services import service, wait_for
from tests.test_plan import SETTINGS, outcome_equals, planned
from tests.ui_client import Client

CHROMIUM = Path("/usr/bin/chromium")
# Without a network: what Chromium would look up on its own is refused many times a second otherwise.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
CHAIN = ("weighted_signals", "trend_windows", "trend_projections", "recommendations")
STALE = re.compile(r"^Unsynced")
# So high that every key that acts or monitors now no longer may.
CHANGED = "eligibility.min_confidence=0.69"
MARKDOWN_OF_CHANGES = 2
WIDTH = 1500
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
def before() -> str:
    """The moment of the first cycle: an hour ago."""
    return (datetime.now(UTC) - timedelta(hours=1)).replace(microsecond=0).isoformat().replace("+00:00", "Z")


@pytest.fixture(scope="module")
def home(chromium: Path, before: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with documents of the last weeks on three entities, and two cycles."""
    folder = tmp_path_factory.mktemp("browser")
    newest = datetime.fromisoformat(before)
    documents = folder / "documents.jsonl"
    worlds.write_jsonl(documents, worlds.documents(["Alpha", "Bravo", "Charlie"], 60, newest=newest, days=30))
    earlier = (newest - timedelta(days=1)).isoformat()
    with Home.resolve(folder / "home").connect():  # the server runs on from one command to the next
        for arguments in (
            ("ingest", str(documents), "--known-at", "published"),
            ("run", "--as-of", earlier),
            ("run", "--as-of", before),
        ):
            done = oracle(*arguments, "--home", str(folder / "home"))
            assert done.code == 0, done.err
    return folder / "home"


@pytest.fixture
def page(chromium: Path) -> Iterator[Page]:
    """An empty page in a browser with a profile of its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), headless=True, args=list(FLAGS))
        try:
            opened = browser.new_page(viewport={"width": WIDTH, "height": 1000})
            opened.set_default_timeout(PATIENCE_MS)
            yield opened
        finally:
            browser.close()


def walk(page: Page, url: str, home: Path, before: str, folder: Path) -> None:
    """What a person does from the graph of assets to a decision made anew."""
    page.goto(f"{url}/locations/oracle/asset-groups/decisions/lineage")
    for name in CHAIN:
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    page.screenshot(path=folder / "1-graph.png")

    # A changed gate makes the decision stale, and nothing above it.
    done = oracle("config", "set", "eligibility.min_confidence=0.36", "--reason", "x", "--home", str(home))
    assert done.code == 0, done.err
    partition = f"{url}/assets/{{}}?view=partitions&partition=Alpha%7C30d"
    page.goto(partition.format("trend_windows"))
    expect(page.get_by_text("Latest materialization")).to_be_visible()
    expect(page.get_by_text("top_evidence", exact=True)).to_be_visible()
    expect(page.get_by_text(STALE)).to_have_count(0)
    page.screenshot(path=folder / "2-trend.png")
    page.goto(partition.format("recommendations"))
    expect(page.get_by_text(STALE)).to_be_visible()
    expect(page.get_by_text(before, exact=True)).to_be_visible()
    page.screenshot(path=folder / "3-stale.png")

    page.get_by_role("button", name="Materialize").first.click()
    expect(page.get_by_text("Launch runs to materialize recommendations")).to_be_visible()
    page.screenshot(path=folder / "4-launch.png")
    with page.expect_response(lambda r: "LaunchPipelineExecution" in (r.request.post_data or "")) as got:
        page.get_by_role("button", name="Launch 1 run").click()
    run_id = got.value.json()["data"]["launchPipelineExecution"]["run"]["id"]
    client = Client(url)
    assert wait_for("the run ends", lambda: client.ended(run_id), 300) == "SUCCESS"

    # It looked from when it was created, so the moment on the newest materialisation has changed.
    page.goto(partition.format("recommendations"))
    expect(page.get_by_text(re.compile(r"View all historical events \(3\)"))).to_be_visible()
    expect(page.get_by_text(before, exact=True)).to_have_count(0)
    expect(page.get_by_text(STALE)).to_have_count(0)
    for name in ("as_of", "config_version", "action", "thesis", "top_evidence", "sql"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    thesis = page.get_by_text(re.compile(r"Alpha shows a \w+ trend over the 30d window"))
    expect(thesis).to_be_visible()
    box = thesis.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= WIDTH, "the thesis is cut off at the edge of the page"
    evidence = page.get_by_role("row").filter(has=page.get_by_text("supporting", exact=True))
    expect(evidence.first).to_be_visible()
    chart = page.get_by_text(re.compile("[▁▂▃▄▅▆▇█]")).first
    expect(chart).to_be_visible()
    page.screenshot(path=folder / "5-decision.png")
    chart.scroll_into_view_if_needed()
    page.screenshot(path=folder / "5-history.png")


def plan_job(page: Page, url: str, folder: Path) -> None:
    """From the launchpad: the settings as text, a run, and its result in the run."""
    page.goto(f"{url}/locations/oracle/jobs/{PLAN_JOB}/playground")
    editor = page.locator(".CodeMirror").first
    expect(editor).to_be_visible()
    editor.click()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.insert_text(f"ops:\n  {PLAN_STEP}:\n    config:\n      set: ['{CHANGED}']\n")
    page.screenshot(path=folder / "6-launchpad.png")
    with page.expect_response(lambda r: "LaunchPipelineExecution" in (r.request.post_data or "")) as got:
        page.get_by_role("button", name="Launch run").click()
    run_id = got.value.json()["data"]["launchPipelineExecution"]["run"]["id"]
    client = Client(url)
    assert wait_for("the plan is made", lambda: client.ended(run_id), 300) == "SUCCESS"
    page.goto(f"{url}/runs/{run_id}")
    expect(page.get_by_text("decisions_changed", exact=True).first).to_be_visible()
    expect(
        page.get_by_text(re.compile(r"decisions change, .* to rebuild: recommendations")).first
    ).to_be_visible()
    page.screenshot(path=folder / "7-plan-run.png")
    page.get_by_text("[Show Markdown]").nth(MARKDOWN_OF_CHANGES).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("columnheader", name="because")).to_be_visible()
    expect(dialog.get_by_text(re.compile("min_confidence|low_confidence")).first).to_be_visible()
    page.screenshot(path=folder / "8-plan.png")


def apply_job(url: str, home: Path, before: str) -> None:
    """Two configurations applied by the job end in their plans, row by row."""
    client = Client(url)
    with Home(home).connect() as connections:
        for settings in SETTINGS:
            plan = planned(connections.domain_url, settings, datetime.fromisoformat(before))
            given = [f"{path}={value}" for path, value in settings.items()]
            config = {"ops": {APPLY_STEP: {"config": {"set": given, "as_of": before}}}}
            run_id = client.launch(config, job=APPLY_JOB)
            assert wait_for("the plan is applied", partial(client.ended, run_id), 300) == "SUCCESS"
            assert outcome_equals(connections.domain_url, plan) == len(plan.changes) > 0


@pytest.mark.timeout(600)
def test_a_person_sees_the_graph_and_a_stale_partition_and_decides_anew(
    home: Path, before: str, page: Page, tmp_path: Path
) -> None:
    expect.set_options(timeout=PATIENCE_MS)
    with service(home) as dev:
        url = dev.ready()
        try:
            walk(page, url, home, before, tmp_path)
            plan_job(page, url, tmp_path)
        finally:
            page.screenshot(path=tmp_path / "page.png")
        apply_job(url, home, before)
