"""Programs drawn from the lists of the language: the screen accepts them, and they reach nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grader.course import catalog

PROGRAMS = Path(__file__).with_name("programs.py")


def run(planted: dict[str, list[str]], count: int, seed: int = 1) -> dict:
    """Draw and evaluate programs in a process of its own, whose audit hook cannot be taken off again."""
    command = [sys.executable, "-W", "ignore", str(PROGRAMS), json.dumps(planted), str(seed), str(count)]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(catalog.ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# More than 10,000 programs in parts, of which each can be repeated by itself: 50 to 100 ms a program.
PARTS = [(150, 1), *((1000, 1 + 1000 * part) for part in range(10))]
MARKS = [[], *[[pytest.mark.nightly]] * 10]


@pytest.mark.parametrize(
    ("count", "seed"),
    [
        pytest.param(count, seed, marks=marks, id=f"{count} programs from {seed}")
        for (count, seed), marks in zip(PARTS, MARKS, strict=True)
    ],
)
def test_programs_of_the_language_are_accepted_and_reach_nothing_else(count, seed):
    done = run({}, count, seed)
    assert done["drawn"] == count
    assert done["refused"] == []
    assert done["escapes"] == {}
    assert done["ended"] > count // 3, done["errors"]  # else they show nothing


@pytest.mark.parametrize(
    ("kind", "name", "escape"),
    [
        ("BUILTINS", "open", "name open"),
        pytest.param("BUILTINS", "exec", "name exec", marks=pytest.mark.slow),
        pytest.param("BUILTINS", "type", "name type", marks=pytest.mark.slow),
        pytest.param("PYTHON", "gi_frame", "attribute gi_frame", marks=pytest.mark.slow),
    ],
    ids=lambda value: value.strip(),
)
def test_a_name_that_should_not_be_permitted_is_found(kind, name, escape):
    escapes = run({kind: [name]}, 300)["escapes"]
    assert any(one.startswith(escape) for one in escapes), escapes


def test_audit_hook_sees_files_processes_and_code_made_of_text():
    code = """
import programs
audit = programs.Audit()
for line in ("open('x')", "eval('1')", "import os; os.system('true')", "len('x')"):
    with audit.watching(line):
        exec(compile(line, programs.PROGRAM, "exec"))
print(*sorted(set(audit.found.values())), sep=" | ")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROGRAMS.parent, capture_output=True, text=True, check=False
    )
    seen = "eval('1') | import os; os.system('true') | open('x')"
    assert done.stdout.strip() == seen, done.stderr
