"""Metrics, traces and log lines of a service, without personal data.

Metrics are numbers, rates and times; they never name a person or a report. A span of a trace is a
step of a round, or a request of another role or an operator: its name, the role, and whether it
failed. Requests of people make no span, because it would record when they came. Every span is a
separate trace, so that nothing links two of them; no trace id comes from a request or is sent with
one.
"""

import logging
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from coatcheck.errors import Misuse

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
_SIZES = (1, 3, 10, 30, 100, 300, 1000)

# The library would export when each counter began, which can be when a person sent something.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The metrics of one service."""

    def __init__(self, role: str) -> None:
        registry = self.registry = CollectorRegistry()
        self.taken = self._counter("taken", "Requests that were taken, by verdict", "verdict")
        self.problems = self._counter("problems", "Problem answers, by type", "type")
        self.steps = self._counter("steps", "Completed steps of rounds, by step", "step")
        self.failures = self._counter("failures", "Failed steps, which are tried again", "step")
        self.rounds = Gauge("coatcheck_rounds", "Rounds by phase", ["phase"], registry=registry)
        self.parts = Gauge(
            "coatcheck_parts", "Unfinished parts of stages", ["stage", "state"], registry=registry
        )
        self.leads = Gauge(
            "coatcheck_leads", "1 if this process leads its store", registry=registry
        )
        self.waiting = Gauge("coatcheck_waiting", "Items that wait for the disk", registry=registry)
        self.commit = Histogram(
            "coatcheck_commit_seconds", "Time of a group commit", registry=registry
        )
        self.group = Histogram(
            "coatcheck_commit_size", "Items in a group commit", buckets=_SIZES, registry=registry
        )
        kind = Gauge("coatcheck_role", "The role of this process", ["role"], registry=registry)
        kind.labels(role).set(1)

    def _counter(self, name: str, text: str, label: str) -> Counter:
        return Counter(f"coatcheck_{name}", text, [label], registry=self.registry)

    def page(self) -> bytes:
        """Return the metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


class Traces(Protocol):
    """A destination for spans."""

    def span(self, name: str, **facts: str) -> AbstractContextManager[None]:
        """Time a block; an error in it marks the span as failed, without its message."""

    def close(self) -> None:
        """Send the remaining spans."""


class NoTraces:
    """No destination: the setting `traces` is empty."""

    @contextmanager
    def span(self, name: str, **facts: str) -> Iterator[None]:  # noqa: ARG002 - see `Traces`
        """Do nothing."""
        yield

    def close(self) -> None:
        """Do nothing."""


class OtlpTraces:
    """Spans for a collector, over OTLP and HTTP."""

    def __init__(self, address: str, *, role: str) -> None:
        try:
            from opentelemetry.context import Context  # noqa: PLC0415 - an extra
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - as above
                OTLPSpanExporter,
            )
            from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above
            from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above
            from opentelemetry.trace import StatusCode  # noqa: PLC0415 - as above
        except ModuleNotFoundError:
            raise Misuse(
                "the setting `traces` needs the extra `otel`: pip install 'coatcheck[otel]'"
            ) from None
        # Not `Resource.create`, which would add the host and the process.
        self._provider = TracerProvider(
            resource=Resource({"service.name": f"coatcheck-{role}"}), shutdown_on_exit=False
        )
        exporter = OTLPSpanExporter(endpoint=f"{address.rstrip('/')}/v1/traces", timeout=5)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("coatcheck")
        self._no_parent, self._failed, self._role = Context(), StatusCode.ERROR, role

    @contextmanager
    def span(self, name: str, **facts: str) -> Iterator[None]:
        """Time a block, in a separate trace."""
        attributes = {"coatcheck.role": self._role} | {
            key.replace("_", "."): value for key, value in facts.items()
        }
        span = self._tracer.start_span(name, context=self._no_parent, attributes=attributes)
        try:
            yield
        except BaseException:
            span.set_status(self._failed)  # without the message, which may quote what a person sent
            raise
        finally:
            span.end()

    def close(self) -> None:
        """Send the remaining spans, and stop."""
        self._provider.shutdown()


def traces(address: str, *, role: str) -> Traces:
    """Return the destination of a service's spans: a collector, or none."""
    return OtlpTraces(address, role=role) if address else NoTraces()


log = logging.getLogger("coatcheck")


def place_of(error: BaseException) -> str:
    """Describe an unexpected error for the log by its type and lines, never by its message.

    A message may quote what a person sent (a database error names the key), and no line of a log
    may be about one report.
    """
    steps = traceback.walk_tb(error.__traceback__)
    lines = [f"{Path(frame.f_code.co_filename).name}:{line}" for frame, line in steps]
    return f"{type(error).__name__} at {' < '.join(reversed(lines)) or 'an unknown line'}"
