"""Counts for operators: how many, how often, how long a commit took; never which or whose."""

from collections.abc import Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
_SIZES = (1, 3, 10, 30, 100, 300, 1000)

# The library would tell when each count began, which is when somebody came.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The counts of one service."""

    def __init__(self, role: str) -> None:
        book = self.registry = CollectorRegistry()
        self.taken = self._counter("taken", "What came in, by verdict", "verdict")
        self.problems = self._counter("problems", "Problems told, by type", "type")
        self.steps = self._counter("steps", "Steps of rounds done, by step", "step")
        self.failures = self._counter("failures", "Steps that have to be tried again", "step")
        self.rounds = Gauge("coatcheck_rounds", "Rounds by phase", ["phase"], registry=book)
        self.parts = Gauge(
            "coatcheck_parts", "Parts of stages under way", ["stage", "state"], registry=book
        )
        self.leads = Gauge("coatcheck_leads", "1 if this process leads its store", registry=book)
        self.waiting = Gauge("coatcheck_waiting", "How many wait for the disk", registry=book)
        self.commit = Histogram("coatcheck_commit_seconds", "Time of a group commit", registry=book)
        self.group = Histogram(
            "coatcheck_commit_size", "Items in a group commit", buckets=_SIZES, registry=book
        )
        kind = Gauge("coatcheck_role", "Which role this is", ["role"], registry=book)
        kind.labels(role).set(1)

    def _counter(self, name: str, text: str, label: str) -> Counter:
        return Counter(f"coatcheck_{name}", text, [label], registry=self.registry)

    def counts(self) -> Iterator[tuple[str, str, float]]:
        """Give the counts so far: of what, which, how many."""
        for one in (self.taken, self.steps, self.failures, self.problems):
            for found in one.collect():
                for name, labels, value, *_ in found.samples:
                    yield name.removesuffix("_total"), " ".join(labels.values()), value

    def page(self) -> bytes:
        """Write the counts as Prometheus reads them."""
        return generate_latest(self.registry)
