"""The slot for a tile server: pictures come from it, and nothing else."""

import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from coatcheck.demo.page.app import policy
from coatcheck.errors import Misuse
from world.web.page_run import PATIENCE, page_run

_TILE = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


class _Tiles(BaseHTTPRequestHandler):
    """A tile server on this machine: every tile is the same."""

    paths: list[str] = []  # noqa: RUF012 - one server

    def do_GET(self) -> None:
        self.paths.append(self.path)
        self.send_response(200)
        self.send_header("content-type", "image/png")
        self.send_header("cross-origin-resource-policy", "cross-origin")
        self.end_headers()
        self.wfile.write(_TILE)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_tiles_come_from_the_server_that_is_named(tmp_path: Path) -> None:
    """The slot for a map: the policy allows that server's pictures and nothing else of it."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Tiles) as tiles:
        threading.Thread(target=tiles.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{tiles.server_address[1]}/{{z}}/{{x}}/{{y}}.png"
        with page_run(tmp_path, people=8, epsilon=3.0, name="nearby", tiles=address) as live:
            page = live.page("/")
            page.wait_for_selector("body[data-phase=terms]")
            end = time.monotonic() + PATIENCE
            while not _Tiles.paths:
                assert time.monotonic() < end
                page.wait_for_timeout(100)
            assert live.errors == []
        tiles.shutdown()
    assert all(re.fullmatch(r"/\d+/\d+/\d+\.png", path) for path in _Tiles.paths)


def test_an_address_without_places_for_tiles_is_refused() -> None:
    """One sentence says how such an address looks."""
    for wrong in ("https://tiles.example/", "file:///{z}/{x}/{y}.png"):
        with pytest.raises(Misuse, match="`--tiles` must be an address such as"):
            policy(wrong)
