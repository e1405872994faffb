"""Stands in for `python -m grader`: grades by the first word of a file, and dies or hangs where it says so.

Also `fake_grader.py class SUBMISSIONS OUT [JOBS]`: a class that is graded by this very file.
"""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from grader.results.machine import Machine, now
from grader.results.models import ExerciseResult, ItemResult, LabResult, Results

COUNT = "FAKE_GRADER_COUNT"  # a folder with a file for each grading that was begun


def option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


def grade() -> int:
    (file,) = Path(option("--from")).rglob("*.py")
    word, student = file.read_text("utf-8").split()[0], file.parents[2].name
    counts = Path(os.environ[COUNT])
    if "-then-" in word:  # first this, then that
        word = word.split("-then-")[len(list(counts.glob(f"{student}-*"))) > 0]
    earlier = len(list(counts.glob(f"{student}-*")))
    (counts / f"{student}-{time.monotonic_ns()}").touch()
    print(f"{student}: {word}")
    if word == "sleeps":
        time.sleep(0.3)
    if word == "hangs":
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        (counts / "left-alone").write_text(str(child.pid))
        time.sleep(600)
    if word == "killed" or (word == "killed-once" and not earlier):
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "crashes":
        raise RuntimeError("the grader has a bug")
    fault = word == "fault" or (word == "fault-once" and not earlier)
    write(student, word, "GRADER_FAULT" if fault else "PASS" if word != "wrong" else "WRONG")
    return 3 if fault else 0


def write(student: str, word: str, verdict: str) -> None:
    seed = int(option("--seed"))
    points = 100.0 if verdict == "PASS" else 0.0
    where = hashlib.sha256(f"{student} {word} {seed}".encode()).hexdigest()  # as inputs follow from the seed
    item = ItemResult(
        id="elementwise_add/correctness/n=1", kind="correctness", name="n=1", verdict=verdict, points=points,
        max_points=100.0, where=where, seconds=time.process_time(),
    )  # fmt: skip
    exercise = ExerciseResult(
        name="elementwise_add", file="elementwise_add.py", file_sha256=None, items=[item]
    )
    lab = LabResult(
        folder="lab1_elementwise_add", number=1, title="elementwise add", points=points, graded_points=100.0,
        not_graded_points=0.0, max_points=100.0, exercises=[exercise],
    )  # fmt: skip
    machine = Machine(gpu=None, platform="", python="", torch="", triton="", numpy="")
    results = Results(
        grader="0", date=now(), seconds=time.process_time(), command="", tier="cpu", source="", seed=seed,
        arch=90, assurance="", machine=machine, points=points, graded_points=100.0, not_graded_points=0.0,
        max_points=100.0, labs=[lab],
    )  # fmt: skip
    folder = Path(option("--results"))
    folder.mkdir()
    (folder / "results.json").write_text(results.model_dump_json())


def grade_class(submissions: str, out: str, jobs: str = "2") -> int:
    from grader.classroom.grading.run import Asked, grade_class

    asked = Asked(
        Path(submissions), Path(out), labs="1", tier="cpu", jobs=int(jobs), self_test=False,
        command=(sys.executable, __file__), blind_share=0.05, limit_s=30.0,
    )  # fmt: skip
    return grade_class(asked, Console(soft_wrap=True))  # as the command does


if __name__ == "__main__":
    sys.exit(grade() if sys.argv[1] == "grade" else grade_class(*sys.argv[2:]))
