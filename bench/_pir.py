"""SimplePIR (Henzinger et al., USENIX Security 2023) over a round's entries. Research-grade.

One server, no assumption but learning with errors. Entries are columns of bytes, so a database of N
entries of w bytes is a matrix of w rows and N columns modulo p = 256. The hint D A has w rows of n
numbers; each person fetches it once per round. A query for column i is A s + e + (q / p) u_i modulo
q = 2^32, with s uniform and e Gaussian; the answer is D times the query, and q / p times the column
plus a small error remains after D A s is subtracted.

Parameters are the paper's: n = 1024, q = 2^32, sigma = 6.4, which it estimates at 128 bits.
Entries are sealed, so their bytes are as good as uniform: with 2^20 of them the error of a byte has
a deviation of 148 * 6.4 * 2^10, and 8.6 times that would make it wrong. The errors are drawn with
floats, and nothing here is hardened: this code is for measurements only.
"""

import hashlib
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numba import njit
from numpy.typing import NDArray

from coatcheck.entropy import Entropy

N: Final = 1024
SIGMA: Final = 6.4
STEP: Final = 1 << 24
"""q / p: what one byte is multiplied by."""
MOST: Final = 1 << 20
"""Columns up to which the estimate, and the bound on wrong answers, hold."""
_CHUNK: Final = 1 << 12
Numbers = NDArray[np.uint32]
Bytes = NDArray[np.uint8]


def matrix(seed: bytes, start: int, rows: int) -> Numbers:
    """Derive rows of the public matrix A from a seed."""
    key = hashlib.sha256(b"coatcheck pir" + seed).digest()
    counter = start * N * 4 // 64
    nonce = counter.to_bytes(8, "little") + bytes(8)
    raw = Cipher(algorithms.ChaCha20(key, nonce), None).encryptor().update(bytes(rows * N * 4))
    return np.frombuffer(raw, dtype="<u4").reshape(rows, N)


def hint(database: Bytes, seed: bytes) -> Numbers:
    """Compute D A, a piece of the columns at a time.

    Products of a byte and half a number, summed over a piece, are whole numbers below 2^36: exact
    in the floats of a matrix product.
    """
    width, columns = database.shape
    total: Numbers = np.zeros((width, N), dtype=np.uint32)
    for at in range(0, columns, _CHUNK):
        piece = database[:, at : at + _CHUNK].astype(np.float64)
        rows = matrix(seed, at, piece.shape[1])
        for shift in (0, 16):
            half = ((rows >> shift) & 0xFFFF).astype(np.float64)
            product = (piece @ half).astype(np.uint64)
            total += (product << np.uint64(shift)).astype(np.uint32)
    return total


@njit(cache=True, nogil=True)
def answer(database: Bytes, query: Numbers) -> Numbers:
    """Multiply the database by a query, modulo 2^32; every query reads the whole database."""
    width, columns = database.shape
    product = np.zeros(width, dtype=np.uint32)
    for row in range(width):
        total = np.uint32(0)
        for column in range(columns):
            total += np.uint32(database[row, column]) * query[column]
        product[row] = total
    return product


def gaussian(size: int, entropy: Entropy) -> NDArray[np.int64]:
    """Draw errors: a normal number of 53 random bits per half, rounded. Good enough for a study."""
    raw = np.frombuffer(entropy.token(16 * size), dtype="<u8").reshape(2, size) >> np.uint64(11)
    uniform = (raw + 0.5) / 2**53
    normal = np.sqrt(-2 * np.log(uniform[0])) * np.cos(2 * np.pi * uniform[1])
    drawn: NDArray[np.int64] = np.rint(SIGMA * normal).astype(np.int64)
    return drawn


def ask(place: int, columns: int, seed: bytes, entropy: Entropy) -> tuple[Numbers, Numbers]:
    """Return a query for a column, and the secret."""
    if not 0 <= place < columns <= MOST:
        raise ValueError(f"there are at most {MOST} columns, and {place} is one of them")
    secret = np.frombuffer(entropy.token(4 * N), dtype="<u4")
    query: Numbers = np.empty(columns, dtype=np.uint32)
    for at in range(0, columns, _CHUNK):
        rows = matrix(seed, at, min(_CHUNK, columns - at))
        query[at : at + _CHUNK] = (rows * secret).sum(axis=1, dtype=np.uint32)
    query += gaussian(columns, entropy).astype(np.uint32)
    query[place : place + 1] += np.uint32(STEP)
    return query, secret


def recover(reply: Numbers, known: Numbers, secret: Numbers) -> bytes:
    """Recover the column from an answer, with the hint and the secret."""
    rest: Numbers = reply - (known * secret).sum(axis=1, dtype=np.uint32)
    column: Bytes = ((rest + np.uint32(STEP // 2)) // np.uint32(STEP)).astype(np.uint8)
    return column.tobytes()
