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
from world.web.package import SOURCES, installed, node, node_json, text_in_chromium

README = (SOURCES / "README.md").read_text(encoding="utf-8")
PRINTS = "\nconsole.log(JSON.stringify(await work()));\n"
BEGIN = r"""
import { readFileSync } from "node:fs";
import { Refused, Unavailable, Session, hex } from "@coatcheck/client";
import { fileStore } from "@coatcheck/client/node";
const [url, relay] = process.argv.slice(2);
const trusted = JSON.parse(readFileSync("trusted.json", "utf8"));
const budgets = { limit: { epsilon: 9.5, delta: 1e-3 }, budget: { epsilon: 64, delta: 1e-2 } };
const origins = [];
const fetch = (where, options) => {
  origins.push(new URL(where).origin);
  return globalThis.fetch(where, options);
};
"""


def block(kind: str) -> str:
    """Return a block of the README."""
    match = re.search(rf"^```{kind}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """All services, with a relay and a witness that everybody demands."""
    folder = tmp_path_factory.mktemp("package")
    with Cluster(folder, relay=True, witnesses=1, extra=QUICK) as cluster:
        yield cluster


@pytest.fixture
def project(local: Cluster, tmp_path: Path) -> Path:
    """A project with the package installed, and with the trusted keys."""
    (tmp_path / "trusted.json").write_text(json.dumps(local.trusted.plain()))
    return installed(tmp_path)


class Other(threading.Thread):
    """A person with the Python client who takes part at the same time."""

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
        self.session = Session(url, path=path, trusted=local.trusted)
        self.group, self.words = group, words
        self.letters: list[bytes] = []
        self.partners: list[str] = []
        self.start()

    def run(self) -> None:
        """Join, collect, and read or settle."""
        asyncio.run(self.take_part())

    async def take_part(self) -> None:
        """Do what a person does."""
        async with self.session as session:
            await session.join(self.value, group=self.group, limit=LIMIT, ledger=None)
            if self.words:
                side = await settle(session, (0.3, 0.7), words=self.words, patience=PATIENCE)
                self.partners = [partner.hex() for partner in side.machine.partners]
                self.letters = list(side.words.values())
                return
            await session.collect(patience=PATIENCE)
            while not self.letters:
                self.letters = [letter.body for letter in (await session.read()).letters]
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
    output = node(project, block("js"), url, local.url("relay"))
    assert other.done().letters == [b"by the blue door"]
    assert re.search(r"epsilon: 2\b|epsilon: 1\.9", output), output
    # Only the owner can read the files, and Python reads the same ticket.
    stored = {path.name.split("%2F")[1]: path for path in (project / "my-tickets").iterdir()}
    assert set(stored) == {"gateways", "ledger", "terms", "ticket", "watched"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in stored.values())
    assert read_ticket(stored["ticket"].read_bytes()).receipt
    # Later, without naming the relay: the client still uses the relay, and sends no second report.
    again = r"""
    async function work() {
      const session = new Session(url, { trusted, fetch, store: fileStore("my-tickets") });
      await session.read();
      const { rounds } = await session.spent();
      return { rounds, address: await session.address(), origins };
    }"""
    result = node_json(project, BEGIN + again + PRINTS, url)
    ticket = read_ticket(stored["ticket"].read_bytes())
    assert result["rounds"] == 1
    assert result["address"] == ticket.keys.address.hex()
    assert set(result["origins"]) == {local.url("relay")}


def test_the_readme_takes_part_in_a_page(local: Cluster, project: Path, tmp_path: Path) -> None:
    """Its page does the same in Chromium from the packed package, and logs no error."""
    url = local.open_round(draft("page", minimum=1), closes=1, expires=3600)
    other = Other(local, url, tmp_path / "other", group=GROUPS[0])
    told_ = {"url": url, "relay": local.url("relay"), "trusted": local.trusted.plain()}
    (project / "settings.json").write_text(json.dumps(told_))
    (project / "index.html").write_text(block("html"))
    assert text_in_chromium(project, relay=local.url("relay")) == "You meet 1."
    assert other.done().letters == [b"at the corner"]


def test_node_finds_who_is_near_within_windows(
    local: Cluster, project: Path, tmp_path: Path
) -> None:
    """By letters through the relay, with a window: both sides agree and read the other's words.

    Each has a decoy, which writes letters too and is near nobody.
    """
    randomizer = {**RANDOMIZER, "epsilon": 9.0, "radius": 0.1}
    group = {"name": "members", "randomizer": randomizer, "minimum": 2, "delta": 1e-3, "decoys": 1}
    plain = {
        "round": "near",
        "task": {"name": "neighbours", "radius": 0.3, "limit": 6, "mutual": True},
        "groups": [group],
        "settle": {"asks": [], "pause": 80, "spread": 1},
        "window": 1,
    }
    url = local.open_round(plain, closes=1, expires=3600)
    other = Other(local, url, tmp_path / "other", group="members", words="at the corner")
    script = r"""
    async function work() {
      const session = new Session(url, { trusted, relay, fetch, store: fileStore("my-tickets") });
      const address = await session.join([0.25, 0.75], { group: "members", ...budgets });
      const settled = await session.settle([0.25, 0.75], { words: "by the blue door", look: 0.2 });
      const words = settled.words.map(({ body }) => new TextDecoder().decode(body));
      return { address, partners: settled.partners, words, origins };
    }"""
    result = node_json(project, BEGIN + script + PRINTS, url, local.url("relay"))
    assert other.done().partners == [result["address"]]
    assert result["partners"] == [other.session.ticket.keys.address.hex()]
    assert result["words"] == ["at the corner"]
    assert other.letters == [b"by the blue door"]
    assert set(result["origins"]) == {local.url("relay")}


def test_node_tosses_a_coin_and_refuses_what_costs_too_much(local: Cluster, project: Path) -> None:
    """A coin before a grid is drawn and answered; limits are kept with nothing stored."""
    grid = GridResponse(domain=Box(lo=(0.0,), hi=(1.0,)), epsilon=2.0, cells=(3,))
    coin = CoinResponse(part=grid, rate=0.5).params()
    group = {"name": "people", "randomizer": coin, "minimum": 3, "delta": 1e-3}
    plain = {"round": "coins", "task": {"name": "standing"}, "groups": [group]}
    url = local.open_round(plain, closes=1, expires=3600)
    script = r"""
    async function work() {
      const stored = [];
      const store = { get: () => null, set: (name) => stored.push(name) };
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
      return { sentences, stored, answers };
    }"""
    result = node_json(project, BEGIN + script + PRINTS, url, local.url("relay"))
    expected = (
        "raise the limit",
        "you would have spent",
        "give a `budget`",
        "has no group nobody",
        "a list of 1 numbers",
        "is outside 0 to 1",
        "a list of 1 numbers",
        "must have at most 0 bytes",
        "each needs a separate token",
    )
    for sentence, part in zip(result["sentences"], expected, strict=True):
        assert part in sentence, sentence
    assert set(result["stored"]) == {"coatcheck/gateways"}  # public: the key lists that it saw
    assert len(result["answers"]) == 3


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
      const texts = new Map();
      const store = { get: (name) => texts.get(name), set: (name, text) => texts.set(name, text) };
      const session = new Session(url, { trusted, relay, store });
      await session.join([0.5], { group: "people", ...budgets });
      const [, written] = [...texts].find(([name]) => name.includes("ticket"));
      people.push({ session, size: readTicket(written).upload.length });
    }
    const answers = [];
    for (const { session, size } of people) {
      answers.push({ size, values: (await session.collect()).values });
    }
    document.querySelector("#said").textContent = JSON.stringify(answers);
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
    output = text_in_chromium(project, relay=local.url("relay"))
    people = json.loads(output)
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
        groups = [{"name": name, **group} for name in GROUPS]
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
    result = node_json(project, BEGIN + script + PRINTS, url, local.url("relay"), large)
    assert result["met"] == 1
    assert other.done().letters == [b"by the blue door"]
    guarantee = amplify(both.law, crowd=3_000, delta=1e-3)
    assert result["epsilon"] == pytest.approx(guarantee.epsilon, rel=1e-4)
    assert result["local"] == pytest.approx(both.epsilon_spent)
    listed = ["the fields place, likes" in sentence for sentence in result["sentences"]]
    assert listed == [True] * 3 + [False]
    assert "beer is not a label" in result["sentences"][3]
