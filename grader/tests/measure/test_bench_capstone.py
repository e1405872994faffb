"""The capstone's operations of `make bench`: their inputs, what counts as right, and their peers."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from grader.measure.bench import capstone as bench_capstone
from grader.measure.bench import native as bench_native
from grader.measure.bench import ops as bench_ops
from grader.measure.bench import rounds as bench_rounds
from grader.measure.bench import run as bench
from grader.measure.bench.rounds import Plan, differs, measure
from grader.measure.bench.run import Request
from grader.tests.measure.host_clock import HostClock

BY_NAME = {op.name: op for op in bench_capstone.ALL}
ADD, SUM, PRODUCT = (BY_NAME[name] for name in ("vector_add", "reduce_sum", "cuda_matmul"))
SIDES = {"m": 33, "n": 17, "k": 65}


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    monkeypatch.setattr(bench_rounds, "WARM_US", 500.0)


@pytest.fixture(autouse=True)
def without_nvcc(monkeypatch):
    def library(part):
        raise ImportError(f"there is no nvcc for {part}")

    monkeypatch.setattr(bench_native, "library", library)


def ours(function, op, size):
    return op.arms("ours", function, size)


def on_cpu(op, size, arms, clock=None):
    op = replace(
        op, peers=tuple(peer for peer in op.peers if peer.name != "torch.compile")
    )  # it takes seconds
    return measure(op, size, arms, clock or HostClock(), Plan(2, 200.0, 1), "cpu")["arms"]


class Library:
    """Stands for a compiled file: functions of tensors, as native.Library has them."""

    kernels = ()

    def __init__(self, wrong=False):
        self.wrong, self.sizes = wrong, set()

    def vector_add(self, x, y, *, sizes, out):
        self.sizes.add(sizes)
        torch.add(x, y, out=out)
        if self.wrong:
            out[-1] += 1

    def matmul(self, a, b, *, sizes, out):
        self.sizes.add(sizes)
        torch.mm(a, b.t(), out=out)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_native_function_gets_tensors_and_sizes(wrong):
    library = Library(wrong)
    arms = on_cpu(ADD, {"n": 1000}, ours(library.vector_add, ADD, {"n": 1000}))
    assert library.sizes == {(1000,)}
    assert arms["ours"]["status"] == ("wrong" if wrong else "ok")
    assert arms["torch"]["status"] == "ok"


def test_a_native_product_is_of_the_transposed_b_and_peers_that_are_missing_say_so():
    library = Library()
    arms = on_cpu(PRODUCT, SIDES, ours(library.matmul, PRODUCT, SIDES))
    assert library.sizes == {(33, 17, 65)}
    assert {name: arm["status"] for name, arm in arms.items()} == {
        "ours": "ok", "torch.mm NT": "ok", "torch.mm NN": "ok", "cublasLt best of 8": "not installed",
        "torch.mm NT, again": "ok",
    }  # fmt: skip
    assert "there is no nvcc for product" in arms["cublasLt best of 8"]["reason"]


def serial_blocks(x, out):
    """Blocks of 256 that add to one number in turn, as atomics do."""
    out.fill_(float(np.add.accumulate(x.view(-1, 256).sum(1).numpy())[-1]))


SUMS = {
    "in tiers": (lambda x, out: torch.sum(x, 0, keepdim=True, out=out), "ok"),
    "blocks in turn": (serial_blocks, "ok"),
    "one block of a resident grid lost": (
        lambda x, out: out.fill_(float(x[: -len(x) // 1056].sum())),
        "wrong",
    ),
    "nothing": (lambda x, out: None, "wrong"),  # noqa: ARG005  what it leaves undone is the point
}


@pytest.mark.parametrize(("function", "status"), SUMS.values(), ids=SUMS)
def test_a_sum_may_lose_what_fp32_loses_and_no_more(function, status):
    size = {"n": 2**20}

    def reduce_sum(x, *, sizes, out):
        assert sizes == (2**20,)
        function(x, out)

    arms = on_cpu(SUM, size, ours(reduce_sum, SUM, size))
    assert arms["ours"]["status"] == status
    assert (arms["torch"]["status"], arms["CUB"]["status"]) == ("ok", "not installed")


class Ones:
    """Stands for many ones, which would take seconds to add up."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def abs(self):
        return self

    def sum(self):
        return torch.tensor(float(self.n))


@pytest.mark.parametrize("power", [20, 24, 28, 30])
def test_a_block_that_is_lost_shows_at_every_size_and_roundings_do_not(power):
    right = torch.tensor([2.0 ** (power - 1)], dtype=torch.float64)
    allowed = bench_capstone.sum_allowed({"x": Ones(2**power)}, (right,))
    (most,) = allowed
    assert float(most) > 8 * bench_capstone.EPSILON * float(right)
    assert not differs([right + 0.9 * most], [right], torch.float32, allowed)
    assert differs([right + 1.1 * most], [right], torch.float32, allowed)
    assert differs([right * (1 - 1 / 1056)], [right], torch.float32, allowed)


class Captures(HostClock):
    """Runs what it captures, and is asked for `capturing` by a function that may not be captured."""

    capturing = False

    def graph(self, work):
        self.capturing = True
        try:
            work()
        finally:
            self.capturing = False
        return work


