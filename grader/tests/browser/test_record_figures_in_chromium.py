"""What only the figures made from records can do: cells, marks and rows that are chosen by hand."""

import pytest

from grader.site.figures.figure import FOLDER

pytestmark = pytest.mark.browser


@pytest.fixture
def opened(browser):
    """Opens a figure by name."""
    windows = []

    def open_it(name):
        windows.append(browser.new_context(viewport={"width": 1100, "height": 1300}))
        tab = windows[-1].new_page()
        tab.goto((FOLDER / f"{name}.html").as_uri())
        return tab

    yield open_it
    for window in windows:
        window.close()


def step(tab) -> int:
    return int(tab.get_attribute("#figure", "data-step"))


def test_the_autotuner_begins_with_its_choice_and_a_cell_is_chosen_by_a_click(opened):
    tab = opened("autotuner")
    assert "autotuner's choice" in tab.inner_text("[role=status]")
    tab.click(".cell[data-config='7']")
    assert step(tab) == 7
    assert tab.get_attribute(".cell[aria-pressed=true]", "data-config") == "7"


def test_the_map_is_walked_up_and_down_by_keys_and_keeps_the_focus(opened):
    tab = opened("autotuner")
    tab.focus(".cell[aria-pressed=true]")
    column = tab.get_attribute(".cell[aria-pressed=true]", "data-column")
    row = int(tab.get_attribute(".cell[aria-pressed=true]", "data-row"))
    for key, further in (("ArrowDown", 1), ("ArrowUp", 0), ("ArrowUp", -1)):
        tab.keyboard.press(key)
        now = tab.evaluate("({ ...document.activeElement.dataset })")
        assert now["column"] == column
        assert (int(now["row"]) > row) - (int(now["row"]) < row) == further


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("autotuner", "[data-config='3']"),
        ("roofline", "[data-point='3']"),
        ("choose_your_stack", "[data-key='mark-1']"),
    ],
)
@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_what_has_the_focus_is_chosen_by_a_key(opened, name, place, key):
    tab = opened(name)
    tab.focus(f".stage {place}")
    tab.keyboard.press(key)
    assert step(tab) == int(place[-3])
    assert tab.get_attribute("#figure", "data-playing") == "no"


def test_another_configuration_marks_what_differs_in_cuda_and_in_ptx(opened):
    tab = opened("autotuner")
    cuda, ptx = (f".panel:nth-child({n}) .differs, .panel:nth-child({n}) .gone" for n in (2, 3))
    assert tab.locator(ptx).count() == 0, "the choice does not differ from itself"
    tab.keyboard.press("ArrowRight")
    assert tab.locator(ptx).count() > 0
    tab.keyboard.press("End")
    assert tab.locator(cuda).count() > 0


def test_every_cell_shows_the_rate_that_the_data_hold(opened):
    tab = opened("autotuner")
    wrong = tab.evaluate("""() => {
        const data = JSON.parse(document.getElementById("data").textContent);
        const size = data.kernels[0].sizes.find((one) => one.side === 4096);
        const shown = [...document.querySelectorAll(".cell")].map((e) => e.getAttribute("aria-label"));
        return Object.entries(size.rates).filter(([name, rate]) =>
          !shown.some((words) => words.startsWith(`${name}: ${Math.round(rate.value)} TFLOP/s`)));
    }""")
    assert wrong == []


def test_a_mark_of_the_roofline_is_shown_when_it_is_pointed_at(opened):
    tab = opened("roofline")
    tab.select_option("select[name=lab]", "lab 1")
    assert step(tab) == 0
    tab.hover("[data-point='1']", force=True)
    assert step(tab) == 1
    assert "solutions/results/h200-bench-add.json" in tab.inner_text(".facts")


def test_only_the_chosen_labs_kernels_are_offered(opened):
    tab = opened("roofline")
    every = tab.locator("select[name=kernel] option").count()
    tab.select_option("select[name=lab]", "lab 1")
    assert 1 < tab.locator("select[name=kernel] option").count() < every


def test_a_way_is_chosen_by_its_row_and_an_unmeasured_one_says_so(opened):
    tab = opened("choose_your_stack")
    tab.click(".way:nth-child(2)")
    assert step(tab) == 1
    assert "@torch.compile" in tab.inner_text(".card.code")
    assert "not measured" in tab.inner_text(".ways")


def test_exactly_one_way_is_advised_whatever_is_chosen(opened):
    tab = opened("choose_your_stack")
    patterns = tab.evaluate("[...document.querySelector('select[name=pattern]').options].map(o => o.value)")
    assert len(patterns) > 10
    for pattern in patterns:
        tab.select_option("select[name=pattern]", pattern)
        assert tab.locator(".pick:not(.fast)").count() == 1
