"""The organizer's side: plan the rounds, start the services, apply the private means."""

import numpy as np
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from coatcheck import Ball, Group, plan
from coatcheck.services.flower import Organiser, PrivateMean
from coatcheck.tasks.learning import Descent
from taught import lesson
from taught.services import cluster, home

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the model over all planned rounds, and print its accuracy."""
    settings = context.run_config
    people, rounds = int(settings["people"]), int(settings["rounds"])
    ball = Ball(radius=float(settings["clip"]), p=2, dimension=lesson.PARAMETERS)
    planned = plan(
        {"people": Group(ball, crowd=people)},
        epsilon=float(settings["epsilon"]),
        delta=1e-3,
        goal="unbiased",
        rounds=rounds,
        rate=0.8,
    )
    print(planned)
    held_out = lesson.held_out(str(settings["data"]))

    def judge(number: int, arrays: ArrayRecord) -> MetricRecord:
        (model,) = arrays.to_numpy_ndarrays()
        accuracy = lesson.accuracy(model, *held_out)
        print(f"after round {number}: {accuracy:.1%} right", flush=True)
        return MetricRecord({"accuracy": accuracy})

    with cluster(home(context)) as services:
        organiser = Organiser.of(
            planned,
            dimension=lesson.PARAMETERS,
            server=services.url("server"),
            token=services.token,
            closes=1,
        )
        strategy = PrivateMean(
            organiser=organiser,
            descent=Descent(step=float(settings["step"]), rounds=rounds, momentum=0.5),
            clients=people,
        )
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord([np.zeros(lesson.PARAMETERS)]),
            num_rounds=rounds,
            evaluate_fn=judge,
        )
