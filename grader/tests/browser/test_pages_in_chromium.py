"""The pages that students and instructors get, opened from their files: quiet, self-contained."""

import pytest

from grader.classroom.gradebook.command import Asked, make
from grader.report.page.command import read, write
from grader.tests.browser.tab import Tab
from grader.tests.classroom.class_fakes import FakeClass, small_class
from grader.tests.helpers.course import ROOT

pytestmark = pytest.mark.browser
WIDTHS = (360, 1200)
THEMES = ("light", "dark")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """By name: all pages of a class in which every state and some markup occur, and two reports."""
    folder = tmp_path_factory.mktemp("pages")
    book = make(Asked(small_class(folder / "class"), leaderboard=True)).folder
    found = {path.relative_to(book).as_posix(): path for path in book.rglob("*.html")}
    for name in ("cpu", "h200"):
        found[name] = folder / f"{name}.html"
        write(read(ROOT / "solutions" / "results" / f"{name}.json"), found[name])
    return found


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits_says_nothing_and_asks_for_nothing(browser, pages, width, theme):
    assert {"class.html", "leaderboard.html", "cpu", "h200"} < pages.keys()
    assert sum(name.startswith("students/") for name in pages) > 7
    for name, path in pages.items():
        tab = Tab(browser, path.as_uri(), viewport={"width": width, "height": 900}, color_scheme=theme)
        for fold in tab.page.query_selector_all("details"):
            fold.evaluate("e => { e.open = true }")
        assert tab.overflow() <= 0, f"{name} is wider than {width} px"
        assert tab.page.inner_text("h1"), name
        assert (tab.said, tab.requests) == ([], [path.as_uri()]), name
        tab.window.close()


def test_students_are_sorted_and_filtered_by_section_without_a_script(browser, tmp_path):
    fake = FakeClass(tmp_path)
    for name, section in (("ada", "b"), ("bob", "a"), ("cyd", "b")):
        fake.add(name, line={"id": name, "section": section}, problem="damaged" if name == "cyd" else "")
    fake.finish()
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto((make(Asked(tmp_path)).folder / "class.html").as_uri())

    def shown():
        rows = page.locator(".students tbody tr:visible th")
        return [text.split()[0] for text in rows.all_inner_texts()]

    assert shown() == ["ada", "bob", "cyd"]
    page.get_by_label("to review").check()
    assert shown() == ["cyd", "ada", "bob"]
    page.get_by_label("b", exact=True).check()
    assert shown() == ["cyd", "ada"]
    page.get_by_label("all", exact=True).check()
    page.get_by_label("name", exact=True).check()
    assert shown() == ["ada", "bob", "cyd"]
    page.context.close()


def test_every_link_of_the_class_page_leads_to_a_page(browser, pages):
    page = browser.new_page()
    page.goto(pages["class.html"].as_uri())
    links = page.eval_on_selector_all("a[href]", "every => every.map(e => e.href)")
    kept = {path.as_uri() for path in pages.values()}
    assert len(links) > 7
    for link in links:
        file, _, anchor = link.partition("#")
        assert file in kept, link
        if anchor and file == pages["class.html"].as_uri():
            assert page.query_selector(f"[id='{anchor}']"), link
    page.close()
