"""Every interactive figure, opened from its file and driven in a headless Chromium that talks to nobody."""

import re

import pytest

from grader.site.figures.figure import FOLDER, load, names
from grader.site.figures.show import show
from grader.tests.browser.tab import Tab

pytestmark = pytest.mark.browser
NAMES = names()  # fails the collection where there is no figure


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def open_tab(browser, name):
    """Opens the figure; at the end it must have asked for its own file alone, and said nothing."""
    tabs = []
    address = (FOLDER / f"{name}.html").as_uri()

    def open_it(**more):
        tabs.append(Tab(browser, address, **more))
        return tabs[-1]

    yield open_it
    for tab in tabs:
        assert tab.said == []
        assert tab.requests == [address]
        tab.window.close()
    assert tabs


def test_it_steps_both_ways_and_says_each_step_in_other_words(open_tab):
    tab = open_tab()
    assert tab.steps >= 2
    assert tab.step == 0
    first = tab.words()
    assert first
    tab.press("step")
    assert tab.step == 1
    assert tab.words() != first
    tab.press("back")
    assert tab.step == 0
    assert tab.words() == first
    tab.press("back")
    assert tab.step == 0


def test_every_step_of_every_choice_draws_and_speaks(open_tab):
    tab = open_tab()
    seen = 0
    few = tab.page.locator(".choices option").count() <= 20
    for state in [None, *tab.choices()]:
        tab.press("reset")
        assert tab.steps >= 2, state
        most = min(tab.steps, 80 if few or state is None else 16)
        walked = tab.walk(most)
        assert [step for step, _, _ in walked] == list(range(most)), state
        for step, words, shown in walked:
            assert words.strip(), (state, step)
            assert not re.search(r"undefined|NaN|\[object|Infinity", shown), (state, step)
        seen += len(walked)
    assert seen > 2


def test_it_plays_pauses_and_stops_at_the_end(open_tab):
    tab = open_tab()
    tab.press("play")
    assert tab.page.get_attribute("#figure", "data-playing") == "yes"
    tab.page.wait_for_selector("#figure:not([data-step='0'])")
    tab.press("play")
    assert tab.page.get_attribute("#figure", "data-playing") == "no"
    held = tab.step
    tab.page.wait_for_timeout(2500)
    assert tab.step == held
    tab.page.keyboard.press("End")
    tab.page.keyboard.press("ArrowLeft")
    tab.press("play")
    tab.page.wait_for_selector("#figure[data-playing=no]")
    assert tab.step == tab.steps - 1
    tab.press("reset")
    assert tab.step == 0


def test_the_keyboard_alone_operates_it(open_tab):
    tab = open_tab()
    keyboard = tab.page.keyboard
    keyboard.press("ArrowRight")
    assert tab.step == 1
    keyboard.press("ArrowLeft")
    assert tab.step == 0
    keyboard.press("End")
    assert tab.step == tab.steps - 1
    keyboard.press("Home")
    assert tab.step == 0
    keyboard.press("Space")
    assert tab.page.get_attribute("#figure", "data-playing") == "yes"
    keyboard.press("Space")
    assert tab.page.get_attribute("#figure", "data-playing") == "no"
    tab.page.focus("[data-do=step]")
    keyboard.press("Space")
    assert (tab.step, tab.page.get_attribute("#figure", "data-playing")) == (1, "no"), (
        "a button keeps its key"
    )
    reached = set()
    for _ in range(60):
        keyboard.press("Tab")
        reached.add(tab.page.evaluate("document.activeElement.dataset.do ?? document.activeElement.type"))
    assert {"play", "step", "back", "reset", "range"} <= reached


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_follows_the_readers_theme_and_its_own_button(open_tab, theme):
    tab = open_tab(color_scheme=theme)
    before = tab.colours()
    tab.page.click(".theme")
    after = tab.colours()
    assert before[0] != after[0]
    assert before[1] != after[1]
    tab.page.click(".theme")
    assert tab.colours() == before
    red = int(re.search(r"\d+", before[0])[0])
    assert (red > 200) == (theme == "light")


