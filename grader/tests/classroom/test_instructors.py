"""What the page for instructors says can be done, done as it stands."""

import re
import shutil
import subprocess
import sys

import pytest

from grader.tests.helpers.course import ROOT

COPIED = (
    "grader/",
    "labs/lab1",
    "solutions/lab1",
    "gpu-programming/",
    "solutions/gpu-programming/",
    "pyproject",
)
PAGE = (ROOT / "grader" / "classroom" / "INSTRUCTORS.md").read_text("utf-8")


def steps_of(question):
    """The lines of the block below a question, each a command; a line that ends in a backslash goes on."""
    block = re.search(rf"\*\*{re.escape(question)}.*?```\n(.*?)```", PAGE, re.DOTALL)
    return block[1].replace("\\\n", " ").splitlines()


def as_command(line):
    """A call of make as the command that it runs: setting up an environment takes too long here."""
    words = line.split()
    if words[0] != "make":
        return line
    variables = {"LAB": "--lab", "FROM": "--from", "TIER": "--tier"}
    options = " ".join(
        f"{variables[name]} {value}" for name, value in (word.split("=") for word in words[2:])
    )
    return f"{sys.executable} -m grader {words[1]} {options}"


def test_there_are_ten_questions():
    assert [int(number) for number in re.findall(r"^\*\*(\d+)\. ", PAGE, re.MULTILINE)] == list(range(1, 11))


@pytest.mark.nightly
def test_the_lines_that_add_a_lab_add_one(tmp_path):
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in tracked.decode().split("\0")[:-1]:
        if name.startswith(COPIED) and (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tmp_path / name)
    lines = steps_of("1. How do I add a lab?")
    assert len(lines) <= 10
    said = []
    for line in lines:
        command = ["bash", "-c", as_command(line)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        said.append(done.stdout)
    whole, untouched = (re.findall(r"lab 6  subtract, total +(\S+) / (\S+)", text)[0] for text in said[-2:])
    assert whole[0] == whole[1] != "0"
    assert untouched[0] == "0"
