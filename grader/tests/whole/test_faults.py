"""Faults of the submission, the machine and the grader itself, by the rows F1 to F28 that SECURITY.md lists.

Most faults of a submission are files below faults/, run by test_corpora.py. Here is what a file cannot
show: that the grader, the next submission and the machine are as before, and what happens where the machine
itself fails.
"""

import ast
import contextlib
import dataclasses
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from textwrap import dedent, indent

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.course import catalog
from grader.course.items import CODEGEN, SPEED, graded_items
from grader.course.spec import Verdict
from grader.course.specimens import find
from grader.course.submission import Submission
from grader.grading import collect
from grader.judge import correctness, speed, statistics
from grader.judge.run import Run
from grader.report import exports
from grader.results import models, scoring
from grader.results.outcome import Outcome, result_of
from grader.screen import policy
from grader.screen.file_check import check
from grader.system import gpu
from grader.tests.helpers.commands import plain_environment
from grader.tests.helpers.course import ROOT, SEED, solution, swap
from grader.tests.helpers.result_fakes import a_timing
from grader.tests.helpers.submissions import Submissions
from grader.worker.client import Worker, WorkerGoneError
from grader.worker.protocol import HEADER, MAGIC, VERSION, Kind, pack
from grader.worker.session import Session
from grader.worker.shared_memory import Arena
from grader.worker.submission_worker import SubmissionWorker

ROWS = [f"F{number}" for number in range(1, 29)]
TESTS = ROOT / "grader" / "tests"
FOLDER = TESTS / "faults"
ADD7, ADD129 = "elementwise_add/n=7,fp32", "elementwise_add/n=129,fp32"
STORE = "tl.store(out_ptr + offs, x + y, mask=mask)"
HEAD = """\
import ctypes, os, signal, socket, stat, struct, sys, time
import triton
import triton.language as tl

@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    y = tl.load(y_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, x + y, mask=offs < n)

def add(x, y, out):
    if x.numel():
        add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)

"""
few = settings(max_examples=60, deadline=None, database=None)


@pytest.fixture(scope="module")
def unscreened(tmp_path_factory, warm):
    """Grades texts, as `submissions` does, with the static screen off: what it refuses must fail there."""
    found = Submissions(tmp_path_factory.mktemp("unscreened"), warm)
    found.run.screened = False
    yield found
    found.run.close()


def function(body: str) -> str:
    """A file whose function runs `body` and then computes the right answer."""
    lines = indent(dedent(body), "    ")
    new = "out = x.new_empty(x.shape) if out is None else out"
    begin, end = f"def elementwise_add(x, y, *, out=None):\n    {new}", "    add(x, y, out)\n    return out"
    return f"{HEAD}{begin}\n{lines}\n{end}\n"


def lab(number: int) -> catalog.Entry:
    return next(entry for entry in catalog.find() if entry.number == number)


def with_one_case(entry: catalog.Entry, name: str = "", **changes) -> catalog.Entry:
    """The lab with its first exercise alone, and of that one case."""
    exercise = entry.lab.exercises[0]
    case = next(case for case in exercise.cases if name in case.name)
    exercise = dataclasses.replace(exercise, cases=(case,), speed=None, codegen=None)
    exercise = dataclasses.replace(exercise, **changes)
    return dataclasses.replace(entry, lab=dataclasses.replace(entry.lab, exercises=(exercise,)))


def lay_out(folder: Path, text: str | bytes, number: int = 1) -> Path:
    """A tree like labs/ that holds this file alone; returns the file."""
    entry = lab(number)
    file = entry.submission(folder, entry.lab.exercises[0])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def ask(run: Run, entry: catalog.Entry) -> list[tuple]:
    """What the results file is made of."""
    return [(item, run.answer(item), 0.0) for item in graded_items(entry)]


def scored(run: Run, answered, missing: str = "") -> models.Results:
    return collect.collect(answered, run, command="", seconds=0.0, gpu_missing=missing)


def processes_below(folder: Path) -> dict[int, str]:
    """Processes, other than zombies, whose working folder lies below this one, even if that was removed."""
    return {
        one.pid: shlex.join(one.info["cmdline"] or [])
        for one in psutil.process_iter(["cwd", "cmdline"])
        if (one.info["cwd"] or "").startswith(f"{folder}/")
    }


def zombies() -> list[int]:
    """Ended children of this process that nobody has waited for."""
    found = psutil.process_iter(["ppid", "status"])
    return [one.pid for one in found if one.info == {"ppid": os.getpid(), "status": psutil.STATUS_ZOMBIE}]


def eventually(check, limit_s: float):
    """The first true value of `check`, or its last one after `limit_s`."""
    end = time.monotonic() + limit_s
    while not (value := check()) and time.monotonic() < end:
        time.sleep(0.05)
    return value


UNSCREENED = """
import sys
from grader.screen import policy
policy.screen = lambda *_: None
sys.argv[0] = "grader"
from grader.cli.main import main
main()
"""


def start_grade(tree: Path, folder: Path, *arguments: object, screened=True, **more: str) -> subprocess.Popen:
    """The command line on the CPU tier; what it and its workers write lies below `folder`."""
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    module = ["-m", "grader"] if screened else ["-c", UNSCREENED]
    command = [sys.executable, "-B", *module, "grade", "--seed", SEED, "--tier", "cpu", "--lab", 1]
    command += ["--from", tree, "--results", folder / "results", *arguments]
    return subprocess.Popen(
        list(map(str, command)), cwd=ROOT, env=plain_environment(TMPDIR=str(folder / "tmp"), **more),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",
    )  # fmt: skip


def grade(tree: Path, folder: Path, *arguments: object, limit_s: float = 120.0, **more):
    """Exit code, what was printed, and results.json or None, of a command line that must come to an end."""
    with start_grade(tree, folder, *arguments, **more) as process:
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
            pytest.fail(f"the grader did not end within {limit_s} s: {said[-500:]}")
    file = folder / "results" / "results.json"
    return process.returncode, said, json.loads(file.read_text("utf-8")) if file.is_file() else None


def verdicts(found: dict) -> dict[str, str]:
    return {
        item["id"]: item["verdict"] + (f"/{item['reason']}" if item["reason"] else "")
        for one in found["labs"]
        for exercise in one["exercises"]
        for item in exercise["items"]
    }


# -- the table


def test_every_row_has_a_file_or_a_test():
    covered = {specimen.row for specimen in find("grader/tests/faults/*")}
    tree = ast.parse(Path(__file__).read_bytes())
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    covered |= {
        f"F{int(found[1])}" for found in (re.match(r"test_f(\d\d)_", name) for name in names) if found
    }
    assert [row for row in ROWS if row not in covered] == []


def test_a_file_of_a_fault_says_the_row_that_its_name_says():
    for specimen in find("grader/tests/faults/*"):
        assert specimen.path.name.startswith(f"f{int(specimen.row[1:]):02d}_"), specimen.path


# -- what holds after every fault: its verdict in time, the next one unaffected, nothing left behind

