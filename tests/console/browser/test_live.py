"""The page while it is open: it follows the cluster and leaves its reader alone."""

import pytest
from playwright.sync_api import expect

from tests.console import views
from tests.console.browser.conftest import GROUP, refreshed

pytestmark = GROUP


def test_an_update_leaves_what_is_read_alone(open_window, site):
    window = open_window()
    page = window.page
    page.locator("#decision-id6 > summary").click()
    page.locator("#decision-id6 > summary").focus()
    before = page.locator("#decision-id6").bounding_box()

    site.view = views.large(newer=3)
    refreshed(window)

    expect(page.locator("#decision-list > li").first).to_have_id("item-id-3")
    expect(page.locator("#decision-id6")).to_have_attribute("open", "")
    assert page.evaluate("document.activeElement.parentElement.id") == "decision-id6"
    assert page.locator("#decision-id6").bounding_box()["y"] == pytest.approx(before["y"], abs=1)


def test_an_update_shows_the_same_as_a_reload(open_window, site):
    window = open_window()
    site.view = views.large(newer=30)
    refreshed(window)

    updated = window.page.locator("main").inner_text()
    window.page.reload()

    assert window.page.locator("main").inner_text() == updated


def test_updates_can_be_paused_and_taken_up_again(open_window, site):
    page = open_window().page
    page.clock.install()
    page.reload()
    pause = page.get_by_role("button", name="Pause updates")

    pause.press("Enter")
    asked = len(site.paths)
    page.clock.run_for(60_000)

    expect(pause).to_have_attribute("aria-pressed", "true")
    assert len(site.paths) == asked
    page.reload()
    expect(pause).to_have_attribute("aria-pressed", "true")
    with page.expect_request(site.address):
        pause.press("Enter")
    expect(pause).to_have_attribute("aria-pressed", "false")


def test_a_console_that_is_gone_is_said_once_and_forgotten_when_it_is_back(open_window, site):
    page = open_window().page
    site.is_down = True

    expect(page.locator("#connection")).to_contain_text("No answer")
    expect(page.locator("#queue-list > li").first).to_be_visible()

    site.is_down = False
    expect(page.locator("#connection")).to_have_text("")


def test_filters_work_as_one_types(open_window, site):
    page = open_window().page

    page.locator("#more-filters > summary").click()
    page.get_by_label("Policy contains").press_sequentially("speech-l")

    expect(page.locator("#summary")).to_contain_text("decisions of 500")
    expect(page.locator("#policies h3")).to_have_text(["speech-light"])
    assert page.url == f"{site.address}?policy=speech-l"
    assert page.evaluate("document.activeElement.id") == "filter-policy"
