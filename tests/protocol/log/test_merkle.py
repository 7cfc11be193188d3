"""Merkle trees against the definitions of RFC 9162, transcribed literally."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.errors import Equivocation, Misuse
from coatcheck.protocol.log.merkle import Tree, check_consistency, check_inclusion

# The leaves and roots with which implementations of RFC 6962 and 9162 are tested.
LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = {
    0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


def mth(leaves: list[bytes]) -> bytes:
    """MTH of section 2.1.1, word for word."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    k = 1
    while 2 * k < len(leaves):
        k *= 2
    return hashlib.sha256(b"\1" + mth(leaves[:k]) + mth(leaves[k:])).digest()


@pytest.mark.parametrize("size", ROOTS)
def test_known_roots(size: int) -> None:
    """The published roots are reproduced."""
    assert Tree(LEAVES[:size]).root().hex() == ROOTS[size]


def test_every_size_to_forty_has_the_root_of_the_definition() -> None:
    """The root of every prefix equals the recursive definition."""
    leaves = [bytes([n]) * (n % 5) for n in range(40)]
    tree = Tree(leaves)
    for size in range(41):
        assert tree.root(size) == mth(leaves[:size])


def test_every_proof_to_twenty_holds() -> None:
    """All inclusion and consistency proofs of small trees are accepted."""
    leaves = [bytes([n]) for n in range(20)]
    tree = Tree(leaves)
    for new in range(1, 21):
        root = tree.root(new)
        for old in range(new + 1):
            path = tree.consistency(old, new)
            check_consistency(old=old, old_root=tree.root(old), new=new, new_root=root, path=path)
        for place in range(new):
            path = tree.inclusion(place, new)
            check_inclusion(leaves[place], place=place, size=new, root=root, path=path)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_proof_of_something_else_fails(data: st.DataObject) -> None:
    """A different leaf, place, size or path step does not lead to the root."""
    size = data.draw(st.integers(2, 40))
    leaves = [bytes([n]) for n in range(size)]
    tree = Tree(leaves)
    place = data.draw(st.integers(0, size - 1))
    path = tree.inclusion(place)
    wrong = data.draw(st.sampled_from(["leaf", "place", "step", "longer", "shorter"]))
    leaf, at = leaves[place], place
    if wrong == "leaf":
        leaf = b"another"
    elif wrong == "place":
        at = data.draw(st.integers(0, 2 * size).filter(lambda n: n != place))
    elif wrong == "step":
        path[data.draw(st.integers(0, len(path) - 1))] = bytes(32)
    elif wrong == "longer":
        path = [*path, bytes(32)]
    else:
        path = path[:-1]
    with pytest.raises(Equivocation):
        check_inclusion(leaf, place=at, size=size, root=tree.root(), path=path)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_rewritten_history_fails(data: st.DataObject) -> None:
    """No proof in the rewritten tree connects it to the root that was seen before."""
    new = data.draw(st.integers(2, 40))
    old = data.draw(st.integers(1, new))
    leaves = [bytes([n]) for n in range(new)]
    changed = data.draw(st.integers(0, old - 1))
    rewritten = Tree([*leaves[:changed], b"rewritten", *leaves[changed + 1 :]])
    with pytest.raises(Equivocation):
        check_consistency(
            old=old,
            old_root=Tree(leaves).root(old),
            new=new,
            new_root=rewritten.root(),
            path=rewritten.consistency(old),
        )


def test_a_proof_has_no_extra_step_and_no_reversed_size() -> None:
    """Extra steps are refused at either end, and so is a leaf before the first."""
    leaves = [bytes([n]) for n in range(7)]
    tree = Tree(leaves)
    for place in range(7):
        path = [bytes(32), *tree.inclusion(place)]
        with pytest.raises(Equivocation):
            check_inclusion(leaves[place], place=place, size=7, root=tree.root(), path=path)
    with pytest.raises(Equivocation):
        check_inclusion(leaves[0], place=-1, size=7, root=tree.root(), path=tree.inclusion(0))
    for old in range(1, 8):
        longer = [bytes(32), *tree.consistency(old)]
        roots = {"old_root": tree.root(old), "new_root": tree.root()}
        with pytest.raises(Equivocation):
            check_consistency(old=old, new=7, path=longer, **roots)
    root = tree.root()
    with pytest.raises(Equivocation):
        check_consistency(old=7, new=6, old_root=root, new_root=root, path=[])


def test_proofs_outside_the_tree_are_misuse() -> None:
    """A request for a leaf or size beyond the tree is an error that says so."""
    tree = Tree([b"a", b"b"])
    with pytest.raises(Misuse):
        tree.inclusion(2)
    with pytest.raises(Misuse):
        tree.root(3)
    with pytest.raises(Misuse):
        tree.consistency(2, 1)
