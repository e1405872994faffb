"""The Makefile hands on what it is given as text: neither make nor a shell reads a command in it."""

import itertools
import re
import subprocess
import sys

import pytest

from grader.cli.main import main
from grader.cli.options import Option
from grader.tests.helpers.course import ROOT
from grader.tests.helpers.make_words import (
    GIVEN,
    MAKEFILE,
    OPTIONS,
    OUTSIDE,
    command_of,
    handed_on,
    rule,
    taken,
)

TARGETS = sorted(set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)) - {"help", "clean"})
# Its own: whoever names another program wants it to be run.
OWN = {
    "PYTHON", "RUN", "GRADER", "SETUP", "NVCC", "WITH_NVCC", "MAKEFILE_LIST", "OPTIONS", "TEXTS", "PYTEST",
    "HERE", "SLOW", "TYPED", "NOTHING", "PROGRAMS", "GOALS", "REFUSED", "CHECKED",
    "MAKECMDGOALS", "MAKELEVEL",
}  # fmt: skip
READ = r"(?:\$[({]|\$\$\{?|foreach one,\$\()([A-Z_]+)\b"  # a variable, by make or by the shell
HOSTILE = {
    "a quote": '";touch found;"',
    "an apostrophe": "';touch found;'",
    "no quote": "x;touch found",
    "a function of make": "$(shell touch found)",
    "the same in braces": "${shell touch found}",
    "for make twice": "$$(shell touch found)",
    "a shell's command": "$$(touch found)",
    "backticks": "`touch found`",
    "a second line": "x\ntouch found",
    "a quote and a second line": "x'\"\ntouch found\n\"'",
    "a backslash": "\\';touch found;\\\";touch found;\\",
    "a comma and a bracket": "a,b),$(shell touch found",
}


def each(option, words):
    return [part for word in words.split() for part in (option, word)]


def test_all_variables_are_known_here():
    described = re.findall(r"\b([A-Z]+)=", "".join(re.findall(r"^# .*\n", MAKEFILE, re.MULTILINE)[:6]))
    assert len(described) > 25
    assert set(described) <= set(GIVEN)
    read = set(re.findall(READ, MAKEFILE)) - OWN
    assert read <= set(GIVEN)  # what is not among them is neither kept as text nor exported
    assert set(GIVEN) <= read | set(OPTIONS)


def test_every_variable_in_the_help_text_of_a_target_is_read_by_what_it_runs():
    assert command_of("grade") is main.commands["grade"]
    (setup,) = re.findall("^SETUP := .*", MAKEFILE, re.MULTILINE)
    for target in TARGETS:
        text, *recipe = rule(target).splitlines()
        read = set(re.findall(READ, "\n".join(recipe))) - OWN
        if command_of(target):
            read |= variables_of(command_of(target))
        of_setup = set(re.findall(READ, setup))
        assert set(re.findall(r"\b([A-Z]+)=", text)) <= read | of_setup, target
        assert set(taken(target)) == read - of_setup - {"TORCH"}, target


def test_every_variable_of_an_option_is_handed_on_by_the_makefile_and_no_other_is():
    called = {command_of(target) for target in TARGETS} - {None}
    assert len(called) > 20
    assert {name for command in called for name in variables_of(command)} == set(OPTIONS)
    assert {name for command in main.commands.values() for name in variables_of(command)} == set(OPTIONS)


def test_a_variable_is_one_option_of_a_command():
    for command in main.commands.values():
        named = [one.make for one in command.params if isinstance(one, Option) and one.make]
        assert len(named) == len(set(named)), command.name


def test_a_target_is_given_no_variable_of_another_one(tmp_path):
    out, err = handed_on(tmp_path, "list", dict.fromkeys(GIVEN, "1"), by_environment=True)
    assert out == ["grader", "list"], err


def refused(folder, *words, **environment):
    """What make says to these words, None if it runs them."""
    command = ["make", "-s", "-f", str(ROOT / "Makefile"), "SETUP=true", "RUN=true", *words]
    done = subprocess.run(
        command, cwd=folder, env=OUTSIDE | environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 2) == ("***" in done.stderr), done.stderr
    return done.stderr.partition("*** ")[2] if done.returncode else None