def test_a_launcher_that_cannot_be_captured_is_a_failed_arm_with_its_words():
    clock = Captures()

    def vector_add(x, y, *, sizes, out):  # noqa: ARG001  the interface
        if clock.capturing:
            raise RuntimeError("vector_add returned 900: operation not permitted when stream is capturing")
        torch.add(x, y, out=out)

    arms = on_cpu(ADD, {"n": 100}, ours(vector_add, ADD, {"n": 100}), clock)
    assert arms["ours"]["status"] == "failed"
    assert "returned 900: operation not permitted" in arms["ours"]["reason"]
    assert arms["torch"]["status"] == "ok"
    assert arms["torch"]["eager_us"] > 0.0


def swiglu(gate, up):
    return (gate * torch.sigmoid(gate) * up,)


def add_rms_norm(x, residual, weight):
    total = x + residual
    return (total / (total.square().mean(1, keepdim=True) + 1e-5).sqrt() * weight, total)


def attention(q, k, v):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return (scores.masked_fill(hidden, -float("inf")).softmax(-1) @ v,)


TRITON = {
    "swiglu": (swiglu, {"rows": 5, "cols": 130}),
    "add_rms_norm": (add_rms_norm, {"rows": 5, "cols": 130}),
    "attention": (attention, {"batch": 2, "heads": 3, "dim": 16, "length": 33}),
}


@pytest.mark.parametrize("name", TRITON)
def test_a_peer_in_pytorch_computes_what_the_formula_says(name, monkeypatch):
    reference, size = TRITON[name]
    monkeypatch.setitem(bench_ops.ASKED, name, (None, SimpleNamespace(reference=reference, native=None)))
    arms = on_cpu(BY_NAME[name], size, [])
    assert arms["torch"]["status"] == "ok", arms["torch"]["reason"]


class Largest(TorchDispatchMode):
    """Notes how many elements the largest tensor has that an operator makes."""

    elements = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        made = function(*arguments, **(keywords or {}))
        self.elements = max(self.elements, made.numel() if isinstance(made, torch.Tensor) else 0)
        return made


@pytest.mark.skipif("attention" not in bench_ops.ASKED, reason="there is no lab with an attention yet")
def test_the_reference_of_attention_holds_the_scores_of_one_head_at_a_time():
    op, size = BY_NAME["attention"], {"batch": 2, "heads": 3, "dim": 4, "length": 64}
    tensors = op.inputs(lambda *shape: torch.randn(shape).bfloat16(), size)
    with Largest() as largest:
        (found,) = op.expected(tensors)
    assert largest.elements == 64 * 64
    torch.testing.assert_close(found, *attention(*(one.double() for one in tensors.values())))


def child(monkeypatch, capsys, request, library):
    """What a process says, with a library in place of a compiled file, on the CPU."""
    monkeypatch.setattr(bench_native, "load", lambda _: library)
    monkeypatch.setattr(bench_rounds, "CudaClock", HostClock)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10**9, 10**9))
    monkeypatch.setattr(bench.gc, "disable", lambda: None)
    monkeypatch.setattr(
        bench_rounds,
        "measure",
        lambda op, size, arms, clock, *_: measure(op, size, arms, clock, Plan(2, 200.0, 1), "cpu"),
    )
    bench.child(request, 0)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def asked(tmp_path, n):
    return Request(tmp_path, ("vector_add",), False, (), 1, "", file=tmp_path / "mine.cu", size={"n": n})


def test_a_process_measures_a_native_file_at_the_size_that_was_asked_for(tmp_path, monkeypatch, capsys):
    library = Library()
    begun, found = child(monkeypatch, capsys, asked(tmp_path, 1001), library)
    assert begun == {"running": "n=1001"}
    assert (found["size"], library.sizes) == ({"n": 1001}, {(1001,)})
    assert found["arms"]["ours"]["status"] == "ok"


def test_a_size_that_does_not_fit_is_not_made_smaller(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit, match="n=1000000000 needs more memory than is free"):
        child(monkeypatch, capsys, asked(tmp_path, 10**9), Library())


def test_a_file_that_does_not_compile_is_a_failed_arm_with_the_words_of_the_compiler(
    tmp_path, monkeypatch, capsys
):
    broken = bench_native.Broken(7, 'identifier "offs" is undefined')
    _, found = child(monkeypatch, capsys, asked(tmp_path, 1000), broken)
    assert found["arms"]["ours"]["status"] == "failed"
    assert found["arms"]["ours"]["reason"] == 'BuildError: line 7: identifier "offs" is undefined'
    assert found["arms"]["torch"]["status"] == "ok"


def test_what_a_peer_chose_is_told_where_it_is_right():
    peer = replace(bench_native.CUBLASLT, chosen=lambda size: {"algorithm": f"2 of {size['m']}"})
    op = replace(PRODUCT, peers=(*PRODUCT.peers[:2], peer))
    found = {"size": SIDES, "arms": {peer.name: {"status": "ok"}}}
    assert bench._chosen(op, found) == {"cublasLt best of 8": {"algorithm": "2 of 33"}}
    found["arms"][peer.name]["status"] = "not installed"
    assert bench._chosen(op, found) == {}
