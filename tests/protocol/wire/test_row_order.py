"""Sorting rows by their bytes, against sorting them one by one."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.protocol.wire.encoding import first_of_each, in_order

# Few leading and few trailing bytes, so that rows are equal, or begin alike.
ROWS = st.lists(
    st.tuples(st.sampled_from([b"\0" * 8, b"\0" * 7 + b"\1", b"\xff" * 8]), st.binary(max_size=1)),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(ROWS, st.integers(0, 3))
def test_rows_are_in_the_order_of_their_bytes(pairs: list[tuple[bytes, bytes]], seed: int) -> None:
    """Equal rows keep their order, and the first of them is marked as new."""
    raws = [head + tail.ljust(8, b"\0") for head, tail in pairs]
    raws += [one.tobytes() for one in np.random.default_rng(seed).integers(0, 2**63, (seed, 2))]
    rows = np.frombuffer(b"".join(raws), np.uint8).reshape(-1, 16)
    order, is_new = in_order(rows)
    assert order.tolist() == sorted(range(len(raws)), key=lambda at: (raws[at], at))
    ordered = [raws[at] for at in order]
    assert is_new.tolist() == [not n or ordered[n - 1] != raw for n, raw in enumerate(ordered)]
    assert first_of_each(rows).tolist() == [raws.index(raw) for raw in sorted(set(raws))]


def test_columns_of_a_table_are_ordered() -> None:
    """Rows need not be contiguous in memory."""
    table = np.random.default_rng(1).integers(0, 256, (1000, 40), dtype=np.uint8)
    order, is_new = in_order(table[:, 8:24])
    raws = [row.tobytes() for row in table[:, 8:24]]
    assert order.tolist() == sorted(range(1000), key=raws.__getitem__)
    assert is_new.all()
