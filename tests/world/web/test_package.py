"""The npm package: what is in it, its types, and what it says to wrong input."""

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

import coatcheck
from world.web.browser import ROOT
from world.web.package import SOURCES, compiled, installed, node_json, packed

README = (SOURCES / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the package installed."""
    return installed(tmp_path_factory.mktemp("project"))


def test_the_package_has_what_it_needs_and_no_more() -> None:
    """The bundle of the wheel, types, licenses, and neither sources nor tests."""
    with tarfile.open(packed()) as tar:
        names = {name.removeprefix("package/") for name in tar.getnames()}
        held = {
            name: tar.extractfile(f"package/{name}").read()  # type: ignore[union-attr] # files
            for name in ("LICENSE", "dist/client.js", "dist/LICENSES.txt", "package.json")
        }
    plain = {"LICENSE", "README.md", "package.json", "dist/client.js", "dist/node.js"}
    types = {name for name in names if re.fullmatch(r"dist/types/[a-z-]+\.d\.ts", name)}
    assert names == plain | types | {"dist/LICENSES.txt"}
    assert held["LICENSE"] == (ROOT / "LICENSE").read_bytes()
    wheel = ROOT / "src/coatcheck/demo/page/static/client.js"
    assert held["dist/client.js"] == wheel.read_bytes()
    for owner in (b"@hpke/core", b"@noble/curves", b"MIT"):
        assert owner in held["dist/LICENSES.txt"]
    about = json.loads(held["package.json"])
    assert about["name"] == "@coatcheck/client"
    assert about["version"] == coatcheck.__version__
    assert "private" not in about
    assert "dependencies" not in about


def test_no_file_names_a_registry() -> None:
    """Packages come by name; where from is the reader's choice."""
    assert '"resolved"' not in (SOURCES / "package-lock.json").read_text(encoding="utf-8")


def test_the_types_hold_for_the_readme_and_refuse_what_is_wrong(folder: Path) -> None:
    """The README's code compiles strictly; a forgotten limit and a wrong name do not."""
    block = re.search(r"^```js\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert block is not None
    begin = 'import { Session, memoryStore } from "@coatcheck/client";\n'
    session = "const v = new Session('u', { trusted: {}, store: memoryStore() });\n"
    wrong = {
        "keys": "new Session('u', { trusted: { servers: [] }, store: memoryStore() });",
        "limit": "await v.join([1], { group: 'a' });",
        "contact": "await v.write('hello', 'a name');",
        "name": "(await v.collect()).partner;",
        "kind": "const n: number = (await v.read())[0].text;",
    }
    sources = {name: begin + session + line for name, line in wrong.items()}
    output = compiled(folder, readme=block[1], **sources)
    assert not output.pop("readme")
    for name, errors in output.items():
        assert "error TS" in errors, wrong[name]


WRONG = r"""
import { Misuse, Session } from "@coatcheck/client";
const requests = [];
const fetch = async (where) => { requests.push(where); throw new Error("nobody is there"); };
const texts = new Map();
const store = { get: (name) => texts.get(name), set: (name, text) => texts.set(name, text) };
const url = `http://127.0.0.1:9/rounds/${"0".repeat(64)}`;
const limit = { epsilon: 1, delta: 1e-6 };
const session = (more) => new Session(url, { trusted: {}, store, fetch, ...more });
const cases = {
  "an address": () => new Session("http://127.0.0.1:9/round", { trusted: {}, store }),
  "no store": () => new Session(url, { trusted: {} }),
  "no function": () => new Session(url, { trusted: {}, store, fetch: 1 }),
  "no limit": () => session().join([1], { group: "a" }),
  "a text": () => session().join([1], { group: "a", limit: { epsilon: "1", delta: 1e-6 } }),
  "a delta": () => session().join([1], { group: "a", limit: { epsilon: 1, delta: 1 } }),
  "no ticket": () => session().collect(),
  "no ticket to read by": () => session().read(),
  "no contact": () => session().write("hello", "somebody"),
  "a relay": () => session({ relay: "relay" }).join([1], { group: "a", limit }),
};
const sentences = {};
for (const [name, work] of Object.entries(cases)) {
  try {
    await work();
    sentences[name] = "nothing";
  } catch (error) {
    sentences[name] = `${error instanceof Misuse ? "" : "not a misuse: "}${error.message}`;
  }
}
console.log(JSON.stringify({ sentences, requests, stored: [...texts] }));
"""


def test_wrong_input_gets_a_sentence_and_changes_nothing(folder: Path) -> None:
    """Each error says what to do; the client sends no request and stores nothing."""
    output: dict[str, Any] = node_json(folder, WRONG)
    expected = {
        "an address": "`url` must be https://HOST/rounds/",
        "no store": "give a `store`",
        "no function": "`fetch` must be a function",
        "no limit": "give a `limit`, the most that this round may cost",
        "a text": "epsilon above 0",
        "a delta": "delta between 0 and 1",
        "no ticket": "join first",
        "no ticket to read by": "join first",
        "no contact": "answer.partners",
        "a relay": "without a path",
    }
    assert set(output["sentences"]) == set(expected)
    for name, sentence in expected.items():
        assert sentence in output["sentences"][name], output["sentences"][name]
        assert not output["sentences"][name].startswith("not a misuse"), output["sentences"][name]
    assert output["requests"] == []
    assert output["stored"] == []
