"""What a target of the Makefile would run, found without running it."""

import os
import re
import subprocess

from grader.cli.main import main
from grader.cli.options import given
from grader.tests.helpers.course import ROOT

MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
_LISTS = re.findall(r"^(OPTIONS|TEXTS) := ((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE)
OPTIONS, _TEXTS = (re.findall(r"(?<!\()\b[A-Z_]+\b", names) for _, names in _LISTS)
GIVEN = sorted({*OPTIONS, *_TEXTS})  # every variable that a target reads, but for those that name programs
# `make test K=makefile` gives its K to every make below it.
_MAKES_OWN = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}
OUTSIDE = {name: value for name, value in os.environ.items() if name not in {*GIVEN, *_MAKES_OWN}}


def rule(target):
    """The lines of the Makefile that are about a target."""
    return MAKEFILE.partition(f"\n{target}:")[2].partition("\n\n")[0]


def taken(target):
    """The variables that a target takes on its command line."""
    declared = re.search(rf"^takes-{target} :=(.*)$", MAKEFILE, re.MULTILINE)
    return declared[1].split() if declared else []


def command_of(target):
    """The command of the grader that a target calls, None for one that calls another program."""
    called = re.search(r"\$\(GRADER\) ([a-z-]+)", rule(target))
    return main.commands[called[1]] if called else None


def handed_on(folder, target, variables, by_environment=False):
    """The words of what a target would run with these variables, and what make wrote to stderr.

    In a call of the grader the variables stand as the options that its command takes them for.
    """
    stubs = ["SETUP=true", "RUN=printf '%s|'", "NVCC=there"]
    words = [f"{name}={value}" for name, value in variables.items()]
    command = ["make", "-s", "-f", str(ROOT / "Makefile"), target, *stubs]
    command += [] if by_environment else words
    environment = OUTSIDE | (variables if by_environment else {})
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    words = done.stdout.split("|")
    return _as_options(words if words[-1] else words[:-1]), done.stderr


def _as_options(words):
    if words[:1] != ["grader"]:
        return words
    rest, variables = words[1:], []
    while rest[:1] == ["--variable"]:
        variables.append(rest[1])
        rest = rest[2:]
    return ["grader", *rest, *given(main.commands[rest[0]], variables)]
