"""Operators: told apart in the log, and traces that join nothing."""

import asyncio
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from coatcheck.cli import main
from coatcheck.errors import Misuse
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.telemetry import traces
from coatcheck.services.web.app import NOBODY, Operators
from support.service_rounds import QUICK, draft, logs, post, whole_round

ADA, BO = "ada.0123456789abcdef", "bo.fedcba9876543210"


class Collector(ThreadingHTTPServer):
    """Takes spans as OpenTelemetry's collector does."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[Any] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    raise ValueError("plain is asked for")
                told = ExportTraceServiceRequest.FromString(raw)
                for one in told.resource_spans:
                    collector.resources.append(one.resource)
                    collector.spans += [span for scope in one.scope_spans for span in scope.spans]
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    """A collector of spans."""
    made = Collector()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Path:
    """Give the folder of services with two operators after a round; all spans were sent."""
    traced = f"http://127.0.0.1:{collector.server_address[1]}"
    made = Cluster(tmp_path_factory.mktemp("operated"), extra={**QUICK, "traces": traced})
    token = made.folder / "admin.token"
    token.write_text(f"{ADA}\n{BO}\n")
    with made:
        token.write_text(f"{ADA}\n")  # what the cluster itself shows from now on
        asyncio.run(whole_round(made, "watched"))
        url = f"{made.url('server')}/rounds"
        body = {"draft": draft("by bo"), "closes": 600, "expires": 900}
        assert post(url, json=body, headers=bearer(BO)).status_code == 200
        assert post(url, json=body, headers=bearer("wrong")).status_code == 403
    return made.folder


def bearer(token: str) -> dict[str, str]:
    """Write the header of a credential."""
    return {"authorization": f"Bearer {token}"}


def test_the_log_tells_operators_apart(folder: Path) -> None:
    """Who opened a round is in the log by name; no token and no address is."""
    said = logs(folder)
    assert "operator ada: POST /rounds" in said
    assert "operator bo: POST /rounds" in said
    assert not any(token.partition(".")[2] in said for token in (ADA, BO))
    assert "uploads" not in said


def test_spans_join_nothing_and_tell_of_nobody(folder: Path, collector: Collector) -> None:
    """Each is a trace of its own, with a role and at most a route; people leave none."""
    assert folder.exists()
    spans = collector.spans
    names = {span.name for span in spans}
    assert {"sign", "open", "close", "release", "deliver", "answer", "publish"} <= names
    assert "POST /rounds/{digest}/batch" in names
    assert not any("upload" in name or "letters" in name or "GET" in name for name in names)
    keys = {one.key for span in spans for one in span.attributes}
    assert keys == {"coatcheck.role", "http.route", "http.request.method"}
    assert len({span.trace_id for span in spans}) == len(spans)
    assert not any(span.parent_span_id or span.links or span.events for span in spans)
    told = {one.key for resource in collector.resources for one in resource.attributes}
    assert told == {"service.name"}
    values = {one.value.string_value for span in spans for one in span.attributes}
    assert not any(re.search(r"[0-9a-f]{16}|127\.0\.0\.1|watched", value) for value in values)


# -- credentials


def asked(value: str) -> dict[str, Any]:
    """Make a request with a credential."""
    return {"headers": [(b"authorization", value.encode())]}


def test_credentials_are_known_by_bearer() -> None:
    """An operator without a name is `operator`; a caller without a token is nobody."""
    known = Operators(f"{ADA}\n0123456789abcdef0123\n".encode())
    assert known.name_of(asked(f"Bearer {ADA}")) == "ada"
    assert known.name_of(asked("Bearer 0123456789abcdef0123")) == "operator"
    for wrong in ("", "Bearer", "Bearer ada.", f"Basic {ADA}", "Digest x", f"Bearer {ADA}x"):
        assert known.name_of(asked(wrong)) == NOBODY
    assert Operators(b"").name_of(asked("Bearer ")) == NOBODY


@pytest.mark.parametrize("raw", ["short", "ada.short", "two words of a token", f"{ADA}\n{ADA}1"])
def test_a_bad_token_file_is_refused(raw: str) -> None:
    """One sentence says how a good one is made."""
    with pytest.raises(Misuse, match="token file"):
        Operators(raw.encode())


def test_a_token_is_made_by_a_command(tmp_path: Path) -> None:
    """For its owner alone; a name that no log line should hold is refused."""
    out = tmp_path / "ada.token"
    done = CliRunner().invoke(main, ["operator", "ada", "--out", str(out)])
    assert done.exit_code == 0
    assert out.stat().st_mode & 0o777 == 0o600
    line = out.read_text().strip()
    assert Operators(line.encode()).name_of(asked(f"Bearer {line}")) == "ada"
    bad = CliRunner().invoke(main, ["operator", "Ada L.", "--out", str(tmp_path / "x")])
    assert bad.exit_code == 2
    assert "lower-case" in bad.output
    assert not (tmp_path / "x").exists()


def test_without_opentelemetry_the_setting_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And without the setting nothing is needed."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(Misuse, match=r"coatcheck\[otel\]"):
        traces("http://127.0.0.1:9", role="board")
    with traces("", role="board").span("step"):
        pass
