"""What a graded run can be asked for is the same on the command line, in pytest, a child and the judge."""

import argparse
import dataclasses
import inspect
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from grader.cli.main import main
from grader.cli.options import Option, typed
from grader.course.tiers import TIERS
from grader.grading import plugin
from grader.grading.options import DECLARED, Reader, RunOptions, command_of
from grader.judge.run import Run
from grader.tests.helpers.course import ROOT
from grader.tests.helpers.make_words import GIVEN

GRADE = main.commands["grade"]
# No field has its default, so that one which gets lost on the way is missed.
OTHER = RunOptions(
    labs="2", source="solutions", tier="codegen", seed=7, keyword="a or b's", screened=False, confined=False,
    least=2.5, arch=80, hidden=Path("cases.toml"), results=Path("elsewhere"), tell=4,
)  # fmt: skip
ONES = [{name: getattr(OTHER, name)} for name in DECLARED]
CASES = [RunOptions(), OTHER, *(dataclasses.replace(RunOptions(), **one) for one in ONES)]


def read_by(reader):
    return {name for name, one in DECLARED.items() if one.reader is reader}


def of_the_command(arguments):
    """What `grade` understands by the words of a command line."""
    return RunOptions(**GRADE.make_context("grade", list(arguments)).params)


class Parser:
    """Collects options as pytest does, and reads a command line with them."""

    def __init__(self):
        self.options = {"keyword"}  # pytest's own
        self._parser = argparse.ArgumentParser()
        self._parser.add_argument("-k", dest="keyword", default="")
        plugin.pytest_addoption(self)

    def getgroup(self, _name):
        return self

    def addoption(self, *flags, **more):
        self.options.add(self._parser.add_argument(*flags, **more).dest)

    def config(self, arguments):
        found = vars(self._parser.parse_args(arguments))
        return SimpleNamespace(getoption=found.__getitem__, stash=pytest.Stash())


def test_no_field_has_its_default_in_the_case_that_is_tried():
    assert [name for name, one in DECLARED.items() if getattr(OTHER, name) == one.default] == []


def test_every_field_is_an_option_of_grade_and_every_option_of_grade_is_a_field():
    options = {one.name: one for one in GRADE.params}
    assert list(options) == [one.name for one in dataclasses.fields(RunOptions)] == list(DECLARED)
    for name, one in DECLARED.items():
        assert one.flag in options[name].opts + options[name].secondary_opts
        assert options[name].help == one.help
        assert options[name].make == one.make
    assert of_the_command([]) == RunOptions()


def test_every_field_that_is_not_the_commands_own_is_an_option_of_pytest():
    own = {"resume", "shard", "case"}  # of the project's tests, and the other form of -k
    assert Parser().options - own == read_by(Reader.PLUGIN) | read_by(Reader.PYTEST)
    assert own < Parser().options


def test_a_child_process_is_asked_for_the_same():
    for asked in CASES:
        command, *arguments = asked.arguments()
        assert command == "grade"
        assert of_the_command(arguments) == asked


def test_pytest_is_asked_for_the_same_and_for_nothing_of_the_command():
    own = {name: DECLARED[name].default for name in read_by(Reader.COMMAND)}
    for asked in CASES:
        config = Parser().config(asked.pytest_arguments())
        assert plugin._asked(config) == dataclasses.replace(asked, **own)


def test_a_run_is_made_of_what_was_asked(monkeypatch):
    runs, files = [], []
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(
        plugin,
        "Run",
        lambda *given, **more: runs.append(inspect.signature(Run).bind(*given, **more).arguments),
    )
    monkeypatch.setattr(plugin, "_hidden", files.append)
    monkeypatch.setattr(plugin.gpu, "find", lambda: (None, "no driver"))
    names = read_by(Reader.PLUGIN) - {"hidden"}
    for asked in CASES:
        plugin.pytest_configure(Parser().config(asked.pytest_arguments()))
        run = runs.pop()
        assert set(run) == names | {"gpu"}
        chosen = {"tier": "cpu"} if asked.tier == "auto" else {}
        chosen |= {"seed": run["seed"]} if asked.seed is None else {}
        assert {name: run[name] for name in names} == {
            name: chosen.get(name, getattr(asked, name)) for name in names
        }
        assert run["tier"] in TIERS
        assert isinstance(run["seed"], int)
    assert files == [asked.hidden for asked in CASES]


