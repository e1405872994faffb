"""Notebooks are what their sources say, claim no number that was not measured, and define no kernel."""

import json
import re

import nbformat
import pytest
from rich.console import Console

from grader.grading.progress import Follower
from grader.site.notebooks import build, check, header, rules
from grader.system import gpu
from grader.tests.helpers.course import ROOT

SOURCES = build.sources()
GOOD = (
    "# %% [markdown]\n# # Title\n\n# %%\nprint(1 + 1)\n\n# %% [markdown]\n"
    "# Write it: [lab 1](../labs/lab1_elementwise_add/README.md).\n"
)


@pytest.fixture
def folder(tmp_path):
    """A course with nothing but the folders that links go to."""
    for lab in ROOT.glob("labs/*/README.md"):
        copy = tmp_path / lab.relative_to(ROOT)
        copy.parent.mkdir(parents=True)
        copy.write_text("")
    (tmp_path / "notebooks").mkdir()
    return tmp_path / "notebooks"


def source(folder, text=GOOD):
    path = folder / "01_trial.py"
    path.write_text(text)
    return build.Source(path)


def quiet():
    return Follower(Console(quiet=True))


def test_there_are_notebooks_and_no_file_beside_them_that_nothing_builds():
    assert SOURCES
    built = {one.built for one in SOURCES} | {one.path for one in SOURCES}
    assert {path for path in build.FOLDER.iterdir() if path.suffix in (".py", ".ipynb")} == built


def test_the_list_of_notebooks_is_complete():
    text = (build.FOLDER / "README.md").read_text("utf-8")
    assert re.findall(r"^\| \[\d\d\]\((\S+)\)", text, re.MULTILINE) == [one.built.name for one in SOURCES]


@pytest.mark.parametrize("one", SOURCES, ids=lambda one: one.name)
def test_notebook_is_what_its_source_says_and_keeps_the_rules(one):
    assert [*rules.problems(one), *check.differences(one)] == []


@pytest.mark.parametrize("one", SOURCES, ids=lambda one: one.name)
def test_notebook_is_kept_with_outputs_that_name_no_path_of_a_machine_and_no_failure(one):
    notebook = nbformat.read(one.built, as_version=4)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert outputs
    assert not [
        output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"
    ]
    assert re.findall(r"(?<![\w.])/(?:home|root|tmp|work|usr)/\S*", json.dumps(outputs)) == []


def test_a_notebook_that_keeps_the_rules_has_no_problem(folder):
    assert list(rules.problems(source(folder))) == []


AGAINST_THE_RULES = {
    "kernel": ("print(1 + 1)", "@triton.jit\ndef f():\n    pass", "defines a kernel"),
    "gluon kernel": ("print(1 + 1)", "f = gluon.jit(g)", "defines a kernel"),
    "rate in prose": ("# # Title", "# # Title\n#\n# It reaches 4.2 TB/s.", "says '4.2 TB/s'"),
    "share in prose": ("# # Title", "# # Title\n#\n# That is 97 % of it.", "says '97 %'"),
    "gain in prose": ("# # Title", "# # Title\n#\n# This is 3 times as fast.", "says '3 times'"),
    "time in a string": ("1 + 1", "'took 762 us'", "says '762 us'"),
    "time in a comment": ("print(1 + 1)", "# took 5 s\nprint(1)", "says '5 s'"),
    "bare rate": ("1 + 1", "4.8e12", "typed in"),
    "large count": ("1 + 1", "141_000_000", "typed in"),
    "figure by its name": ("print(1 + 1)", "time_us = 762", "time_us = 762"),
    "dead link": ("lab1_elementwise_add/README", "lab1_elementwise_add/NONE", "does not exist"),
    "no lab": ("../labs/lab1_elementwise_add/README.md", "https://example.org", "links to no lab"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "words"), AGAINST_THE_RULES.values(), ids=AGAINST_THE_RULES)
def test_what_is_against_the_rules_is_found(folder, old, new, words):
    assert old in GOOD
    found = list(rules.problems(source(folder, GOOD.replace(old, new))))
    assert any(words in one for one in found), found


@pytest.mark.parametrize("text", ["16 bytes = sizes", "blocks of 4", "2 * n FLOP", "1e-3 and 0.5", "lab 2"])
def test_sizes_and_tolerances_may_be_typed(folder, text):
    prose = GOOD.replace("# # Title", f"# # Title\n#\n# {text}")
    allowed = "bytes" not in text
    assert bool(list(rules.problems(source(folder, prose)))) != allowed


def test_every_notebook_begins_with_its_title_and_the_cell_that_sets_up(folder):
    cells = build.unbuilt(source(folder)).cells
    assert cells[0].source.startswith("# Title\n")
    assert cells[1].source == header.setup()
    compile(cells[1].source, "setup", "exec")
    assert [cell.id for cell in cells] == [f"cell-{n:02}" for n in range(1, len(cells) + 1)]


