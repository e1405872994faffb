"""No line of a submission reaches the log of a CI service as a command."""

import io
import shutil
import xml.etree.ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from grader.classroom.platforms import annotations
from grader.course import catalog
from grader.course.items import graded_items
from grader.course.spec import Verdict
from grader.report import exports, terminal
from grader.results import reading
from grader.results.findings import Frame
from grader.results.outcome import Outcome, result_of
from grader.system import text
from grader.tests.helpers.commands import grade
from grader.tests.helpers.course import ROOT

LAB1 = catalog.find()[0]
STARTS = ("::", "--- ", "+++ ", "~~~ ", "^^^ ")
ANYWHERE = ("##[", "##vso[", "##teamcity[", "section_start:", "section_end:", "travis_fold:")
CONTROLS = (
    "\n",
    "\r",
    "\t",
    " ",
    "\x1b[2K",
    "\x0b",
    "\x0c",
    "\x85",
    "\u2028",
    "\u00a0",
    "\u202e",
    "\x00",
    "\x9b",
)
WORDS = ("#", ":", "error", "[", "]", "add-mask::1", "vso", "section_start", "a", "\ud800")
PIECES = st.sampled_from((*STARTS, *ANYWHERE, *CONTROLS, *WORDS))
TEXTS = st.lists(PIECES, max_size=12).map("".join)


def commands(log: str) -> list[str]:
    """The lines that a runner would take for commands, and those with control characters."""
    return [
        line
        for line in log.replace("\r", "\n").splitlines()
        if line.strip().startswith(STARTS)
        or any(mark in line for mark in ANYWHERE)
        or any(char != "\t" and not char.isprintable() for char in line)
    ]


@given(TEXTS)
def test_a_text_is_no_command_after_either_function(said):
    assert commands(text.printable(said)) == []
    assert commands(text.one_line(said)) == []
    assert text.printable(text.printable(said)) == text.printable(said)


@pytest.mark.parametrize("said", ["std::vector", "a ## b", "x[1]", "- item", "a --- b", "1:2:3", "# [x]"])
def test_ordinary_text_stays_as_it_is(said):
    assert text.printable(said) == said


@given(TEXTS, TEXTS, TEXTS)
def test_no_report_has_a_line_that_is_a_command(where, printed, code):
    """Also with a record that an earlier version wrote, in which the texts are as the worker sent them."""
    item = next(iter(graded_items(LAB1)))
    clean = text.printable
    outcome = Outcome(
        Verdict.CRASHED,
        where="\n".join(clean(part).replace(": :", "::").replace("# #", "##") for part in where.split("\n")),
        printed=clean(printed).replace(": :", "::").replace("# #", "##"),
        frames=(Frame(line=1, function="f", code=text.one_line(code)),),
    )
    told = "\n".join(terminal.explain(item, outcome))
    assert commands(told) == []
    assert commands("\n".join(terminal.details_of(result_of(item, outcome), "lab1", "x.py"))) == []


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """The folder with the reports of the specimen that prints and raises commands, and what was printed."""
    folder = tmp_path_factory.mktemp("commands")
    target = folder / "tree" / "lab1_elementwise_add" / "elementwise_add.py"
    target.parent.mkdir(parents=True)
    shutil.copyfile(ROOT / "grader" / "tests" / "cheats" / "a06_workflow_commands.py", target)
    done = grade("--from", folder / "tree", "--results", folder, "--lab", "1", "--tier", "cpu", "-k", "7")
    return folder, done.stdout + done.stderr


def test_what_a_submission_prints_and_raises_is_no_command_in_any_report(reports):
    folder, log = reports
    results = reading.read(folder / "results.json")
    screen = io.StringIO()
    terminal.show(results, Console(file=screen))
    junit = xml.etree.ElementTree.parse(folder / "junit.xml")
    logs = {
        "terminal": log,
        "shown again": screen.getvalue(),
        "summary": (folder / "summary.md").read_text("utf-8"),
        "summary again": exports.markdown(results),
        "junit": "\n".join("".join(one.itertext()) for one in junit.iter("failure")),
        "junit, messages": "\n".join(one.get("message", "") for one in junit.iter("failure")),
    }
    for name, said in logs.items():
        assert "graded" in said, name
        assert commands(said) == [], name


def test_annotations_are_the_only_commands_and_their_texts_hold_none(reports):
    folder, _ = reports
    lines = annotations.convert(reading.read(folder / "results.json")).splitlines()
    assert lines
    for line in lines:
        assert line.startswith(("::error file=", "::notice file="))
        assert commands(line.lstrip(":")) == []