AFTER = {
    "f08_signals_ignored": Verdict.TIMEOUT,
    "f08_stopped": Verdict.TIMEOUT,
    "f09_segfault": Verdict.CRASHED,
    "f09_signal_without_a_name": Verdict.CRASHED,
    "f11_daemon": Verdict.RESOURCE_LIMIT,
    "f11_forks": Verdict.RESOURCE_LIMIT,
    "f12_too_much_at_once": Verdict.OUT_OF_MEMORY,
    "f14_output_without_end": Verdict.TIMEOUT,
    "f15_garbage": Verdict.CRASHED,
    "f15_half_a_frame_and_the_end": Verdict.CRASHED,
    "f16_huge_file": Verdict.RESOURCE_LIMIT,
}


@pytest.fixture(scope="module")
def session():
    """A session in which one fault follows the other, and which leaves nothing in the end."""
    found = Session("cpu", SEED)
    yield found
    assert eventually(lambda: not processes_below(found.folder), 5), processes_below(found.folder)
    found.close()
    assert not found.folder.exists()


@pytest.mark.nightly
@pytest.mark.parametrize("name", AFTER)
def test_after_a_fault_the_next_file_is_graded_as_before_and_nothing_is_left(tmp_path, session, name):
    entry, limit_s = lab(1), 2.0
    before = zombies()
    bad, good = tmp_path / "bad", tmp_path / "good"
    lay_out(bad, (FOLDER / f"{name}.py").read_bytes())
    lay_out(good, solution(1))
    exercise = entry.lab.exercises[0]
    asked = [q for q in graded_items(entry) if q.case.name in ("n=7,fp32", "n=129,fp32")]
    asked = [dataclasses.replace(q, case=dataclasses.replace(q.case, limit_s=limit_s)) for q in asked]
    for source, wanted, share in (
        (good, Verdict.PASS, 1.0),
        (bad, AFTER[name], 0.0),
        (good, Verdict.PASS, 1.0),
    ):
        run = Run(source, "cpu", SEED, None, screened=False, session=session)
        began = time.monotonic()
        try:
            outcomes = [run.answer(item) for item in asked]
            # Each of the three frames of a call has the limit; a worker starts anew after each fault.
            assert time.monotonic() - began < len(asked) * 3 * limit_s + 10
        finally:
            run.close()
        assert [(o.verdict, o.share) for o in outcomes] == [(wanted, share)] * len(asked), [
            o.where for o in outcomes
        ]
        answered = [(q, o, 0.0) for q, o in zip(asked, outcomes, strict=True)]
        points = sum(item.points for item in collect.scored(exercise, answered))
        assert points == pytest.approx(share * sum(item.points for item in asked))
    assert eventually(lambda: not processes_below(session.folder), 5), processes_below(session.folder)
    assert set(zombies()) <= set(before)


@pytest.mark.slow
def test_f09_results_are_written_even_where_the_file_crashes(tmp_path):
    lay_out(tmp_path / "tree", function("os.kill(os.getpid(), signal.SIGSEGV)"))
    code, said, found = grade(tmp_path / "tree", tmp_path, "-k", "correctness and fp32", screened=False)
    assert code == 0, said
    assert set(verdicts(found).values()) == {"CRASHED"}
    assert found["points"] == 0
    assert (tmp_path / "results" / "junit.xml").is_file()
    assert processes_below(tmp_path) == {}
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.slow
def test_f09_the_memory_that_is_lent_cannot_be_taken_from_the_judge(tmp_path):
    # A file that shrinks under a mapping ends the process that looks at it: SIGBUS.
    text = function("""\
        for fd in range(3, 256):
            try:
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    os.ftruncate(fd, 0)
            except OSError:
                pass
        if x.numel():
            return
        """)
    lay_out(tmp_path / "tree", text)
    code, said, found = grade(tmp_path / "tree", tmp_path, "-k", "correctness and fp32", screened=False)
    assert code == 0, f"exit code {code}: {said[-300:]}"
    assert "PASS" not in [v for name, v in verdicts(found).items() if "n=0" not in name]
    assert "GRADER_FAULT" not in verdicts(found).values()


# -- rows of a submission that no file can show


@pytest.mark.parametrize(
    "text", ["def f(:\n", "<<<<<<< HEAD\n", "x = '\0'\n", "-" * 50000 + "1\n", "if 1:\nx\n"]
)
def test_f01_a_syntax_error_is_a_compile_error_and_the_other_labs_go_on(submissions, text):
    (outcome,) = submissions.grade(1, text, ADD7).values()
    assert (outcome.verdict, outcome.share) == (Verdict.COMPILE_ERROR, 0.0)
    (outcome,) = submissions.grade(1, solution(1), ADD7).values()
    assert outcome.verdict is Verdict.PASS


def test_f02_a_tree_of_untouched_skeletons_is_not_started_and_no_error(tmp_path):
    code, said, found = grade(ROOT / "labs", tmp_path)
    assert code == 0, said
    assert set(verdicts(found).values()) <= {"NOT_STARTED", "NOT_GRADED"}
    assert "NOT_STARTED" in verdicts(found).values()
    assert found["points"] == 0


def test_f04_an_exception_for_one_size_leaves_the_points_of_the_others(unscreened):
    text = function("if x.numel() == 129:\n    raise ValueError('not this one')")
    bad, good = unscreened.grade(1, text, ADD129, ADD7).values()
    assert {bad.verdict, good.verdict} == {Verdict.CRASHED, Verdict.PASS}


def test_f06_an_access_that_fails_in_one_call_of_two_is_no_pass(unscreened):
    text = swap(
        solution(1),
        "    n = x.numel()\n",
        "    CALLS.append(n := x.numel())\n",
        "BLOCK = 1024\n",
        "BLOCK = 1024\nCALLS = []\n",
    )
    text = swap(
        text,
        "(x, y, out, n,",
        "(x, y, out, n + (len(CALLS) % 2 == 0) * (1 << 44),",
        "n,\n    BLOCK",
        "n,\n    BLOCK",
    )
    (outcome,) = unscreened.grade(1, text, ADD129).values()
    assert outcome.verdict in (Verdict.CRASHED, Verdict.OUT_OF_BOUNDS, Verdict.WRONG)


def special(file: Path, kind: str) -> None:
    file.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "socket":
        here = os.getcwd()
        os.chdir(file.parent)  # the name of a socket is short
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(file.name)
        os.chdir(here)
    else:
        file.symlink_to(kind)


LOOK = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from pathlib import Path
from grader.course import catalog
from grader.course.submission import Submission
from grader.grading import collect
from grader.screen.file_check import check
entry = next(entry for entry in catalog.find() if entry.number == 1)
outcome = check(Submission.read(Path(sys.argv[1])), entry.lab.exercises[0])
print("READY" if outcome is None else f"{outcome.verdict.value}/{outcome.reason} {outcome}")
"""


def look(file: Path) -> str:
    """What the intake says, from a process of its own with 2 GiB and 20 s."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", LOOK, file],
            cwd=ROOT, capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.fail("the intake does not come to an end")
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["fifo", "folder", "socket", "/dev/zero", "/etc/passwd", "elementwise_add.py"]
)
def test_f16_a_submission_that_is_no_plain_file_is_refused_unread(tmp_path, kind):
    file = lay_out(tmp_path, "")
    special(file, kind)
    said = look(file)
    assert said.startswith("POLICY/INTAKE")
    assert "root:" not in said


