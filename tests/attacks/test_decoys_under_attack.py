"""What shufflers, the server and lazy people can do to decoys; every attack runs with real seals.

The promise counts, for each honest person who is certain to be there, a report and all decoys. Who
drops some of them is stopped, because traps are missing as often.
"""

from collections.abc import Callable, Sequence

import pytest

from coatcheck.entropy import seeded, system
from coatcheck.errors import Refused, Unsealable
from coatcheck.protocol.envelope import Purpose, binding, seal, unseal
from coatcheck.protocol.keys import KeyPairs, SealingKey, address_of
from coatcheck.protocol.log.verification import verify_bulletin
from coatcheck.protocol.shuffler import Shuffler
from coatcheck.protocol.state_machine import ShufflerPhase
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.wire.batches import Batch
from coatcheck.protocol.wire.messages import PayloadFormat, encode_report
from coatcheck.protocol.wire.uploads import Tally, Upload, slack
from coatcheck.tasks.matching import LeastCostMatching
from support.rounds import CLOSES, SQUARE, SmallRound

PEOPLE, DECOYS = 10, 2
TRAP_DELTA = 0.3
"""The chance that a small round of two shufflers grants its traps."""
TWO = SmallRound(
    minimum=PEOPLE - slack(0, TRAP_DELTA, reports=1 + DECOYS),  # so that no trap may be missing
    shufflers=2,
    decoys=DECOYS,
    task=LeastCostMatching(groups=("riders", "drivers")),
)
CROWD = TWO.crowd(PEOPLE)
Items = list[list[bytes]]
"""The items of each person of a group."""


def without_first_layer() -> list[Items]:
    """Open the first shuffler's layer of every upload; return the items of each group."""
    groups: list[Items] = [[], []]
    key = TWO.roles.shufflers[0].opening
    for ticket in CROWD:
        upload = Upload.decode(ticket.upload, TWO.round)
        bound = binding(Purpose.LAYER, digest=upload.digest, group=upload.group, upload=upload.id)
        items = upload.items(TWO.round).values()
        groups[upload.group].append([unseal(one, key=key, bound=bound) for one in items])
    return groups


def forged() -> bytes:
    """Return an item for the second shuffler as anybody can make it: a report of nobody."""
    round_, keys = TWO.round, KeyPairs(TWO.suite, system().token(32))
    payload = PayloadFormat.between(SQUARE.low, SQUARE.high).encode((0, 0))
    text = encode_report(round_, group=0, contact=keys.contact_raw, payload=payload, note=b"")
    server = SealingKey(TWO.suite, bytes.fromhex(round_.terms.server.sealing))
    text = seal(text, to=server, bound=binding(Purpose.REPORT, digest=round_.digest, group=0))
    second = SealingKey(TWO.suite, bytes.fromhex(round_.terms.shufflers[1].sealing))
    bound = binding(Purpose.LAYER, digest=round_.digest, group=0, hop=1)
    return seal(text, to=second, bound=bound)


def second_shuffler(groups: Sequence[Sequence[bytes]]) -> Shuffler:
    """Return the honest second shuffler with a batch that a hostile first one made of items."""
    batch = Batch.compose(
        [[group] for group in groups],
        [Tally(len(group)) for group in groups],
        digest=TWO.round.digest,
    )
    shuffler = TWO.shuffler(1)
    TWO.upload(CROWD, shuffler)
    shuffler.accept(batch.sign(TWO.roles.shufflers[0].signing.sign))
    return shuffler


def test_an_honest_first_shuffler_passes_all_reports_and_decoys() -> None:
    """With nothing dropped the second shuffler mixes 1 + m reports of everybody."""
    everything = [[item for person in group for item in person] for group in without_first_layer()]
    tallies = Batch.decode(second_shuffler(everything).release(), TWO.round).tallies
    assert [tally.traps for tally in tallies] == [PEOPLE] * 2
    assert [tally.kept for tally in tallies] == [PEOPLE * (1 + DECOYS)] * 2


def one_person_among_forgeries(group: Items) -> list[bytes]:
    """Pass on all items of one person, and forge the rest."""
    return [*group[0], *(forged() for person in group[1:] for _ in person)]


