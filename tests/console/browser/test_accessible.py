"""The page in a real browser: accessible, self-contained, usable without mouse or script."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.console import views
from tests.console.browser.conftest import DESK, GROUP, PHONE, refreshed
from webhook.console.job_story import job_story

pytestmark = GROUP

NARROW = 320
LOOKS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light"},
    "dark-phone": {"viewport": PHONE, "color_scheme": "dark"},
}


def violations(page):
    found = Axe().run(page)
    return found.generate_report() if found.violations_count else ""


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_axe_finds_nothing_however_the_page_looks(open_window, look):
    window = open_window(**LOOKS[look])
    window.page.locator("#decision-list summary").nth(3).click()
    window.page.locator("#queue-list summary").nth(3).click()
    for more in ("filters", "waiting", "queues", "policies"):
        window.page.locator(f"#more-{more} > summary").click()

    assert violations(window.page) == ""


@pytest.mark.parametrize("look", ["light", "dark-phone"])
@pytest.mark.parametrize(
    "view",
    [views.EMPTY, views.NEVER_SYNCED, views.view(off="everything", age=80.0, is_stale=True)],
    ids=["empty", "never-synced", "stale-and-off"],
)
def test_axe_finds_nothing_when_something_is_wrong(open_window, site, look, view):
    site.view = view

    assert violations(open_window(**LOOKS[look]).page) == ""


@pytest.mark.parametrize("look", ["light", "dark-phone"])
def test_axe_finds_nothing_on_the_page_of_a_job_and_it_is_as_wide_as_the_window(
    open_window, site, look
):
    moved = views.large().decisions[3]
    site.story = job_story(site.view, moved.namespace, moved.job, ())
    window = open_window(**LOOKS[look])
    width = window.page.viewport_size["width"]

    assert moved.moves
    assert violations(window.page) == ""
    assert window.page.evaluate("document.documentElement.scrollWidth") == width
    assert window.complaints == []


@pytest.mark.parametrize("view", [views.large(), views.EMPTY], ids=["large", "empty"])
def test_a_phone_never_scrolls_sideways(open_window, site, view):
    site.view = view
    page = open_window(viewport=PHONE).page
    for kind in ("queue", "decision"):
        for summary in page.locator(f"#{kind}-list summary").all()[:5]:
            summary.click()

    for width in (PHONE["width"], NARROW):
        page.set_viewport_size({**PHONE, "width": width})
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_the_page_asks_nobody_but_its_own_server_and_breaks_no_rule(open_window, site):
    window = open_window()
    site.view = views.large(newer=1)
    refreshed(window)

    assert {url[: len(site.address)] for url in window.requests} == {site.address}
    assert len(window.requests) >= 2
    assert window.complaints == []


def test_two_hundred_queues_take_at_most_three_screens(open_window, site):
    site.view = views.large(queues=200)

    page = open_window().page

    assert page.evaluate("document.documentElement.scrollHeight") <= 3 * DESK["height"]


def test_a_decision_is_opened_by_keys_alone(open_window):
    page = open_window().page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")

    focused = "document.activeElement.parentElement.id"
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(focused) == "decision-id0":
            break
    assert page.evaluate(focused) == "decision-id0"
    page.keyboard.press("Enter")

    expect(page.get_by_role("table", name="Options of ")).to_have_count(1)
    expect(page.locator("#decision-id0 table")).to_be_visible()


def test_everything_but_updates_works_without_a_script(open_window):
    window = open_window(java_script_enabled=False)
    page = window.page

    page.locator("#more-filters > summary").click()
    page.get_by_label("Queue contains").fill("robotics-cpu")
    page.get_by_label("Queue contains").press("Enter")
    expect(page.locator("#queue-list b").first).to_contain_text("robotics-cpu")
    page.get_by_role("link", name="Show all").click()
    page.get_by_role("link", name="Older decisions").click()
    expect(page.locator("#decision-list > li").first).to_have_id("item-id10")
    page.locator("#decision-id10 > summary").click()

    expect(page.locator("#decision-id10 table")).to_be_visible()
    expect(page.get_by_role("button", name="Pause updates")).to_have_count(0)
    expect(page.get_by_role("link", name="Reload")).to_be_visible()
