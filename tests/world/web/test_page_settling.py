"""Settling on the page: somebody in a real browser settles with people of the demo."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from world.web.page_run import PageRun, page_run, shown_text, violations

PEOPLE = 44


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageRun]:
    """A round with candidates that is paused before anybody has joined."""
    folder = tmp_path_factory.mktemp("settling")
    # Everybody writes, so nobody waits for so long; on a busy machine a minute is too short.
    with page_run(folder, people=PEOPLE, epsilon=3.0, candidates=3, pause=600) as run:
        yield run


@pytest.fixture(scope="module")
def settled(live: PageRun) -> Page:
    """The page of somebody who joined from a browser, and settles while the others do."""
    page = live.page("/join")
    page.locator("#limit").fill("64")
    page.locator("#limit").dispatch_event("change")
    page.locator("#total").fill("64")
    expect(page.locator("#disclosure")).to_contain_text("at most 6 candidates learns one exact")
    page.locator("#disclosures").fill("5")
    page.locator("#disclosures").dispatch_event("change")
    expect(page.locator("#terms")).to_contain_text("your limit is 5")
    page.locator("#disclosures").fill("6")
    page.locator("#disclosures").dispatch_event("change")
    expect(page.locator("#terms")).to_contain_text("Signed by the server")
    page.locator("#send").click()
    expect(page.locator("#joined")).to_contain_text("receipt is valid")
    expect(page.locator("#spent")).to_contain_text("By letters at most 6 candidates")
    expect(page.locator("#settling")).to_be_visible()
    page.locator("#words").fill("by the blue door")
    live.pace.play(speed=1000.0)
    watching = live.page("/")
    # Not later: people who have the browser among their candidates wait for it at every step.
    watching.wait_for_selector("body[data-phase=collected], body[data-phase=settled]")
    page.locator("#settle").click()
    expect(page.locator("#settled")).to_contain_text(re.compile("You meet|Nobody was left"))
    watching.wait_for_selector("body[data-phase=done]")
    watching.context.close()
    return page


def test_both_sides_believe_the_same(live: PageRun, settled: Page) -> None:
    """The people that the browser settled with agree and have its words; nobody else does."""
    text = shown_text(settled, "#settled")
    theirs = [person for person, partners in live.run.settled.items() if None in partners]
    met = re.findall("[0-9a-f]{32}", text)
    assert [live.run.tickets[person].keys.address.hex() for person in theirs] == met
    for person in theirs:
        bodies = [letter.body for letter in live.run.letters if letter.reader == person]
        assert bodies == ["by the blue door"]
        place = ", ".join(f"{x:.5f}" for x in live.run.scenario.values[person[0]][person[1]])
        expect(settled.locator("#letters")).to_contain_text(place)


def test_the_page_shows_how_people_were_served(live: PageRun, settled: Page) -> None:
    """Settled, the server alone, true places and chance stand beside each other, in this order."""
    page = live.page("/")
    page.wait_for_selector("body[data-phase=done]")
    expect(page.locator("#service")).to_be_visible()
    rows = page.locator("#served tr")
    assert [rows.nth(n).get_attribute("data-served") for n in range(rows.count())] == [
        "settled",
        "private",
        "without_noise",
        "at_random",
    ]
    paired = [
        person for person, partners in live.run.settled.items() if partners not in ([], [None])
    ]
    riders = sum(group == 0 for group, _ in paired)
    shown = page.locator('tr[data-served="settled"] td').nth(2)
    assert int(shown.text_content() or "-1") == riders
    assert len(paired) == 2 * riders
    assert "candidates" in shown_text(page, "#fact-answer")
    assert violations(page) == violations(settled) == []
    assert live.errors == []
