"""The file that is graded is the file that is recorded, whatever becomes of it on disk meanwhile."""

import hashlib
import json

from grader.tests.helpers.commands import grade
from grader.tests.helpers.course import solution


def test_a_file_that_overwrites_itself_is_recorded_as_it_was_executed(tmp_path):
    tree = tmp_path / "tree"
    file = tree / "lab1_elementwise_add" / "elementwise_add.py"
    file.parent.mkdir(parents=True)
    # With the confinement off, the file can write to the place that it was read from.
    text = solution(1) + f"\nopen({str(file)!r}, 'w').write('# another file\\n')\n"
    file.write_text(text)
    done = grade(
        "--lab", 1, "--from", tree, "-k", "129", "--no-screen", "--no-confine", "--results", tmp_path / "out"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (lab,) = json.loads((tmp_path / "out" / "results.json").read_text())["labs"]
    (exercise,) = lab["exercises"]
    assert {item["verdict"] for item in exercise["items"]} == {"PASS", "NOT_GRADED"}
    assert file.read_text() == "# another file\n"
    assert exercise["file_sha256"] == hashlib.sha256(text.encode()).hexdigest()