def test_a_command_with_an_option_of_a_graded_run_takes_it_from_its_declaration():
    shared = ("labs", "source", "tier", "keyword", "arch", "hidden", "results")
    by_flag = {DECLARED[name].flag: name for name in shared}
    found = {}
    for command in main.commands.values():
        for one in command.params:
            for flag in {*one.opts, *one.secondary_opts} & set(by_flag):
                assert isinstance(one, Option), (command.name, flag)
                assert one.name == by_flag[flag], (command.name, flag)
                found.setdefault(flag, set()).add(command.name)
    assert {"grade", "watch", "class", "regrade", "inspect", "todo"} <= found["--lab"]
    assert {"grade", "watch", "class"} <= found["--tier"]


def said(monkeypatch, *words):
    """The command that a graded run records, with these words after `python -m grader`."""
    recorded = []
    monkeypatch.setattr(GRADE, "callback", lambda **_: recorded.append(command_of(typed())))
    main.main(list(words), prog_name="python -m grader", standalone_mode=False)
    return recorded[0]


def test_the_command_of_a_run_is_as_typed_also_where_make_was_typed(monkeypatch):
    given = ("LAB=2", "FROM=a b", "K=x=y", "SEED=3", "MIN=5", "OP=matmul", "TIER=cpu")
    words = [word for one in given for word in ("--variable", one)]
    assert said(monkeypatch, *words, "grade") == (
        "python -m grader grade --lab 2 --from 'a b' -k x=y --seed 3 --min 5 --tier cpu"
    )
    assert said(monkeypatch, "grade", "-k", "x", "--lab=2") == "python -m grader grade -k x --lab=2"
    assert said(monkeypatch, "grade") == "python -m grader grade"


def test_a_command_that_is_recorded_can_be_typed_again():
    *program, _, option = shlex.split(command_of(OTHER.arguments()))[:5]
    assert program == ["python", "-m", "grader"]
    assert option == "--lab"
    again = of_the_command(shlex.split(command_of(OTHER.arguments()))[4:])
    assert again == dataclasses.replace(OTHER, results=RunOptions.results, tell=None)


def test_a_variable_of_the_environment_changes_no_command(monkeypatch):
    for name in GIVEN:
        monkeypatch.setenv(name, "9")
        monkeypatch.setenv(f"GRADER_{name}", "9")
    assert of_the_command([]) == RunOptions()
    assert said(monkeypatch, "grade") == "python -m grader grade"


@pytest.mark.parametrize("command", ["reset", "regrade"])
def test_a_command_that_needs_to_know_the_lab_asks_for_it(command):
    done = CliRunner().invoke(main, [command])
    assert done.exit_code == 2
    assert done.output == "Missing option '--lab'. With make: LAB=...\n"


@pytest.mark.parametrize("command", ["grade", "inspect"])
def test_an_architecture_that_is_none_is_wrong_usage(command):
    done = CliRunner().invoke(main, [command, "--arch", "hopper"], prog_name="python -m grader")
    assert done.exit_code == 2
    assert done.output == "--arch hopper: not a GPU architecture; write it as sm_90\n"


@pytest.mark.parametrize(("text", "arch"), [("sm_90", 90), ("SM_90a", 90), ("sm_120f", 120), ("75", 75)])
def test_an_architecture_is_read_as_its_compute_capability(text, arch):
    assert of_the_command(["--arch", text]).arch == arch
