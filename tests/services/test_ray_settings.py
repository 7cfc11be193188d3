"""Settings of a Ray cluster: checked when they are read, and free of secrets."""

import importlib.util
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from coatcheck import __version__
from coatcheck.errors import Misuse, Refused, Unavailable
from coatcheck.services.ray_runner import do_part, environment, probe
from coatcheck.services.settings import RaySettings, Settings, ShufflerSettings, read_settings
from coatcheck.services.worker_pools import check_runner, remote_settings
from support.certificates import certify
from support.ray_stages import whose


def test_a_node_that_anybody_may_use_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unauthenticated node, or one with another version, refuses before it reads a key."""
    settings = Settings(name="s", store="elsewhere:", keys=("k",), folder=str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    kind, text = do_part(__version__, whose, settings, bytes(32), (1,))
    assert (kind, b"RAY_AUTH_MODE=token" in text) == ("Unavailable", True)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    kind, text = do_part("0.0.0", whose, settings, bytes(32), (1,))
    assert (kind, b"0.0.0 at the role" in text) == ("Unavailable", True)
    assert do_part(__version__, whose, settings, bytes(32), (1,)) == ("", b"%d" % os.getpid())


GOOD = 'address = "head:6379"\ntoken = "token"\n'


@pytest.mark.parametrize(
    ("table", "wrong"),
    [
        ("", "needs a table .ray. with the address and token"),
        ('[ray]\naddress = "head:6379"\n', "missing required field `token`"),
        ('[ray]\naddress = "head:6379"\ntoken = ""\n', "length >= 1"),
        ('[ray]\ntoken = "token"\naddress = "ray://head/x"\n', "matching regex"),
        (f'[ray]\n{GOOD}tls_key = "key"\n', "`tls_certificate`, `tls_key` and `tls_ca`, or none"),
        (f'[shuffler.ray]\n{GOOD}password = "p"\n', "unknown field `password`"),
        (f'store = "memory:"\n[ray]\n{GOOD}', "cannot use the store"),
    ],
)
def test_settings_are_checked(table: str, wrong: str, tmp_path: Path) -> None:
    """Settings that cannot work on any cluster are refused when they are read."""
    store = "" if "store" in table else 'store = "sqlite:s.db"\n'
    (tmp_path / "s.toml").write_text(
        f'[shuffler]\nname = "s"\nkeys = ["k"]\nrunner = "ray"\n{store}{table}'
    )
    with pytest.raises(Misuse, match=wrong):
        read_settings(tmp_path / "s.toml", role="shuffler", kind=ShufflerSettings)


def test_a_service_does_not_start_without_ray_or_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token is missing, empty or readable by others, or Ray is not installed."""
    ray = RaySettings(address="head:6379", token="token")  # noqa: S106 - a file
    settings = ShufflerSettings(
        name="s", store="sqlite:s.db", keys=("k",), folder=str(tmp_path), runner="ray", ray=ray
    )
    with pytest.raises(Misuse, match="token"):
        check_runner(settings)
    token = tmp_path / "token"
    token.write_text("")
    with pytest.raises(Refused, match="other users can read"):
        check_runner(settings)
    token.chmod(0o600)
    with pytest.raises(Misuse, match="is empty"):
        check_runner(settings)
    token.write_text("a")
    check_runner(settings)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Misuse, match=r"pip install 'coatcheck\[ray\]'"):
        check_runner(settings)


def test_nodes_receive_no_address_of_the_database(tmp_path: Path) -> None:
    """Nodes get the locations of files; the database address stays with the role."""
    settings = ShufflerSettings(
        name="s",
        store="postgresql://role:password@host/db",
        traces="https://collector/?key=password",
        admin_token="operator.token",  # noqa: S106 - a file
        keys=("own.key",),
        round_keys="rounds",
        folder=str(tmp_path),
    )
    given = remote_settings(settings)
    assert "password" not in repr(given)
    assert given.places == ("elsewhere:", tmp_path / "rounds", tmp_path / "rounds" / "blobs")
    assert given.key_files == settings.key_files


def test_tls_is_what_ray_reads() -> None:
    """Ray's TLS needs all three files or none."""
    where: dict[str, Any] = {"address": "h:1", "token": "t"}
    plain = RaySettings(**where)
    assert "RAY_USE_TLS" not in environment(plain)
    tls = RaySettings(**where, tls_certificate="c", tls_key="k", tls_ca="a")
    assert environment(tls) == {
        **environment(plain),
        "RAY_USE_TLS": "1",
        "RAY_TLS_SERVER_CERT": "c",
        "RAY_TLS_SERVER_KEY": "k",
        "RAY_TLS_CA_CERT": "a",
    }


def test_a_cluster_without_tls_is_an_error(tmp_path: Path) -> None:
    """A role with certificates reports that the cluster's address answers without TLS."""
    certify(tmp_path)

    def answer(server: socket.socket) -> None:
        found, _ = server.accept()
        found.sendall(b"nothing that TLS would say")
        found.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        pem, key = (str(tmp_path / name) for name in ("tls.pem", "tls.key"))
        address = f"127.0.0.1:{server.getsockname()[1]}"
        files: dict[str, Any] = {"tls_certificate": pem, "tls_key": key, "tls_ca": pem}
        with pytest.raises(Unavailable, match=f"at {address} does not accept TLS: "):
            probe(RaySettings(address=address, token="token", **files))  # noqa: S106 - a file
