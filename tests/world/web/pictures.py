"""The pictures in docs/images, from the page itself: `make pictures`, or with a folder for others.

They show the opening demo with its 400 people, after its round is over.
"""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, expect

sys.path.insert(0, str(Path(__file__).parents[2]))

from world.web.page_run import page_run

IMAGES = Path(__file__).parents[3] / "docs" / "images"
_FLIGHT = 1500  # dots fly and bars grow for so long, in milliseconds


def main(folder: Path) -> None:
    """Open the page, let its round go to the end, and take the pictures."""
    with (
        tempfile.TemporaryDirectory() as home,
        page_run(Path(home), people=400, epsilon=1.0, name="nearby") as live,
    ):
        page = live.page("/")
        page.locator("#speed").select_option("20")
        page.locator("#play").click()
        page.wait_for_selector("body[data-phase=done]")
        expect(page.locator("#service")).to_be_visible()
        page.wait_for_timeout(_FLIGHT)
        _part(page, "#round", folder / "both-sides.png")
        page.locator("input[value=trilaterator]").check(force=True)
        expect(page.locator("#app-note")).to_contain_text("Found after")
        page.wait_for_timeout(_FLIGHT)
        _part(page, "#trilaterator", folder / "trilaterator.png")
        page.locator("input[value=server-and-people]").check(force=True)
        expect(page.locator("#promise")).to_contain_text("Assumes")
        page.locator("#see-round").click()
        page.wait_for_timeout(_FLIGHT)
        page.screenshot(path=folder / "server-and-people.png")
        expect(page.locator("#exact-plan")).to_have_attribute("aria-busy", "false")
        _part(page, "#explorer", folder / "explorer.png")
        phone = live.page("/", width=390)
        phone.wait_for_selector("body[data-phase=done]")
        phone.wait_for_timeout(_FLIGHT)
        phone.screenshot(path=folder / "phone.png")


def _part(page: Page, selector: str, path: Path) -> None:
    page.locator(selector).screenshot(path=path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