@pytest.mark.slow
def test_f16_pipes_and_sockets_beside_the_submission_are_not_touched(tmp_path):
    file = lay_out(tmp_path / "tree", solution(1))
    for name, kind in (
        ("pipe", "fifo"),
        ("lab.py", "fifo"),
        ("conftest.py", "fifo"),
        ("sock", "socket"),
        ("zero", "/dev/zero"),
    ):
        special(file.with_name(name), kind)
    code, said, found = grade(tmp_path / "tree", tmp_path, "-k", "correctness and 127 and fp32")
    assert code == 0, said
    assert set(verdicts(found).values()) == {"PASS"}


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "loop"])
def test_f16_what_a_worker_puts_in_the_place_of_its_own_file_leads_nowhere(unscreened, tmp_path, kind):
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    plant = {
        "link": f"os.symlink({str(victim)!r}, __file__)",
        "fifo": "os.mkfifo(__file__)",
        "folder": "os.mkdir(__file__)",
        "loop": "os.symlink(__file__, __file__)",
    }[kind]
    text = function(f"if x.numel() == 7:\n    os.unlink(__file__)\n    {plant}\n    os._exit(0)")
    bad, good = unscreened.grade(1, text, ADD7, ADD129).values()
    assert victim.read_text() == "as it was"
    assert (bad.verdict, good.verdict) == (Verdict.CRASHED, Verdict.PASS), good.where


PLANTS = {
    "fifo": "file.unlink(); os.mkfifo(file)",
    "/dev/zero": "file.unlink(); file.symlink_to('/dev/zero')",
    "folder": "file.unlink(); file.mkdir()",
    "surrogate": "said = file.read_text().replace('_kernel', chr(92) + 'ud800' + chr(92) + 'u001b[31m'); "
    "file.write_text(said)",
    "text": "file.write_text(json.dumps(dict.fromkeys(json.loads(file.read_text()), 'x')))",
    "deep": "file.write_text('[' * 100000)",
}
READER = """\
import sys, resource
resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))
from pathlib import Path
import grader.tests.whole.test_faults as t
session, entry = t.Session("cpu", 1), t.lab(1)
for tree in sys.argv[1:]:
    run = t.Run(Path(tree), "codegen", 1, None, screened=False, session=session)
    answered = [(q, run.answer(q), 0.0) for q in t.graded_items(entry) if q.kind == t.CODEGEN]
    text = t.scored(run, answered).model_dump_json()
    assert "\\x1b" not in text and "u001b" not in text
    print("VERDICT", answered[0][1].verdict.value, answered[0][1].where.splitlines()[:1], flush=True)
    run.close()
session.close()
"""