def test_a_badge_opens_the_notebook_of_the_repository(monkeypatch):
    assert "colab.research" not in header.ways_to_open("01_trial.ipynb")
    monkeypatch.setattr(header, "REPOSITORY", "https://github.com/someone/course.git")
    opened = header.ways_to_open("01_trial.ipynb")
    assert "/github/someone/course/blob/main/notebooks/01_trial.ipynb" in opened
    assert '"https://github.com/someone/course.git"' in header.setup()


def test_a_source_without_a_title_is_refused(folder):
    with pytest.raises(build.BuildError, match=r"01_trial\.py: the first cell must be a title"):
        build.unbuilt(source(folder, "# %%\nprint(1)\n"))


def test_a_notebook_that_was_not_built_again_is_found(folder):
    one = source(folder)
    assert ["was never built" in words for words in check.differences(one)] == [True]
    nbformat.write(build.unbuilt(one), one.built)
    assert "was never run" in next(check.differences(one))
    source(folder, GOOD.replace("1 + 1", "1 + 2"))
    assert "cell-03: differs from 01_trial.py" in next(check.differences(one))
    source(folder, GOOD.replace("# %% [markdown]\n# Write", "# %%\n2\n\n# %% [markdown]\n# Write"))
    assert next(check.differences(one)).startswith("01_trial.ipynb, cell-04")


@pytest.fixture
def plain(monkeypatch):
    """The common beginning costs seconds; these tests are about what follows it."""
    monkeypatch.setattr(header, "SETUP", "print('set up {repository}')")


@pytest.mark.usefixtures("plain")
def test_building_keeps_outputs_and_gives_the_same_bytes_again(folder):
    one = source(folder)
    assert build.write(one)
    kept = one.built.read_bytes()
    assert b'"text/plain"' not in kept
    assert b"2\\n" in kept
    assert not build.write(one)
    assert one.built.read_bytes() == kept
    assert list(check.differences(one)) == []


FAILING = {
    "error": ("1 / 0", r"01_trial\.py, cell-03: [\s\S]*ZeroDivisionError"),
    "warning": ("import warnings; warnings.warn('old')", r"cell-03: wrote to stderr: [\s\S]*old"),
    "path": ("import pathlib; print(pathlib.Path.home())", r"01_trial\.py, cell-03: shows a path"),
    "too long": ("import time; time.sleep(9)", r"01_trial\.py, cell-03: "),
    "dead": ("import os; os._exit(1)", r"01_trial\.py, cell-03: "),
}  # fmt: skip


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    ("code", "words"),
    [
        pytest.param(*one, id=name, marks=[] if name == "error" else pytest.mark.slow)
        for name, one in FAILING.items()
    ],
)
def test_a_cell_that_fails_is_named_and_nothing_is_written(folder, monkeypatch, code, words):
    monkeypatch.setattr(build, "CELL_LIMIT_S", 2)
    one = source(folder, GOOD.replace("print(1 + 1)", code))
    with pytest.raises(build.BuildError, match=words):
        build.write(one)
    assert not one.built.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("plain")
def test_a_kernel_that_dies_once_is_started_again_and_that_is_said(folder, capsys):
    dies_once = """import os, pathlib
if not pathlib.Path("died").exists():
    pathlib.Path("died").touch()
    os._exit(1)
print(1 + 1)"""
    one = source(folder, GOOD.replace("print(1 + 1)", dies_once))
    assert build.write(one)
    assert "01_trial.py, cell-03: the kernel died and is started again" in capsys.readouterr().out


def test_all_notebooks_together_have_a_limit(folder, monkeypatch):
    monkeypatch.setattr(check, "_each", lambda *_: [])
    monkeypatch.setattr(check, "LIMIT_S", 0.0)
    assert any("all notebooks took" in words for words in check.check_all([source(folder)], quiet()))


def test_the_command_says_what_it_does_not_know(course_command):
    code, out = course_command("notebooks", "-k", "no such notebook")
    assert (code, "no notebook's name contains that" in out) == (2, True)
    code, out = course_command("notebooks", "--record", "x.json", "-k", "no such recorder")
    assert code == 2
    assert "the recorders are autotuning trace" in out
    code, out = course_command("notebooks", "--record", "x.json", "--check")
    assert code == 2


@pytest.fixture
def course_command():
    """Runs the command line in this process; its exit code and what it printed."""
    from click.testing import CliRunner

    from grader.cli.main import main

    def run(*words):
        done = CliRunner().invoke(main, words)
        return done.exit_code, done.output

    return run


@pytest.mark.skipif(gpu.find()[0] is not None, reason="this machine has a GPU")
def test_recording_without_a_gpu_ends_with_the_reason(course_command, tmp_path):
    code, out = course_command("notebooks", "--record", str(tmp_path / "lessons.json"))
    assert code == 3
    assert "needs an NVIDIA GPU" in out
    assert not (tmp_path / "lessons.json").exists()
