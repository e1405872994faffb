"""A run has an answer for each item, also where pytest could not run one."""

import json

from grader.course import catalog
from grader.course.items import graded_items
from grader.system.exit_codes import FAULT
from grader.tests.helpers.commands import python

ONE_ITEM_CANNOT_BE_SET_UP = """
from grader.grading import plugin

before = plugin.LabItem.setup


def setup(self):
    if "n=7" in self.name:
        raise RuntimeError("a socket was not closed")
    before(self)


plugin.LabItem.setup = setup
from grader.cli.main import main

main()
"""


def test_an_item_that_pytest_could_not_run_is_a_fault_of_the_grader(tmp_path):
    done = python(
        "-c", ONE_ITEM_CANNOT_BE_SET_UP, "grade", "--lab", "1", "--tier", "cpu", "--results", tmp_path
    )
    assert done.returncode == FAULT, done.stdout + done.stderr
    (lab,) = json.loads((tmp_path / "results.json").read_text("utf-8"))["labs"]
    items = [item for exercise in lab["exercises"] for item in exercise["items"]]
    (entry,) = (one for one in catalog.find() if one.number == 1)
    assert len(items) == len(list(graded_items(entry)))
    faults = [item for item in items if item["verdict"] == "GRADER_FAULT"]
    assert faults
    assert all("a socket was not closed" in item["where"] for item in faults)
