"""The packed npm package takes part in real rounds, in Node and in a real browser."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coatcheck.accounting.amplification import amplify
from coatcheck.domains import Box, Categories, Product
from coatcheck.protocol.ticket import read_ticket
from coatcheck.randomizers import CoinResponse, GridResponse, fieldwise
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.person.letters import settle
from coatcheck.services.person.session import Session
from support.service_rounds import GROUPS, LIMIT, PATIENCE, QUICK, RANDOMIZER, draft
from web.package import SOURCES, installed, node, said_in_chromium, told

README = (SOURCES / "README.md").read_text(encoding="utf-8")
PRINTS = "\nconsole.log(JSON.stringify(await work()));\n"
BEGIN = r"""
import { readFileSync } from "node:fs";
import { Refused, Unavailable, Session, hex } from "@coatcheck/client";
import { fileStore } from "@coatcheck/client/node";
const [url, relay] = process.argv.slice(2);
const trusted = JSON.parse(readFileSync("trusted.json", "utf8"));
const budgets = { limit: { epsilon: 9.5, delta: 1e-3 }, budget: { epsilon: 64, delta: 1e-2 } };
const asked = [];
const ask = (where, options) => {
  asked.push(new URL(where).origin);
  return fetch(where, options);
};
"""


def block(kind: str) -> str:
    """Return a block of the README."""
    found = re.search(rf"^```{kind}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """All services, with a relay and a witness that everybody demands."""
    folder = tmp_path_factory.mktemp("package")
    with Cluster(folder, relay=True, witnesses=1, extra=QUICK) as made:
        yield made


@pytest.fixture
def project(local: Cluster, tmp_path: Path) -> Path:
    """A project of somebody who installed the package and knows the keys."""
    (tmp_path / "trusted.json").write_text(json.dumps(local.trusted.plain()))
    return installed(tmp_path)


class Other(threading.Thread):
    """Somebody with the Python client, who takes part meanwhile."""

    def __init__(
        self,
        local: Cluster,
        url: str,
        path: Path,
        *,
        group: str,
        words: str = "",
        value: Any = (0.3, 0.7),
    ) -> None:
        super().__init__(daemon=True)
        self.value = value
        self.visit = Session(url, path=path, trusted=local.trusted)
        self.group, self.words = group, words
        self.letters: list[bytes] = []
        self.partners: list[str] = []
        self.start()

    def run(self) -> None:
        """Join, collect, and read or settle."""
        asyncio.run(self.take_part())

    async def take_part(self) -> None:
        """Do what a person does."""
        async with self.visit as visit:
            await visit.join(self.value, group=self.group, limit=LIMIT, ledger=None)
            if self.words:
                side = await settle(visit, (0.3, 0.7), words=self.words, patience=PATIENCE)
                self.partners = [who.hex() for who in side.machine.partners]
                self.letters = list(side.words.values())
                return
            await visit.collect(patience=PATIENCE)
            while not self.letters:
                self.letters = [one.body for one in (await visit.read()).letters]
                await asyncio.sleep(0.2)

    def done(self) -> "Other":
        """Wait until all of it is done."""
        self.join(PATIENCE)
        assert not self.is_alive()
        return self


def test_the_readme_takes_part_in_node(local: Cluster, project: Path, tmp_path: Path) -> None:
    """Its script joins through the relay, is matched with a Python person, and writes a letter."""
    url = local.open_round(draft("node", minimum=1), closes=1, expires=3600)
    other = Other(local, url, tmp_path / "other", group=GROUPS[1])
    said = node(project, block("js"), url, local.url("relay"))
    assert other.done().letters == [b"by the blue door"]
    assert re.search(r"epsilon: 2\b|epsilon: 1\.9", said), said
    # The store of files is its owner's, and its ticket is the same file that Python reads.
    kept = {path.name.split("%2F")[1]: path for path in (project / "my-tickets").iterdir()}
    assert set(kept) == {"ledger", "terms", "ticket", "watched"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept.values())
    assert read_ticket(kept["ticket"].read_bytes()).receipt
    # Later, without naming the relay: nothing goes another way, and a second report is not made.
    again = r"""
    async function work() {
      const session = new Session(url, { trusted, ask, store: fileStore("my-tickets") });
      await session.read();
      const { rounds } = await session.spent();
      return { rounds, address: await session.address(), asked };
    }"""
    found = told(project, BEGIN + again + PRINTS, url)
    ticket = read_ticket(kept["ticket"].read_bytes())
    assert found["rounds"] == 1
    assert found["address"] == ticket.keys.address.hex()
    assert set(found["asked"]) == {local.url("relay")}


def test_the_readme_takes_part_in_a_page(local: Cluster, project: Path, tmp_path: Path) -> None:
    """Its page does the same in Chromium from the packed package, and complains of nothing."""
    url = local.open_round(draft("page", minimum=1), closes=1, expires=3600)
    other = Other(local, url, tmp_path / "other", group=GROUPS[0])
    told_ = {"url": url, "relay": local.url("relay"), "trusted": local.trusted.plain()}
    (project / "settings.json").write_text(json.dumps(told_))
    (project / "index.html").write_text(block("html"))
    assert said_in_chromium(project, relay=local.url("relay")) == "You meet 1."
    assert other.done().letters == [b"at the corner"]


def test_node_finds_who_is_near_within_windows(
    local: Cluster, project: Path, tmp_path: Path
) -> None:
    """By letters through the relay, with a window: both sides agree and read the other's words."""
    randomizer = {**RANDOMIZER, "epsilon": 9.0, "radius": 0.1}
    group = {"name": "members", "randomizer": randomizer, "minimum": 2, "delta": 1e-3}
    plain = {
        "round": "near",
        "task": {"name": "neighbours", "radius": 0.3, "limit": 6, "mutual": True},
        "groups": [group],
        "settle": {"cell": 0.06, "asks": [], "pause": 80},
        "letter_size": 1138,
        "window": 1,
    }
    url = local.open_round(plain, closes=1, expires=3600)
    other = Other(local, url, tmp_path / "other", group="members", words="at the corner")
    script = r"""
    async function work() {
      const session = new Session(url, { trusted, relay, ask, store: fileStore("my-tickets") });
      const address = await session.join([0.25, 0.75], { group: "members", ...budgets });
      const found = await session.settle([0.25, 0.75], { words: "by the blue door", look: 0.2 });
      const words = found.words.map(({ body }) => new TextDecoder().decode(body));
      return { address, partners: found.partners, words, asked };
    }"""
    found = told(project, BEGIN + script + PRINTS, url, local.url("relay"))
    assert other.done().partners == [found["address"]]
    assert found["partners"] == [other.visit.ticket.keys.address.hex()]
    assert found["words"] == ["at the corner"]
    assert other.letters == [b"by the blue door"]
    assert set(found["asked"]) == {local.url("relay")}


