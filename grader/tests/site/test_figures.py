"""The interactive figures: pages up to date, safe and legible, with no number that nobody measured."""

import dataclasses
import json
import re
import struct

import pytest

from grader.course import catalog
from grader.measure.kernel_log.numbers import Known, numbers, unknown
from grader.site.figures import page, palette
from grader.site.figures.drawing import Drawing
from grader.site.figures.figure import FOLDER, SOURCES, load, measured, names
from grader.site.figures.show import show
from grader.tests.helpers.contrast import contrast

NAMES = names()
PACKAGE = catalog.ROOT / "grader" / "site" / "figures"
FIGURE_SOURCES = sorted([*PACKAGE.glob("*.py"), *SOURCES.iterdir()])
MEASURED = {"us", "TB/s", "TFLOP/s", "%", "x"}  # units that only a record can give a number
# In a key of the data: what follows the last underscore is the unit.
MEASURED_KEYS = re.compile(r"(^|_)(ns|us|ms|seconds|percent|tflops|rate|speedup|ratio|occupancy)$|/s\b")


# Text and the fill that it stands on, to be told apart by everybody: WCAG asks for 4.5 : 1.
TEXTS, GROUNDS = ("accent", "load", "store", "compute", "off"), ("paper", "panel", "raised")
TEXT_ON = (
    *((text, ground) for text in ("ink", "quiet", *TEXTS) for ground in GROUNDS),
    *((text, f"{name}-fill") for name in TEXTS for text in ("ink", name)),
    ("ink", "blank"),
    ("quiet", "blank"),
)


