"""Privacy Pass admission at a shuffler without a socket: what is admitted and what is spent."""

import asyncio
import base64
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from coatcheck.errors import Misuse
from coatcheck.protocol import privacy_pass
from coatcheck.services.person.session import credential
from coatcheck.services.shuffler.admission import PrivacyPassAdmission, admission_of
from coatcheck.services.web.routing import MEDIA
from support.issuing import TestIssuer
from support.shufflers import LoneShuffler, lone_shuffler

ISSUER = TestIssuer()


def lone(folder: Path) -> Any:
    """Provide a shuffler that admits by Privacy Pass."""
    path = folder / "issuer.der"
    path.write_bytes(bytes.fromhex(ISSUER.key))
    return lone_shuffler(folder, admission=PrivacyPassAdmission.read("issuer.example", path))


def authorization(token: bytes) -> dict[str, str]:
    """Return the authorization header of a token."""
    return {"authorization": privacy_pass.credential(token)}


def test_a_token_admits_one_upload(tmp_path: Path) -> None:
    """Missing and wrong tokens get the challenge; a valid one is spent with its upload, once."""

    async def whole() -> None:
        async with lone(tmp_path) as made:
            first, second = (made.invitations[0].join((0.5, 0.5), ledger=None).upload for _ in "ab")
            status, headers, body = await made.exchange(first)
            assert (status, headers["content-type"]) == (401, MEDIA)
            assert headers["www-authenticate"] == privacy_pass.demand(made.round, 0)
            assert b"problems/unadmitted" in body
            for bad in (b"", bytes(354), TestIssuer(b"stranger").token(made.round)):
                assert (await made.exchange(first, authorization(bad)))[0] == 401
            token, other = (ISSUER.token(made.round, nonce=bytes([n]) * 32) for n in (1, 2))
            assert (await made.exchange(b"rubbish", authorization(token)))[0] == 400
            status, _, receipt = await made.exchange(first, authorization(token))
            assert status == 201
            assert (await made.exchange(first, authorization(token)))[2][:84] == receipt[:84]
            assert (await made.exchange(second, authorization(token)))[0] == 403
            assert made.live.crowd == {0: 1}
            # Another token with the same bytes: a receipt again, and it is not spent.
            assert (await made.exchange(first, authorization(other)))[2][:84] == receipt[:84]
            assert (await made.exchange(second, authorization(other)))[0] == 201
            assert made.live.crowd == {0: 2}

    asyncio.run(whole())


def test_two_tokens_are_refused_wherever_they_stand(tmp_path: Path) -> None:
    """In one header or in two, valid or not, two tokens are refused and none is spent."""

    async def whole() -> None:
        async with lone(tmp_path) as made:
            upload = made.invitations[0].join((0.5, 0.5), ledger=None).upload
            first, second = (
                privacy_pass.credential(ISSUER.token(made.round, nonce=bytes([n]) * 32))
                for n in (1, 2)
            )
            for lines in ([first, second], [first, first], [first, "Basic eA=="]):
                assert await status_of(made, upload, lines) == 401
            assert made.live.crowd == {}
            assert await status_of(made, upload, [first]) == 201

    asyncio.run(whole())


async def status_of(made: LoneShuffler, upload: bytes, shown: list[str]) -> int:
    """Upload with this many headers of one name; return the status."""
    said: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": upload, "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    path = f"/rounds/{made.round.digest.hex()}/uploads"
    lines = [(b"authorization", one.encode()) for one in shown]
    scope = {"type": "http", "method": "POST", "path": path, "headers": lines}
    await made.service(scope, receive, send)
    return int(said[0]["status"])


def test_a_token_that_came_while_the_round_was_closed_is_not_spent(tmp_path: Path) -> None:
    """A token is spent if and only if its upload is stored."""

    async def whole() -> None:
        async with lone(tmp_path) as made:
            token = authorization(ISSUER.token(made.round))
            upload = made.invitations[0].join((0.5, 0.5), ledger=None).upload
            await made.service.write(made.service.store.move, made.round.digest, "close")
            assert (await made.exchange(upload, token))[0] == 425
            await made.service.write(made.service.store.move, made.round.digest, "reopen")
            assert (await made.exchange(upload, token))[0] == 201

    asyncio.run(whole())


def test_a_person_checks_the_token_before_anything_is_spent(tmp_path: Path) -> None:
    """A valid token becomes a header; a missing or wrong one raises an error with the challenge."""

    async def whole() -> None:
        async with lone(tmp_path) as made:
            token = ISSUER.token(made.round)
            text = base64.urlsafe_b64encode(token).decode()
            assert credential(made.round, text) == authorization(token)
            told = re.escape(privacy_pass.demand(made.round, 0))
            for bad in ("", "abc", "ä", base64.urlsafe_b64encode(bytes(354)).decode()):
                with pytest.raises(Misuse, match=f"token of issuer.example .*{told}"):
                    credential(made.round, bad)

    asyncio.run(whole())


def test_an_invalid_issuer_is_refused_at_the_start(tmp_path: Path) -> None:
    """A key of another type, or a name that is no host, stops the shuffler with an error."""
    made = LoneShuffler(tmp_path, minimum=1)
    settings = replace(made.service.settings, admission="privacy-pass", issuer="issuer.example")
    (tmp_path / "key").write_bytes(b"rubbish")
    with pytest.raises(Misuse, match="no Privacy Pass issuer"):
        admission_of(replace(settings, issuer_key="key"))
    (tmp_path / "key").write_bytes(bytes.fromhex(ISSUER.key))
    assert admission_of(replace(settings, issuer_key="key")).terms == ISSUER.terms
    with pytest.raises(Misuse, match="no Privacy Pass issuer"):
        admission_of(replace(settings, issuer_key="key", issuer="https://issuer.example"))
