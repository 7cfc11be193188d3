"""The real demo behind its page, and a real browser in front of it, for several tests."""

import asyncio
import queue
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

from coatcheck.demo.events import Pace
from coatcheck.demo.page.app import serve_page
from coatcheck.demo.run import Run, demo_cluster
from coatcheck.demo.scenarios import Scenario, make_scenario, with_places
from coatcheck.demo.summary import service_of
from coatcheck.protocol.log.verification import VerifiedBulletin
from coatcheck.protocol.wire.bulletins import posting_size
from world.web.browser import needed, packages

PATIENCE = 300.0
expect.set_options(timeout=PATIENCE * 1000)
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

JOINS = """async ([value, count]) => {
  const c = await import("/static/client.js");
  const { signed, trusted } = await (await fetch("/round")).json();
  const now = Math.floor(Date.now() / 1000);
  const limit = { epsilon: 64, delta: 0.01 };
  const invitation = c.examine(signed, { group: "riders", trusted, limit, now });
  const reports = [];
  for (let n = 0; n < count; n += 1) reports.push((await c.join(invitation, value)).report);
  return reports;
}"""
"""Join the round `count` times with one value, and return the reports."""


@dataclass
class PageRun:
    """A run of real processes, the address of its page, and the browsers' messages and requests."""

    run: Run
    pace: Pace
    address: str
    browser: Browser
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def page(self, path: str = "/", *, width: int = 1280, scheme: Any = "light") -> Page:
        """Open a page in a fresh profile; record its errors and its requests."""
        viewport: Any = {"width": width, "height": 900}
        context = self.browser.new_context(viewport=viewport, color_scheme=scheme)
        page = context.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        page.on("console", lambda message: self._hear(message.type, message.text))
        page.on("pageerror", lambda error: self._hear("error", str(error)))
        page.on("request", self._note)
        page.goto(self.address + path)
        return page

    @property
    def bulletin(self) -> VerifiedBulletin:
        """The bulletin, as verified by a person."""
        assert self.run.bulletin is not None
        return self.run.bulletin

    def postings(self) -> list[bytes]:
        """Fetch every letter that is on the board."""
        with urllib.request.urlopen(f"{self.run.at_board}/letters") as answer:  # noqa: S310 - loopback
            page, size = answer.read(), posting_size(self.run.round)
        return [page[at : at + size] for at in range(0, len(page), size)]

    def wait_until_paused(self, *, people: int) -> None:
        """Wait until at least `people` have joined and the run is paused."""
        end = time.monotonic() + PATIENCE
        while not self.pace.waiting or len(self.run.tickets) < people:
            assert time.monotonic() < end
            time.sleep(0.05)

    def _hear(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.errors.append(text)

    def _note(self, request: Request) -> None:
        self.requests.append(request.url)


def paused(scenario: Scenario, pause: int) -> Scenario:
    """Return a scenario whose steps of settling wait `pause` seconds."""
    assert scenario.settle is not None
    return replace(scenario, settle=structs.replace(scenario.settle, pause=pause))


@contextmanager
def page_run(
    folder: Path,
    *,
    people: int,
    epsilon: float,
    name: str = "taxi",
    candidates: int | None = None,
    pause: int | None = None,
    tiles: str = "",
) -> Iterator[PageRun]:
    """Start shuffler, server and board as processes, a run on them, the page and a browser.

    The round waits for its viewer, so that no browser comes too late. With `pause`, a step of
    settling waits that many seconds for a person who does not write.
    """
    chromium = needed("chromium")
    full = make_scenario(name, people=people, epsilon=epsilon, candidates=candidates)
    scenario = paused(with_places(full), pause) if pause else with_places(full)
    cluster = demo_cluster(folder)
    with (
        _served(partial(serve_page, scenario, cluster, served=service_of, tiles=tiles)) as (
            address,
            run,
        ),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=list(_FLAGS))
        try:
            assert run.pace is not None
            yield PageRun(run, run.pace, address, browser)
        finally:
            browser.close()


@contextmanager
def _served(serve: Any) -> Iterator[tuple[str, Run]]:
    """Serve the page from a thread with its own event loop, until the block ends."""
    results: queue.Queue[tuple[str, Run] | BaseException] = queue.Queue()
    loop = asyncio.new_event_loop()

    def announce(address: str, run: Run) -> None:
        results.put((address, run))

    task = loop.create_task(serve(announce=announce))

    def whole() -> None:
        try:
            loop.run_until_complete(task)
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            results.put(error)
        finally:
            loop.close()

    thread = threading.Thread(target=whole, daemon=True)
    thread.start()
    result = results.get(timeout=PATIENCE)
    if isinstance(result, BaseException):
        raise result
    try:
        yield result
    finally:
        with suppress(RuntimeError):  # it ended by itself
            loop.call_soon_threadsafe(task.cancel)
        thread.join(PATIENCE)


def violations(page: Page) -> list[str]:
    """Return the violations that axe-core rates as serious or critical."""
    axe = packages() / "axe-core/axe.min.js"
    # The page's policy, which forbids such a script, does not apply to Playwright.
    page.evaluate(axe.read_text(encoding="utf-8"))
    rules = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{rule['id']}: {node['target']} {node['failureSummary']}"
        for rule in rules
        if rule["impact"] in {"serious", "critical"}
        for node in rule["nodes"]
    ]


def masses(mechanism: Any, center: Any, edges: Any) -> Any:
    """Return the exact mass of each cell between the edges."""
    whole, reach = mechanism._whole, mechanism.reach
    far = np.diff(edges) / (2 * whole + 1)
    near = [
        (np.minimum(edges[1:], i + reach + 1) - np.maximum(edges[:-1], i - reach)).clip(0)
        / (2 * reach + 1)
        for i in center
    ]
    mixed = mechanism.mixing * np.outer(*near) + (1 - mechanism.mixing) * np.outer(far, far)
    assert abs(mixed.sum() - 1) < 1e-9
    return mixed


def choose(page: Page, adversary: str, *, people: int = 0) -> None:
    """Choose an adversary, and wait for the library's guarantee."""
    with page.expect_response("**/adversary?*") if adversary != "all" else nullcontext():
        page.locator(f'label:has(input[name=adversary][value="{adversary}"])').click()
    if people:
        with page.expect_response("**/adversary?*"):
            page.locator("#bad").fill(str(people))
            page.locator("#bad").dispatch_event("change")


def shown_text(page: Page, selector: str) -> str:
    """Return the text of an element."""
    return page.locator(selector).text_content() or ""
