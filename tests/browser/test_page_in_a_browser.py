"""The page in a real browser, beside a controller that trains."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from axe_playwright_python.sync_playwright import Axe
from golden import SCRIPT
from playwright.sync_api import Browser, Page, expect

from live import PATIENCE_S, Running
from offcut.service.page import token_file

pytestmark = [pytest.mark.live, pytest.mark.browser, pytest.mark.xdist_group("live-1")]

PATIENCE_MS = 1000 * PATIENCE_S


def address(running: Running) -> str:
    url: str = json.loads(running.paths.page_address.read_text())["url"]
    return url


def login(running: Running) -> str:
    token = token_file.current_token(running.paths.page_key, running.paths.page_token, 0.0)
    return f"{address(running)}?token={token}"


@contextmanager
def opened(browser: Browser, url: str, width: int = 1280, scheme: str = "light") -> Iterator[Page]:
    """A page in which no script fails and nothing that the page's policy forbids is tried."""
    wrong: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.goto(url)
    yield page
    context.close()
    # A connection that ends with its controller is told as an error, by the browser and by htmx.
    lost = ("ERR_", "Failed to load resource", "[object Event]")
    assert [text for text in wrong if not any(word in text for word in lost)] == []


def is_live(page: Page) -> None:
    expect(page.locator("#connection")).to_have_text("live", timeout=PATIENCE_MS)


def train(running: Running, name: str = "long") -> str:
    return running.submit(SCRIPT, "--epochs", "9000", "--pace", "0.01", name=name, sizes="1:3")


def test_every_view_of_a_training_job(up: Callable[..., Running], browser: Browser) -> None:
    """Live figures and words, in light and dark, wide and narrow; nothing serious is found by axe."""
    running = up(3)
    with opened(browser, login(running)) as page:
        is_live(page)
        assert "token" not in page.url
        expect(page.locator("#jobs")).to_contain_text("There is no job yet.")
        job = train(running)
        # Submitted, started and grown while the page is open.
        expect(page.locator(f"#jobs tr:has(#job-{job}) td.state")).to_have_text("running", timeout=PATIENCE_MS)
        expect(page.locator("#use .u-legend")).to_contain_text(job, timeout=PATIENCE_MS)
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        page.locator(f"#why-{job}").focus()
        page.wait_for_timeout(1500)  # the table is replaced meanwhile
        expect(page.locator(f"#why-{job}")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text(job)
        expect(page.locator("#why li").first).to_be_visible()
        is_live(page)
        expect(page.locator("[data-figure=loss] canvas")).to_be_visible(timeout=PATIENCE_MS)
        expect(page.locator("[data-figure=curve] canvas")).to_be_visible(timeout=PATIENCE_MS)
        steps = page.locator("#facts dt:text-is('steps') + dd").inner_text()
        expect(page.locator("#facts dt:text-is('steps') + dd")).not_to_have_text(steps, timeout=PATIENCE_MS)
    for width, scheme in ((1280, "dark"), (390, "light")):
        with opened(browser, login(running), width, scheme) as page:
            for path in ("", f"jobs/{job}", "nodes"):
                page.goto(address(running) + path)
                is_live(page)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, path
                found = Axe().run(page).response["violations"]
                serious = [item["id"] for item in found if item["impact"] in ("serious", "critical")]
                assert serious == [], (path, scheme, [item["nodes"][0]["html"] for item in found])


def test_a_reclaim_is_seen_an_action_done_and_a_lost_connection_comes_back(
    up: Callable[..., Running], browser: Browser
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    running = up(3, "--page", str(port), "--page-actions")
    job = train(running)
    running.until(job, "training", lambda shown: shown["size"] == 3)
    with opened(browser, login(running)) as page:
        is_live(page)
        expect(page.locator("#reclaims")).to_contain_text("has been wanted back so far")
        running.client.post("/v1/nodes/want", {"nodes": ["n03"]})
        expect(page.locator("#reclaims tbody th")).to_have_text("n03", timeout=PATIENCE_MS)
        expect(page.locator("#summary dt:text-is('nodes') + dd")).to_have_text("2", timeout=PATIENCE_MS)
        page.goto(f"{address(running)}jobs/{job}")
        is_live(page)
        page.once("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Pause").click()
        expect(page.locator("#told")).to_have_text(f"{job} is paused now.", timeout=PATIENCE_MS)
        page.once("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Resume").click()
        expect(page.locator("#facts dd.state")).to_have_text("running", timeout=PATIENCE_MS)
        page.goto(address(running))
        is_live(page)
        running.process.send_signal(signal.SIGKILL)
        running.process.wait()
        expect(page.locator("#connection")).to_have_attribute("data-state", "lost", timeout=PATIENCE_MS)
        running.start()
        is_live(page)
        expect(page.locator(f"#jobs tr:has(#job-{job}) td.state")).to_have_text("running", timeout=PATIENCE_MS)
        expect(page.locator("#use canvas")).to_be_visible(timeout=PATIENCE_MS)
