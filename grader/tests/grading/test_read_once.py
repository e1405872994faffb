"""The bytes that were read once are screened, run, hashed and recorded, whatever becomes of the file."""

import hashlib
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from grader.course.submission import Submission
from grader.judge.run import Run
from grader.tests.helpers.course import ROOT

SOLUTION = ROOT / "solutions" / "lab1_elementwise_add" / "elementwise_add.py"
# Grade as the command does; whoever opens the file is counted, and it has another text once it was read.
GRADE = """
import os, sys
from grader.course import submission
path, folder = sys.argv[1:]
opened = []
def hook(event, arguments):
    if event == "open" and str(arguments[0]) == path:
        opened.append(arguments)
sys.addaudithook(hook)
read = submission.Submission.read.__func__
def once(cls, file, *more):
    found = read(cls, file, *more)
    if str(file) == path:
        os.replace(path + ".other", path)
    return found
submission.Submission.read = classmethod(once)
from grader.cli.main import main
try:
    main(["grade", "--from", folder, "--results", folder, "--lab", "1", "--tier", "cpu",
          "-k", "127 and fp32"], standalone_mode=False)
finally:  # the command ends by SystemExit
    print("opened", len(opened))
"""


@pytest.mark.slow
def test_a_file_that_changes_while_it_is_graded_counts_as_it_was_read(tmp_path):
    file = tmp_path / "lab1_elementwise_add" / "elementwise_add.py"
    file.parent.mkdir()
    file.write_bytes(SOLUTION.read_bytes())
    file.with_name(f"{file.name}.other").write_text("raise SystemExit('the other text ran')\n")
    done = subprocess.run(
        [sys.executable, "-c", GRADE, str(file), str(tmp_path)],
        capture_output=True, text=True, cwd=ROOT, check=False, timeout=200,
    )  # fmt: skip
    assert "opened 1" in done.stdout, done.stdout + done.stderr
    (lab,) = json.loads((tmp_path / "results.json").read_text("utf-8"))["labs"]
    (exercise,) = lab["exercises"]
    assert {item["verdict"] for item in exercise["items"]} == {"PASS"}
    assert exercise["file_sha256"] == hashlib.sha256(SOLUTION.read_bytes()).hexdigest()
    assert "other text" in file.read_text()


def test_the_hash_of_imported_files_is_that_of_the_bytes_that_were_read(tmp_path):
    (tmp_path / "a.py").write_text("from b import f\n")
    (tmp_path / "b.py").write_text("def f(): pass\n")
    run = Run(tmp_path, "cpu", 1, None)
    entry = SimpleNamespace(
        lab=SimpleNamespace(imports={"a.py": ("b.py",)}),
        submission=lambda source, exercise: source / exercise.file,
    )
    item = SimpleNamespace(entry=entry, exercise=SimpleNamespace(file="a.py"))
    (part,) = run.parts(item)
    (tmp_path / "b.py").write_text("changed\n")
    assert [again.submission for again in run.parts(item)] == [part.submission]
    assert part.submission.sha256 == hashlib.sha256(b"def f(): pass\n").hexdigest()
    run.close()


@pytest.mark.parametrize("room", ["judge", "screen", "grading", "worker"])
def test_no_room_of_the_grading_path_reads_a_submission_by_its_path(room):
    """`submission.path` is a name; whoever read from it would see what the file has become."""
    found = [
        f"{path.name}:{number}"
        for path in (ROOT / "grader" / room).glob("*.py")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if "submission.path" in line
        and any(word in line for word in ("open(", ".read_", "copyfile", "stat("))
    ]
    assert found == []
    assert Submission.read.__doc__
