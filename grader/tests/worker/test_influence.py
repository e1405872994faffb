"""On which way a part of an input gets into a wrong element, by kernels that take it there."""

import json
from pathlib import Path

import pytest

from grader.tests.helpers.commands import python
from grader.tests.helpers.course import ROOT
from grader.worker.witness.record import Influence, Witnessed

FILE = Path(__file__).with_name("influence_programs.py")
LINES = FILE.read_text().split("\n")


def line_of(part):
    (line,) = [number for number, code in enumerate(LINES, 1) if part in code]
    return line


@pytest.fixture(scope="module")
def ways():
    """The way that was found in each function of the file, by its name."""
    done = python(str(FILE), TRITON_INTERPRET="1", PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["name"]: Witnessed.claimed(one["seen"]).influence for one in said}


def test_every_program_was_followed(ways):
    assert len(ways) == 5


def test_the_line_is_told_in_which_a_part_meets_what_does_not_depend_on_it(ways):
    joined = Influence(line_of("# joined"))
    assert ways["joined_by_a_sum"] == joined
    assert ways["joined_by_a_reduction"] == Influence(line_of("# summed"))
    assert ways["through_a_result_of_its_own"] == joined


def test_the_lines_are_told_that_store_and_load_what_is_kept_between_kernels(ways):
    found = ways["through_its_own_memory"]
    assert found.loaded == line_of("# loaded")
    assert found.stored == line_of("tl.store(kept + row, tl.load(bias + row))")


def test_no_way_is_told_of_an_element_that_does_not_depend_on_the_part(ways):
    assert ways["no_way_for_another_element"] is None


def test_a_way_that_cannot_be_is_not_taken_from_a_reply():
    assert Witnessed.claimed({"influence": {"line": -1, "loaded": 0, "stored": 0}}).influence is None
