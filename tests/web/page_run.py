"""The real demo on a page, and a real browser in front of it, for the tests to share."""

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
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

from coatcheck.demo.events import Pace
from coatcheck.demo.page.app import serve_page
from coatcheck.demo.run import Run, demo_cluster
from coatcheck.demo.scenarios import Scenario, make_scenario, with_places
from coatcheck.demo.summary import service_of
from coatcheck.protocol.log.verification import VerifiedBulletin
from coatcheck.protocol.wire.bulletins import posting_size
from web.browser import needed, packages

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
  const found = [];
  for (let n = 0; n < count; n += 1) found.push((await c.join(invitation, value)).report);
  return found;
}"""
"""Join the round so often with one value, sealing and all, and return the reports."""


@dataclass
class PageRun:
    """A run of real processes, the address of its page, and what browsers said and asked for."""

    run: Run
    pace: Pace
    address: str
    browser: Browser
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def page(self, path: str = "/", *, width: int = 1280, scheme: Any = "light") -> Page:
        """Open a page in a fresh profile and write down what it complains of and asks for."""
        viewport: Any = {"width": width, "height": 900}
        context = self.browser.new_context(viewport=viewport, color_scheme=scheme)
        made = context.new_page()
        made.set_default_timeout(PATIENCE * 1000)
        made.on("console", lambda said: self._hear(said.type, said.text))
        made.on("pageerror", lambda error: self._hear("error", str(error)))
        made.on("request", self._note)
        made.goto(self.address + path)
        return made

    @property
    def bulletin(self) -> VerifiedBulletin:
        """The bulletin, as a person has checked it."""
        assert self.run.bulletin is not None
        return self.run.bulletin

    def postings(self) -> list[bytes]:
        """Fetch every letter that is on the board."""
        with urllib.request.urlopen(f"{self.run.at_board}/letters") as answer:  # noqa: S310 - loopback
            page, size = answer.read(), posting_size(self.run.round)
        return [page[at : at + size] for at in range(0, len(page), size)]

    def wait_until_paused(self, *, people: int) -> None:
        """Wait until so many have joined and the run stands still."""
        end = time.monotonic() + PATIENCE
        while not self.pace.waiting or len(self.run.tickets) < people:
            assert time.monotonic() < end
            time.sleep(0.05)

    def _hear(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.complaints.append(text)

    def _note(self, request: Request) -> None:
        self.asked.append(request.url)


def paused(scenario: Scenario, pause: int) -> Scenario:
    """Give a scenario whose steps of settling wait so many seconds."""
    assert scenario.settle is not None
    settle = {**scenario.settle, "settle": {**scenario.settle["settle"], "pause": pause}}
    return replace(scenario, settle=settle)


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

    The round waits for its viewer, so that no browser comes too late. With `pause` a step of
    settling waits so many seconds for whoever does not write.
    """
    chromium = needed("chromium")
    made = make_scenario(name, people=people, epsilon=epsilon, candidates=candidates)
    scenario = paused(with_places(made), pause) if pause else with_places(made)
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
    """Serve the page from a thread with a loop of its own, until left."""
    told: queue.Queue[tuple[str, Run] | BaseException] = queue.Queue()
    loop = asyncio.new_event_loop()

    def announce(address: str, run: Run) -> None:
        told.put((address, run))

    task = loop.create_task(serve(announce=announce))

    def whole() -> None:
        try:
            loop.run_until_complete(task)
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            told.put(error)
        finally:
            loop.close()

    thread = threading.Thread(target=whole, daemon=True)
    thread.start()
    found = told.get(timeout=PATIENCE)
    if isinstance(found, BaseException):
        raise found
    try:
        yield found
    finally:
        with suppress(RuntimeError):  # it ended by itself
            loop.call_soon_threadsafe(task.cancel)
        thread.join(PATIENCE)


def violations(page: Page) -> list[str]:
    """Return what axe-core finds serious or critical."""
    axe = packages() / "axe-core/axe.min.js"
    # Playwright's own world is not bound by the page's policy, which forbids such a script.
    page.evaluate(axe.read_text(encoding="utf-8"))
    found = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found
        if one["impact"] in {"serious", "critical"}
        for node in one["nodes"]
    ]


def masses(made: Any, center: Any, edges: Any) -> Any:
    """Return the exact mass of each cell between the edges."""
    whole, reach = made._whole, made.reach
    far = np.diff(edges) / (2 * whole + 1)
    near = [
        (np.minimum(edges[1:], i + reach + 1) - np.maximum(edges[:-1], i - reach)).clip(0)
        / (2 * reach + 1)
        for i in center
    ]
    mixed = made.mixing * np.outer(*near) + (1 - made.mixing) * np.outer(far, far)
    assert abs(mixed.sum() - 1) < 1e-9
    return mixed


def choose(page: Page, adversary: str, *, people: int = 0) -> None:
    """Choose an adversary, and wait for what the library says."""
    with page.expect_response("**/adversary?*") if adversary != "all" else nullcontext():
        page.locator(f'label:has(input[name=adversary][value="{adversary}"])').click()
    if people:
        with page.expect_response("**/adversary?*"):
            page.locator("#bad").fill(str(people))
            page.locator("#bad").dispatch_event("change")


def shown_text(page: Page, selector: str) -> str:
    """Return what an element says."""
    return page.locator(selector).text_content() or ""
