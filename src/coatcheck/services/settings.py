"""Settings of the services, each one table of a TOML file, and the key ring that they name.

Unknown settings are rejected. Paths are relative to the file's folder. A text that begins with `@`
names a file. A process reads it only when it needs the content, so that processes may start in any
order on any port.
"""

import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from coatcheck.durable_files import read_secret
from coatcheck.errors import Misuse, Unavailable
from coatcheck.protocol.keys import KeyPairs, PublicKeys, read_keys, read_public

AtLeastOne = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
_STORES: Final = "sqlite:"
_TLS: Final = ("tls_certificate", "tls_key", "tls_ca")
_NO_CLUSTER: Final = '`runner = "ray"` needs a table [ray] with the address and token of a cluster'


class ProcessSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of every process that listens.

    Attributes:
        listen: host and port; every role has a different default port, and 0 takes a free one.
        address_file: the file into which the service writes its address when it can answer.
        url: the address at which others reach the service, by default the one it listens on. Terms
            name it, as https://HOST[:PORT], or http:// on this machine.
        admin_token: a file with one line per operator, `NAME.SECRET`; without it there is none.
        connections: the most connections at once.
        connections_each: the most connections of one source address (an IPv6 network of 64 bits
            counts as one). A new connection closes the oldest idle one.
        requests_each: requests per second that one source address may send to change something; ten
            times as many may come at once.
        proxies: addresses or networks of proxies, through which many people connect: only the total
            of their connections is limited.
        source_header: the header in which these proxies give the source address, such as
            x-forwarded-for; its last entry counts. Without it, requests through proxies are not
            limited by source.
        deadline: seconds in which a request must arrive and an answer must be read; large
            deliveries and answers get more time, by their length.
        peer_timeout: seconds after which another role counts as unavailable.
        traces: the address of an OpenTelemetry collector (OTLP over HTTP).
        ca: a file with the certificates to trust for the other roles, instead of the system's.
    """

    name: str
    listen: str = "127.0.0.1:0"
    address_file: str = ""
    url: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    ca: str = ""
    admin_token: str = ""
    connections: AtLeastOne = 2000
    connections_each: AtLeastOne = 200
    requests_each: AtLeastOne = 100
    proxies: tuple[str, ...] = ()
    source_header: str = ""
    deadline: Seconds = 15.0
    peer_timeout: Seconds = 30.0
    traces: str = ""
    folder: str = "."

    def path(self, name: str) -> Path:
        """Return the path of a file, relative to the settings."""
        return Path(self.folder) / name

    def value(self, text: str) -> str:
        """Return a setting's text, or the content of the file that it names with `@`."""
        if not text.startswith("@"):
            return text
        try:
            return self.path(text[1:]).read_text(encoding="utf-8").strip()
        except OSError:
            raise Unavailable(f"{text[1:]} does not exist yet; it is read again later") from None

    def token(self) -> bytes:
        """Read the token file of the operators; empty without one."""
        if not self.admin_token:
            return b""
        return read_secret(self.path(self.admin_token)).strip()

    @property
    def ca_file(self) -> str:
        """The path of the file of certificates; empty for the system's."""
        return str(self.path(self.ca)) if self.ca else ""


class RaySettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table [ray]: the cluster that runs the parts of stages, with `runner = "ray"`.

    Attributes:
        address: host and port of the cluster's head.
        token: a file with the cluster's token. It is required: without one, anybody who reaches a
            node of Ray can run code there.
        node: the address of this machine in the cluster, if Ray does not find it by itself. Every
            process of the role runs on a node; a node with `--num-cpus=0` runs no parts.
        tls_certificate: the files of Ray's TLS, all three or none.
        retries: how often a part is repeated after the loss of its node, before the step fails.
    """

    address: Annotated[str, Meta(pattern=r"^(@.+|[^\s/]+:[0-9]{1,5})$")]
    token: Annotated[str, Meta(min_length=1)]
    node: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    tls_ca: str = ""
    retries: Annotated[int, Meta(ge=0)] = 3

    def __post_init__(self) -> None:
        if len(set(map(bool, self.tls))) > 1:
            raise ValueError(
                "Ray's TLS needs all of `tls_certificate`, `tls_key` and `tls_ca`, or none"
            )

    @property
    def tls(self) -> tuple[str, str, str]:
        """The three files of TLS."""
        return self.tls_certificate, self.tls_key, self.tls_ca


class Settings(ProcessSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of every role with a store and keys.

    Attributes:
        store: `memory:`, `sqlite:FILE` or `postgresql://...`.
        keys: key files; the first is for new rounds, the others for rounds still open.
        round_keys: a folder for the keys of rounds, by default `NAME.rounds` beside the first key
            file; all processes of one database share it. The data of a round cannot be read
            without its key in this folder, and the release destroys the key: do not back the
            folder up.
        blobs: a folder, or an address such as s3://BUCKET/PREFIX, for partitions of batches and
            for what a release is made of, sealed under the keys of rounds; by default beside the
            file of the store, or with PostgreSQL in the folder of round keys. All processes of
            one database share it.
        trusted: files with the public keys of the other roles.
        queue: the most uploads or letters that wait for the disk; clients retry the others later.
        lease: seconds after which another process may take over from one that died.
        tick: seconds between two checks for rounds that are due.
        workers: the number of worker processes; 0 stands for one per core.
        runner: where the parts of a large round run: `pool` for processes of this machine, `ray`
            for the cluster of the table [ray].
        ray: that cluster.
        batch_limit: the most bytes of one batch or bulletin; the same for all roles of a round.
    """

    store: str
    keys: Annotated[tuple[str, ...], Meta(min_length=1)]
    round_keys: str = ""
    blobs: str = ""
    trusted: tuple[str, ...] = ()
    queue: AtLeastOne = 4096
    lease: Seconds = 5.0
    tick: Seconds = 0.5
    workers: Annotated[int, Meta(ge=0)] = 0
    runner: Literal["pool", "ray"] = "pool"
    ray: RaySettings | None = None
    batch_limit: AtLeastOne = 1 << 30

    def __post_init__(self) -> None:
        if self.runner == "ray" and self.ray is None:
            raise ValueError(_NO_CLUSTER)
        if self.runner == "ray" and self.store == "memory:":
            raise ValueError(
                '`runner = "ray"` cannot use the store `memory:`, which no other node sees'
            )

    @property
    def store_url(self) -> str:
        """The store's address, with the full path of its file."""
        if self.store.startswith(_STORES):
            return _STORES + str(self.path(self.store.removeprefix(_STORES)))
        return self.store

    @property
    def key_files(self) -> tuple[Path, ...]:
        """The paths of the key files."""
        return tuple(self.path(name) for name in self.keys)

    @property
    def round_key_folder(self) -> Path:
        """The path of the folder for the keys of rounds."""
        if self.round_keys:
            return self.path(self.round_keys)
        return self.key_files[0].parent / f"{self.name}.rounds"

    @property
    def places(self) -> tuple[str, Path, Path | str | None]:
        """The arguments of a store: its address, its folder of round keys, and its blobs if set."""
        blobs: Path | str | None = self.blobs or None
        if blobs and "://" not in self.blobs:
            blobs = self.path(self.blobs)
        return self.store_url, self.round_key_folder, blobs

    @property
    def cluster(self) -> RaySettings:
        """The cluster of the table [ray], with the full paths of its files."""
        if self.ray is None:
            raise Misuse(_NO_CLUSTER)
        files = {name: getattr(self.ray, name) for name in ("token", *_TLS)}
        paths = {name: str(self.path(file)) for name, file in files.items() if file}
        return msgspec.structs.replace(self.ray, address=self.value(self.ray.address), **paths)

    def trusted_keys(self) -> frozenset[bytes]:
        """Read the verifying keys that this service trusts."""
        listed = [read_public(self.path(name)) for name in self.trusted]
        return frozenset(bytes.fromhex(public.verifying) for public in listed)


