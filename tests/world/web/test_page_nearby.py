"""The opening page: it waits for its viewer, shows the attack, replays, and begins new rounds.

All tests of this file share one run of the demo's real processes and go on from each other's round.
"""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from coatcheck.demo.city import streets
from coatcheck.demo.trilateration import trilateration
from world.web.page_run import PageRun, choose, page_run, paused, shown_text, violations

PEOPLE = 40


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageRun]:
    """The opening demo, which waits for a viewer."""
    folder = tmp_path_factory.mktemp("nearby")
    with page_run(folder, people=PEOPLE, epsilon=3.0, name="nearby") as run:
        yield run


@pytest.fixture(scope="module")
def waited(live: PageRun) -> Page:
    """The page after a while in which nobody asked for anything."""
    page = live.page("/")
    page.wait_for_selector("body[data-phase=terms]")
    page.wait_for_timeout(1500)
    return page


@pytest.fixture(scope="module")
def shown(live: PageRun, waited: Page) -> Page:
    """The page after its viewer started the round and it went to its end."""
    assert live.run.answers == {}
    waited.locator("#speed").select_option("20")
    waited.locator("#play").click()
    waited.wait_for_selector("body[data-phase=done]")
    expect(waited.locator("#service")).to_be_visible()
    return waited


def test_the_round_waits_for_its_viewer(live: PageRun, waited: Page) -> None:
    """Nobody has joined before the button is pressed; the question and the promise are there."""
    assert live.run.tickets == {}
    expect(waited.locator("#play")).to_have_text("Start the round")
    expect(waited.locator("h1")).to_contain_text("Who is near me?")
    expect(waited.locator("#plain")).to_contain_text("ε = 3")
    assert "Assumes:" in shown_text(waited, "#in-full")
    assert not waited.locator("#in-full").is_visible()
    sections = waited.locator("main > section").evaluate_all(
        "sections => sections.map((section) => section.id)"
    )
    assert sections == ["opening", "round", "seats", "explorer"]


def test_every_page_shows_the_pace_of_the_server(live: PageRun, waited: Page) -> None:
    """A second page, opened later, says Pause while the first plays; and both stop together."""
    waited.locator("#play").click()
    expect(waited.locator("#play")).to_have_text("Pause")
    other = live.page("/")
    expect(other.locator("#play")).to_have_text("Pause")
    other.locator("#play").click()
    expect(waited.locator("#play")).to_have_text(re.compile("Play|Start the round"))
    other.reload()
    expect(other.locator("#play")).to_have_text(re.compile("Play|Start the round"))
    assert not live.pace.playing
    other.context.close()


def test_true_places_and_chance_stand_beside_the_answer(live: PageRun, shown: Page) -> None:
    """The table has people's own answers first, and they are truly near."""
    rows = shown.locator("#served tr")
    names = [rows.nth(n).get_attribute("data-served") for n in range(rows.count())]
    assert names == ["settled", "private", "without_noise", "at_random"]
    near = shown_text(shown, 'tr[data-served="settled"] td:last-child')
    assert near == "–" or float(near.removesuffix(" %")) > 90
    assert len(live.run.answers) == PEOPLE


def test_the_trilaterators_seat_tells_the_story(live: PageRun, shown: Page) -> None:
    """The figures are those of the attack that the library ran, with the ledger beside them."""
    story = trilateration(live.run.scenario)
    shown.locator("input[value=trilaterator]").check(force=True)
    expect(shown.locator("#trilaterator")).to_be_visible()
    app, here = story["app"], story["coatcheck"]
    expect(shown.locator("#app-note")).to_contain_text(f"after {len(app['asked'])} questions")
    expect(shown.locator("#app-note")).to_contain_text(f"{app['error_m']:.1f} m off")
    expect(shown.locator("#here-note")).to_contain_text(f"After {len(here['rounds'])} rounds")
    assert shown.locator("#ledger li").count() == len(story["ledger"]["spent"]) + 1
    expect(shown.locator("#ledger li.refused")).to_contain_text("nothing was sent")
    assert violations(shown) == []
    choose(shown, "all")
    expect(shown.locator("#trilaterator")).to_be_hidden()


@pytest.mark.parametrize("seat", ["relay", "witness"])
def test_relay_and_witness_have_seats(shown: Page, seat: str) -> None:
    """From there no place, no report and no letter is seen; one line says so, another more."""
    choose(shown, seat)
    for hidden in ("#person-map", "#server-map", "#rows", "#letters"):
        expect(shown.locator(hidden)).to_be_hidden()
    expect(shown.locator("#promise-line")).to_contain_text("nothing of any value")
    expect(shown.locator("#seated")).to_be_visible()
    assert "ε = 0" in shown_text(shown, "#promise")
    shown.locator("#leave").click()
    expect(shown.locator("#person-map")).to_be_visible()


