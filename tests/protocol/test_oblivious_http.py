"""Binary HTTP and Oblivious HTTP: the RFCs' bytes, round trips, sizes and broken messages."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench._messages import CONFIG, KEY, KINDS, outcomes
from coatcheck.errors import Malformed, Misuse, Refused, Unsealable
from coatcheck.protocol.oblivious_http import (
    OVERHEAD,
    SIZES,
    GatewayKey,
    Request,
    Response,
    message_size,
    read_keys,
    seal_request,
    write_keys,
)
from support.published import published

FIELDS = st.lists(
    st.tuples(
        st.from_regex(rb"\A[!#$%&'*+.^_`|~0-9a-z-]{1,20}\Z"),
        st.binary(max_size=40).map(lambda raw: bytes(b for b in raw if b > 32 and b != 127)),
    ),
    max_size=4,
).map(tuple)


def test_the_exchange_of_rfc_9458_is_the_same_to_the_byte() -> None:
    """Keys, request and response of appendix A are sealed and opened byte for byte."""
    given_ = published("rfc9458-appendix-a.json")
    raw = {
        name: bytes.fromhex(v)
        for name, v in given_.items()
        if isinstance(v, str) and name != "source"
    }
    key = GatewayKey(1, raw["gateway_sk"])
    assert key.config() == raw["key_config"]
    config = read_keys(len(raw["key_config"]).to_bytes(2, "big") + raw["key_config"])
    sealed = seal_request(raw["request_bhttp"], config, secret=raw["client_ephemeral_sk"])
    assert sealed.raw == raw["encapsulated_request"]
    opened = key.open(sealed.raw)
    assert opened.text == raw["request_bhttp"]
    answer = opened.answer(raw["response_bhttp"], salt=raw["encapsulated_response"][:16])
    assert answer == raw["encapsulated_response"]
    assert sealed.open(answer) == raw["response_bhttp"]


def test_a_request_to_another_number_does_not_open() -> None:
    """The key id is part of the key derivation; a gateway accepts only its own."""
    key = GatewayKey(7, bytes(range(32)))
    config = read_keys(write_keys([key]))
    assert key.open(seal_request(b"text", config).raw).text == b"text"
    with pytest.raises(Unsealable):
        key.open(seal_request(b"text", replace(config, number=8)).raw)


def test_the_examples_of_rfc_9292_read_as_they_say() -> None:
    """Known-length messages round-trip byte for byte; indeterminate length is refused."""
    for one in published("rfc9292-examples.json")["vectors"]:
        raw = bytes.fromhex(one["hex"])
        kind = Request if "method" in one else Response
        if raw[0] > 1:
            with pytest.raises(Malformed):
                kind.decode(raw)
            continue
        found = kind.decode(raw)
        for name in ("headers", "trailers"):
            told = [[key.decode(), value.decode()] for key, value in getattr(found, name)]
            assert told == one[name]
        assert found.content.hex() == one["content"]
        if isinstance(found, Request):
            control = (found.method, found.scheme, found.authority, found.path)
            listed = [one[name] for name in ("method", "scheme", "authority", "path")]
            assert [part.decode() for part in control] == listed
        else:
            assert found.status == one["status"]
        assert found.encode().startswith(raw)
        assert not found.encode()[len(raw) :].strip(b"\0")


@settings(max_examples=150, deadline=None)
@given(headers=FIELDS, trailers=FIELDS, content=st.binary(max_size=300), pad=st.integers(0, 64))
def test_messages_come_back_as_they_went(
    headers: tuple[tuple[bytes, bytes], ...],
    trailers: tuple[tuple[bytes, bytes], ...],
    content: bytes,
    pad: int,
) -> None:
    """Messages with any fields, content and padding round-trip."""
    request = Request(b"PUT", b"http", b"[::1]:80", b"/a?b=c", headers, content, trailers)
    assert Request.decode(request.encode(len(request.encode()) + pad)) == request
    response = Response(599, headers, content, trailers)
    assert Response.decode(response.encode(len(response.encode()) + pad)) == response


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None)
@given(raw=st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(kind: str, raw: bytes) -> None:
    """No input raises an unexpected error."""
    read, _ = KINDS[kind]
    with contextlib.suppress(Refused):
        read(raw)


@pytest.mark.parametrize("kind", KINDS)
def test_broken_messages_are_read_or_refused(kind: str) -> None:
    """A small share of `python -m bench oblivious`: only unaltered messages open."""
    read = sum(outcomes(kind, 2_000, seed=3))
    assert read < 2_000
    if kind.startswith("sealed"):
        assert read < 20  # alterations that leave the bytes as they were


def test_every_size_is_one_of_a_few() -> None:
    """Sealed messages of any length have a size of the ladder; longer ones are refused."""
    for size in (0, 1, 4041, 4042, 5_000, 60_000, SIZES[-1] - OVERHEAD):
        text = bytes(message_size(size, overhead=OVERHEAD))
        assert len(text) >= size
        sealed = seal_request(text, CONFIG)
        assert len(sealed.raw) in SIZES
        opened = KEY.open(sealed.raw)
        if size < 70_000:
            answer = opened.answer(bytes(message_size(size, overhead=opened.overhead)))
            assert len(answer) in SIZES
    with pytest.raises(Misuse, match="request a part"):
        message_size(SIZES[-1], overhead=OVERHEAD)
    with pytest.raises(Malformed):
        KEY.open(bytes(SIZES[-1] + 1))


def test_an_answer_opens_for_its_own_request_only() -> None:
    """Two requests with equal text, and two answers to one request, share no bytes."""
    one, two = (seal_request(b"text", CONFIG) for _ in range(2))
    assert one.raw[7:] != two.raw[7:]
    opened = KEY.open(one.raw)
    first, second = opened.answer(b"yes"), opened.answer(b"yes")
    assert first != second
    assert one.open(first) == one.open(second) == b"yes"
    with pytest.raises(Unsealable):
        two.open(first)
    with pytest.raises(Unsealable):
        GatewayKey(7, bytes(32)).open(one.raw)


def test_the_keys_of_a_gateway_do_not_print() -> None:
    """Neither the secret nor an exchange's context is printed."""
    secret = bytes(range(32))
    key = GatewayKey(7, secret)
    assert secret.hex() not in repr(key) + repr(vars(key))
    sealed = seal_request(b"text", read_keys(write_keys([key])))
    shown = repr(sealed) + repr(key.open(sealed.raw))
    assert "secret" not in shown
    assert "nonce" not in shown