@pytest.fixture(scope="session")
def computed():
    return {name: load(name).compute() for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_pages_are_those_that_the_command_writes(computed, name):
    written = page.written(name, load(name), computed[name])
    assert set(written) == {f"{name}.html", f"{name}.svg"}
    for file, text in written.items():
        same = (FOLDER / file).read_text("utf-8") == text
        assert same, f"{file} is not what `make figures` writes now"


def test_every_page_in_the_folder_belongs_to_a_figure():
    kept = {path.name for path in FOLDER.iterdir() if path.suffix in (".html", ".svg")}
    assert kept == {f"{name}{suffix}" for name in NAMES for suffix in (".html", ".svg")}


@pytest.mark.parametrize("name", NAMES)
def test_screenshots_are_there_in_both_themes_and_small(name):
    for theme in ("light", "dark"):
        picture = (FOLDER / "screenshots" / f"{name}-{theme}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert len(picture) < 250_000
        assert struct.unpack(">I", picture[16:20])[0] >= 1000


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_shows_every_figure_in_both_themes(name):
    text = (FOLDER / "README.md").read_text("utf-8")
    assert f"({name}.html)" in text
    for theme in ("light", "dark"):
        assert f"screenshots/{name}-{theme}.png" in text


@pytest.mark.parametrize("name", NAMES)
def test_a_page_asks_for_nothing_and_permits_nothing(name):
    text = (FOLDER / f"{name}.html").read_text("utf-8")
    assert "default-src 'none'" in text
    assert '<html lang="en">' in text
    assert "<title>" in text
    addresses = {found[0] for found in re.finditer(r"\b(?:https?|ftp|wss?)://[^\s\"'<)]+", text)}
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\b(?:src|href)\s*=|@import|url\(|\bfetch\(|XMLHttpRequest", text)


def test_text_of_the_data_cannot_become_markup():
    figure = dataclasses.replace(load(NAMES[0]), title="<b>&</b>", lead="</title><script>alert(1)</script>")
    hostile = {"text": "</script><script>alert(1)</script><!-- & \u2028"}
    text = page.render(NAMES[0], figure, hostile, "<svg></svg>")
    assert text.count("<script") == 2
    assert "<b>" not in text
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert json.loads(block) == hostile


def test_what_json_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        page.embedded({"rate": float("nan")})


@pytest.mark.parametrize("ending", ["</script>", "<!--", "<SCRIPT"])
def test_a_script_that_would_end_its_element_is_refused(tmp_path, monkeypatch, ending):
    (tmp_path / "figure.js").write_text("export const a = 1;\n")
    (tmp_path / "one.js").write_text(f'import {{ a }} from "./figure.js";\nconst b = "{ending}";\n')
    monkeypatch.setattr(page, "SOURCES", tmp_path)
    with pytest.raises(ValueError, match="cannot be part of a page"):
        page.script("one")


def test_a_folder_without_figures_is_an_error(tmp_path):
    (tmp_path / "figure.js").write_text("")
    with pytest.raises(FileNotFoundError, match="no script of a figure"):
        names(tmp_path)


def test_an_unknown_figure_names_those_there_are():
    with pytest.raises(KeyError, match=NAMES[0]):
        show("heat_map_of_nothing")


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_gets_a_frame_over_the_static_picture(name):
    shown = show(name, height_px=444)
    assert load(name).title in repr(shown)
    text = shown._repr_html_()
    assert text.index("<img") < text.index("<iframe")
    assert 'sandbox="allow-scripts"' in text
    assert "444px" in text
    assert "<script" not in text, "the page is an attribute, all of it escaped"


def test_a_picture_escapes_its_text_and_is_the_same_each_time():
    def drawn():
        picture = Drawing(10, 10, "a < b", "more & more")
        picture.text(1, 1, "<script>", "f-ink")
        return picture.svg()

    assert "<script>" not in drawn()
    assert "&lt;script&gt;" in drawn()
    assert drawn() == drawn()


@pytest.mark.parametrize(("text", "ground"), TEXT_ON)
@pytest.mark.parametrize("which", [0, 1], ids=["light", "dark"])
def test_text_can_be_told_from_what_it_stands_on(text, ground, which):
    assert contrast(palette.COLOURS[text][which], palette.COLOURS[ground][which]) >= 4.5


def typed(text: str) -> list[str]:
    """Numbers with the unit of a measurement; a share of the page in CSS is none, nor is Python's %."""
    return [
        written
        for line in text.splitlines()
        for written, meanings in numbers(line)
        if meanings[0][0] in MEASURED and not re.search(r"\s%$|^\d+x$", written)
    ]


def without_layout(text: str, suffix: str) -> str:
    """A source without what CSS and SVG measure in percent and milliseconds."""
    if suffix == ".css":
        text = re.sub(r"(?<=[\s:(,])-?[\d.]+%", "", text)
    return re.sub(r"(width|height)(=\"|: ?)\d+%", "", text)


@pytest.mark.parametrize("path", FIGURE_SOURCES, ids=lambda path: path.name)
def test_no_measured_number_is_typed_into_a_source(path):
    assert typed(without_layout(path.read_text("utf-8"), path.suffix)) == []


@pytest.mark.parametrize(
    "words", ["12.4 us", "3.9 TB/s", "812 TFLOP/s", "93%", "93 percent", "11 ms", "1.4x faster"]
)
def test_a_typed_number_would_be_found(words):
    assert typed(f'const words = "{words}";')


def entries(value, sources=()):
    """Every dict of the data with the sources that it, or one around it, names."""
    if isinstance(value, dict):
        own = (*sources, value["source"]) if "source" in value else sources
        yield value, own
        for one in value.values():
            yield from entries(one, own)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from entries(one, sources)


@pytest.mark.parametrize("name", NAMES)
def test_every_measured_number_of_the_data_names_a_record_that_is_there(computed, name):
    checked = 0
    for one, sources in entries(computed[name]):
        checked += 1
        for source in sources:
            assert source.endswith(".json"), f"{source} is no record"
            assert (catalog.ROOT / source).is_file(), source
        plain = [key for key, value in one.items() if isinstance(value, int | float | list)]
        needs = one.get("unit") in MEASURED or any(map(MEASURED_KEYS.search, plain))
        assert sources or not needs, one
        for text in one.values():
            if isinstance(text, str):
                assert sources or not typed(text), text
    assert checked


@pytest.mark.parametrize("name", NAMES)
def test_the_static_picture_shows_measured_numbers_of_the_data_alone(computed, name):
    known = Known()
    for one, _ in entries(computed[name]):
        if "unit" in one and isinstance(one.get("value"), int | float):
            known.add(one["unit"], one["value"])
    texts = re.findall(r"<(?:text|desc)[^>]*>([^<]*)<", load(name).draw(computed[name]))
    assert texts
    foreign = [
        written
        for text in texts
        for written in unknown(text, known, Known())
        if any(
            meaning[0] in MEASURED
            for found, meanings in numbers(text)
            if found == written
            for meaning in meanings
        )
    ]
    assert foreign == []


def test_a_measured_number_names_its_record_by_the_path_in_the_repository():
    record = catalog.ROOT / "solutions" / "results" / "h200.json"
    assert measured(1.5, "us", record) == {
        "value": 1.5,
        "unit": "us",
        "source": "solutions/results/h200.json",
    }
