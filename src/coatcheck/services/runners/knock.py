"""Whether a cluster can be joined at all: told at once, as Ray itself would wait for minutes."""

import importlib.util
import socket
import ssl
from pathlib import Path
from typing import Final

from coatcheck.errors import Misuse, Unavailable
from coatcheck.files import read_secret
from coatcheck.services.settings import RaySettings

_SOON: Final = 5.0


def check(token: Path) -> None:
    """Refuse what no cluster could mend: no Ray here, or no token."""
    if importlib.util.find_spec("ray") is None:
        raise Misuse("runner = \"ray\" needs Ray: pip install 'coatcheck[ray]'")
    if not read_secret(token).strip():
        raise Misuse(f"{token} is empty: write the cluster's token into it")


def knock(cluster: RaySettings) -> None:
    """See whether anybody is at an address and, with TLS, whether both know each other."""
    host, _, port = cluster.address.rpartition(":")
    where = f"the Ray cluster at {cluster.address}"
    context = _context(cluster) if all(cluster.tls) else None
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_SOON) as found:
            if context and not _is_welcome(context, found):
                raise Unavailable(
                    f"{where} refuses the certificate in {cluster.tls_certificate}: "
                    f"did the cluster's CA sign it?"
                )
    except ssl.SSLCertVerificationError as error:
        text = f"{where} has a certificate that {cluster.tls_ca} does not vouch for"
        raise Unavailable(f"{text}: {error.verify_message}") from None
    except (ssl.SSLError, ConnectionResetError) as error:
        raise Unavailable(f"{where} does not speak TLS with us: {error}") from None
    except (OSError, OverflowError) as error:
        raise Unavailable(
            f"no Ray cluster is at {cluster.address}: {error}; is its head up?"
        ) from None


def _context(cluster: RaySettings) -> ssl.SSLContext:
    try:
        made = ssl.create_default_context(cafile=cluster.tls_ca)
        made.load_cert_chain(cluster.tls_certificate, cluster.tls_key)
    except OSError as error:
        raise Unavailable(f"cannot use the files {', '.join(cluster.tls)}: {error}") from None
    made.check_hostname = False  # Ray looks at names by itself
    made.set_alpn_protocols(["h2"])
    return made


def _is_welcome(context: ssl.SSLContext, found: socket.socket) -> bool:
    """Shake hands; who is not welcome is told nothing, and the connection is closed."""
    with context.wrap_socket(found) as shaken:
        try:
            return bool(shaken.recv(1))
        except (ConnectionError, ssl.SSLError):
            return False