def test_seats_stay_under_the_mouse_while_they_are_tried(shown: Page) -> None:
    """Taking a seat does not move the page: the next one is there to click; a button moves it."""
    in_sight = """seat => {
        const { top, bottom } = seat.closest("label").getBoundingClientRect();
        return top >= 0 && bottom <= innerHeight;
    }"""
    for seat in ("server", "relay", "onlooker"):
        choose(shown, seat)
        assert shown.locator('input[value="shuffler"]').evaluate(in_sight)
    shown.locator("#see-round").click()
    expect(shown.locator("#seated")).to_be_in_viewport()
    shown.locator("#leave").click()
    expect(shown.locator("#see-round")).to_be_hidden()
    expect(shown.locator("#adversaries")).to_be_in_viewport()


def test_a_round_that_is_over_can_be_replayed(live: PageRun, shown: Page) -> None:
    """Everything is told again from the beginning, and nobody takes part a second time."""
    before = live.run.passed
    shown.locator("#play").click()
    expect(shown.locator("#play")).to_have_text("Skip to the end")
    expect(shown.locator("#service")).to_be_hidden()
    shown.locator("#play").click()
    shown.wait_for_selector("body[data-phase=done]")
    expect(shown.locator("#service")).to_be_visible()
    expect(shown.locator("#count")).to_have_text(str(PEOPLE))
    assert live.run.passed == before


def test_somebody_who_comes_late_takes_part_in_a_new_round(live: PageRun, shown: Page) -> None:
    """The round is over: one button opens another, which waits, and the person is in it."""
    before = live.run.scenario.turn
    # The person in the browser writes no letters here, so the others wait for two pauses.
    live.run.scenario = paused(live.run.scenario, 10)
    person = live.page("/join", width=390)
    person.locator("#limit").fill("64")
    person.locator("#limit").dispatch_event("change")
    person.locator("#total").fill("64")
    person.locator("#send").click()
    expect(person.locator("#joined")).to_contain_text("takes no reports now")
    person.locator("#fresh").click()
    expect(person.locator("#joined")).to_contain_text("A new round is open")
    shown.wait_for_selector("body[data-phase=terms]")
    expect(shown.locator("#play")).to_have_text("Start the round")
    expect(shown.locator("#count")).to_have_text("0")
    person.locator("#send").click()
    expect(person.locator("#joined")).to_contain_text("receipt is valid")
    expect(shown.locator("#count")).to_have_text("1")
    shown.locator("#speed").select_option("20")
    shown.locator("#play").click()
    person.locator("#collect").click()
    expect(person.locator("#answer")).to_contain_text(re.compile("candidates|has not ended"))
    shown.wait_for_selector("body[data-phase=done]")
    expect(shown.locator("#entries")).to_have_text(str(PEOPLE + 1))
    assert live.run.scenario.turn == before + 1
    person.context.close()


def test_another_round_begins_from_the_page(live: PageRun, shown: Page) -> None:
    """The button is there when a round is over, and the next one waits again."""
    shown.wait_for_selector("body[data-phase=done]")
    before = live.run.scenario.turn
    shown.locator("#again").click()
    shown.wait_for_selector("body[data-phase=terms]")
    expect(shown.locator("#play")).to_have_text("Start the round")
    expect(shown.locator("#service")).to_be_hidden()
    assert live.run.scenario.turn == before + 1
    assert live.run.tickets == {}


def test_the_map_has_streets_names_and_stays_inside() -> None:
    """Streets lie in the city or a little beyond its edge; avenues and quarters have names."""
    drawn = streets()
    names = {item["name"] for item in drawn["streets"]}
    assert {"Harbor Avenue", "Station Street", "Ring"} <= names
    assert {item["name"] for item in drawn["quarters"]} == {
        "harbor",
        "old town",
        "university",
        "station",
    }
    ends = [point for item in drawn["streets"] for point in item["line"]]
    assert all(-0.2 < share < 1.2 for point in ends for share in point)


def test_the_explorer_greys_what_is_stale_and_names_every_curve(live: PageRun) -> None:
    """While the library computes, the plan of the old sliders is grey; curves have names."""
    page = live.page("/")
    plan = page.locator("#exact-plan")
    expect(plan).to_have_attribute("aria-busy", "false")
    page.evaluate(
        "() => { const s = document.getElementById('crowd'); s.value = 0.3;"
        " s.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    expect(plan).to_have_class(re.compile("stale"))
    page.locator("#crowd").dispatch_event("change")
    expect(plan).not_to_have_class(re.compile("stale"))
    for chart in ("#chart-error", "#chart-amp"):
        assert page.locator(f"{chart} .label").all_text_contents()
        names = set(page.locator(f"{chart} .label").all_text_contents())
        assert names == {"recommended", "minkowski", "bounded", "grid"}
    page.context.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light")])
def test_axe_finds_nothing_and_nothing_is_too_wide(live: PageRun, width: int, scheme: str) -> None:
    """On a desktop and on a phone; no console had anything to say in all of this."""
    page = live.page("/", width=width, scheme=scheme)
    page.wait_for_selector("body[data-phase=terms], body[data-phase=done]")
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert live.errors == []
    page.context.close()