@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_runs_over_the_side_of_the_page(open_tab, width):
    tab = open_tab(viewport={"width": width, "height": 800})
    tab.page.click("details.reading summary")
    for state in [None, *tab.choices()]:
        for key in ("Home", "ArrowRight", "End"):
            tab.page.keyboard.press(key)
            assert tab.overflow() <= 0, (state, key)


def test_without_scripts_its_static_picture_is_there(open_tab):
    tab = open_tab(java_script_enabled=False)
    picture = tab.page.query_selector("noscript svg")
    assert picture
    box = picture.bounding_box()
    assert box["width"] > 300
    assert box["height"] > 100
    assert len(tab.page.query_selector_all("noscript svg text")) > 3


def test_motion_stays_away_where_the_reader_wants_none(open_tab):
    tab = open_tab(reduced_motion="reduce")
    tab.press("step")
    moving = "document.getAnimations().filter(a => a.playState === 'running').length"
    assert tab.page.evaluate(moving) == 0


def test_what_a_reader_opened_and_focused_outlasts_a_step(open_tab):
    tab = open_tab()
    for at in range(tab.page.locator(".stage summary").count()):
        tab.page.locator(".stage summary").nth(at).click()
        tab.page.keyboard.press("ArrowRight" if tab.step == 0 else "ArrowLeft")
        assert tab.page.locator(".stage details").nth(at).get_attribute("open") is not None
    places = ".stage summary, .stage [tabindex], .stage button, .stage [role=button]"
    for at in range(tab.page.locator(places).count()):
        place = tab.page.locator(places).nth(at)
        place.focus()
        assert place.get_attribute("data-key"), "without a key the focus is lost at the next step"
        tab.page.keyboard.press("ArrowRight" if tab.step == 0 else "ArrowLeft")
        focused = tab.page.evaluate("document.activeElement.dataset.key")
        assert focused == tab.page.locator(places).nth(at).get_attribute("data-key")


def test_everything_that_is_operated_has_a_name(open_tab):
    tab = open_tab()
    operated = "button, select, input, [tabindex], [role=img], [role=button]"
    nameless = f"""[...document.querySelectorAll("{operated}")].filter(e =>
        !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.[0]?.textContent.trim())
    ).map(e => e.outerHTML.slice(0, 80))"""
    assert tab.page.evaluate(f'document.querySelectorAll("{operated}").length') > 5
    assert tab.page.evaluate(nameless) == []


def test_the_page_takes_less_room_than_a_notebook_gives_it(open_tab, name):
    tab = open_tab(viewport={"width": 900, "height": 300})
    for _ in range(load(name).screenshot_step):
        tab.page.keyboard.press("ArrowRight")
    assert tab.page.evaluate("document.querySelector('main').scrollHeight") <= load(name).height_px


def test_two_figures_on_one_page_step_by_themselves(browser, name):
    tab = Tab(browser, "", content=show(name)._repr_html_() + show(name)._repr_html_())
    frames = [frame for frame in tab.page.frames if frame.parent_frame]
    assert len(frames) == 2
    for frame in frames:  # a click before its script has run would reach nobody
        frame.wait_for_load_state()
    frames[0].click("[data-do=step]")
    assert [frame.get_attribute("#figure", "data-step") for frame in frames] == ["1", "0"]
    assert tab.said == []
    tab.window.close()


def test_a_viewer_that_strips_frames_shows_the_static_picture(browser, name):
    kept = re.sub(r"<iframe.*?</iframe>", "", show(name)._repr_html_(), flags=re.DOTALL)
    assert "<img" in kept
    tab = Tab(browser, "", content=kept, java_script_enabled=False)
    assert tab.page.query_selector("img").bounding_box()["height"] > 100
    tab.window.close()