class ShufflerSettings(Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of a shuffler, with its admission of people.

    Attributes:
        admission: `tokens` for people with a one-use token, `privacy-pass` for people with a token
            of an issuer, or `open` for everybody.
        tokens: a file of SHA-256 hashes of tokens, one per line; each serves once per round.
        issuer: the host name of an issuer of Privacy Pass.
        issuer_key: a file with its public key in DER.
    """

    listen: str = "127.0.0.1:8001"
    admission: Literal["tokens", "privacy-pass", "open"] = "tokens"
    tokens: str = ""
    issuer: str = ""
    issuer_key: str = ""


class ScheduleSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table [schedule]: rounds that the server opens by itself. Times are in minutes.

    Attributes:
        every: the time from the start of one round to the start of the next. Starts are at whole
            multiples since 1970, in UTC: with 60, on the hour.
        draft: a file as for `coatcheck round open`; the start is added to the name of each round.
        closes: the time from the start of a round to its release, if its crowd is complete; `every`
            by default.
        expires: the time from the start of a round to its end, if its crowd is not complete;
            `closes` and `every` together by default.
        learn: adapt the mechanisms to the density of people in the noisy reports of an earlier
            round; with 24, every 24th round keeps those of the draft, to learn again. 0 turns this
            off.
        announce: a file that always holds the address of the newest round, for example for a web
            page.
    """

    every: Seconds
    draft: str
    closes: Seconds | None = None
    expires: Seconds | None = None
    learn: Annotated[int, Meta(ge=0)] = 0
    announce: str = ""


class ServerSettings(Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of a server, with the addresses of its shufflers and its board.

    Attributes:
        shufflers: their addresses, in the order of the cascade.
        board: its address.
        schedule: the rounds that it opens by itself, from the table [schedule].
        private_task_parameters: a JSON file of task parameters that no terms publish, by the task's
            name, such as the direction by which gradients are judged.
    """

    listen: str = "127.0.0.1:8002"
    shufflers: Annotated[tuple[str, ...], Meta(min_length=1)]
    board: str
    schedule: ScheduleSettings | None = None
    private_task_parameters: str = ""


class BoardSettings(Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of a board, with its witnesses and limits on letters.

    Attributes:
        witnesses: addresses of witnesses, to which the board submits every new checkpoint. An
            address may be followed by a blank and the witness's C2SP verifier key; without it, the
            board gets the key from `/key` of the witness.
        letters_each: the most letters that an address may get per round.
        letters_for: seconds after the expiry of a round for which the board accepts its letters.
    """

    listen: str = "127.0.0.1:8003"
    witnesses: tuple[str, ...] = ()
    letters_each: AtLeastOne = 256
    letters_for: Seconds = 30 * 86_400.0


class RelaySettings(ProcessSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of a relay.

    Attributes:
        gateways: the addresses of the roles to which it forwards requests, as in the terms.
        waiting: the most requests in progress at once; clients retry the others later.
        key_lists: a folder for the key lists of the gateways. Each is the same for everybody until
            its day ends, also after a restart; all processes of one relay share the folder.
    """

    listen: str = "127.0.0.1:8004"
    gateways: Annotated[tuple[str, ...], Meta(min_length=1)]
    waiting: AtLeastOne = 1000
    key_lists: str


class WitnessSettings(ProcessSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of a witness; its cosignatures contain its `name`.

    Attributes:
        key: its key file.
        boards: files with the public keys of the boards that it follows.
        checkpoints: a folder for the last checkpoint of each board; it must never be lost.
    """

    listen: str = "127.0.0.1:8005"
    key: str
    boards: Annotated[tuple[str, ...], Meta(min_length=1)]
    checkpoints: str


_S = TypeVar("_S", bound=ProcessSettings)


def read_settings(path: Path, *, role: str, kind: type[_S]) -> _S:
    """Read the settings of a role from its table in a TOML file."""
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Misuse(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misuse(f"{path} is not a TOML file: {error}") from None
    if role not in tables:
        raise Misuse(f"{path} has no table [{role}], only: {', '.join(tables) or 'none'}")
    table = {**tables[role], "folder": str(path.absolute().parent)}
    for shared in {"schedule", "ray"} & {*kind.__struct_fields__} & {*tables} - {*table}:
        table[shared] = tables[shared]
    try:
        return msgspec.convert(table, type=kind)
    except msgspec.ValidationError as error:
        raise Misuse(f"table [{role}] of {path}: {error}") from None


class Keyring:
    """The keys of one role: the first for new rounds, the others for rounds that name them.

    To rotate, put a new key file in front of the list; remove an old one when its rounds are over.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        files = [read_keys(path) for path in paths]
        self.public: PublicKeys = files[0].public
        self._pairs = {file.public.verifying: file.pairs for file in files}

    @property
    def current(self) -> KeyPairs:
        """The keys for new rounds."""
        return self._pairs[self.public.verifying]

    def sign_by_all(self, message: bytes) -> list[bytes]:
        """Sign with every key, for readers that trust any one of them."""
        return [pairs.signing.sign(message) for pairs in self._pairs.values()]

    def of(self, *listed: str) -> KeyPairs:
        """Return the keys of this role among the verifying keys that terms list."""
        for verifying in listed:
            if verifying in self._pairs:
                return self._pairs[verifying]
        raise Misuse("the terms name a key that this service lacks; add its key file to `keys`")

    def has(self, verifying: str) -> bool:
        """Return whether a verifying key is one of these."""
        return verifying in self._pairs


@cache
def keyring_of(paths: tuple[Path, ...]) -> Keyring:
    """Return the key ring of these files, read once per process."""
    return Keyring(paths)
