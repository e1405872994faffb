"""The capstone's operations of `make bench`: three in CUDA C++, three in Triton, if their lab is present."""

from __future__ import annotations

import math

import torch

from grader.course.catalog import CAPSTONE
from grader.course.spec import Case
from grader.measure.bench import native as bench_native
from grader.measure.bench import peers as by
from grader.measure.bench.ops import ASKED, ELEMENTS, VECTORS, Op, Size
from grader.measure.bench.peers import Peer, compiled, plain

CUDA, TRITON = f"{CAPSTONE}/cuda-kernels", f"{CAPSTONE}/triton-kernels"
EPSILON = torch.finfo(torch.float32).eps
BLOCK = 256  # numbers that a block adds up, at least, before its sum is added to those of other blocks

SUMS = tuple({"n": 2**k} for k in (20, 24, 28, 30))
SQUARES = tuple({"m": side, "n": side, "k": side} for side in (1024, 2048, 4096, 8192, 16384))
GATES = tuple({"rows": 2**k // 4096, "cols": 4096} for k in range(20, 29, 2))
ROWS = tuple({"rows": ELEMENTS // 2**k, "cols": 2**k} for k in range(10, 16))
# The length is last because the last side is the axis of a plot.
HEADS = tuple({"batch": 4, "heads": 16, "dim": 128, "length": 2**k} for k in range(9, 15))
BACKENDS = {"flash": by.SDPBackend.FLASH_ATTENTION, "cuDNN": by.SDPBackend.CUDNN_ATTENTION}


def sum_allowed(tensors, expected) -> tuple[torch.Tensor]:
    """Return the error allowed for an fp32 sum: the lab's tolerance, plus roundings of the blocks' sums.

    Each of n / BLOCK additions to one number rounds by at most half a unit in the last place, in either
    direction, so the error grows with the square root of their number. A lost block of a resident grid is
    noticed at any n.
    """
    tolerance, n = ASKED["reduce_sum"][1].tolerance, len(tensors["x"])
    (unit,) = tolerance.unit(Case({"n": n}, "fp32"), tensors, expected)
    return (tolerance.floor * unit + EPSILON * math.sqrt(n / BLOCK) * expected[0].abs(),)


def _product_inputs(normal, s):
    a, b = normal(s["m"], s["k"]), normal(s["n"], s["k"])
    return {"a": a, "b": b, "b_nn": b.t().contiguous()}


def _heads(s: Size) -> tuple[int, ...]:
    return tuple(s[side] for side in ("batch", "heads", "length", "dim"))


def _sdpa(name: str, *backends) -> Peer:
    return plain(name, by.attention(*backends), "q", "k", "v")


ALL = (
    Op(
        "vector_add", f"{CUDA}/vector_add/02_vectorised.cu",
        (*VECTORS[:2], *VECTORS[3:]), (VECTORS[1], VECTORS[3]), ("n",),
        lambda normal, s: {"x": normal(s["n"]), "y": normal(s["n"])}, ("x", "y"),
        lambda s: {"out": (s["n"],)},
        bytes_moved=lambda s: 12 * s["n"], operations=lambda s: s["n"], dtype=torch.float32,
        peers=(Peer("torch", lambda s: lambda: (torch.add(s["x"], s["y"], out=s["out"]),)),),
    ),
    Op(
        "reduce_sum", f"{CUDA}/reduction/05_deterministic.cu", SUMS, (SUMS[1], SUMS[2]), ("n",),
        # With mean 0 the sum would consist of rounding errors.
        lambda normal, s: {"x": normal(s["n"]).add_(0.5)}, ("x",), lambda _: {"out": (1,)},
        bytes_moved=lambda s: 4 * s["n"] + 4, operations=lambda s: s["n"], dtype=torch.float32,
        peers=(
            Peer("torch", lambda s: lambda: (torch.sum(s["x"], 0, keepdim=True, out=s["out"]),)),
            bench_native.CUB,
        ),
        baselines=("torch", "CUB"), allowed=sum_allowed, scratch=lambda s: 16 * s["n"],
    ),
    Op(
        "cuda_matmul", f"{CUDA}/matmul/02_coalesced_shared_tile.cu", SQUARES, (SQUARES[2], SQUARES[3]),
        ("m", "n", "k"), _product_inputs, ("a", "b"), lambda s: {"out": (s["m"], s["n"])},
        bytes_moved=lambda s: 2 * (s["m"] * s["k"] + s["k"] * s["n"] + s["m"] * s["n"]),
        operations=lambda s: 2 * s["m"] * s["n"] * s["k"], by_arithmetic=True, exercise="matmul_tiled",
        peers=(
            Peer("torch.mm NT", lambda s: lambda: (torch.mm(s["a"], s["b"].t(), out=s["out"]),)),
            Peer("torch.mm NN", lambda s: lambda: (torch.mm(s["a"], s["b_nn"], out=s["out"]),)),
            bench_native.CUBLASLT,
        ),
        baselines=("torch.mm NT", "torch.mm NN", bench_native.CUBLASLT.name),
    ),
    Op(
        "swiglu", f"{TRITON}/swiglu.py", GATES, (GATES[2], GATES[4]), ("rows",),
        lambda normal, s: {key: normal(s["rows"], s["cols"]) for key in ("gate", "up")}, ("gate", "up"),
        lambda s: {"out": (s["rows"], s["cols"])},
        bytes_moved=lambda s: 6 * s["rows"] * s["cols"], operations=lambda s: 5 * s["rows"] * s["cols"],
        peers=(plain("torch", by.swiglu, "gate", "up"), compiled(by.swiglu, "gate", "up")),
    ),
    Op(
        "add_rms_norm", f"{TRITON}/add_rms_norm.py", ROWS, (ROWS[2], ROWS[5]), ("rows",),
        lambda normal, s: {key: normal(s["rows"], s["cols"]) for key in ("x", "residual")}
        | {"weight": normal(s["cols"])},
        ("x", "residual", "weight"), lambda s: dict.fromkeys(("out", "total"), (s["rows"], s["cols"])),
        bytes_moved=lambda s: 2 * (4 * s["rows"] + 1) * s["cols"],
        operations=lambda s: 5 * s["rows"] * s["cols"],
        peers=(
            plain("torch", by.add_rms_norm, "x", "residual", "weight"),
            compiled(by.add_rms_norm, "x", "residual", "weight"),
        ),
    ),
    Op(
        "attention", f"{TRITON}/attention.py", HEADS, (HEADS[2], HEADS[4]), ("heads",),
        lambda normal, s: {key: normal(*_heads(s)) for key in "qkv"}, ("q", "k", "v"),
        lambda s: {"out": _heads(s)},
        bytes_moved=lambda s: 8 * math.prod(_heads(s)),
        # Two products, 4 operations for each pair of positions and each dim; half of the pairs are masked.
        operations=lambda s: 2 * math.prod(_heads(s)) * s["length"], by_arithmetic=True,
        peers=(_sdpa("torch"), *(_sdpa(f"torch {name}", backend) for name, backend in BACKENDS.items())),
        baselines=("torch", *(f"torch {name}" for name in BACKENDS)),
        # The reference computes one head at a time: eight times the scores of one head, in fp64.
        scratch=lambda s: 64 * math.prod(_heads(s)) + 64 * s["length"] ** 2,
    ),
)  # fmt: skip
OPS = tuple(op for op in ALL if (op.exercise or op.name) in ASKED)
