import time
from contextlib import contextmanager
from coatcheck.simulation import Cast, _check
from coatcheck.suites import suite_named
from coatcheck.entropy import system
from coatcheck.terms import Terms
from coatcheck.drafting import *
from coatcheck.agreement import *
from coatcheck.shuffler import Shuffler, fresh_state
from coatcheck.server import Server
from coatcheck.board import Board
from coatcheck.parcels import Batch
import threading


class Mem:
    started_in = 0.0
    folder = "/tmp/x"

    def __init__(s):
        s.cast = Cast.draw(suite=suite_named("x25519"), shufflers=1, entropy=system())
        s.trusted = s.cast.trusted
        s.lock = threading.Lock()

    def open(s, play):
        su = suite_named("x25519")
        c = s.cast
        now = int(time.time())
        t = Terms(
            round="demo",
            suite="x25519",
            groups=draft_groups(play.drafts, task=play.task, suite=su),
            task=draft_work(play.task),
            server=party("server", c.server),
            shufflers=(party("sh", c.shufflers[0]),),
            board=notary("board", c.board),
            opens=now - 1,
            closes=now + 5,
            expires=now + 100,
        )
        sg = countersign(
            propose(t, signing=c.server.signing), signing=c.shufflers[0].signing, pledged={}
        )
        s.round = settle(sg)
        s.sh = Shuffler(s.round, keys=c.shufflers[0], state=fresh_state(s.round, system()))
        s.play = play
        s.task = play.task if play.insight is None else play.task.judged_by(play.insight.direction)
        return sg

    def upload(s, raw):
        with s.lock:
            return s.sh.receive(raw, now=s.round.terms.opens)

    def close(s):
        s.raw = s.sh.release(now=s.round.terms.closes)
        b = Server(s.round, keys=s.cast.server, task=s.task).answer(s.raw)
        s.board = Board(sign=s.cast.board.signing.sign, check=_check)
        s.board.publish(b, s.round)

    def bulletin(s):
        return s.board.bulletin(s.round.digest)

    def post(s, raw):
        with s.lock:
            s.board.post(raw, s.round)

    def letters(s):
        return s.board.letters(s.round.digest)

    def seen(s, play, round_):
        sv = Server(round_, keys=s.cast.server, task=s.task)
        b = Batch.decode(s.raw, round_)
        return [sv.open_group(g, b) for g in range(len(b.items))]


@contextmanager
def opened(watcher, keep):
    yield Mem()