def test_node_tosses_a_coin_and_refuses_what_costs_too_much(local: Cluster, project: Path) -> None:
    """A coin before a grid is drawn and answered; limits are kept with nothing stored."""
    grid = GridResponse(domain=Box(lo=(0.0,), hi=(1.0,)), epsilon=2.0, cells=(3,))
    coin = CoinResponse(part=grid, rate=0.5).params()
    group = {"name": "people", "randomizer": coin, "minimum": 3, "delta": 1e-3}
    plain = {"round": "coins", "task": {"name": "standing"}, "groups": [group]}
    url = local.open_round(plain, closes=1, expires=3600)
    script = r"""
    async function work() {
      const kept = [];
      const store = { get: () => null, set: (name) => kept.push(name) };
      const sentences = [];
      const wrong = [
        [[0.5], { group: "people", ...budgets, limit: { epsilon: 0.001, delta: 1e-3 } }],
        [[0.5], { group: "people", ...budgets, budget: { epsilon: 0.001, delta: 1e-2 } }],
        [[0.5], { group: "people", limit: budgets.limit }],
        [[0.5], { group: "nobody", ...budgets }],
        [[0.5, 0.5], { group: "people", ...budgets }],
        [[7], { group: "people", ...budgets }],
        ["here", { group: "people", ...budgets }],
        [[0.5], { group: "people", ...budgets, note: "much too long a note" }],
        [[0.5], { group: "people", ...budgets, token: "a,b" }],
      ];
      for (const [value, options] of wrong) {
        try {
          await new Session(url, { trusted, relay, store }).join(value, options);
          sentences.push("nothing");
        } catch (error) {
          sentences.push(error.message);
        }
      }
      const answers = await Promise.all(["a", "b", "c"].map(async (name) => {
        const session = new Session(url, { trusted, relay, store: fileStore(name) });
        await session.join([0.5], { group: "people", ...budgets });
        return (await session.collect()).values.length;
      }));
      return { sentences, kept, answers };
    }"""
    found = told(project, BEGIN + script + PRINTS, url, local.url("relay"))
    expected = (
        "raise the limit",
        "you would have spent",
        "give a budget",
        "has no group nobody",
        "a list of 1 numbers",
        "is outside 0 to 1",
        "a list of 1 numbers",
        "a note of this round has at most 0 bytes",
        "each takes a token of its own",
    )
    for sentence, part in zip(found["sentences"], expected, strict=True):
        assert part in sentence, sentence
    assert found["kept"] == []
    assert len(found["answers"]) == 3


