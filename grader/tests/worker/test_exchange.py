"""What host code of a submission can see on a CPU: decoys, and results of kernels only if it is noticed."""

import pytest

from grader.course.spec import Reason, Verdict
from grader.judge.exchange import Exchange
from grader.judge.inputs import Placer, fill, same_bits
from grader.worker.protocol import ProtocolError
from grader.worker.shared_memory import Arena

CASE = "elementwise_add/n=1009,fp32"
HEAD = """
import torch
import triton
import triton.language as tl
from torch.library import triton_op

@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + offs, mask=offs < n) + tl.load(y_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, total, mask=offs < n)

@triton.jit
def copy_kernel(from_ptr, to_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(to_ptr + offs, tl.load(from_ptr + offs, mask=offs < n), mask=offs < n)

def add(x, y, out):
    add_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512)
    return out

def carry(values, out):
    made = torch.Tensor(values)
    copy_kernel[(triton.cdiv(out.numel(), 512),)](made, out, out.numel(), BLOCK=512)
    return out
"""


def answer(submissions, body, *, head=HEAD):
    """The outcome of a file whose function has this body."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    text = f"{head}\ndef elementwise_add(x, y, *, out=None):\n{lines}"
    (outcome,) = submissions.grade(1, text, CASE).values()
    return outcome


RIGHT = {
    "kernel": "return add(x, y, out)",
    "copies first": "return add(x.contiguous(), y.clone(), out)",
    "copies into scratch": "left = torch.empty_like(x)\nleft.copy_(x)\nreturn add(left, y, out)",
    "converts": "return add(x.to(torch.float64), y.to(torch.float64), out)",
    "small constants": "none = torch.zeros(8)\nassert none[0].item() == 0\nreturn add(x, y, out)",
    "number of its own": "n = int(torch.randint(1, 4, (2,))[1])\nassert 0 < n < 4\nreturn add(x, y, out)",
    "number of its own at an old address": (
        "for _ in range(9):\n    add(x, y, torch.empty_like(x))\n"
        "    assert torch.full((900,), 2.0)[5].item() == 2.0\nreturn add(x, y, out)"
    ),
    "through an operator": "return add(op(x, y), torch.zeros_like(x), out)",
    "atomics": "out.zero_()\nreturn add(x, y, out)",
}
OPERATOR = """
@triton_op("test::added", mutates_args=())
def op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return add(x.clone().to(torch.float64), y.contiguous(), torch.empty_like(x)[None].reshape(-1))
"""


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_kernels_and_copies_see_what_is_graded(submissions, body):
    outcome = answer(submissions, body, head=HEAD + OPERATOR * ("op(" in body))
    assert outcome.verdict is Verdict.PASS, outcome.where


READS = {
    "float": "x0 = float(x[0])",
    "item of the output": "x0 = add(x, y, out)[3].item()",
    "bool": "if x[0] > 1e9:\n    return None",
    "tolist": "x0 = x.tolist()",
    "equal": "same = torch.equal(x, y)",
    "printed": "print(x)",
    "numpy": "x0 = x.numpy()",
    "numpy of scratch": "s = torch.empty_like(x)\nseen = s.numpy()\nadd(x, y, s)\nx0 = seen[0]",
    "scratch": "x0 = [float(one) for one in add(x, y, torch.empty_like(x))]",
    "a copy": "x0 = x.clone().tolist()",
    "a view of a conversion": "x0 = x.to(torch.float64).view(-1)[1:].tolist()",
    "list of elements": "x0 = torch.Tensor([one for one in x])[5].item()",
    "constant of an element": "x0 = torch.full((1,), x[0]).item()",
    "like an element": "x0 = x.new_full((1,), x[0]).item()",
    "range of Python": "x0 = range(x.to(torch.int64)[0])",
    "index": "x0 = [7] * 9\nx0 = x0[x.to(torch.int64)[0] : 3]",
    "text": "x0 = f'{x[0]}'",
    "text of all": "x0 = str(x)",
    "template": "x0 = '%d' % x[0]",
    "element into own memory": "x0 = torch.zeros(4)\nx0[1:2].copy_(x[:1])\nx0 = x0[1].item()",
    "filled with an element": "x0 = torch.zeros(4)\nx0.fill_(x[0])\nx0 = x0[1].item()",
    "memory of an earlier tensor": (
        "for _ in range(9):\n    add(x, y, torch.empty(1009))\nx0 = torch.empty(1009)[7].item()"
    ),
    "storage": "x0 = x.untyped_storage()[0]",
    "applied": "x.clone().apply_(lambda one: one)",
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_read_of_data_by_host_code_is_named_with_its_line(submissions, read):
    outcome = answer(submissions, f"{read}\nreturn add(x, y, out)")
    assert outcome.verdict is Verdict.POLICY, outcome.where
    assert outcome.reason in (Reason.HOST_READ, Reason.FOREIGN_KERNEL)
    if ">" not in read:  # a comparison is an operator that computes
        assert outcome.reason is Reason.HOST_READ, outcome.where
    assert any(frame.code in read for frame in outcome.frames)


def test_a_read_within_a_registered_operator_is_seen(submissions):
    head = HEAD + OPERATOR.replace("    return", "    first = x[0].item()\n    return")
    outcome = answer(submissions, "out.copy_(op(x, y))\nreturn out", head=head)
    assert outcome.label == "POLICY/HOST_READ"
    assert outcome.frames[0].code == "first = x[0].item()"


def test_a_sum_by_torch_within_a_registered_operator_is_seen(submissions):
    head = HEAD + OPERATOR.replace("x.clone()", "(x + y)").replace("y.contiguous()", "torch.zeros_like(x)")
    outcome = answer(submissions, "out.copy_(op(x, y))\nreturn out", head=head)
    assert outcome.label == "POLICY/FOREIGN_KERNEL"


ON_THE_HOST = {
    "floats": "return carry([a + b for a, b in zip(x.tolist(), y.tolist())], out)",
    "without any read that is seen": (
        "import ctypes\n"
        "at = lambda t: (ctypes.c_float * t.numel()).from_address(t.data_ptr())\n"
        "return carry([a + b for a, b in zip(at(x), at(y))], out)"
    ),
    "written by hand": (
        "import ctypes\n"
        "at = lambda t: (ctypes.c_float * t.numel()).from_address(t.data_ptr())\n"
        "at(out)[:] = [a + b for a, b in zip(at(x), at(y))]\nreturn out"
    ),
    "torch while a kernel gets its grid": (
        "def grid(meta):\n    out.copy_(x).add_(y)\n    return (1,)\n"
        "copy_kernel[grid](torch.zeros(1), torch.zeros(1), 1, BLOCK=16)\nreturn out"
    ),
    "by torch, and what was seen is forgotten": (
        "import gc\nsums = x + y\nfor one in gc.get_objects():\n"
        "    if type(one).__name__ in ('Watch', '_Operators'):\n"
        "        vars(one).get('computed', vars(one).get('seen')).clear()\n"
        "copy_kernel[(8,)](sums, out, out.numel(), BLOCK=512)\nreturn out"
    ),
    "while the watch is off": (
        "from torch.utils._python_dispatch import _disable_current_modes\n"
        "with _disable_current_modes():\n    torch.add(x, y, out=out)\nreturn out"
    ),
}


@pytest.mark.parametrize("body", ON_THE_HOST.values(), ids=ON_THE_HOST)
def test_a_result_of_host_code_belongs_to_the_decoys(submissions, body):
    outcome = answer(submissions, body)
    assert outcome.label == "POLICY/FOREIGN_KERNEL", outcome.where


def test_tensors_given_as_constants_are_watched_within_a_kernel(submissions):
    head = HEAD + (
        "@triton.jit\ndef pose_kernel(out_ptr, OUT: tl.constexpr, X: tl.constexpr, Y: tl.constexpr):\n"
        "    OUT.copy_(X)\n    OUT.add_(Y)\n"
    )
    outcome = answer(submissions, "pose_kernel[(1,)](out, OUT=out, X=x, Y=y)\nreturn out", head=head)
    assert outcome.label == "POLICY/FOREIGN_KERNEL"


def test_sizes_of_a_grid_run_no_code_while_the_graded_inputs_are_shown(submissions):
    body = (
        "import ctypes\n"
        "at = lambda t: (ctypes.c_float * t.numel()).from_address(t.data_ptr())\n"
        "class Size:\n"
        "    def __index__(self):\n"
        "        at(out)[:] = [a + b for a, b in zip(at(x), at(y))]\n"
        "        return 1\n"
        "copy_kernel[(Size(),)](x, torch.zeros(1), 0, BLOCK=16)\nreturn out"
    )
    assert answer(submissions, body).label == "POLICY/FOREIGN_KERNEL"


def test_an_input_written_between_kernels_is_noticed(submissions):
    outcome = answer(submissions, "x.zero_()\nadd(x, y, out)\nreturn out")
    assert outcome.verdict is Verdict.MUTATED_INPUT


def test_an_input_written_by_a_kernel_is_noticed(submissions):
    outcome = answer(submissions, "add(x, y, out)\ncopy_kernel[(1,)](y, x, 5, BLOCK=16)\nreturn out")
    assert outcome.verdict is Verdict.MUTATED_INPUT


def test_a_function_that_fails_without_its_kernels_is_refused(submissions):
    body = (
        "import ctypes\nflag = torch.zeros(1)\ncopy_kernel[(1,)](torch.ones(1), flag, 1, BLOCK=16)\n"
        "if ctypes.c_float.from_address(flag.data_ptr()).value == 0.0:\n    raise RuntimeError('no flag')\n"
        "return add(x, y, out)"
    )
    outcome = answer(submissions, body)
    assert outcome.label == "POLICY/FOREIGN_KERNEL"
    assert "no flag" in outcome.where


def test_a_worker_that_asks_out_of_turn_breaks_the_protocol(submissions):
    body = (
        "import gc\nfrom grader.worker.exchange import Watch\n"
        "watch = next(one for one in gc.get_objects() if type(one) is Watch)\n"
        "watch._judge.open()\nwatch._judge.open()\nreturn add(x, y, out)"
    )
    assert answer(submissions, body).label == "CRASHED/PROTOCOL"


def test_a_backward_is_watched(submissions):
    text = HEAD + (
        "class Softmax(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x):\n        return x.clone()\n"
        "    @staticmethod\n"
        "    def backward(ctx, dy):\n        dy.tolist()\n        return dy\n"
        "def softmax(x):\n    return Softmax.apply(x)\n"
    )
    lab = next(one for number, one in submissions._labs.items() if number == 2)
    exercise = next(one for one in lab.lab.exercises if one.name == "softmax")
    case = next(case for case in exercise.cases if not case.needs_gpu and "=1," not in case.name)
    (outcome,) = submissions.grade(2, text, f"softmax/{case.name}").values()
    assert outcome.label == "POLICY/HOST_READ"
    assert outcome.frames[0].code == "dy.tolist()"


@pytest.fixture
def arena():
    arena = Arena.create("cpu", 1 << 22)
    yield arena
    arena.close()


def test_the_judge_writes_each_set_and_notices_changes(arena):
    torch = pytest.importorskip("torch")
    placer = Placer()
    buffers = [placer.place("x", (3, 5), "fp16"), placer.place("y", (0,), "fp16")]
    values = [{"x": torch.full((3, 5), k).half(), "y": torch.empty(0).half()} for k in (1.0, 2.0)]
    exchange = Exchange(arena, buffers, *values)
    lent = arena.view(buffers[0].tensor)
    assert (lent == 2.0).all()
    exchange.open()
    assert (lent == 1.0).all()
    lent[0, 0] = 7.0
    exchange.shut()
    assert (lent == 2.0).all()
    assert exchange.changed == ["x"]
    with pytest.raises(ProtocolError):
        exchange.shut()
    exchange.open()
    exchange.end()
    assert (lent == 2.0).all()
    fill(arena, buffers, values[0])
    assert same_bits(lent, values[0]["x"])