@pytest.mark.parametrize("target", TARGETS)
def test_a_variable_that_a_target_does_not_take_is_refused_with_both_named(target, tmp_path):
    others = [
        name for name in [*GIVEN, "LABS", "BLND", "lab"] if name not in {*taken(target), "TORCH", "CUDA_HOME"}
    ]
    assert len(others) > 10
    for name in others:
        said = refused(tmp_path, target, f"{name}=$(shell touch found)")
        assert said is not None, name
        assert said.startswith(f"make {target} takes no {name}; it takes {' '.join(taken(target))}"), said
    assert list(tmp_path.iterdir()) == []


def test_only_what_is_typed_for_a_target_is_refused(tmp_path):
    assert refused(tmp_path, "list") is None
    assert refused(tmp_path, "list", "-k", "PYTHON=python3.12", "TORCH=cuda") is None
    assert refused(tmp_path, "list", LAB="1", LABS="1", MAKEFILES="") is None
    assert refused(tmp_path, "todo", "list", "LAB=1") is None, "one of two targets takes it"
    assert "make todo list takes no SEED" in refused(tmp_path, "todo", "list", "SEED=1")
    assert "No rule to make target 'grad'" in refused(tmp_path, "grad", "LAB=1")
    # A make that calls this one hands on what it was given itself.
    assert refused(tmp_path, "list", MAKEFLAGS=" -- LAB=1", MAKELEVEL="1") is None


STAFF_PAGES = [
    *(
        ROOT / name
        for name in ("README.md", "labs/README.md", ".github/SECURITY.md", ".github/CONTRIBUTING.md")
    ),
    *sorted((ROOT / "grader" / "classroom").rglob("*.md")),
]
PAGES = [
    *STAFF_PAGES,
    *sorted((ROOT / "labs").glob("lab*/README.md")),
    ROOT / "gpu-programming" / "README.md",
]
NAMED = r"(?<![\w/$-])([A-Z][A-Z_]*)="
OTHERS = {"TRITON_PRINT_AUTOTUNING", "TRITON_INTERPRET"}  # variables of Triton, which the pages also name


def test_every_variable_on_a_page_is_taken_by_the_target_beside_it():
    beside = [
        (page.name, target.rstrip("-"), name)
        for page in PAGES
        for line in page.read_text("utf-8").splitlines()
        for target, words in re.findall(r"\bmake ([a-z-]+)(.*?)(?=\bmake [a-z-]|$)", line)
        if target.rstrip("-") in TARGETS
        for name in re.findall(NAMED, words)
    ]
    assert len(beside) > 40
    assert [one for one in beside if one[2] not in [*taken(one[1]), "TORCH"]] == []


def test_every_variable_on_a_page_is_taken_by_some_target():
    text = "\n".join(page.read_text("utf-8") for page in STAFF_PAGES)
    named = set(re.findall(NAMED, text)) - OTHERS
    assert len(named) > 20
    assert named <= {name for target in TARGETS for name in taken(target)} | {"TORCH"}


def variables_of(command):
    return {one.make for one in command.params if isinstance(one, Option)} - {""}