def one_item_less_of_each(group: Items) -> list[bytes]:
    """Replace the item in the first place of everybody, whatever it is."""
    return [item for person in group for item in (forged(), *person[1:])]


def one_item_of_each(group: Items) -> list[bytes]:
    """Pass on the item in the last place of everybody, and forge the rest."""
    return [item for first, *_, last in group for item in (forged(), forged(), forged(), last)]


@pytest.mark.parametrize(
    "attack", [one_person_among_forgeries, one_item_less_of_each, one_item_of_each]
)
def test_a_shuffler_that_drops_reports_or_decoys_is_stopped(
    attack: Callable[[Items], list[bytes]],
) -> None:
    """It cannot take decoys away from people without taking their traps as often.

    The order of items is drawn from a fixed seed.
    """
    shuffler = second_shuffler([attack(group) for group in without_first_layer()])
    with pytest.raises(Refused, match="people it needs"):
        shuffler.release()
    shuffler.expire(now=CLOSES)
    assert shuffler.phase is ShufflerPhase.ABANDONED
    assert not shuffler.state.batch


def test_the_items_of_an_upload_look_alike_to_the_shuffler() -> None:
    """They have one size, no encapsulated key twice, and names that tell only their places."""
    for ticket in CROWD:
        items = Upload.decode(ticket.upload, TWO.round).items(TWO.round)
        assert {len(item) for item in items.values()} == {TWO.round.item_size(0, 0)}
        assert len({item[:32] for item in items.values()}) == 2 + DECOYS
        assert [name[16] for name in items] == list(range(2 + DECOYS))


def test_reports_and_decoys_look_alike_to_the_server_and_on_the_board() -> None:
    """To the server all are rows of one shape under keys of their own, on the board equal entries.

    The addresses on the board are those of everybody's reports and decoys, and no others.
    """
    raw = TWO.batch(CROWD)
    server = TWO.server()
    bulletin = verify_bulletin(server.answer(raw), TWO.round)
    for group, entries in zip(server.opened, bulletin.entries, strict=True):
        assert len({contact.tobytes() for contact in group.contacts}) == PEOPLE * (1 + DECOYS)
        assert {len(entry) for entry in entries} == {TWO.round.entry_size(0)}
    shown = {entry[:16] for group in bulletin.entries for entry in group}
    assert shown == {address for ticket in CROWD for address in ticket.addresses}


def test_what_leaves_a_ticket_does_not_tell_its_addresses() -> None:
    """Upload and registrations hold no address in clear."""
    for ticket in CROWD:
        sent = b"".join((ticket.upload, *ticket.registrations))
        assert not any(address in sent for address in ticket.addresses)


def payloads(ticket: Ticket) -> dict[bytes, bytes]:
    """Open a person's reports with the keys of all roles; return the payload of each address."""
    round_, keys = TWO.round, [keys.opening for keys in TWO.roles.shufflers]
    upload = Upload.decode(ticket.upload, round_)
    first = binding(Purpose.LAYER, digest=upload.digest, group=upload.group, upload=upload.id)
    second = binding(Purpose.LAYER, digest=upload.digest, group=upload.group, hop=1)
    report = binding(Purpose.REPORT, digest=upload.digest, group=upload.group)
    opened = {}
    for item in upload.items(round_).values():
        sealed = unseal(unseal(item, key=keys[0], bound=first), key=keys[1], bound=second)
        try:
            text = unseal(sealed, key=TWO.roles.server.opening, bound=report)
        except Unsealable:
            continue  # the trap
        opened[address_of(TWO.suite, text[2:66])] = text[66:]
    return opened


def test_decoys_do_not_depend_on_the_value() -> None:
    """With the same coins, people at two places hand in the same decoys."""
    others = 0
    for coins in range(10):
        near, far = (
            TWO.invitations[0].join(value, ledger=None, entropy=seeded(coins))
            for value in ((0.0, 0.0), (1.0, 1.0))
        )
        here, there = payloads(near), payloads(far)
        assert set(here) == set(there) == set(near.addresses) == set(far.addresses)
        differing = {name for name in here if here[name] != there[name]}
        assert differing <= {near.keys.address}
        others += len(differing)
    assert others > 0
