"""The settings of a service: one table of a TOML file, read strictly.

Paths are relative to the file's folder. A text that begins with `@` stands for what that file
says when it is needed, so that processes may start in any order on any port.
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

Some = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
_STORES: Final = "sqlite:"
_TLS: Final = ("tls_certificate", "tls_key", "tls_ca")
_NO_CLUSTER: Final = 'runner = "ray" needs a table [ray] with the address and token of a cluster'


class ProcessSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every process that listens needs to know.

    Attributes:
        listen: host and port; every role has its own port by default, and 0 takes a free one.
        address_file: where the address is written once the service answers.
        url: how others reach the service; what it listens on by default. The terms of rounds name
            it, as https://HOST[:PORT] or http:// on this machine.
        admin_token: a file with a token per line, one for each operator; without it nobody is one.
        connections: how many connections are held at once.
        connections_each: how many of one source address (an IPv6 network of 64 bits is one). The
            oldest on which nothing was asked gives way to a new one.
        requests_each: requests per second of one source address that hand something in; ten times
            as many may come at once.
        proxies: addresses or networks of proxies, through which many people come: their connections
            are counted in total only.
        source_header: the header in which these proxies tell who asks, such as x-forwarded-for; its
            last entry counts. Without it what comes through them is not limited by source.
        deadline: seconds for a request to arrive in full and for an answer to be read; large
            deliveries and answers get more time, by their length.
        peer_timeout: seconds after which another role counts as away.
        traces: the address of an OpenTelemetry collector (OTLP over HTTP), if there is one.
        ca: a file with the certificates to trust for the other roles, if not the system's.
    """

    name: str
    listen: str = "127.0.0.1:0"
    address_file: str = ""
    url: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    ca: str = ""
    admin_token: str = ""
    connections: Some = 2000
    connections_each: Some = 200
    requests_each: Some = 100
    proxies: tuple[str, ...] = ()
    source_header: str = ""
    deadline: Seconds = 15.0
    peer_timeout: Seconds = 30.0
    traces: str = ""
    folder: str = "."

    def path(self, name: str) -> Path:
        """Find a file beside the settings."""
        return Path(self.folder) / name

    def value(self, text: str) -> str:
        """Give a setting's text, or what the file it points to says now."""
        if not text.startswith("@"):
            return text
        try:
            return self.path(text[1:]).read_text(encoding="utf-8").strip()
        except OSError:
            raise Unavailable(f"{text[1:]} is not there yet: it is read again later") from None

    def token(self) -> bytes:
        """Read the operator's token; empty if there is none."""
        if not self.admin_token:
            return b""
        return read_secret(self.path(self.admin_token)).strip()

    @property
    def ca_file(self) -> str:
        """The file of certificates, found; empty for the system's."""
        return str(self.path(self.ca)) if self.ca else ""


class RaySettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table [ray]: the cluster that does the parts of stages, with `runner = "ray"`.

    Attributes:
        address: host and port of the cluster's head.
        token: a file with the cluster's token; without one, anybody who reaches a node of Ray may
            run what they like there, so there is no way to do without.
        node: the address of this machine in the cluster, if Ray does not find it by itself. Every
            process of the role is on a node; one with `--num-cpus=0` does no parts.
        tls_certificate: the files of Ray's TLS, all three or none.
        retries: how often a part is done again when its node is lost, before the step fails.
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
            raise ValueError("Ray's TLS needs tls_certificate, tls_key and tls_ca, or none of them")

    @property
    def tls(self) -> tuple[str, str, str]:
        """The files of TLS."""
        return self.tls_certificate, self.tls_key, self.tls_ca


