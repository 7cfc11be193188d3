"""The JavaScript of the manual runs: with the packed package, in Node, against real services."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from coatcheck.services.local_cluster import Cluster
from support.service_rounds import GROUPS, QUICK, draft
from world.web.browser import ROOT
from world.web.package import installed, node
from world.web.test_package_rounds import Other

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "web-client/README.md"])
BLOCK = re.compile(r"^```(?:js|javascript|mjs|ts)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ELSEWHERE = {
    "docs/how-to/admit-people.md": "tests/world/web/test_privacy_pass_peer.py",
    "web-client/README.md": "tests/world/web/test_package_rounds.py",
}
"""Pages whose blocks need another setup, and the test that runs them there."""
SCRIPTS = {
    str(page.relative_to(ROOT)): "\n".join(blocks)
    for page in PAGES
    if (blocks := BLOCK.findall(page.read_text(encoding="utf-8")))
}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """All services, with a relay and a witness that everybody demands."""
    folder = tmp_path_factory.mktemp("pages")
    with Cluster(folder, relay=True, witnesses=1, extra=QUICK) as cluster:
        yield cluster


@pytest.mark.parametrize("page", [name for name in SCRIPTS if name not in ELSEWHERE])
def test_the_blocks_of_a_page_run(local: Cluster, page: str, tmp_path: Path) -> None:
    """The blocks of a page run as one script, beside a person with the Python client."""
    (tmp_path / "trusted.json").write_text(json.dumps(local.trusted.plain()))
    url = local.open_round(draft(Path(page).stem, minimum=1), closes=1, expires=3600)
    other = Other(local, url, tmp_path / "other", group=GROUPS[1])
    output = node(installed(tmp_path), SCRIPTS[page], url, local.url("relay"))
    assert other.done().letters == [b"by the blue door"]
    assert output


def test_every_page_with_blocks_is_run_somewhere() -> None:
    """A page is run here, or by the test that is named for it, which names the page."""
    assert "docs/how-to/embed-the-client.md" in SCRIPTS
    for page, test in ELSEWHERE.items():
        assert page in SCRIPTS
        text = (ROOT / test).read_text(encoding="utf-8")
        assert Path(page).name in text