@pytest.mark.parametrize("by_environment", [False, True], ids=["typed", "environment"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_that_a_target_is_given_is_run(kind, by_environment, tmp_path):
    program = tmp_path / ".venv" / "bin" / "python"  # one target calls it by its path
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nprintf '%s|' \"$@\"\n")
    program.chmod(0o755)
    for target in TARGETS:
        variables = dict.fromkeys(GIVEN if by_environment else taken(target), HOSTILE[kind])
        out, err = handed_on(tmp_path, target, variables, by_environment)
        assert not (tmp_path / "found").exists(), target
        assert out, err  # its recipe got to the end


@pytest.mark.parametrize("kind", HOSTILE)
def test_set_up_is_given_its_variables_as_text(kind, tmp_path):
    text = HOSTILE[kind]
    script = tmp_path / "program"
    script.write_text('#!/bin/sh\nprintf \'%s|\' "$GRADER_TORCH" "$@"\n')
    script.chmod(0o755)
    command = ["make", "-s", "-f", str(ROOT / "Makefile"), "setup", f"PYTHON={script}"]
    command += [f"TORCH={text}", f"EXTRA={text}"]
    done = subprocess.run(command, cwd=tmp_path, env=OUTSIDE, capture_output=True, text=True, check=True)
    assert done.stdout.split("|")[:-1] == [text, "grader/setup/environment.py", *each("--extra", text)]
    assert list(tmp_path.iterdir()) == [script]


@pytest.mark.parametrize("by_environment", [False, True], ids=["typed", "environment"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_typed_arrives_letter_by_letter(kind, by_environment, tmp_path):
    text = HOSTILE[kind]
    names = ("LAB", "FROM", "K", "OUT", "SUBMISSIONS", "ONLY", "TO", "SIZE", "OP")
    for target, options in {
        "grade": ["grade", "--lab", text, "--from", text, "-k", text],
        "export": ["export", "--to", text, "results", "--out", text],
        "autograder": ["autograder", text, "--lab", text],
        "profile": ["profile", *each("--op", text), *each("--size", text), "--from", text],
        "release": ["release", text, "--lab", text],
    }.items():
        given = [name for name in names if by_environment or name in taken(target)]
        out, err = handed_on(tmp_path, target, dict.fromkeys(given, text), by_environment)
        assert out == ["grader", *options], err


def test_defaults_stand_in_for_what_is_not_given(tmp_path):
    for target, words in {
        "export TO=jplag": "grader|export|--to|jplag|results/class|",
        "gradebook": "grader|gradebook|results/class|",
        "autograder": "grader|autograder|autograder.zip|",
        "test-gpu": "pytest|-q|-m|gpu|-n|0|--resume|results/gpu-tests-passed|",
        "reset RESTORE=1 YES=1": "grader|reset|--yes|--restore|",
        "reset RESTORE=again": "grader|reset|--restore|again|",
        "class SUBMISSIONS=in ONLY=a": "grader|class|in|--only|a|",
        "class SUBMISSIONS=in SECRET=s LIMIT=60 BLIND=0": "grader|class|in|--secret|s|--limit|60|--blind|0|",
        "verify RECEIPT=r TOLERANCE=5": "grader|verify|r|--tolerance|5|",
    }.items():
        name, *given = target.split()
        out, _ = handed_on(tmp_path, name, dict(one.split("=") for one in given))
        assert out == words.split("|")[:-1]


def selected_by(folder, target, **variables):
    """Names of the tests in a folder, one for each set of markers, that a target runs."""
    words, said = handed_on(folder, target, variables)
    assert (words[0], said) == ("pytest", "")
    expression = words[words.index("-m") + 1]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", expression],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return set(re.findall(r"test_(\w+)$", done.stdout, re.MULTILINE))


@pytest.mark.slow
def test_all_tests_are_in_make_test_or_the_rest_or_make_test_nightly(tmp_path):
    markers = ("slow", "nightly", "gpu", "browser", "slurm")
    sets = [[*chosen] for n in range(len(markers) + 1) for chosen in itertools.combinations(markers, n)]
    tests = ["import pytest"]
    for chosen in sets:
        tests += [f"@pytest.mark.{marker}" for marker in chosen]
        tests += [f"def test_{'_and_'.join(chosen) or 'plain'}(): pass"]
    (tmp_path / "test_markers.py").write_text("\n".join(tests))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n" + "".join(f"    {one}\n" for one in markers))
    usual, rest = selected_by(tmp_path, "test"), selected_by(tmp_path, "test-all", REST="1")
    assert usual == {"plain"}
    assert rest == {"slow"}
    at_night = selected_by(tmp_path, "test-nightly")
    assert at_night == {"nightly", "slow_and_nightly"}
    assert selected_by(tmp_path, "test-all") == usual | rest | at_night


FOLDERS = sorted(path.parent for path in ROOT.glob("[lng]*/**/Makefile") if "grader" not in path.parts)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_commands_are_the_same_in_every_folder(folder):
    def made(where, *words):
        asked = ["make", "--no-print-directory", *words]
        return subprocess.run(asked, check=False, cwd=where, capture_output=True, text=True, timeout=60)

    assert made(folder).stdout == made(ROOT).stdout != ""
    assert "make grade takes no lab; it takes LAB" in made(folder, "grade", "lab=1").stderr


def test_the_folders_in_which_a_student_works_have_the_commands():
    folders = {path.relative_to(ROOT).as_posix() for path in FOLDERS}
    labs = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("labs/*/lab.py")}
    assert len(labs) == 4
    assert labs | {"labs", "notebooks", "gpu-programming", "gpu-programming/triton-kernels"} <= folders
