"""Ordering: rows of 16 bytes, such as ranks and addresses, in the order of their bytes.

Millions of them are sorted in one process, so it is done with one sort of numbers: the leading
bits of a row, and its place behind them. Rows whose leading bits are alike are compared in whole.
"""

import numpy as np
from numpy.typing import NDArray

_Rows = NDArray[np.uint8]


def in_order(rows: _Rows) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Give the places of rows in order, and which of them differ from the one before.

    Equal rows stay in the order in which they are.
    """
    words, count = np.ascontiguousarray(rows).view(">u8").astype(np.uint64), len(rows)
    room = np.uint64(count.bit_length())
    packed = words[:, 0] >> room << room | np.arange(count, dtype=np.uint64)
    packed.sort()
    order = (packed & ((np.uint64(1) << room) - np.uint64(1))).astype(np.intp)
    packed >>= room
    is_new = np.ones(count, np.bool_)
    alike = np.flatnonzero(packed[1:] == packed[:-1])
    if len(alike):
        at = np.union1d(alike, alike + 1)
        some = order[at]
        some = some[np.lexsort((some, words[some, 1], words[some, 0]))]
        order[at] = some
        is_new[at[1:]] = (words[some[1:]] != words[some[:-1]]).any(axis=1)
    return order, is_new


def first_of_each(rows: _Rows) -> NDArray[np.intp]:
    """Give the place of the first of all equal rows, in the order of their bytes."""
    order, is_new = in_order(rows)
    return order[is_new]
