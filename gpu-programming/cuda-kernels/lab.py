"""The capstone's CUDA C++ kernels: what is asked of them, and how they are graded."""

import math

from grader.course.spec import Arm, Case, Codegen, Exercise, Lab, Native, Speed, Tolerance
from grader.course.symptoms import Symptom

EPSILON = {"fp32": 2.0**-23, "bf16": 2.0**-7}


# -- inputs


def add_inputs(rng, case):
    n = case.params["n"]
    return {"x": rng.normal(n), "y": rng.normal(n)}


def sum_inputs(rng, case):
    # It leans to one side: the sum of many numbers around 0 is all rounding.
    return {"x": rng.normal(case.params["n"]) + 0.5}


def product_inputs(rng, case):
    m, n, k = (case.params[name] for name in ("m", "n", "k"))
    return {"a": rng.normal(m, k), "b": rng.normal(n, k)}


# -- references


def add(x, y):
    return (x + y,)


def total(x):
    return (x.sum().reshape(1),)


def product(a, b):
    return (a @ b.T,)


# -- the size of one acceptable error


def add_unit(case, inputs, reference):
    return (EPSILON["fp32"] * reference[0].abs().clamp(min=1e-30),)


def sum_unit(case, inputs, reference):
    """Of partial sums in fp32, each rounded as often as a sum in tiers is deep."""
    x = inputs["x"]
    return (EPSILON["fp32"] * (x.abs().sum() * 8.0 / math.sqrt(max(len(x), 1)) + reference[0].abs() * 4.0),)


def product_unit(case, inputs, reference):
    share = EPSILON[case.dtype] + 0.5 * EPSILON["fp32"] * math.sqrt(case.params["k"])
    return (share * reference[0].abs().amax(dim=1, keepdim=True).clamp(min=1e-6),)


# -- baselines


def torch_add(x, y, *, out):
    import torch

    torch.add(x, y, out=out)


def torch_sum(x, *, out):
    import torch

    torch.sum(x, dim=0, keepdim=True, out=out)


def torch_mm(a, b, *, out):
    import torch

    torch.mm(a, b.t(), out=out)


# -- cases


def halved(params):
    return {name: side // 2 for name, side in params.items()}


def vector(n):
    return Case({"n": n}, "fp32")


def matrices(*sides):
    return tuple(Case(dict(zip("mnk", (side, side, side), strict=True)), "bf16") for side in sides)


VECTORS = tuple(vector(n) for n in (1, 3, 48, 127, 1023, 1552, 40003, 2**20 + 5))
# A file may have another kernel for long vectors, such as the timed ones.
EVERY_LENGTH = (*VECTORS, vector(2**26 + 12_293))
PRODUCTS = tuple(
    Case({"m": m, "n": n, "k": k}, "bf16")
    for m, n, k in (
        (1, 1, 1),
        (33, 17, 9),
        (64, 64, 64),
        (48, 80, 16),
        (16, 48, 80),
        (130, 127, 129),
        (256, 384, 512),
        (1000, 520, 264),
    )
)


def streaming(points, baseline, reads, writes):
    return Speed(
        points=points, shapes=(vector(2**28),), baselines=(baseline,), zero_at=30, passing_at=70, full_at=97,
        bytes_moved=lambda case: 4 * (reads * case.params["n"] + writes(case.params["n"])), smaller=halved,
    )  # fmt: skip


def of_cublas(points, side, zero_at, passing_at, full_at):
    return Speed(
        points=points, shapes=matrices(side), baselines=(Arm("cuBLAS", torch_mm),), zero_at=zero_at,
        passing_at=passing_at, full_at=full_at, bytes_moved=lambda case: 6 * case.params["m"] ** 2,
        flops=lambda case: 2 * case.params["m"] ** 3, smaller=halved,
    )  # fmt: skip


BY_SIDES = Native("matmul", lambda shapes: (shapes["a"][0], shapes["b"][0], shapes["a"][1]))


def by_length(symbol):
    return Native(symbol, lambda shapes: (shapes["x"][0],))


def matmul(name, file, points, speed=None):
    return Exercise(
        name, f"matmul/{file}", points, product_inputs, product, product, Tolerance(product_unit), PRODUCTS,
        speed=speed, codegen=Codegen(PRODUCTS[-1]), native=BY_SIDES,
    )  # fmt: skip


LAB = Lab(
    title="the capstone's CUDA kernels",
    headers=("program.cuh",),
    exercises=(
        Exercise(
            "vector_add", "vector_add/02_vectorised.cu", 10, add_inputs, add, add, Tolerance(add_unit),
            EVERY_LENGTH, speed=streaming(10, Arm("torch.add", torch_add), 2, lambda n: n),
            codegen=Codegen(VECTORS[-1]), native=by_length("vector_add"),
        ),
        Exercise(
            "reduce_sum", "reduction/05_deterministic.cu", 15, sum_inputs, total, total, Tolerance(sum_unit),
            EVERY_LENGTH, speed=streaming(15, Arm("torch.sum", torch_sum), 1, lambda n: 1),
            codegen=Codegen(VECTORS[-1]), native=by_length("reduce_sum"),
        ),
        matmul("matmul_naive", "01_naive.cu", 10),
        matmul("matmul_tiled", "02_coalesced_shared_tile.cu", 20, of_cublas(20, 4096, 0.05, 0.3, 0.5)),
    ),
    causes={
        Symptom.NOTHING_WRITTEN: (1, "the result never reaches `out`"),
        Symptom.OUT_OF_BOUNDS_WRITE: (
            1, "a store past the end: the last float4 or tile is seldom full, ask first",
        ),
        Symptom.OUT_OF_BOUNDS_READ: (
            1, "NaN from past the end: the last float4 or tile is seldom full, ask first",
        ),
        Symptom.NONDETERMINISTIC: (
            1, "two runs differ: threads or blocks meet at one place, and in any order",
        ),
        Symptom.PRECISION: (
            1, "right but for the last digits: keep the sum in fp32, and round once, at the store",
        ),
        Symptom.ALL_ZERO: (
            1, "every element is 0: does the share of each block reach `out`, and stay there?",
        ),
        Symptom.WRONG: (1, "start with one block, then two, then a size that no block divides"),
        Symptom.SLOW: (2, "look at how neighbouring threads read, and at how much each thread has in flight"),
    },
)  # fmt: skip
