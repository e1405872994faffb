"""The architecture page: what it says of rooms is what the code is, and the contract between them holds."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections import Counter
from textwrap import dedent

import pytest
from markupsafe import escape

from grader.site.architecture import interfaces, page, traced, way
from grader.site.architecture.drawing import draw
from grader.site.architecture.rooms import House, Room, floors_of, read, statements
from grader.tests.helpers.course import ROOT

HOUSE = read()
REDS = re.compile(r'<circle class="f-off"')
TEXT = (ROOT / page.PAGE).read_text("utf-8")


def room(name, lines=100):
    return Room(name, f"What {name} is for.", 2, lines, lines // 2, f"{name}.main", lines // 2)


def house(*imports, upward=(), cycles=()):
    floors = (("cli",), ("judge", "report"), ("system",))
    rooms = {
        name: room(name, 100 * at) for at, name in enumerate(("cli", "judge", "report", "system"), start=1)
    }
    return House(floors, rooms, Counter(dict(imports)), upward, cycles)


SMALL = house((("cli", "judge"), 3), (("cli", "report"), 1), (("judge", "system"), 7))
WAY = way.Way(
    {"cli.main": "__main__", "judge.run": "cli.main", "judge.speed": "judge.run"},
    Counter({("__main__", "cli.main"): 1, ("cli.main", "judge.run"): 2, ("judge.run", "judge.speed"): 5,
             ("judge.run", "judge.run"): 90}),
)  # fmt: skip


# What the code is.


def test_no_import_breaks_the_contract_and_no_package_has_a_cycle():
    assert HOUSE.upward == ()
    assert HOUSE.cycles == ()


def test_every_package_of_the_grader_is_a_room_with_a_purpose_of_one_line():
    packages = {path.parent.name for path in (ROOT / "grader").glob("*/__init__.py")}
    assert set(HOUSE.rooms) == packages
    assert all(re.fullmatch(r"[A-Z].{10,90}\.", one.purpose) for one in HOUSE.rooms.values())


def test_at_the_root_of_the_grader_are_two_modules_and_pages():
    files = {path.name for path in (ROOT / "grader").iterdir() if path.is_file()}
    assert files == {"__init__.py", "__main__.py", "README.md", "CHANGELOG.md"}


def test_each_room_has_a_folder_of_tests_and_no_folder_of_tests_is_without_a_room():
    tests = {path.parent.name for path in (ROOT / "grader" / "tests").glob("*/test_*.py")}
    assert tests - set(HOUSE.rooms) <= {"browser", "whole"}
    assert set(HOUSE.rooms) - tests == set()


# What the page says.


def rows_of(region):
    text = re.search(rf"<!-- BEGIN {region} -->\n(.*?)<!-- END -->", TEXT, re.DOTALL)[1]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line
    ]


def test_the_page_has_each_room_on_its_floor_with_its_purpose():
    """Counts may be older than the code; what a reader goes by may not."""
    shown = [(row[0], re.sub(r"\W", "", row[1].partition("]")[0]), row[2]) for row in rows_of("rooms")[2:-1]]
    assert shown == [
        (str(number), name, HOUSE.rooms[name].purpose)
        for number, floor in enumerate(HOUSE.floors, start=1)
        for name in floor
    ]


def test_the_page_says_that_nothing_breaks_the_contract():
    assert "Against the contract: 0. Cycles: 0." in TEXT


def test_the_way_of_a_graded_run_begins_at_the_command_line_and_meets_known_rooms():
    entered = [row[1] for row in rows_of("way")[2:]]
    assert entered[0] == "cli"
    assert {"judge", "screen", "worker", "sandbox", "report"} <= set(entered) <= set(HOUSE.rooms)
    assert len(entered) == len(set(entered))


def test_the_drawing_names_each_room_and_holds_no_broken_import():
    picture = (ROOT / page.DRAWING).read_text("utf-8")
    for one in HOUSE.rooms.values():
        assert f">{one.name}</text>" in picture
        assert f">{escape(one.purpose.replace('`', ''))}</text>" in picture
    assert len(REDS.findall(picture)) == 1  # of the legend


def test_the_glossary_has_one_sentence_for_each_word_and_each_word_once():
    words = TEXT.partition("## Words that stay")[2]
    rows = re.findall(r"^\| ([\w ,]+) \| (.+) \|$", words, re.MULTILINE)[1:]
    names = [name for row in rows for name in row[0].split(", ")]
    assert {"judge", "worker", "arena", "guard band", "poison", "specimen", "ABBA round", "receipt"} <= set(
        names
    )
    assert len(names) == len(set(names))
    assert all(not text.endswith(".") for _, text in rows)


# How it is made.


def test_floors_are_the_layers_of_the_contract(tmp_path):
    contract = '[[tool.importlinter.contracts]]\nname = "x"\ntype = "layers"\nlayers = ["a", "b | c"]\n'
    head = '[tool.importlinter]\nroot_package = "x"\n'
    (tmp_path / "pyproject.toml").write_text(head + contract)
    assert floors_of(tmp_path) == (("a",), ("b", "c"))
    (tmp_path / "pyproject.toml").write_text(head + contract + contract)
    with pytest.raises(ValueError, match="2 contracts"):
        floors_of(tmp_path)


def test_statements_are_counted_at_any_depth_and_docstrings_are_not():
    assert statements('"""Doc."""\nx = 1\ndef f():\n    """Doc."""\n    if x:\n        return 1\n') == 4


def test_a_room_may_import_from_the_floors_below_it_alone():
    assert SMALL.allows("cli", "system")
    assert not SMALL.allows("system", "cli")
    assert not SMALL.allows("judge", "report")  # on one floor
    assert not SMALL.allows("judge", "judge")


def test_an_import_that_breaks_the_contract_is_drawn_in_red_and_listed():
    broken = dataclasses.replace(
        house((("cli", "judge"), 1), (("system", "judge"), 1)), upward=("grader.system.a -> grader.judge.b",)
    )
    assert len(REDS.findall(draw(SMALL, WAY))) == 1
    assert len(REDS.findall(draw(broken, WAY))) == 2
    table = page.rooms_table(broken)
    assert "Against the contract: 1. Cycles: 0." in table
    assert "* `grader.system.a -> grader.judge.b`" in table
    assert "Against the contract: 0. Cycles: 0." in page.rooms_table(SMALL)


def test_steps_of_a_way_are_rooms_in_the_order_of_entry_with_calls_counted_once():
    cli, judge = WAY.steps
    assert (cli.room, cli.first_module, cli.entered_from, cli.modules, cli.calls_in) == (
        "cli",
        "main",
        "__main__",
        1,
        0,
    )
    assert (judge.room, judge.modules, judge.calls_in, judge.calls_between) == ("judge", 2, 2, 5)
    assert WAY.between_rooms == {("cli", "judge"): 2}
    words = page.way_table(WAY)
    assert "3 modules in 2 rooms, 8 calls from one module to another, 2 of them from one room" in words


PACKAGE = {
    "__init__.py": "",
    "__main__.py": "from grader.cli.main import main\nmain()\n",
    "cli/__init__.py": "",
    "cli/main.py": """
        from grader.judge import run
        from grader.judge.run import Judge, decide
        from grader.judge.again import Renamed as Other

        def main(prog_name=""):
            list(map(decide, range(3)))
            Judge(1).look()
            return run.figures(), Other
    """,
    "judge/__init__.py": "",
    "judge/again.py": "from grader.judge.run import Renamed\n",
    "judge/run.py": """
        from dataclasses import dataclass
        from typing import Any
        from grader.system.text import word

        LIMIT = "".join(word() for _ in range(3))

        def decide(item: int, *, most: float = 1.0) -> str:
            return word()

        def figures() -> dict:
            return {}

        class Judge:
            def __init__(self, seed: int):
                self.seed = seed

            def look(self) -> dict[str, Any]:
                return {}

            @property
            def words(self) -> str:
                return ""

            def _inner(self):
                pass

        @dataclass
        class Renamed:
            name: str
            sizes: dict[str, int] = None
    """,
    "system/__init__.py": "",
    "system/text.py": """
        def word() -> str:
            return "word"
    """,
}


@pytest.fixture
def package(tmp_path):
    for name, text in PACKAGE.items():
        path = tmp_path / "grader" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return tmp_path


def test_what_crosses_a_wall_is_found_with_its_signature_as_it_is_written(package):
    found = {one.name: one for one in interfaces.offers(package)}
    assert set(found) == {"main", "decide", "figures", "Judge", "Renamed", "word"}
    assert found["decide"].signatures == ("decide(item: int, *, most: float=1.0) -> str",)
    assert found["Judge"].signatures == ("Judge(seed: int)", "look() -> dict[str, Any]", "words: str")
    assert found["Renamed"].signatures == ("Renamed(name: str, sizes: dict[str, int] = ...)",)
    assert found["Renamed"].module == "grader.judge.run"
    assert found["decide"].used_by == ("cli",)
    assert found["word"].used_by == ("judge",)


def test_a_dict_that_says_nothing_of_what_is_in_it_is_flagged(package):
    untyped = [signature for one in interfaces.offers(package) for signature in one.untyped]
    assert untyped == ["look() -> dict[str, Any]", "figures() -> dict"]
    assert not interfaces.UNTYPED.search("f(a: dict[str, int], dictionary: Mapping[str, float]) -> list[Any]")


def test_calls_are_counted_by_module_but_those_at_import(package):
    path = package / "calls.json"
    subprocess.run(
        [sys.executable, "-P" if sys.version_info >= (3, 11) else "-B", traced.__file__, path],
        cwd=package, env=os.environ | {"PYTHONPATH": str(package)}, check=True, timeout=60,
    )  # fmt: skip
    found = way.read(path.read_text())
    assert found.first == {
        "cli.main": "__main__",
        "judge.run": "cli.main",
        "system.text": "judge.run",
    }
    assert found.calls == {
        ("__main__", "cli.main"): 1,
        ("cli.main", "judge.run"): 6,  # decide three times, Judge, look, figures
        ("judge.run", "system.text"): 3,
    }


def test_counted_calls_name_modules_without_the_package():
    counted = json.dumps({"first": {"grader.cli.main": ""}, "calls": [["", "grader.cli.main", 2]]})
    assert way.read(counted) == way.Way({"cli.main": ""}, Counter({("", "cli.main"): 2}))


def test_regions_are_written_again_and_the_rest_of_the_page_stays(package, monkeypatch):
    marks = "".join(
        f"Before {name}.\n<!-- BEGIN {name} -->\nold\n<!-- END -->\n" for name in ("rooms", "way")
    )
    (package / page.PAGE).write_text(f"{marks}The end.\n")
    (package / page.DRAWING).parent.mkdir(parents=True)
    monkeypatch.setattr(page, "read", lambda _root: SMALL)
    monkeypatch.setattr(page, "trace", lambda _root: WAY)
    changed = page.write(package)
    assert set(changed) == {package / path for path in (page.PAGE, page.DRAWING, page.INTERFACES)}
    text = (package / page.PAGE).read_text()
    assert "old" not in text
    assert text.endswith("The end.\n")
    assert "Before way.\n<!-- BEGIN way -->\n`python -m grader grade" in text
    assert "# What each room offers" in (package / page.INTERFACES).read_text()
    assert page.write(package) == []