@pytest.mark.slow
def test_f16_what_a_worker_says_of_its_kernels_is_read_with_care(tmp_path):
    # The offline compiler leaves files in the worker's own folder; the judge reads them.
    trees = []
    for number, plant in enumerate(PLANTS.values()):
        text = swap(
            solution(1),
            "BLOCK=BLOCK)\n",
            "BLOCK=BLOCK)\n        for file in pathlib.Path('.').glob('kernel-*.json'):\n"
            f"            {plant}\n",
            "import torch\n", "import json\nimport os\nimport pathlib\n\nimport torch\n",
        )  # fmt: skip
        trees.append(tmp_path / f"tree{number}")
        lay_out(trees[-1], text)
    try:
        done = subprocess.run(
            [sys.executable, "-B", "-c", READER, *trees], cwd=ROOT, capture_output=True, text=True,
            timeout=100, check=False, env=plain_environment(TMPDIR=str(tmp_path)),
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        pytest.fail(f"the judge does not come back from a file that a worker wrote; before: {late.stdout}")
    assert done.returncode == 0, done.stderr[-800:]
    # A claim may be refused, or be worth nothing; it is never the grader's fault, which opens the points.
    assert done.stdout.count("VERDICT") == len(PLANTS)
    assert "GRADER_FAULT" not in done.stdout, done.stdout


def test_f17_a_missing_and_an_empty_file_are_not_started(submissions):
    for text in (None, b"", b"\xef\xbb\xbf", b" \r\n\t\n"):
        (outcome,) = submissions.grade(1, text, ADD7).values()
        assert outcome.verdict is Verdict.NOT_STARTED, text


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 1, 50 << 20])
def test_f17_a_file_above_a_mebibyte_is_refused_with_its_size(tmp_path, size):
    text = solution(1).encode()
    file = lay_out(tmp_path, text + b"# x\n" * ((size - len(text)) // 4) + b"#" * ((size - len(text)) % 4))
    assert file.stat().st_size == size
    began = time.monotonic()
    said = look(file)
    assert said.startswith("READY" if size <= 1 << 20 else "POLICY/INTAKE")
    assert time.monotonic() - began < 10


def test_f17_what_is_looked_at_is_what_runs(unscreened):
    # With its cookie, Python reads this file as UTF-7: the comment ends, and another line begins.
    # In UTF-7 a plus sign begins an escape, so there is no other one in this file.
    text = function("assert 'SLY' not in globals(), 'other code ran than was looked at'")
    text = text.replace("x + y", "x - (0.0 - y)").replace("_ptr + offs", "_ptr - (0 - offs)")
    text = text.replace("BLOCK + tl", "BLOCK - -tl")
    assert "+" not in text
    sly = b"# -*- coding: utf-7 -*-\n# +AAo-SLY = 1\n" + text.encode()
    (outcome,) = unscreened.grade(1, sly, ADD7).values()
    assert outcome.verdict in (Verdict.PASS, Verdict.POLICY), outcome.where


@pytest.mark.slow
def test_f18_tests_settings_and_modules_planted_beside_the_submission_are_not_run(tmp_path):
    file = lay_out(tmp_path / "tree", solution(1))
    mark = tmp_path / "executed"
    bomb = f"open({str(mark)!r}, 'w').close()\nraise SystemExit('planted')\n"
    for folder in (file.parent, tmp_path / "tree"):
        for name in (
            "conftest",
            "sitecustomize",
            "usercustomize",
            "torch",
            "triton",
            "pytest",
            "grader",
            "lab",
            "test_planted",
        ):
            (folder / f"{name}.py").write_text(bomb)
        (folder / "planted.pth").write_text(f"import os; open({str(mark)!r}, 'w')\n")
        (folder / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\npython_files = *.py\n")
        (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--collect-only'\n")
    code, said, found = grade(tmp_path / "tree", tmp_path, "-k", "correctness and 127 and fp32")
    assert code == 0, said
    assert set(verdicts(found).values()) == {"PASS"}
    assert not mark.exists()


def test_f19_the_first_bad_element_is_named(submissions):
    text = swap(
        solution(1), STORE, 'tl.store(out_ptr + offs, tl.where(offs == 77, float("inf"), x + y), mask=mask)'
    )
    (outcome,) = submissions.grade(1, text, ADD129).values()
    assert (outcome.verdict, outcome.reason) == (Verdict.WRONG, "NONFINITE")
    assert "out[77]" in outcome.where


def test_f19_minus_zero_is_not_zero_where_every_bit_must_agree(warm, tmp_path):
    def opposites(rng, case):
        x = rng.normal(case.params["n"])
        return {"x": x, "y": -x}

    entry = with_one_case(lab(1), "n=7,", inputs=opposites)
    for new, wanted in ((STORE, Verdict.PASS), (STORE.replace("x + y", "(x + y) * -1.0"), Verdict.WRONG)):
        lay_out(tmp_path, swap(solution(1), STORE, new))
        run = Run(tmp_path, "cpu", SEED, None, session=warm)
        try:
            ((_, outcome, _),) = ask(run, entry)
        finally:
            run.close()
        assert outcome.verdict is wanted, outcome.where
    assert "out[0]" in outcome.where


# -- F22: the machine has no GPU, another one, or one that is not itself


@pytest.mark.slow
def test_f22_without_a_gpu_its_points_stay_open_and_nothing_counts_as_failed(tmp_path):
    lay_out(tmp_path / "tree", solution(1))
    code, said, found = grade(tmp_path / "tree", tmp_path, "-k", "speed or 127", CUDA_VISIBLE_DEVICES="")
    assert code == 0, said
    speed = [item for name, item in verdicts(found).items() if "/speed/" in name]
    assert speed == ["NOT_GRADED"]
    assert found["not_graded_points"] > 0
    assert found["points"] == pytest.approx(found["graded_points"])
    assert re.search(r"points need a GPU: .*speed \(30\)", said)


class NvmlError(Exception):
    """As pynvml raises it."""


def fake_nvml(*broken: str) -> types.ModuleType:
    """An NVML that answers like an H200, but for the functions named."""
    answers = {
        "nvmlInit": None,
        "nvmlDeviceGetHandleByIndex": "card",
        "nvmlDeviceGetHandleByUUID": "card",
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
        "nvmlDeviceGetMaxClockInfo": 1980,
        "nvmlDeviceGetNumGpuCores": 16896,
        "nvmlDeviceGetMemoryBusWidth": 6144,
        "nvmlDeviceGetMigMode": (0, 0),
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlSystemGetDriverVersion": "580.1",
        "nvmlDeviceGetUUID": "GPU-1",
        "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(total=150 << 30, free=140 << 30, used=10 << 30),
        "nvmlDeviceGetClockInfo": 1700,
        "nvmlDeviceGetPowerUsage": 400_000,
        "nvmlDeviceGetTemperature": 50,
        "nvmlDeviceGetCurrentClocksThrottleReasons": 0x40,
    }

    def made(name):
        def call(*_):
            if name in broken:
                raise NvmlError(f"{name}: Not Supported")
            return answers[name]

        return call

    module = types.ModuleType("pynvml")
    vars(module).update({name: made(name) for name in answers}, NVMLError=NvmlError)
    module.NVML_CLOCK_SM, module.NVML_CLOCK_MEM, module.NVML_TEMPERATURE_GPU = 1, 2, 0
    return module


@pytest.mark.parametrize(
    "broken",
    ["nvmlInit", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetCudaComputeCapability",
     "nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetNumGpuCores", "nvmlDeviceGetMigMode", "nvmlDeviceGetName",
     "nvmlSystemGetDriverVersion",
     "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo"],
)  # fmt: skip
def test_f22_whatever_nvml_cannot_say_the_search_for_a_gpu_ends_in_words(monkeypatch, broken):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    found, missing = gpu.find()
    assert (found.name, found.capability, missing) == ("NVIDIA H200", 90, "")
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(broken))
    found, missing = gpu.find()
    assert (found is None) == bool(missing)
    if found:  # a figure is unknown, not wrong
        assert found.bandwidth >= 0
        assert found.peak_flops >= 0


@pytest.mark.parametrize("chosen", ["", "-1", "7", "GPU-unknown", "MIG-unknown", "x"])
def test_f22_a_choice_of_a_gpu_that_is_not_there_ends_in_words(monkeypatch, chosen):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    monkeypatch.setitem(
        sys.modules, "pynvml", fake_nvml("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByUUID")
    )
    found, missing = gpu.find()
    assert found is None
    assert missing


def test_f22_an_architecture_that_the_compiler_does_not_know_takes_no_points(tmp_path):
    lay_out(tmp_path, solution(1))
    run = Run(tmp_path, "codegen", SEED, None, 30)
    try:
        answered = [(q, run.answer(q), 0.0) for q in graded_items(lab(1)) if q.kind == CODEGEN]
    finally:
        run.close()
    assert {o.verdict for _, o, _ in answered} <= {Verdict.NOT_GRADED, Verdict.GRADER_FAULT}


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", ["CUDA error: uncorrectable ECC error", "CUDA error: unspecified launch failure"]
)
def test_f22_an_error_of_the_judges_own_gpu_is_the_graders_fault_and_leaves_the_points_open(
    tmp_path, monkeypatch, words
):
    def broken(_session):
        raise RuntimeError(words)

    lay_out(tmp_path, solution(1))
    monkeypatch.setattr(correctness, "finish_writes", broken)
    run = Run(tmp_path, "cpu", SEED, None)
    try:
        found = scored(run, ask(run, with_one_case(lab(1), "n=7,")))
    finally:
        run.close()
    (item,) = found.labs[0].exercises[0].items
    assert item.verdict is Verdict.GRADER_FAULT
    assert words in item.where
    assert (found.graded_points, found.not_graded_points) == (0, found.max_points)


@pytest.fixture
def fight(tmp_path, monkeypatch, warm):
    """Times a lab's solution in the interpreter; its reader of clocks says what it is told."""
    monkeypatch.setattr(speed, "LEAST_CALL_US", float("-inf"))
    monkeypatch.setattr(speed, "WARM_US", 0.0)
    monkeypatch.setattr(speed, "BLOCK_US", {"memory": 1.0, "arithmetic": 1.0})
    monkeypatch.setattr(speed.SpeedTest, "_overhead", lambda *_: 0.0)
    monkeypatch.setattr(statistics, "MOST_ROUNDS", 12)
    monkeypatch.setattr(speed, "ATTEMPTS", 1)  # noise of two busy cores decides nothing twice, too
    monkeypatch.setattr(statistics, "INTERFERENCE", float("inf"))  # the tests themselves share two cores
    arena, workers = Arena.create("cpu", 1 << 26), []

    def run(reasons=(), missing=""):
        told = iter(reasons)

        class Told:
            def __init__(self):
                self.samples, self.missing = gpu.Clocks(), missing

            def sample(self):
                return next(told, [])

        monkeypatch.setattr(speed, "ClockReader", Told)
        entry = lab(1)
        exercise = entry.lab.exercises[0]
        file = lay_out(tmp_path, solution(1))
        case = dataclasses.replace(exercise.speed.shapes[0], params={"n": 4099}, dtype="fp32")
        student, reference = (
            SubmissionWorker(
                warm, Submission.read(f), arena, interpreted=True, tuning="full", trusted=f == entry.lab_file
            )
            for f in (file, entry.lab_file)
        )
        workers.extend((student, reference))
        outcome = speed.SpeedTest(entry.lab, exercise, case, student, reference, None).run()
        timed = next(one for one in graded_items(entry) if one.kind == SPEED)
        return outcome, timed

    yield run
    for worker in workers:
        worker.close()
    arena.close()


def left_open(item, outcome) -> bool:
    """Whether the points of a timed shape stay open: neither earned nor lost."""
    items = collect.scored(item.exercise, [(item, outcome, 0.0)])
    earned, graded, open_points = scoring.total(items)
    return (earned, graded, open_points) == (0.0, 0.0, item.points)


def test_f22_a_gpu_that_slows_down_by_itself_is_inconclusive_and_lowers_no_mark(fight):
    outcome, item = fight(iter(lambda: ["hw thermal"], None))
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert "hw thermal" in outcome.where
    assert left_open(item, outcome)


def test_f22_a_round_in_which_the_gpu_slowed_down_is_dropped_and_counted(fight):
    outcome, _ = fight([[], [], ["sw thermal"]])
    assert outcome.timing.rounds_dropped == 1
    assert len(outcome.timing.rounds) >= statistics.FEWEST_ROUNDS


def test_f22_a_time_that_is_none_is_inconclusive_and_lowers_no_mark(fight, monkeypatch):
    monkeypatch.setattr(speed.SpeedTest, "_overhead", lambda *_: 1e9)
    outcome, item = fight()
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert left_open(item, outcome)


# -- F23: the grader itself is ended


def graded_facts(found: dict) -> dict:
    """What two runs over the same files must agree on."""
    kept = {name: value for name, value in found.items() if name not in ("date", "seconds", "command")}
    for one in kept["labs"]:
        for exercise in one["exercises"]:
            for item in exercise["items"]:
                del item["seconds"]
    return kept


@pytest.mark.nightly
@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGKILL, id="SIGKILL"), pytest.param(signal.SIGTERM, id="SIGTERM")],
)
def test_f23_a_grader_that_is_ended_leaves_whole_results_and_no_process(tmp_path, number):
    keyword = ("-k", "correctness and 127 and fp32")
    file = lay_out(tmp_path / "tree", solution(1))
    _, _, first = grade(tmp_path / "tree", tmp_path, *keyword)
    report = tmp_path / "results" / "results.json"
    before = report.read_bytes()
    # Bounded, in case nothing ends it; it holds the interpreter's lock, as a kernel may.
    file.write_text(function("end = time.monotonic() + 25\nwhile time.monotonic() < end:\n    pass"))
    with start_grade(tmp_path / "tree", tmp_path, *keyword, screened=False) as process:
        workers = eventually(
            lambda: {p for p in processes_below(tmp_path / "tmp") if in_a_folder_of_its_own(p)}, 60
        )
        assert workers
        time.sleep(1.0)
        process.send_signal(number)
        process.communicate(timeout=30)
    assert report.read_bytes() == before
    assert eventually(lambda: not processes_below(tmp_path / "tmp"), 10), processes_below(tmp_path / "tmp")
    file.write_text(solution(1))
    code, said, again = grade(tmp_path / "tree", tmp_path, *keyword)
    assert code == 0, said
    assert graded_facts(again) == graded_facts(first)
    assert [path.name for path in (tmp_path / "results").iterdir() if path.name.startswith(".")] == []


