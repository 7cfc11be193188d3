"""The coatcheck services of this example, on loopback; in production three operators run them."""

import tempfile
from pathlib import Path

from flwr.app import Context

from coatcheck.protocol.agreement import Trust
from coatcheck.protocol.keys import read_public
from coatcheck.services.local_cluster import Cluster

ROLES = {"shuffler-1": "shuffler", "server": "server", "board": "board"}


def home(context: Context) -> Path:
    """Return the folder of this run, with the services and everybody's tickets."""
    named = str(context.run_config["home"])
    return Path(named or Path(tempfile.gettempdir()) / f"coatcheck-flower-{context.run_id}")


def cluster(folder: Path) -> Cluster:
    """Return a shuffler, a server and a board whose keys and stores are in `folder`."""
    return Cluster(folder / "services", extra={"tick": 0.1, "workers": 1})


def known_keys(folder: Path) -> Trust:
    """Return the operators' public keys, which people get from a source other than Flower."""
    return Trust.of(
        (role, [bytes.fromhex(read_public(folder / "services" / f"{name}.public").verifying)])
        for name, role in ROLES.items()
    )
