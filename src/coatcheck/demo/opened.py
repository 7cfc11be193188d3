"""What the server saw: the uploads of a run, opened with the keys of the services.

Only whoever holds both key files can do this; the demo does, because it made them.
"""

from collections.abc import Iterable, Sequence

from coatcheck import tasks
from coatcheck.entropy import system
from coatcheck.protocol.keyfiles import read_keys
from coatcheck.protocol.parcels import Batch
from coatcheck.protocol.server import Opened, Server
from coatcheck.protocol.shuffler import Shuffler, fresh_state
from coatcheck.protocol.terms import Round
from coatcheck.services.cluster import Cluster


def open_uploads(
    uploads: Iterable[bytes], round_: Round, *, cluster: Cluster, task: tasks.Task
) -> Sequence[Opened]:
    """Return what the server saw of each group.

    The server has deleted its batch and the shuffler its order, so the uploads are shuffled once
    more: as good an order as the one that is forgotten.
    """
    mixing, opening = (
        read_keys(cluster.folder / f"{name}.key").pairs for name in (cluster.shufflers[0], "server")
    )
    shuffler = Shuffler(round_, keys=mixing, state=fresh_state(system()))
    for upload in uploads:
        shuffler.receive(upload, now=round_.terms.opens)
    shuffler.close(now=round_.terms.closes)
    batch = Batch.decode(shuffler.release(), round_)
    return Server(round_, keys=opening, task=task).open(batch)
