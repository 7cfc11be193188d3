"""How vectors of Merkle trees are read."""

from typing import Any

from coatcheck.protocol.log.merkle import Tree, check_consistency, check_inclusion

Case = dict[str, Any]


def inclusion(case: Case) -> Case:
    """Check that a leaf is in a tree."""
    given = case["input"]
    check_inclusion(
        bytes.fromhex(given["leaf"]),
        place=given["place"],
        size=given["size"],
        root=bytes.fromhex(given["root"]),
        path=[bytes.fromhex(step) for step in given["path"]],
    )
    return {}


def consistency(case: Case) -> Case:
    """Check that a tree continues another."""
    given = case["input"]
    check_consistency(
        old=given["old"],
        old_root=bytes.fromhex(given["old_root"]),
        new=given["new"],
        new_root=bytes.fromhex(given["new_root"]),
        path=[bytes.fromhex(step) for step in given["path"]],
    )
    return {}


def root(case: Case) -> Case:
    """Hash leaves."""
    return {"root": Tree(bytes.fromhex(leaf) for leaf in case["input"]).root().hex()}
