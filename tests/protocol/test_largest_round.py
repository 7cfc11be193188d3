"""Rounds beyond the limits of stores, files or counters: refused when terms are drafted."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from coatcheck.errors import Misuse
from coatcheck.protocol.keys import read_keys
from coatcheck.protocol.terms import Anybody, Round
from coatcheck.protocol.wire.batches import PART, capacity_of, check_capacity, sizes_of
from coatcheck.protocol.wire.bulletins import heading_size
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.server.drafts import draft as drafted
from coatcheck.services.settings import ServerSettings, read_settings
from support.rounds import SmallRound
from support.service_rounds import draft

ENDLESS = 2**63
SMALL = SmallRound().round
CASCADE = SmallRound(shufflers=2).round


def with_groups(round_: Round, **changed: int) -> Round:
    """Return the same round with other numbers for each group."""
    groups = tuple(replace(group, **changed) for group in round_.terms.groups)
    return Round(replace(round_.terms, groups=groups), round_.document)


def test_the_least_crowd_fits_into_a_batch() -> None:
    """A limit of exactly ten people per group passes; one byte less is refused."""
    round_ = with_groups(SMALL, minimum=10)
    limit = heading_size(2, 1) + 20 * max(sizes_of(round_))
    check_capacity(round_, limit=limit)
    assert capacity_of(round_, limit) == 20
    with pytest.raises(Misuse, match=r"smallest crowd of this round is 20 people.*`batch_limit`"):
        check_capacity(round_, limit=limit - 1)
    assert capacity_of(round_, 1) == 0


def test_counts_of_a_batch_hold_the_least_crowd() -> None:
    """With two shufflers an upload has two items, and a batch counts at most 2^32 - 1 items."""
    check_capacity(with_groups(CASCADE, minimum=2**31 - 1), limit=ENDLESS)
    eight = Round(replace(CASCADE.terms, shufflers=CASCADE.terms.shufflers * 4), CASCADE.document)
    check_capacity(with_groups(eight, minimum=(2**32 - 1) // 8), limit=ENDLESS)
    with pytest.raises(Misuse, match=f"`minimum` may be at most {(2**32 - 1) // 8}"):
        check_capacity(with_groups(eight, minimum=(2**32 - 1) // 8 + 1), limit=ENDLESS)


def test_a_part_of_the_answers_fits_into_a_file() -> None:
    """A part has 16,384 answers; one seal takes less than 2^31 bytes."""
    spare = SMALL.entry_size(0) - SMALL.terms.groups[0].answer_size
    most = (2**31 - 1) // PART - spare
    check_capacity(with_groups(SMALL, answer_size=most), limit=ENDLESS)
    with pytest.raises(Misuse, match=r"one sealed file.*smaller answers"):
        check_capacity(with_groups(SMALL, answer_size=most + 1), limit=ENDLESS)
    # A smaller limit leaves no room for so many people: then such answers fit.
    check_capacity(with_groups(SMALL, answer_size=most + 1), limit=2**30)


def test_a_server_does_not_sign_a_round_above_its_batch_limit(tmp_path: Path) -> None:
    """The server applies its own `batch_limit`."""
    Cluster(tmp_path, extra={"batch_limit": 10_000})
    settings = read_settings(tmp_path / "server.toml", role="server", kind=ServerSettings)
    shuffler, board = (read_keys(tmp_path / f"{name}.key") for name in ("shuffler-1", "board"))

    def made(minimum: int) -> bytes:
        return drafted(
            settings,
            draft("room", minimum=minimum),
            (0, 10, 20),
            url="http://127.0.0.1:1",
            shufflers=[replace(shuffler.public, url="http://127.0.0.1:2").shuffler(Anybody())],
            board=replace(board.public, url="http://127.0.0.1:3").notary,
        )

    assert made(3)
    with pytest.raises(Misuse, match="raise `batch_limit` in the settings of every role"):
        made(300)