COINS = r"""<!doctype html>
<title>Coins</title>
<p id="said">Waiting for the others.</p>
<script type="module">
  import { Entropy, Session, readTicket } from "./node_modules/@coatcheck/client/dist/client.js";
  const { url, relay, trusted } = await (await fetch("settings.json")).json();
  const fair = 2n ** 63n;                       // the heads of a coin of rate 1/2
  const falls = [false, false, true, true];     // how the coins of four people fall
  const toss = Entropy.prototype.coin;
  Entropy.prototype.coin = function (heads) {
    return heads === fair ? falls.shift() : toss.call(this, heads);
  };
  const budgets = { limit: { epsilon: 9.5, delta: 1e-3 }, budget: { epsilon: 64, delta: 1e-2 } };
  const people = [];
  try {
    for (let n = 0; n < 4; n += 1) {
      const kept = new Map();
      const store = { get: (name) => kept.get(name), set: (name, text) => kept.set(name, text) };
      const session = new Session(url, { trusted, relay, store });
      await session.join([0.5], { group: "people", ...budgets });
      const [, written] = [...kept].find(([name]) => name.includes("ticket"));
      people.push({ session, size: readTicket(written).upload.length });
    }
    const told = [];
    for (const { session, size } of people) {
      told.push({ size, values: (await session.collect()).values });
    }
    document.querySelector("#said").textContent = JSON.stringify(told);
  } catch (error) {
    document.querySelector("#said").textContent = error.message;
  }
</script>
"""


def test_silence_in_a_page_is_a_message_like_any_other(local: Cluster, project: Path) -> None:
    """Of four people in Chromium two are silent: same bytes, counted, answered with zeros."""
    grid = GridResponse(domain=Box(lo=(0.0,), hi=(1.0,)), epsilon=2.0, cells=(3,))
    coin = CoinResponse(part=grid, rate=0.5).params()
    group = {"name": "people", "randomizer": coin, "minimum": 4, "delta": 1e-3}
    plain = {"round": "silence", "task": {"name": "standing"}, "groups": [group]}
    url = local.open_round(plain, closes=1, expires=3600)
    told_ = {"url": url, "relay": local.url("relay"), "trusted": local.trusted.plain()}
    (project / "settings.json").write_text(json.dumps(told_))
    (project / "index.html").write_text(COINS)
    said = said_in_chromium(project, relay=local.url("relay"))
    people = json.loads(said)
    assert len({person["size"] for person in people}) == 1
    assert [person["values"][0] > 0 for person in people] == [False, False, True, True]


def test_node_takes_part_with_a_place_and_a_preference(
    local: Cluster, project: Path, tmp_path: Path
) -> None:
    """Fields are drawn, matched with a Python person's, and cost what the library says."""
    square, drinks = Box(lo=(0.0, 0.0), hi=(1.0, 1.0)), Categories(("tea", "coffee", "milk"))
    domain = Product({"place": square, "likes": drinks}, shares={"place": 2.0, "likes": 1.0})
    both = fieldwise(epsilon=3.0, domain=domain)

    def plain(name: str, *, minimum: int) -> dict[str, Any]:
        group = {"randomizer": both.params(), "minimum": minimum, "delta": 1e-3}
        groups = [{"name": one, **group} for one in GROUPS]
        return {"round": name, "task": {"name": "least-cost-matching"}, "groups": groups}

    large = local.open_round(plain("many", minimum=3_000), closes=1, expires=3600)
    url = local.open_round(plain("fields", minimum=1), closes=1, expires=3600)
    value = {"place": (0.3, 0.7), "likes": "tea"}
    other = Other(local, url, tmp_path / "other", group=GROUPS[1], value=value)
    script = r"""
    const large = process.argv[4];
    async function work() {
      const store = fileStore("my-tickets");
      const group = "riders";
      const other = new Session(large, { trusted, relay, store });
      const cost = await other.invitation({ group, limit: budgets.limit });
      const session = new Session(url, { trusted, relay, store });
      const sentences = [];
      const place = [0.5, 0.5];
      const likes = "tea";
      const beer = { place, likes: "beer" };
      for (const wrong of [place, { place }, { place, likes, age: [3] }, beer]) {
        const refused = ({ message }) => sentences.push(message);
        await session.join(wrong, { group, ...budgets }).catch(refused);
      }
      await session.join({ likes: "milk", place }, { group, ...budgets });
      const { partners } = await session.collect();
      for (const { contact } of partners) await session.write("by the blue door", contact);
      return { epsilon: cost.epsilon, local: cost.local, sentences, met: partners.length };
    }"""
    found = told(project, BEGIN + script + PRINTS, url, local.url("relay"), large)
    assert found["met"] == 1
    assert other.done().letters == [b"by the blue door"]
    known = amplify(both.law, crowd=3_000, delta=1e-3)
    assert found["epsilon"] == pytest.approx(known.epsilon, rel=1e-4)
    assert found["local"] == pytest.approx(both.epsilon_spent)
    assert ["the fields place, likes" in one for one in found["sentences"]] == [True] * 3 + [False]
    assert "beer is no choice here" in found["sentences"][3]
