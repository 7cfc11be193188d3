"""The real demo on a page, and a real browser in front of it, for the tests to share."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import uvicorn
from playwright.sync_api import Browser, Page, Request, sync_playwright

from coatcheck.demo import plays, stage
from coatcheck.demo.page.live import Live
from coatcheck.demo.page.score import Pace
from coatcheck.demo.page.show import scattered
from coatcheck.demo.page.site import create_app
from coatcheck.demo.page.stage import Loopback
from web.browser import ROOT, needed

AXE = ROOT / "web-client/node_modules/axe-core/axe.min.js"
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


class Silent:
    """Nobody watches the processes start."""

    def begin(self, step: str, total: int) -> None:
        """Say nothing."""

    def advance(self) -> None:
        """Say nothing."""


@dataclass
class Theatre:
    """A live round of real processes, its address, and what browsers said and asked for."""

    live: Live
    address: str
    browser: Browser
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def page(self, path: str = "/", *, width: int = 1280, scheme: Any = "light") -> Page:
        """Open a page in a fresh profile and write down what it complains of and asks for."""
        viewport: Any = {"width": width, "height": 900}
        context = self.browser.new_context(viewport=viewport, color_scheme=scheme)
        made = context.new_page()
        made.on("console", lambda said: self._hear(said.type, said.text))
        made.on("pageerror", lambda error: self._hear("error", str(error)))
        made.on("request", self._note)
        made.goto(self.address + path)
        return made

    def _hear(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.complaints.append(text)

    def _note(self, request: Request) -> None:
        self.asked.append(request.url)


@contextmanager
def played(*, people: int, epsilon: float, speed: float) -> Iterator[Theatre]:
    """Start shuffler, server and board as processes, a round on them, the page and a browser."""
    chromium = needed("chromium")
    play = scattered(plays.make_play("taxi", people=people, epsilon=epsilon))
    with (
        stage.opened(watcher=Silent(), keep=False) as scene,
        Loopback(scene) as loopback,
        sync_playwright() as playwright,
    ):
        live = Live(play, loopback, pace=Pace(speed=speed))
        with _served(live) as address:
            browser = playwright.chromium.launch(executable_path=chromium, args=list(_FLAGS))
            try:
                live.start()
                yield Theatre(live, address, browser)
            finally:
                browser.close()
                live.stop()


@contextmanager
def _served(live: Live) -> Iterator[str]:
    config = uvicorn.Config(create_app(live), port=0, log_level="warning", lifespan="off")
    config.timeout_graceful_shutdown = 1
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)


def violations(page: Page) -> list[str]:
    """Return what axe-core finds serious or critical."""
    if not AXE.exists():
        message = f"{AXE.relative_to(ROOT)} is missing: run `npm ci` in web-client"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(message)
    # Playwright's own world is not bound by the page's policy, which forbids such a script.
    page.evaluate(AXE.read_text(encoding="utf-8"))
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


def sit(page: Page, seat: str, *, people: int = 0) -> None:
    """Seat an adversary, and wait for what the library says."""
    with page.expect_response("**/seat?*") if seat != "all" else nullcontext():
        page.locator(f'input[name=seat][value="{seat}"]').check(force=True)
    if people:
        with page.expect_response("**/seat?*"):
            page.locator("#bad").fill(str(people))
            page.locator("#bad").dispatch_event("change")


def shown_text(page: Page, selector: str) -> str:
    """Return what an element says."""
    return page.locator(selector).text_content() or ""