def in_a_folder_of_its_own(pid: int) -> bool:
    """A worker, not a warm parent: it has moved to a folder below the session's."""
    try:
        return Path(psutil.Process(pid).cwd()).parent.name.startswith("grader-")
    except psutil.Error:
        return False


def test_f23_a_report_that_cannot_be_finished_leaves_the_one_before(tmp_path, monkeypatch):
    run = Run("labs", "cpu", SEED, None)
    found = scored(run, ask(run, with_one_case(lab(1), "n=7,")))
    exports.write(found, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def half(descriptor):
        os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", half)
    with pytest.raises(OSError, match="No space"):
        exports.write(found.model_copy(update={"seed": 1}), tmp_path)
    for name, content in before.items():
        assert (tmp_path / name).read_bytes() == content


def test_f23_a_junit_file_that_cannot_be_finished_leaves_the_one_before(tmp_path, monkeypatch):
    run = Run("labs", "cpu", SEED, None)
    found = scored(run, ask(run, with_one_case(lab(1), "n=7,")))
    file = tmp_path / "junit.xml"
    file.write_text('<testsuites><testsuite name="pytest"></testsuite></testsuites>')
    exports.sign_junit(found, file)
    before = file.read_bytes()

    def broken(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("xml.etree.ElementTree._serialize_xml", broken)
    with contextlib.suppress(OSError):
        exports.sign_junit(found, file)
    assert file.read_bytes() == before


@pytest.mark.slow
def test_f23_a_warm_parent_that_died_is_started_again(tmp_path):
    lay_out(tmp_path, solution(1))
    entry = with_one_case(lab(1), "n=7,")
    run = Run(tmp_path, "cpu", SEED, None)
    try:
        assert [o.verdict for _, o, _ in ask(run, entry)] == [Verdict.PASS]
        os.kill(run.session.parent(interpreted=True)._process.pid, signal.SIGKILL)
        for worker in run._workers.values():
            worker.close()
        outcomes = [o for _ in range(2) for _, o, _ in ask(run, entry)]
        assert outcomes[-1].verdict is Verdict.PASS, outcomes[-1].where
    finally:
        run.close()


@pytest.mark.slow
def test_f23_a_warm_parent_with_a_broken_channel_is_not_asked_again(tmp_path, monkeypatch):
    # A killed process closes its files some time before it can be waited for.
    lay_out(tmp_path, solution(1))
    entry = with_one_case(lab(1), "n=7,")
    run = Run(tmp_path, "cpu", SEED, None)
    try:
        dying = run.session.parent(interpreted=True)
        _ = dying.findings
        os.kill(dying._process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, dying._process.pid, os.WEXITED | os.WNOWAIT)
        monkeypatch.setattr(dying._process, "poll", lambda: None)
        verdicts = [o.verdict for _ in range(2) for _, o, _ in ask(run, entry)]
        assert verdicts == [Verdict.GRADER_FAULT, Verdict.PASS]
    finally:
        run.close()


# -- F24: two graders on one GPU


def gpu_lock():
    return pytest.importorskip("grader.system.gpu_lock", reason="no lock yet").GpuLock


def test_f24_the_second_grader_waits_until_the_first_has_ended(tmp_path):
    lock, order = gpu_lock(), []
    taken, waited = threading.Event(), []

    def second():
        taken.wait(10)
        with lock("0123456789abcdef", tmp_path) as held:
            order.append("second")
            waited.append(held.waited_s)

    thread = threading.Thread(target=second)
    thread.start()
    with lock("0123456789abcdef", tmp_path) as held:
        assert held.waited_s < 0.5
        taken.set()
        time.sleep(1.0)
        order.append("first")
    thread.join(30)
    assert order == ["first", "second"]
    assert 0.8 < waited[0] < 20


def test_f24_those_who_share_a_gpu_do_not_wait_for_each_other_and_one_who_wants_it_alone_does(tmp_path):
    lock, taken = gpu_lock(), threading.Event()

    def alone():
        with lock("0123456789abcdef", tmp_path):
            taken.set()

    thread = threading.Thread(target=alone)
    with lock("0123456789abcdef", tmp_path, shared=True) as first:
        with lock("0123456789abcdef", tmp_path, shared=True) as second:
            assert max(first.waited_s, second.waited_s) < 0.5
            thread.start()
            assert not taken.wait(0.5)
        assert not taken.wait(0.5)
    assert taken.wait(10)
    thread.join(10)


def test_f24_a_note_says_that_the_lock_is_waited_for_and_then_for_how_long(tmp_path):
    from grader.system.gpu_lock import waited_s

    lock, note = gpu_lock(), tmp_path / "note"
    assert waited_s(note) == 0.0

    def second():
        with lock("0123456789abcdef", tmp_path, note=note):
            pass

    thread = threading.Thread(target=second)
    assert not lock("0123456789abcdef", tmp_path).is_taken
    with lock("0123456789abcdef", tmp_path) as held:
        assert held.is_taken
        thread.start()
        while not note.exists():
            time.sleep(0.01)
        time.sleep(0.5)
        assert waited_s(note) is None
    thread.join(30)
    assert 0.4 < waited_s(note) < 20


def test_f24_another_gpu_is_not_waited_for(tmp_path):
    lock = gpu_lock()
    with lock("0123456789abcdef", tmp_path), lock("fedcba9876543210", tmp_path) as other:
        assert other.waited_s < 0.5


HOLD = """
import sys, time
from pathlib import Path
from grader.system.gpu_lock import GpuLock
with GpuLock(sys.argv[1], Path(sys.argv[2])):
    print("held", flush=True)
    time.sleep(30)
"""


def test_f24_a_holder_that_was_killed_does_not_block(tmp_path):
    lock = gpu_lock()
    command = [sys.executable, "-c", HOLD, "0123456789abcdef", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        holder.kill()
    began = time.monotonic()
    with lock("0123456789abcdef", tmp_path):
        assert time.monotonic() - began < 5


def test_f24_a_lock_whose_file_is_left_over_or_full_of_other_things_is_taken(tmp_path):
    lock = gpu_lock()
    with lock("0123456789abcdef", tmp_path):
        left = list(tmp_path.rglob("*"))
    for path in left:
        if path.is_file():
            path.write_bytes(b"\xff\x00 999999999 not a process")
    with lock("0123456789abcdef", tmp_path) as held:
        assert held.waited_s < 5


# -- F25: the machine lacks what the grader would use


def test_f25_without_nvml_a_duel_is_held_and_says_that_clocks_were_not_read(fight, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml("nvmlInit"))
    reader = gpu.ClockReader()
    assert reader.sample() == []
    assert reader.missing
    outcome, _ = fight(missing=reader.missing)
    assert outcome.verdict in (Verdict.PASS, Verdict.SLOW, Verdict.INCONCLUSIVE), outcome.where
    assert outcome.timing, (outcome.verdict, outcome.where)
    assert outcome.timing.clocks.unread == reader.missing


@pytest.mark.parametrize(
    "broken", ["nvmlDeviceGetClockInfo", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature"]
)
def test_f25_a_sensor_that_is_missing_hides_no_throttling(monkeypatch, broken):
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    assert gpu.ClockReader().sample() == ["hw thermal"]
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(broken))
    assert gpu.ClockReader().sample() == ["hw thermal"]


def test_f25_throttling_that_cannot_be_read_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml("nvmlDeviceGetCurrentClocksThrottleReasons"))
    reader = gpu.ClockReader()
    assert reader.sample() == []
    assert reader.missing


def test_f25_without_cuda_ipc_nothing_is_graded_and_nothing_lost(tmp_path, monkeypatch):
    def refused(*_):
        raise RuntimeError("cuIpcGetMemHandle: CUDA_ERROR_NOT_SUPPORTED")

    lay_out(tmp_path, solution(1))
    monkeypatch.setattr(Arena, "create", refused)
    run = Run(tmp_path, "cpu", SEED, None)
    try:
        found = scored(run, ask(run, with_one_case(lab(1), "n=7,")))
    finally:
        run.close()
    (item,) = found.labs[0].exercises[0].items
    assert item.verdict is Verdict.GRADER_FAULT
    assert "cuIpcGetMemHandle" in item.where
    assert found.graded_points == 0


def test_f25_the_level_of_assurance_is_known_and_says_what_is_missing():
    session = Session("cpu", 1)
    try:
        session.parent(interpreted=True)
        assurance = session.assurance
        assert assurance.level in (1, 2)
        assert isinstance(assurance.missing, tuple)
        assert assurance.missing  # what the next level takes
        assert f"L{assurance.level}" in assurance.words
    finally:
        session.close()


@pytest.mark.slow
def test_f25_the_level_of_assurance_stands_in_every_report(tmp_path):
    lay_out(tmp_path / "tree", solution(1))
    code, said, found = grade(tmp_path / "tree", tmp_path, "-k", "correctness and 127 and fp32")
    assert code == 0, said
    level = re.match(r"L([0-3])\b", found["assurance"])
    assert level
    assert f"isolation of your code: level {level[1]}" in said
    for text in (
        (tmp_path / "results" / "summary.md").read_text("utf-8"),
        (tmp_path / "results" / "junit.xml").read_text("utf-8"),
    ):
        assert level[0] in text


# -- F26: the reference, or the lab, is broken


def raises(*_, **__):
    raise ZeroDivisionError("of the lab")


NAN, INF = float("nan"), float("inf")
BROKEN_LABS = {
    "a NaN everywhere": {"reference": lambda x, y: (x + y + NAN,)},
    "one NaN": {"reference": lambda x, y: ((x + y).index_fill(0, (x * 0).long()[:1], NAN),)},
    "a reference that raises": {"reference": raises},
    "a reference of another shape": {"reference": lambda x, y: ((x + y)[:5],)},
    "two outputs for one": {"reference": lambda x, y: (x + y, x - y)},
    "no output": {"reference": lambda *_, **__: ()},
    "inputs that raise": {"inputs": raises},
    "inputs of NaN": {"inputs": lambda rng, _: {"x": rng.normal(129) * NAN, "y": rng.normal(129)}},
    "inputs of 0": {"inputs": lambda rng, _: {"x": rng.normal(129) * 0, "y": rng.normal(129) * 0}},
}
BROKEN_TOLERANCES = {
    "a torch_op that raises": {"torch_op": raises},
    "a torch_op of NaN": {"torch_op": lambda x, y: (x + y + NAN,)},
    "a torch_op far off": {"torch_op": lambda x, y: (x - 3 * y,)},
    "a NaN everywhere": BROKEN_LABS["a NaN everywhere"],
    "one NaN": BROKEN_LABS["one NaN"],
    # Where all bits are compared, a result may be infinite.
    "one infinity": {"reference": lambda x, y: ((x + y).index_fill(0, (x * 0).long()[:1], INF),)},
}


def answer_of(warm, tmp_path, bitwise, changes):
    lay_out(tmp_path, solution(1))
    entry = with_one_case(lab(1), "n=129,", **changes)
    (exercise,) = entry.lab.exercises
    cases = tuple(dataclasses.replace(case, bitwise=bitwise) for case in exercise.cases)
    exercise = dataclasses.replace(exercise, cases=cases)
    entry = dataclasses.replace(entry, lab=dataclasses.replace(entry.lab, exercises=(exercise,)))
    run = Run(tmp_path, "cpu", SEED, None, session=warm)
    try:
        return ask(run, entry)[0][1]
    finally:
        run.close()


@pytest.mark.parametrize("name", BROKEN_LABS)
def test_f26_a_broken_reference_is_the_graders_fault(warm, tmp_path, name):
    outcome = answer_of(warm, tmp_path, True, BROKEN_LABS[name])
    assert outcome.verdict is Verdict.GRADER_FAULT, (outcome.verdict, outcome.where)
    if "NaN" in name or "infinity" in name:
        assert outcome.reason in ("INVALID_REFERENCE", "INVALID_CASE")


def test_f26_inputs_that_happen_to_accept_a_worthless_answer_are_drawn_again(warm, tmp_path, monkeypatch):
    answered = iter((["fewer digits"], []))
    monkeypatch.setattr(correctness.comparison, "accepted_nulls", lambda *_: next(answered))
    assert answer_of(warm, tmp_path, False, {}).verdict is Verdict.PASS
    assert next(answered, None) is None, "the inputs were judged once, and never drawn again"


@pytest.mark.parametrize("name", BROKEN_TOLERANCES)
def test_f26_a_broken_tolerance_is_the_graders_fault(warm, tmp_path, name):
    outcome = answer_of(warm, tmp_path, False, BROKEN_TOLERANCES[name])
    assert outcome.verdict is Verdict.GRADER_FAULT, (outcome.verdict, outcome.where)


def test_f26_a_case_of_one_element_with_a_nan_for_its_result_is_no_pass(warm, tmp_path):
    changes = {"reference": lambda x, y: (x + y + NAN,), "torch_op": lambda x, y: (x + y + NAN,)}
    assert answer_of(warm, tmp_path, True, changes).verdict is Verdict.GRADER_FAULT


# -- F27: clocks that jump, a machine that was asleep


def test_f27_no_module_takes_a_duration_from_the_wall_clock():
    paths = [path for path in sorted((ROOT / "grader").rglob("*.py")) if not path.is_relative_to(TESTS)]
    assert paths
    for path in paths:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in (("time", "time"), ("time", "time_ns")), path.name
            if isinstance(node, ast.ImportFrom) and node.module == "time":
                assert not {"time", "time_ns"} & {name.name for name in node.names}, path.name


def test_f27_a_wall_clock_that_jumps_changes_nothing(unscreened, monkeypatch):
    jumps = iter(range(0, 10**9, 10**6))
    monkeypatch.setattr(time, "time", lambda: float(next(jumps)))
    outcomes = unscreened.grade(1, solution(1), ADD7, ADD129)
    assert {outcome.verdict for outcome in outcomes.values()} == {Verdict.PASS}


@pytest.mark.parametrize("late", ["reference", "student"])
def test_f27_a_block_in_which_the_machine_slept_moves_no_score(fight, monkeypatch, late):
    blocks, block = [], speed.SpeedTest._block

    def slept(self, side, plan, limit_s, k=None, rests=False):
        block(self, side, plan, limit_s, k, rests)
        elapsed = {"reference": 1000.0, "student": 1200.0}[side]
        if k is not None and side == late:
            blocks.append(side)
            if len(blocks) == 5:
                return elapsed + 3.6e9
        return elapsed

    monkeypatch.setattr(speed.SpeedTest, "_block", slept)
    outcome, item = fight()
    assert outcome.verdict in (Verdict.PASS, Verdict.SLOW, Verdict.INCONCLUSIVE), outcome.where
    assert outcome.timing, (outcome.verdict, outcome.where)
    assert outcome.timing.student_us < 1e6
    assert outcome.timing.reference_us < 1e6
    assert outcome.timing.percent_of_baseline < 1e4
    assert not left_open(item, outcome)


# -- F28: caches and files of another submission

MARK = """
for name in ("HOME", "TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH"):
    with open(os.path.join(os.environ[name], "f28-mark"), "w") as file:
        file.write("of A")
"""


@pytest.fixture
def two_files(tmp_path):
    """Grades one text after the other as two submissions of one session; gives the session, too."""
    session, runs = Session("cpu", SEED), []
    entry = with_one_case(lab(1), "n=7,")

    def one(text):
        folder = tmp_path / f"submission{len(runs)}"
        lay_out(folder, text)
        runs.append(Run(folder, "cpu", SEED, None, screened=False, session=session))
        return ask(runs[-1], entry)[0][1]

    yield one, session
    for run in runs:
        run.close()
    session.close()
    assert not session.folder.exists()


def test_f28_two_submissions_share_no_folder(two_files):
    one, _ = two_files
    names = ("HOME", "TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH")
    text = function(f"for name in {names}:\n    print(name, os.environ[name])\nraise ValueError")
    first, second = (dict(line.split() for line in one(text).printed.splitlines()) for _ in range(2))
    assert first.keys() == second.keys() == set(names)
    assert not set(first.values()) & set(second.values())


def test_f28_what_one_submission_wrote_the_next_does_not_meet(two_files):
    one, session = two_files
    assert one(function(MARK)).verdict is Verdict.PASS
    assert list(session.folder.rglob("f28-mark"))
    text = function(
        "assert not [f for f in os.environ.values() if os.path.exists(os.path.join(f, 'f28-mark'))]"
    )
    assert one(text).verdict is Verdict.PASS


def test_f28_files_of_another_submission_can_be_neither_read_nor_written(two_files):
    one, session = two_files
    assert one(function(MARK)).verdict is Verdict.PASS
    if session.assurance.level < 2:
        pytest.skip(session.assurance.words)
    marks = [str(path) for path in session.folder.rglob("f28-mark")]
    text = function(f"""\
        for path in {marks!r}:
            for mode in ("r", "a"):
                try:
                    open(path, mode).close()
                except OSError:
                    continue
                raise ValueError(f"opened {{path}} with {{mode}}")
        """)
    outcome = one(text)
    assert outcome.verdict is Verdict.PASS, outcome.where
    assert {Path(path).read_text() for path in marks} == {"of A"}


def test_f28_lent_memory_holds_nothing_of_the_submission_before(two_files):
    one, _ = two_files
    find_memory = dedent("""\
        import mmap
        def memory():
            for fd in range(3, 256):
                try:
                    found = os.fstat(fd)
                except OSError:
                    continue
                if stat.S_ISREG(found.st_mode) and found.st_size > 1 << 20:
                    return mmap.mmap(fd, 1 << 26)
        """)
    word = "'of' + ' the submission A'"
    write = f"({word}).encode()"
    assert (
        one(find_memory + function(f"memory()[60 << 20 : (60 << 20) + 19] = {write}[:19]")).verdict
        is Verdict.PASS
    )
    assert one(find_memory + function(f"assert memory().find({write}[:19]) < 0")).verdict is Verdict.PASS


# -- any bytes from a worker


class Forker:
    """In the place of a warm parent: the "worker" ends at once, and the frames are written here."""

    def __init__(self, data: bytes, closes: bool, command: str = "exit 0"):
        self._data, self._closes, self._command = data, closes, command
        self.held = None

    def fork(self, fds, _operators):
        self.held = socket.socket(fileno=os.dup(fds[0]))
        self.held.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            self.held.sendall(self._data)
        if self._closes:
            self.held.shutdown(socket.SHUT_WR)
        return os.posix_spawn(
            "/bin/sh", ["/bin/sh", "-c", self._command], {}, setpgroup=0, setsigdef=[13, 25]
        )


@contextlib.contextmanager
def faked(data: bytes, closes: bool = True, command: str = "exit 0"):
    parent = Forker(data, closes, command)
    worker = Worker(parent, None)
    try:
        yield worker
    finally:
        worker.end()
        parent.held.close()


@pytest.mark.parametrize("number", [1, 2, 3, 6, 9, 11, 13, 15, 24, 25, 31, 34, 35, 40, 63, 64])
def test_f09_every_signal_that_ends_a_worker_has_a_word(number):
    # By env, as nohup and a shell in the background ignore some, and so does all that they start.
    command = f"exec env --default-signal sh -c 'kill -{number} $$; exec sleep 5'"
    with faked(b"", command=command) as worker:
        with pytest.raises(WorkerGoneError) as gone:
            worker.ask(Kind.GO, {}, 2.0)
        assert str(number) in str(gone.value)


FIRST = 0  # the number of the first request, which an answer repeats
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
WORDS = st.sampled_from(["exit", "compile", "host memory", "gpu memory", "not started", "illegal access", ""])
CLAIMS = st.fixed_dictionaries(
    {},
    optional={
        "category": WORDS | JSON,
        "type": JSON,
        "text": JSON,
        "frames": JSON
        | st.lists(st.dictionaries(st.sampled_from(["line", "function", "code"]), JSON), max_size=9),
        "picked": JSON,
        "operators": JSON,
        "computed": JSON,
        "reads": JSON,
        "launched": JSON,
    },
)


@st.composite
def answers(draw):
    """Frames that are nearly right: any payload, any header, and bytes changed, left out or put in."""
    body = json.dumps(draw(CLAIMS | JSON)).encode()
    length = draw(st.just(len(body)) | st.integers(0, 2**32 - 1))
    kind = draw(st.sampled_from([Kind.DONE, Kind.FAILED]) | st.integers(0, 255))
    block = draw(st.just(FIRST) | st.integers(0, 2**32 - 1))
    data = bytearray(HEADER.pack(MAGIC, VERSION, kind, 0, block, length) + body)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(data)))
        data[place : place + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(data) * draw(st.sampled_from([1, 1, 1, 2]))


@few
@given(
    st.binary(max_size=300) | answers() | st.binary(max_size=8).map(lambda tail: MAGIC + tail), st.booleans()
)
def test_f15_any_bytes_are_an_answer_or_the_end_of_the_worker(data, closes):
    with faked(data, closes) as worker:
        try:
            kind, payload = worker.ask(Kind.GO, {}, 0.1)
        except WorkerGoneError:
            assert not worker.alive
        else:
            assert kind in (Kind.DONE, Kind.FAILED)
            assert isinstance(payload, dict)


@few
@given(CLAIMS, st.sampled_from([Kind.DONE, Kind.FAILED]))
def test_f15_any_claim_is_an_outcome_that_a_report_can_hold(claim, kind):
    try:
        data = pack(kind, FIRST, claim)
    except ValueError:  # NaN
        return
    entry = with_one_case(lab(1), "n=7,")
    (asked,) = graded_items(entry)
    worker = object.__new__(SubmissionWorker)
    worker.picked, worker._still, worker._gate, worker.queued = {}, None, None, 0
    with faked(data, False) as worker._worker:
        outcome = worker._ask(Kind.GO, {}, 1.0)
    assert (outcome is None) == (kind is Kind.DONE)
    if outcome:
        assert outcome.share == 0.0
        assert outcome.verdict not in (Verdict.PASS, Verdict.GRADER_FAULT)
        item = result_of(asked, outcome)
        assert models.ItemResult.model_validate_json(item.model_dump_json()) == item
    timing = a_timing(configs=worker.picked)
    json.loads(result_of(asked, Outcome(Verdict.PASS, timing=timing)).model_dump_json())


# -- any bytes as a submission

SOURCE = solution(1).encode()
PIECES = [
    b"\r",
    b"\x0c",
    b"\0",
    b"\xff",
    b"\\",
    b'"""',
    b"(" * 300,
    b"f'{",
    b"# coding: x\n",
    b"\xef\xbb\xbf",
]
PIECES += [b"\xe2\x80\xa8", b"@", b"async ", b"match x:\n case _:\n", b"0" * 5000]


@st.composite
def mutated(draw):
    data = bytearray(SOURCE)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        data[place : place + draw(st.integers(0, 40))] = draw(st.binary(max_size=4) | st.sampled_from(PIECES))
    return bytes(data)


@few
@given(
    st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))
    | mutated()
)
def test_f17_any_bytes_are_ready_or_an_outcome(tmp_path_factory, data):
    file = tmp_path_factory.getbasetemp() / "any.py"
    file.write_bytes(data)
    entry = lab_once()
    exercise = entry.lab.exercises[0]
    submission = Submission.read(file)
    outcome = check(submission, exercise)
    if outcome is None:
        outcome = policy.screen(submission, entry.lab, exercise)
    if outcome is not None:
        assert outcome.verdict in (Verdict.COMPILE_ERROR, Verdict.NOT_STARTED, Verdict.POLICY)
        item = next(graded_items(entry))
        assert len(outcome.where.splitlines()) <= 1
        result_of(item, outcome).model_dump_json()


