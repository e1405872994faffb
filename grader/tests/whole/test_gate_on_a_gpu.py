"""The gate on a GPU: what waits at it gets a verdict with its line, and nothing inside can open it."""

import dataclasses
import re

import pytest

from grader.course import catalog
from grader.course.items import CORRECTNESS, SPEED, graded_items
from grader.course.spec import Verdict
from grader.judge.run import Run
from grader.system import gpu

pytestmark = [pytest.mark.gpu, pytest.mark.whole_gpu]

LAB1 = "lab1_elementwise_add"
SOURCE = (catalog.ROOT / "solutions" / LAB1 / "elementwise_add.py").read_text("utf-8")
LAUNCH = "        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)"
MAPPED = """
import ctypes, re

def page(name):
    for line in open("/proc/self/maps"):
        if "memfd:" + name in line:
            return int(line.split("-")[0], 16)

"""


@pytest.fixture(scope="module")
def here():
    found, missing = gpu.find()
    assert found, missing
    return found


def change(source, old, new):
    assert old in source
    return source.replace(old, new)


@pytest.fixture
def grade(here, tmp_path):
    """Grades a text as lab 1's file, without the static screen: the outcome of one case, or of the shape."""
    runs = []

    def run(text, kind=CORRECTNESS):
        (tmp_path / LAB1).mkdir(exist_ok=True)
        (tmp_path / LAB1 / "elementwise_add.py").write_text(text)
        runs.append(Run(tmp_path, "gpu", 7, here, screened=False))
        (entry,) = (entry for entry in catalog.find() if entry.number == 1)
        asked = [one for one in graded_items(entry) if one.kind == kind]
        if kind == CORRECTNESS:
            asked = [q for q in asked if q.case.params["n"] == 65537 and q.case.dtype == "fp32"]
        item = dataclasses.replace(asked[0])
        return runs[-1].answer(item)

    yield run
    for one in runs:
        one.close()


def before_the_launch(*lines):
    text = "".join(f"        {line}\n" for line in lines)
    return change(SOURCE, LAUNCH, text + LAUNCH)


@pytest.mark.parametrize("kind", [CORRECTNESS, SPEED])
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("float(x[0])", "HOST_READ"),
        ("x[:3].tolist()", "HOST_READ"),
        ("assert not torch.equal(x, y)", "HOST_READ"),
        ("torch.cuda.synchronize()", "HOST_WAIT"),
    ],
)
def test_what_waits_for_the_gpu_is_named_with_its_line(grade, line, reason, kind):
    outcome = grade(before_the_launch(line), kind)
    assert (outcome.verdict, outcome.reason) == (Verdict.POLICY, reason), outcome
    assert outcome.frames[0].code == line
    assert str(outcome.frames[0].line) in outcome.where


def test_more_launches_than_a_queue_holds(grade):
    outcome = grade(before_the_launch("for _ in range(3000):", "    " + LAUNCH.strip()))
    assert (outcome.verdict, outcome.reason) == (Verdict.POLICY, "HOST_WAIT"), outcome
    assert "queue is full" in outcome.where


def test_a_kernel_that_is_compiled_late_is_gated_again(grade):
    # Compiled for the first call that is queued, not for the ones before it; once, so it passes.
    text = change(SOURCE, "BLOCK = 1024\n", "BLOCK = 1024\nCALLS = []\n")
    text = change(text, "BLOCK=BLOCK)", "BLOCK=2048 if len(CALLS) == 2 else BLOCK)")
    outcome = grade(
        change(
            text, LAUNCH.lstrip().split("(")[0], "CALLS.append(1)\n        " + "elementwise_add_kernel[grid]"
        )
    )
    assert outcome.verdict is Verdict.PASS, outcome


def test_the_gate_cannot_be_written_by_a_store_of_the_host(grade):
    text = change(MAPPED + before_the_launch("ctypes.memset(page('gate'), 255, 4)"), "", "")
    outcome = grade(text)
    assert outcome.verdict is Verdict.CRASHED, outcome


def test_the_gate_cannot_be_made_writable(grade):
    tried = "assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(page('gate')), 4096, 3) == -1"
    assert grade(MAPPED + before_the_launch(tried)).verdict is Verdict.PASS


def test_the_gate_cannot_be_written_by_the_gpu(grade):
    lines = (
        "cuda = ctypes.CDLL('libcuda.so.1')",
        "at = ctypes.c_uint64()",
        "cuda.cuMemHostGetDevicePointer_v2(ctypes.byref(at), ctypes.c_void_p(page('gate')), 0)",
        "cuda.cuStreamWriteValue32_v2(ctypes.c_void_p(0x2), at, ctypes.c_uint32(2**31), 0)",
    )
    outcome = grade(MAPPED + before_the_launch(*lines))
    assert outcome.verdict is Verdict.CRASHED, outcome


def test_work_that_is_called_done_early_is_a_verdict(grade):
    outcome = grade(MAPPED + before_the_launch("ctypes.memset(page('done'), 127, 4)"))
    assert (outcome.verdict, outcome.reason) == (Verdict.CRASHED, "PROTOCOL"), outcome


WATCHING = """
@triton.jit
def ahead_kernel(x_ptr, y_ptr, out_ptr, scratch_ptr, n, BLOCK: tl.constexpr):
    first = tl.load(scratch_ptr + 1 + tl.program_id(0) * 0, volatile=True)
    now = tl.load(x_ptr, volatile=True)
    turns = 0
    while (now == first) & (turns < 300000):
        now = tl.load(x_ptr, volatile=True)
        turns += 1
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n
        total = tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask)
        tl.store(scratch_ptr + 2 + offs, total, mask=mask)


"""


@pytest.mark.parametrize("kind", [CORRECTNESS, SPEED])
def test_a_kernel_on_a_side_stream_that_works_ahead_gains_nothing(grade, kind):
    text = change(SOURCE, "def elementwise_add(", WATCHING + "SIDE = []\n\n\ndef elementwise_add(")
    lines = (
        "if not SIDE:",
        "    SIDE.append(torch.cuda.Stream())",
        "    SIDE.append(torch.zeros(n + 2, dtype=x.dtype, device=x.device))",
        "with torch.cuda.stream(SIDE[0]):",
        "    SIDE[1][1:2].copy_(x[:1])",
        "    ahead_kernel[(1,)](x, y, out, SIDE[1], n, BLOCK=1024)",
    )
    outcome = grade(change(text, LAUNCH, "".join(f"        {line}\n" for line in lines) + LAUNCH), kind)
    fair = outcome.verdict in (Verdict.PASS, Verdict.SLOW) and (
        kind == CORRECTNESS or outcome.timing.percent_of_baseline < 101
    )
    assert fair or outcome.undecided or outcome.verdict in (Verdict.WRONG, Verdict.TIMEOUT), outcome


@pytest.mark.parametrize("call", [1, 2, 3, 40])
@pytest.mark.parametrize("kind", [CORRECTNESS, SPEED])
def test_a_process_that_ends_at_any_call_costs_its_own_verdict(grade, kind, call):
    text = change(SOURCE, "BLOCK = 1024\n", "BLOCK = 1024\nCALLS = []\n")
    lines = ("CALLS.append(1)", f"if len(CALLS) == {call}:", "    __import__('os')._exit(3)")
    ends = "".join(f"        {line}\n" for line in lines)
    outcome = grade(change(text, LAUNCH, ends + LAUNCH), kind)
    if kind == CORRECTNESS and call == 40:
        assert outcome.verdict is Verdict.PASS
    else:
        assert outcome.verdict is Verdict.CRASHED, outcome
        assert re.search("exit code 3", outcome.where)
