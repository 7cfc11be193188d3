"""The npm package fetches one entry of a large board, and reports to a cascade of shufflers."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from coatcheck.services.local_cluster import Cluster
from support.service_rounds import GROUPS, QUICK, SPARE, draft
from world.web.package import installed, node_json

DECOYS = 1
PEOPLE = 1 + SPARE + 1  # the count of traps holds for reports and decoys
BEGIN = r"""
import { readFileSync } from "node:fs";
import { BoardView, RelayClient, Session, hex, memoryStore } from "@coatcheck/client";
const [url, relay, groups, people, ...tokens] = process.argv.slice(2);
const trusted = JSON.parse(readFileSync("trusted.json", "utf8"));
const budgets = { limit: { epsilon: 9.5, delta: 1e-3 }, budget: { epsilon: 64, delta: 1e-2 } };
const sentenceOf = async (work) => {
  try {
    return await work();
  } catch (error) {
    return error.message;
  }
};
"""
WHOLE = r"""
async function takePart(group) {
  const session = new Session(url, { trusted, relay, store: memoryStore() });
  const address = await session.join([0.25, 0.5], { group, token: tokens.pop(), ...budgets });
  return { session, address, group };
}

async function work() {
  const names = groups.split(",").flatMap((name) => Array(Number(people)).fill(name));
  const everybody = await Promise.all(names.map(takePart));
  const alone = { retrieval: "entry" };
  const answers = await Promise.all(everybody.map((each) => each.session.collect(alone)));
  const [{ session, address, group }] = everybody;
  const whole = await session.collect({ retrieval: "whole" });
  const round = await session.round();
  const peer = new RelayClient(relay, { first: url, trusted });
  // A board that lies about one entry: each change is refused.
  const lies = {
    entry: (reply) => ({ ...reply, entry: flipped(reply.entry) }),
    place: (reply) => ({ ...reply, place: reply.place + 1 }),
    path: (reply) => ({ ...reply, path: flipped(reply.path) }),
    heading: (reply) => ({ ...reply, heading: flipped(reply.heading) }),
    log_place: (reply) => ({ ...reply, log_place: reply.log_place - 1 }),
    log_path: (reply) => ({ ...reply, log_path: flipped(reply.log_path) }),
    none: (reply) => reply,
  };
  const sentences = {};
  for (const [name, lie] of Object.entries(lies)) {
    const lying = {
      send: peer.send.bind(peer),
      whole: peer.whole.bind(peer),
      async get(where) {
        const raw = await peer.get(where);
        if (!where.includes("/entries/")) return raw;
        const document = JSON.parse(new TextDecoder().decode(raw));
        return new TextEncoder().encode(JSON.stringify(lie(document)));
      },
    };
    const view = new BoardView(round, { peer: lying });
    const number = round.group(group);
    const shown = async () => hex((await view.entry(number, address)).entry.slice(0, 16));
    sentences[name] = await sentenceOf(shown);
  }
  const stranger = await new BoardView(round, { peer }).entry(0, "00".repeat(16));
  return {
    partners: answers.map(({ partners }) => partners.map((partner) => hex(partner.address))),
    addresses: everybody.map((person) => person.address),
    same: JSON.stringify(whole) === JSON.stringify(answers[0]),
    sizes: answers[0].sizes,
    spent: await session.spent(),
    stranger,
    sentences,
    unknown: await sentenceOf(() => session.collect({ retrieval: "some" })),
  };
}

function flipped(base) {
  const raw = Uint8Array.from(atob(base), (letter) => letter.charCodeAt(0));
  raw[raw.length >> 1] ^= 1;
  return btoa(String.fromCharCode(...raw));
}

console.log(JSON.stringify(await work()));
"""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two shufflers in a row, a relay, and a witness that everybody demands."""
    folder = tmp_path_factory.mktemp("cascade")
    with Cluster(folder, shufflers=2, relay=True, witnesses=1, extra=QUICK) as cluster:
        yield cluster


def test_node_collects_one_entry_after_a_cascade(local: Cluster, tmp_path: Path) -> None:
    """Everybody registers, reports and is matched; an entry gives the same answer as the board.

    Who is matched with a decoy has a partner that is nobody's address.
    """
    (tmp_path / "trusted.json").write_text(json.dumps(local.trusted.plain()))
    url = local.open_round(draft("entries", minimum=1, decoys=DECOYS), closes=1, expires=3600)
    tokens = [local.take_tokens() for _ in range(len(GROUPS) * PEOPLE)]
    words = (url, local.url("relay"), ",".join(GROUPS), str(PEOPLE), *tokens)
    result = node_json(installed(tmp_path), BEGIN + WHOLE, *words)
    assert result["sizes"] == [PEOPLE * (1 + DECOYS)] * 2
    assert result["same"]
    pairs = dict(zip(result["addresses"], result["partners"], strict=True))
    met = {person: partner for person, (partner,) in pairs.items() if partner in pairs}
    assert all(met[partner] == person for person, partner in met.items())
    assert result["spent"]["rounds"] == 1
    assert result["stranger"] is None
    assert "by-size, whole or entry" in result["unknown"]
    honest = result["sentences"].pop("none")
    assert honest == result["addresses"][0]
    for lie, sentence in result["sentences"].items():
        assert sentence != honest, lie
        assert " " in sentence, lie