def lab_once(kept=[]):  # noqa: B006 - the labs are loaded once, not for every example
    if not kept:
        kept.append(lab(1))
    return kept[0]


DEEP = {
    "brackets": b"x = " + b"(" * 150 + b")" * 150,
    "brackets without end": b"(" * 100_000,
    "calls": b"f(" * 90 + b")" * 90,
    "powers": b"x = " + b"2 ** " * 20_000 + b"2",
    "a huge power": b"x = 9 ** 9 ** 9 ** 9",
    "a long product of text": b"x = 'a' * 2 ** 40",
    "indents": b"".join(b" " * k + b"if x:\n" for k in range(150)),
    "a long chain": b"x = a" + b".a" * 50_000,
    "a long line of ors": b"x = " + b"a or " * 50_000 + b"a",
    "many names": b"".join(b"x%d = %d\n" % (k, k) for k in range(20_000)),
    "many functions": b"".join(b"def f%d(): return f%d()\n" % (k, k + 1) for k in range(5_000)),
    "a long number": b"x = " + b"9" * 100_000,
    "nested f-strings": b"x = f'{f\"{f'''{1}'''}\"}'",
    "decorators": b"@f\n" * 5_000 + b"def g(): pass",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DEEP)
def test_f17_a_file_that_is_hard_to_parse_is_looked_at_in_time(tmp_path, name):
    file = lay_out(tmp_path, DEEP[name] + b"\n\ndef elementwise_add(x, y, *, out=None):\n    f0()\n")
    assert re.match(r"READY|COMPILE_ERROR|POLICY", look(file))