class Settings(ProcessSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every role with a store and keys needs to know.

    Attributes:
        store: `memory:`, `sqlite:FILE` or `postgresql://...`.
        keys: key files; the first is for new rounds, the others for rounds still open.
        round_keys: a folder for the keys of rounds, by default `NAME.rounds` beside the first key
            file; all processes of one database share it. Whoever has neither folder nor database
            of the time before a release learns nothing of it afterwards: do not back it up.
        blobs: a folder, or an address such as s3://BUCKET/PREFIX, for partitions of batches and
            for what a release is made of, sealed under the keys of rounds; by default beside the
            file of the store, or with PostgreSQL in the folder of round keys. All processes of
            one database share it.
        trusted: files with the public keys of the other roles.
        queue: how many uploads or letters may wait for the disk; more are told to come later.
        lease: seconds after which another process may take over from one that died.
        tick: seconds between two looks at what is to be done.
        workers: how many processes open and seal; 0 takes one per core.
        runner: who does the parts of a large round: `pool`, the processes of this machine, or
            `ray`, the cluster of the table [ray].
        ray: that cluster.
        batch_limit: the most bytes of one batch or bulletin; give every role of a round the same.
        gateway_period: seconds after which the gateway for relays takes a new key; the one before
            serves as long again.
    """

    store: str
    keys: Annotated[tuple[str, ...], Meta(min_length=1)]
    round_keys: str = ""
    blobs: str = ""
    trusted: tuple[str, ...] = ()
    queue: Some = 4096
    lease: Seconds = 5.0
    tick: Seconds = 0.5
    workers: Annotated[int, Meta(ge=0)] = 0
    runner: Literal["pool", "ray"] = "pool"
    ray: RaySettings | None = None
    batch_limit: Some = 1 << 30
    gateway_period: Seconds = 86_400.0

    def __post_init__(self) -> None:
        if self.runner == "ray" and self.ray is None:
            raise ValueError(_NO_CLUSTER)
        if self.runner == "ray" and self.store == "memory:":
            raise ValueError('runner = "ray" needs a store that lasts: its nodes share no memory')

    @property
    def store_url(self) -> str:
        """The store's address, its file found."""
        if self.store.startswith(_STORES):
            return _STORES + str(self.path(self.store.removeprefix(_STORES)))
        return self.store

    @property
    def key_files(self) -> tuple[Path, ...]:
        """The key files, found."""
        return tuple(self.path(name) for name in self.keys)

    @property
    def round_key_folder(self) -> Path:
        """The folder for the keys of rounds, found."""
        if self.round_keys:
            return self.path(self.round_keys)
        return self.key_files[0].parent / f"{self.name}.rounds"

    @property
    def places(self) -> tuple[str, Path, Path | str | None]:
        """Where a store is opened: its address, its keys of rounds, its blobs if it has a place."""
        blobs: Path | str | None = self.blobs or None
        if blobs and "://" not in self.blobs:
            blobs = self.path(self.blobs)
        return self.store_url, self.round_key_folder, blobs

    @property
    def cluster(self) -> RaySettings:
        """The cluster of the table [ray], its files found."""
        if self.ray is None:
            raise Misuse(_NO_CLUSTER)
        files = {name: getattr(self.ray, name) for name in ("token", *_TLS)}
        found = {name: str(self.path(file)) for name, file in files.items() if file}
        return msgspec.structs.replace(self.ray, address=self.value(self.ray.address), **found)

    def trusted_keys(self) -> frozenset[bytes]:
        """Read the verifying keys that this service knows."""
        listed = [read_public(self.path(name)) for name in self.trusted]
        return frozenset(bytes.fromhex(public.verifying) for public in listed)


class ShufflerSettings(Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A shuffler also knows whom it admits.

    Attributes:
        admission: `tokens` for who has a one-use token, `privacy-pass` for who has a token of an
            issuer, or `open` for anybody.
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
    """The table [schedule]: rounds that the server opens by itself. Times are minutes.

    Attributes:
        every: from the beginning of a round to that of the next. Beginnings are at whole multiples
            since 1970, in UTC: with 60, on the hour.
        draft: a file as for `coatcheck round open`; the name of a round has its beginning added.
        closes: how long after its beginning a round with its crowd is released; `every` by default.
        expires: how long after its beginning a round without a crowd ends; `closes` and `every`
            together by default.
        learn: place the mechanisms of rounds by where the noisy reports of an earlier one show
            people; with 24, every 24th round keeps the draft's, to learn anew. 0 never does.
        announce: a file that always has the address of the newest round, for a web page say.
    """

    every: Seconds
    draft: str
    closes: Seconds | None = None
    expires: Seconds | None = None
    learn: Annotated[int, Meta(ge=0)] = 0
    announce: str = ""


class ServerSettings(Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A server also knows its shufflers, in order, and the board.

    Attributes:
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
    """A board also bounds letters, which anybody may post.

    Attributes:
        witnesses: addresses of witnesses that every new checkpoint is handed to. After a blank an
            address may be followed by the witness's key as C2SP writes it; without one, the
            witness is asked for it at `/key`.
        letters_each: how many letters an address may get per round; more are refused.
        letters_for: for how many seconds after a round expires its letters are taken.
    """

    listen: str = "127.0.0.1:8003"
    witnesses: tuple[str, ...] = ()
    letters_each: Some = 256
    letters_for: Seconds = 30 * 86_400.0


class RelaySettings(ProcessSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A relay knows which gateways it serves, and nothing else.

    Attributes:
        gateways: the addresses of the roles that it passes requests on to, as people know them.
        waiting: how many requests may be under way at once; more are told to come later.
        keys_for: for how many seconds everybody gets the same list of a gateway's keys.
    """

    listen: str = "127.0.0.1:8004"
    gateways: Annotated[tuple[str, ...], Meta(min_length=1)]
    waiting: Some = 1000
    keys_for: Seconds = 600.0


class WitnessSettings(ProcessSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A witness knows the boards that it follows; its name stands in its cosignatures.

    Attributes:
        key: its key file.
        boards: files with the boards' public keys.
        checkpoints: a folder for the last checkpoint of each; it must never be lost.
    """

    listen: str = "127.0.0.1:8005"
    key: str
    boards: Annotated[tuple[str, ...], Meta(min_length=1)]
    checkpoints: str


_S = TypeVar("_S", bound=ProcessSettings)


def read_settings(path: Path, *, role: str, kind: type[_S]) -> _S:
    """Read the table of a role."""
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Misuse(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misuse(f"{path} is not a TOML file: {error}") from None
    if role not in tables:
        raise Misuse(f"{path} has no table [{role}]: its tables are {', '.join(tables) or 'none'}")
    given = {**tables[role], "folder": str(path.absolute().parent)}
    for shared in {"schedule", "ray"} & {*kind.__struct_fields__} & {*tables} - {*given}:
        given[shared] = tables[shared]
    try:
        return msgspec.convert(given, type=kind)
    except msgspec.ValidationError as error:
        raise Misuse(f"table [{role}] of {path}: {error}") from None


# HOUSE-DOC services.keyring: "A role's keys: the first for new rounds, the others for the rounds they were made for.\n\nRotation is a new key file in front of the list; an old one goes when its rounds are over.\n"
class Keyring:
    """The key files of one role, found by their public halves."""

    def __init__(self, paths: Sequence[Path]) -> None:
        files = [read_keys(path) for path in paths]
        self.public: PublicKeys = files[0].public
        self._pairs = {file.public.verifying: file.pairs for file in files}

    @property
    def current(self) -> KeyPairs:
        """The keys for new rounds."""
        return self._pairs[self.public.verifying]

    def sign_by_all(self, message: bytes) -> list[bytes]:
        """Sign with every key, for whoever knows one of them."""
        return [pairs.signing.sign(message) for pairs in self._pairs.values()]

    def of(self, *named: str) -> KeyPairs:
        """Find the keys that terms name for this role, in one of these places."""
        for verifying in named:
            if verifying in self._pairs:
                return self._pairs[verifying]
        raise Misuse("the terms name a key that this service does not have: list its file")

    def has(self, verifying: str) -> bool:
        """Tell whether a key is one of these."""
        return verifying in self._pairs


@cache
def keyring_of(paths: tuple[Path, ...]) -> Keyring:
    """Read key files once per process, for jobs."""
    return Keyring(paths)
