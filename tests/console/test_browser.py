"""The console in a real Chromium: it loads, lives, acts, refuses, fits, and can be used without a mouse or a script."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright

from fleet import by_hand
from fleet.audit import read
from fleet.broker import keys
from fleet.console.letters import address
from fleet.console.pages import PAGES
from tests.console import staged
from tests.console.conftest import Given
from tests.console.looks import LOW_CONTRAST, UNLABELLED

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = """
--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync
"""
expect.set_options(timeout=20_000)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
LETTER = f"/dead/agent_batch/{address('run_evals-00002')}"
PATHS = [page.path.replace("{entry}", "nightly_audit").replace("/dead/{queue}/{id}", LETTER) for page in PAGES]
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS.split())
        yield browser
        browser.close()


@pytest.fixture
def browse(chromium: Any, console: Callable[..., str]) -> Iterator[Open]:
    """Open a page of a console of the test's own; what the browser complains of fails the test."""
    contexts, complaints = [], []
    url: list[str] = []

    def open(path: str, *, tokens: str = "", **more: Any) -> Any:
        if not url:
            url.append(console(**({"FLEET_CONSOLE_TOKENS": tokens} if tokens else {})))
        context = chromium.new_context(**({"viewport": DESKTOP} | more))
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text) if complains(said) else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(url[0] + path)
        return page

    yield open
    for context in contexts:
        context.close()
    assert complaints == []


def complains(said: Any) -> bool:
    """Whether a line in the browser's console tells of a fault; a page that is not there is none."""
    return said.type in ("error", "warning") and "status of 404" not in said.text


def test_a_page_loads_and_lives(browse: Open, fleet: staged.Staged) -> None:
    page = browse("/lanes")
    assert page.title() == "Lanes · Nightshift"
    page.wait_for_selector("#pulse.good")
    row = page.locator("tr", has_text="agent_realtime").first
    assert row.locator("td").nth(1).inner_text() == "0"
    staged.waiting(fleet.broker, "agent_realtime", 17, age=staged.MINUTE)
    expect(row.locator("td").nth(1)).to_have_text("17")


def test_what_has_the_focus_keeps_it_when_the_page_changes(browse: Open, fleet: staged.Staged) -> None:
    page = browse("/")
    page.wait_for_selector("#pulse.good")
    figure = page.get_by_role("link", name="dead letters").last
    figure.focus()
    staged.dead_letters(fleet.broker, "charging", 5, "charge", "failed", "ValueError: no")
    expect(figure).to_contain_text("43")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "/dead"


def test_a_dead_letter_is_found_read_and_queued_again(browse: Open, fleet: staged.Staged) -> None:
    page = browse("/")
    page.get_by_role("link", name="dead letters").last.click()
    page.get_by_label("queue").select_option("agent_batch")
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("link", name="run_evals-00002").click()
    requeue = page.locator("form", has=page.get_by_role("button", name="Requeue this letter"))
    requeue.get_by_label("Why").fill("the model answers again")
    requeue.get_by_role("button").click()
    expect(page.get_by_role("status").last).to_have_text("1 of 1 queued again.")
    ns = fleet.broker.namespace
    assert fleet.broker.client.zcard(keys.dead(ns, "agent_batch")) == 6
    assert fleet.broker.client.lpos(keys.queue(ns, "agent_batch"), "run_evals-00002") is not None
    assert read(fleet.broker, 1)[0].because == "the model answers again"


def test_what_is_dropped_is_shown_first(browse: Open, fleet: staged.Staged) -> None:
    page = browse("/dead?queue=agent_batch")
    page.get_by_role("link", name="Discard what matches").click()
    assert "7 letters would be dropped for good." in page.inner_text("main")
    assert page.locator("tbody tr").count() == 7
    page.get_by_label("Why").fill("their runs were ended by hand")
    page.get_by_role("button", name="Discard 7 letters").click()
    expect(page.get_by_role("status").last).to_have_text("7 of 7 dropped for good.")


def test_who_may_only_read_is_shown_no_way_to_act_and_denied_one(
    browse: Open, fleet: staged.Staged, given: Given
) -> None:
    page = browse("/schedule/nightly_audit", tokens=given.lines)
    page.get_by_label("Token").fill(given.reader)
    page.keyboard.press("Enter")
    page.wait_for_selector("text=you need the role operate")
    assert page.get_by_role("button", name="Pause").count() == 0
    answer = page.request.post(
        page.url + "/pause", form={"because": "the bank is closed"}, headers={"Origin": page.url.split("/schedule")[0]}
    )
    assert answer.status == 403
    assert by_hand.paused(fleet.broker.client, fleet.broker.namespace) == {}


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_no_page_is_wider_than_its_window(browse: Open, fleet: staged.Staged, size: dict[str, int]) -> None:
    page = browse("/", viewport=size)
    base = page.url.rstrip("/")
    staged.dead_letters(fleet.broker, "charging", 1, "charge_" * 12, "failed", "E" * 200)
    for path in [*PATHS, "/dead/act?do=discard", "/nowhere-" + "x" * 100]:
        page.goto(base + path, wait_until="domcontentloaded")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= size["width"], f"{path} is {wide} wide"
        within = page.evaluate("(m => [m.scrollWidth, m.clientWidth])(document.querySelector('main'))")
        assert within[0] <= within[1], f"{path} holds {within[0]} in {within[1]}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_has_its_landmarks_labels_and_contrast(browse: Open, fleet: staged.Staged, scheme: str) -> None:
    page = browse("/", color_scheme=scheme)
    base = page.url.rstrip("/")
    for path in [*PATHS, "/dead/act?do=discard"]:
        page.goto(base + path, wait_until="domcontentloaded")
        assert page.get_by_role("main").count() == 1, path
        assert page.get_by_role("navigation").count() == 1, path
        assert page.locator("h1").count() == 1, path
        assert page.evaluate("document.documentElement.lang") == "en"
        assert page.evaluate(UNLABELLED) == [], path
        assert page.evaluate(LOW_CONTRAST) == [], path


def test_a_person_reaches_everything_by_the_keyboard(browse: Open, fleet: staged.Staged) -> None:
    page = browse("/schedule/nightly_audit")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
    page.keyboard.press("Enter")
    reached = []
    for _ in range(6):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
        ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert ring != "none", reached
    assert "because-pause" in reached and "Fire nightly_audit now" in reached
    page.get_by_label("Why").first.focus()
    page.keyboard.type("the bank is closed today")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=nightly_audit is paused.")


def test_without_a_script_every_page_reads_the_same_and_acts(browse: Open, fleet: staged.Staged) -> None:
    page = browse("/lanes", java_script_enabled=False)
    assert "transaction_postprocess" in page.inner_text("main")
    assert page.locator("noscript").count() == 1
    page.goto(page.url.replace("/lanes", "/schedule/nightly_audit"))
    page.get_by_label("Why").first.fill("the bank is closed today")
    page.get_by_role("button", name="Pause nightly_audit").click()
    assert "nightly_audit is paused." in page.inner_text("main")
