"""Traces for operators who have OpenTelemetry, without anything that could join two of them.

A span is a step of a round, or a request of another role or of an operator: its name, the role,
and whether it failed. What people ask leaves none, because a span has a time, and when somebody
came is theirs. Every span is a trace of its own; no id is taken from a request or sent with one.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from coatcheck.errors import Misuse


class Traces(Protocol):
    """Where spans go."""

    def span(self, name: str, **facts: str) -> AbstractContextManager[None]:
        """Time a piece of work; an error in it marks the span, without its message."""

    def close(self) -> None:
        """Send what is left."""


class NoTraces:
    """Nobody asked for spans."""

    @contextmanager
    def span(self, name: str, **facts: str) -> Iterator[None]:  # noqa: ARG002 - see `Traces`
        """Do nothing."""
        yield

    def close(self) -> None:
        """Do nothing."""


class Collected:
    """Spans for a collector that speaks OTLP over HTTP."""

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
            raise Misuse("the setting `traces` needs: pip install 'coatcheck[otel]'") from None
        # Not `Resource.create`, which would add the host and the process.
        self._provider = TracerProvider(
            resource=Resource({"service.name": f"coatcheck-{role}"}), shutdown_on_exit=False
        )
        exporter = OTLPSpanExporter(endpoint=f"{address.rstrip('/')}/v1/traces", timeout=5)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("coatcheck")
        self._nothing, self._failed, self._role = Context(), StatusCode.ERROR, role

    @contextmanager
    def span(self, name: str, **facts: str) -> Iterator[None]:
        """Time a piece of work, in a trace of its own."""
        told = {"coatcheck.role": self._role} | {
            key.replace("_", "."): value for key, value in facts.items()
        }
        made = self._tracer.start_span(name, context=self._nothing, attributes=told)
        try:
            yield
        except BaseException:
            made.set_status(self._failed)  # without the message, which may quote what came
            raise
        finally:
            made.end()

    def close(self) -> None:
        """Send what is left, and end."""
        self._provider.shutdown()


def traces(address: str, *, role: str) -> Traces:
    """Give where the spans of a service go: to a collector, or nowhere."""
    return Collected(address, role=role) if address else NoTraces()
