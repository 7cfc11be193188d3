"""Putting a play on the page: a live round on its stage, served on loopback until it is ended."""

import socket
from collections.abc import Callable
from dataclasses import replace

import uvicorn

from coatcheck.accounting.amplification import amplify, calibrate
from coatcheck.demo.page.live import Live
from coatcheck.demo.page.score import Pace
from coatcheck.demo.page.site import create_app
from coatcheck.demo.page.stage import Stage
from coatcheck.demo.plays import Play
from coatcheck.domains import Box
from coatcheck.errors import Misuse
from coatcheck.protocol.drafting import GroupPlan
from coatcheck.randomizers import BoundedResponse, tuned


def scattered(play: Play) -> Play:
    """Let everybody report a place instead of a cell, under the same promise.

    A small crowd is best served by a grid of few cells; on a map they would hide that each
    report is one person's. *Guarantee:* the central ε is that of the play; the error is a few
    percent larger.
    """
    if play.box is None:
        raise Misuse("the page shows places on a map: choose the taxi or the friends demo")
    box = play.box
    return replace(play, drafts=tuple(_placed(draft, box) for draft in play.drafts))


def _placed(draft: GroupPlan, box: Box) -> GroupPlan:
    crowd, corrupted, delta = draft.minimum, draft.corrupted, draft.delta
    law = draft.randomizer.law
    promised = amplify(law, crowd=crowd, delta=delta, corrupted=corrupted).epsilon
    radius = tuned(BoundedResponse, domain=box, epsilon=draft.randomizer.epsilon).radius
    local = calibrate(
        lambda epsilon: BoundedResponse(domain=box, epsilon=epsilon, radius=radius).law,
        epsilon=promised,
        crowd=crowd,
        delta=delta,
        corrupted=corrupted,
    ).local_epsilon
    made = BoundedResponse(domain=box, epsilon=local, radius=radius, decode="median")
    return replace(draft, randomizer=made, decode="median")


def show(
    play: Play,
    stage: Stage,
    *,
    announce: Callable[[str], object],
    port: int = 0,
    speed: float = 1.0,
) -> None:
    """Serve the page of a live round until it is interrupted; `announce` is told its address."""
    with socket.socket() as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind(("127.0.0.1", port))
        except OSError as error:
            raise Misuse(f"port {port} cannot be used ({error.strerror}): choose another") from None
        live = Live(play, stage, pace=Pace(speed=speed))
        config = uvicorn.Config(
            create_app(live), log_level="warning", timeout_graceful_shutdown=1, lifespan="off"
        )
        live.start()
        door.listen()  # so that whoever follows the address at once is not turned away
        announce(f"http://127.0.0.1:{door.getsockname()[1]}")
        try:
            uvicorn.Server(config).run(sockets=[door])
        finally:
            live.stop()
