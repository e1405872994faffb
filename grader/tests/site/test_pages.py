"""Pages for newcomers: each command, path and link on them is one that a clean clone has."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from grader.cli.main import main
from grader.tests.helpers.course import ROOT

PAGES = ("README.md", ".github/CONTRIBUTING.md", "grader/README.md")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
VARIABLES = {
    name
    for listed in re.findall(r"^(?:OPTIONS|TEXTS) := ((?:.*\\\n)*.*)", MAKEFILE, re.MULTILINE)
    for name in listed.replace("\\", "").split()
}
PROGRAMS = {"pytest", "pre_commit", "grader"}  # that .venv has as modules
EXAMPLE = re.compile(r"lab5_row_sum|row_sum\.py")  # a lab that a reader is about to write
MARKDOWN = sorted(
    Path(name)
    for name in subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()
    if (ROOT / name).is_file()
)  # fmt: skip


def fenced(text):
    """The lines of the blocks that are commands, without comments."""
    blocks = re.findall(r"^```(?:bash|sh)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [re.sub(r"(^|\s)#\s.*", "", line).strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def troubles(command):
    """What a clean clone does not have of what a command names."""
    program, *words = shlex.split(command)
    if program == "make":
        yield from (f"target {word}" for word in words if "=" not in word and word not in TARGETS)
        yield from (
            f"variable {word}" for word in words if "=" in word and word.split("=")[0] not in VARIABLES
        )
        return
    if program == "cp":
        source, target = (ROOT / word for word in words)
        yield from [f"file {source}"] if not source.is_file() else []
        yield from [f"place {target}"] if target.exists() or not target.parent.is_dir() else []
        return
    if program not in (".venv/bin/python", ".venv/bin/pytest"):
        yield f"program {program}"
    if words[:1] == ["-m"]:
        yield from [] if words[1] in PROGRAMS else [f"module {words[1]}"]
        if words[1] == "grader":
            yield from troubles_of_the_grader(words[2:])
    yield from (f"path {word}" for word in words if "/" in word and not (ROOT / word).exists())


def troubles_of_the_grader(words):
    command = main.commands.get(words[0])
    if command is None:
        yield f"command {words[0]}"
        return
    known = {name for one in command.params for name in one.opts}
    yield from (f"option {word}" for word in words[1:] if word.startswith("-") and word not in known)


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_are_those_of_a_clean_clone(page):
    text = (ROOT / page).read_text("utf-8")
    commands = fenced(text)
    inline = [
        code for code in re.findall(r"`([^`\n]+)`", text) if re.match(r"make [a-z]|python -m grader ", code)
    ]
    commands += [code.replace("python", ".venv/bin/python", 1) if code[0] == "p" else code for code in inline]
    assert len(commands) > 2
    found = {command: list(troubles(command)) for command in commands if not EXAMPLE.search(command)}
    assert {command: what for command, what in found.items() if what} == {}


@pytest.mark.parametrize(("command", "trouble"), [
    ("make grade LAB=1", []),
    ("make grad", ["target grad"]),
    ("make grade LABS=1", ["variable LABS=1"]),
    ("cp README.md labs/new.md", []),
    ("cp README.txt labs/new.md", [f"file {ROOT / 'README.txt'}"]),
    ("cp README.md labs/README.md", [f"place {ROOT / 'labs/README.md'}"]),
    (".venv/bin/pytest -q grader/tests/no.py -k x", ["path grader/tests/no.py"]),
    (".venv/bin/python -m grader skeletons --check", []),
    (".venv/bin/python -m grader skeletons --chek", ["option --chek"]),
    (".venv/bin/python -m grader skeleton", ["command skeleton"]),
    (".venv/bin/python -m nothing", ["module nothing"]),
    ("rm -rf labs", ["program rm"]),
])  # fmt: skip
def test_a_command_that_is_not_there_is_found(command, trouble):
    assert list(troubles(command)) == trouble


@pytest.mark.parametrize("page", PAGES)
def test_paths_that_a_page_names_exist(page):
    folders = "|".join(re.escape(path.name) for path in sorted(ROOT.iterdir()) if path.is_dir())
    named = re.findall(rf"`((?:{folders})/[\w./-]*)`", (ROOT / page).read_text("utf-8"))
    missing = [name for name in named if not (ROOT / name).exists() and not name.startswith("results/")]
    assert [name for name in missing if not EXAMPLE.search(name)] == []


@pytest.mark.parametrize("page", MARKDOWN, ids=str)
def test_links_of_a_page_lead_to_files(page):
    text = re.sub(
        r"^```.*?^```|`[^`\n]+`", "", (ROOT / page).read_text("utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    links = re.findall(r"\]\(([^)\s:#]+)(?:#[^)\s]*)?\)", text)
    missing = [link for link in links if not (ROOT / page.parent / link).exists()]
    made = {"bandwidth.svg", "matmul.svg", "roofline.svg"} if page.parent.name == "hardware-survey" else set()
    assert set(missing) <= made


def test_the_readme_is_one_screen_and_begins_with_two_commands():
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 60
    assert [command.split()[:2] for command in fenced(text)[:2]] == [["make", "grade"], ["make", "test"]]
    assert len(MARKDOWN) > 20
