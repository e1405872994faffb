"""Lab 3: what is asked of the matrix product and of its fused epilogue, and how they are graded."""

import math

from grader.course.spec import Arm, Case, Codegen, Exercise, Lab, Layout, Speed, Tolerance
from grader.course.symptoms import LabSymptom, Symptom

EPSILON = {"fp32": 2.0**-23, "fp16": 2.0**-10, "bf16": 2.0**-7}

# Whole numbers whose sums are exact in fp32 in any order, and wrong at once in anything less: odd, so that
# the last
# bit counts; beyond what TF32 holds for fp32, beyond what an fp16 sum holds for fp16.
EXACT = {"fp32": (1025, 2047), "fp16": (0, 511), "bf16": (0, 127)}
# Unit and largest number of units of a bias: whole numbers of the dtype, a third of the sums at K = 128.
EXACT_BIAS = {"fp32": (1, 16383), "fp16": (2, 2047), "bf16": (4, 255)}


def product_inputs(rng, case):
    m, n, k = case.params["m"], case.params["n"], case.params["k"]
    if case.bitwise:
        low, high = EXACT[case.dtype]
        odd = 2.0 * rng.integers(low, high, m, k) + 1.0
        sign = 2.0 * rng.integers(0, 1, m, k) - 1.0
        return {"a": odd * sign, "b": rng.integers(-1, 1, k, n)}
    return {"a": rng.normal(m, k), "b": rng.normal(k, n)}


def epilogue_inputs(rng, case):
    tensors = product_inputs(rng, case)
    n, k = case.params["n"], case.params["k"]
    if case.bitwise:
        step, most = EXACT_BIAS[case.dtype]
        return {**tensors, "bias": step * rng.integers(-most, most, n)}
    # As large as the products' sums: a wrong bias is no matter of digits.
    return {**tensors, "bias": math.sqrt(k) * rng.normal(n)}


def with_bias(a, b, bias):
    return ((a @ b + bias).clamp(min=0.0),)


def torch_mm(a, b, *, out):
    import torch

    torch.mm(a, b, out=out)


def unit(case, inputs, reference):
    """Relative to the largest value of the row: one rounding to the dtype, and an fp32 sum over K."""
    (expected,) = reference
    share = EPSILON[case.dtype] + 0.5 * EPSILON["fp32"] * math.sqrt(case.params["k"])
    return (share * expected.abs().amax(dim=1, keepdim=True).clamp(min=1e-6),)


class Mistake(LabSymptom):
    """Symptoms that only these exercises recognise, named after the mistake."""

    SWAPPED_STRIDES = "swapped strides"
    STRIDES_IGNORED = "strides ignored"
    TAIL_OF_K_DROPPED = "tail of k dropped"
    POINTERS_STAND_STILL = "pointers stand still"
    FIRST_BLOCK_OF_K_ONLY = "first block of k only"
    PART_OF_K_MISSING = "part of k missing"
    STARTS_FROM_OUT = "starts from out"
    OVERFLOW_TO_INF = "overflow to inf"
    NO_BIAS = "no bias"
    NO_RELU = "no relu"
    BIAS_BY_ROW = "bias by row"
    BIAS_IN_EVERY_STEP = "bias in every step"
    RELU_BEFORE_BIAS = "relu before bias"
    WRONG_HALF = "wrong half"
    RELU_UNASKED = "relu unasked"
    ROUNDED_BEFORE_BIAS = "rounded before bias"


def symptom_of(case, inputs, expected, got):
    a, b = inputs["a"].double(), inputs["b"].double()
    m, n, k = case.params["m"], case.params["n"], case.params["k"]
    if not got.isfinite().all():
        return _symptom_of_nonfinite(case, got)

    def finish(sums):
        return (sums + bias).clamp(min=0.0) if fused else sums

    fused = "bias" in inputs
    if fused:
        bias = inputs["bias"].double()
        if _close(got, (a @ b).clamp(min=0.0)):
            return Mistake.NO_BIAS
        if _close(got, a @ b + bias):
            return Mistake.NO_RELU
        if symptom := _symptom_of_epilogue(case, inputs, a @ b, bias, got):
            return symptom
    elif _close(got, expected.clamp(min=0.0)):
        return Mistake.RELU_UNASKED
    if (m == n == k and any(_close(got, finish(sums)) for sums in (a.T @ b, a @ b.T, a.T @ b.T))) or (
        m == n and _close(got, expected.T)
    ):
        return Mistake.SWAPPED_STRIDES
    if _ignores_strides(case, a, b, finish, got):
        return Mistake.STRIDES_IGNORED
    for block in (16, 32, 64, 128):
        kept = k // block * block
        if 0 < kept < k and _close(got, finish(a[:, :kept] @ b[:kept])):
            return Mistake.TAIL_OF_K_DROPPED
        rest = k - kept
        still = kept // block * (a[:, :block] @ b[:block]) + a[:, :rest] @ b[:rest]
        if k > block and _close(got, finish(still)):
            return Mistake.POINTERS_STAND_STILL
    return None if fused else _symptom_of_k(a, b, got)


def _symptom_of_nonfinite(case, got):
    """NaN everywhere where no block has a tail: it was in `out`. Only inf: a sum left the range of fp16."""
    whole = all(side % 128 == 0 for side in case.params.values())
    if got.isnan().all() and whole:
        return Mistake.STARTS_FROM_OUT
    return Mistake.OVERFLOW_TO_INF if not got.isnan().any() else None


def _symptom_of_epilogue(case, inputs, sums, bias, got):
    """A bias of the wrong place, number or moment, or another clamp."""
    m, k = case.params["m"], case.params["k"]
    if _close(got, (sums + bias).clamp(max=0.0)):
        return Mistake.WRONG_HALF
    if _close(got, sums.clamp(min=0.0) + bias):
        return Mistake.RELU_BEFORE_BIAS
    if m <= bias.numel() and _close(got, (sums + bias[:m, None]).clamp(min=0.0)):
        return Mistake.BIAS_BY_ROW
    for block in (16, 32, 64, 128):
        steps = math.ceil(k / block)
        if steps > 1 and _close(got, (sums + steps * bias).clamp(min=0.0)):
            return Mistake.BIAS_IN_EVERY_STEP
    twice = (sums.to(inputs["a"].dtype) + inputs["bias"]).clamp(min=0.0).double()
    return Mistake.ROUNDED_BEFORE_BIAS if (got == twice).double().mean() > 0.999 else None


def _ignores_strides(case, a, b, finish, got):
    """Whether a transposed operand was read as if its rows lay one behind the other."""

    def packed(name, matrix):
        layout = case.layouts.get(name)
        plain = layout is None or not layout.transposed or layout.pad
        return matrix if plain else matrix.T.reshape(matrix.shape)

    read_a, read_b = packed("a", a), packed("b", b)
    ignored = (read_a, b), (a, read_b), (read_a, read_b)
    return any(not (x is a and y is b) and _close(got, finish(x @ y)) for x, y in ignored)


def _symptom_of_k(a, b, got):
    """Which of the blocks of K are in the sum, from a least squares fit to one corner of the result."""
    import torch

    blocks = a.shape[1] // 16
    # One tile of any config, where that gives numbers enough to keep the noise of a share below 1/8.
    side = next((side for side in (32, 64, 128) if side * side >= 64 * blocks), 0)
    if blocks < 2 or not side or min(got.shape) < side:
        return None
    parts = [a[:side, 16 * i : 16 * i + 16] @ b[16 * i : 16 * i + 16, :side] for i in range(blocks)]
    columns = torch.stack([part.flatten() for part in parts], dim=1)
    shares = torch.linalg.lstsq(columns, got[:side, :side].reshape(-1, 1)).solution.flatten()
    present = shares > 0.5
    count = int(present.sum())
    if count in (0, blocks):
        return None
    return Mistake.FIRST_BLOCK_OF_K_ONLY if present[:count].all() else Mistake.PART_OF_K_MISSING


def _close(x, y):
    return bool((x - y).norm() < 1e-2 * y.norm())


def sizes(m, n, k):
    return {"m": m, "n": n, "k": k}


NT, TN = {"b": Layout(transposed=True)}, {"a": Layout(transposed=True)}
TN_PADDED = {"a": Layout(transposed=True), "b": Layout(pad=8), "out": Layout(pad=5)}
# Rows of A and of the result that begin beyond 2^31 elements.
FAR = {"a": Layout(far=True), "out": Layout(far=True)}
SQUARE = sizes(192, 192, 192)
PADDED, ACROSS, SPREAD = Layout(pad=16), Layout(transposed=True), Layout(step=2)
# Each pair of these layouts for each pair of matrices.
PAIRS = tuple(
    {"a": (PADDED, ACROSS, SPREAD)[i], "b": (PADDED, ACROSS, SPREAD)[k],
     "out": (PADDED, ACROSS, SPREAD)[(i + k) % 3]}
    for i in range(3) for k in range(3)
)  # fmt: skip
# In each dimension multiples of 16, 32, 64 and 128 that twice as much does not divide.
EVEN = ((48, 160, 96), (96, 48, 80), (160, 96, 192), (16, 192, 384))

EXACT_CASES = tuple(
    Case(sizes(*shape), dtype, layouts, bitwise=True)
    for dtype in ("fp32", "fp16", "bf16")
    for shape, layouts in (((128, 128, 128), {}), ((129, 127, 200), NT))
)
TAIL_CASES = tuple(
    Case(sizes(*shape), dtype, layouts)
    for dtype in ("fp32", "fp16", "bf16")
    for shape, layouts in (
        ((1, 1, 1), {}),
        ((100, 300, 257), {}),
        ((33, 65, 17), NT),
        ((65, 40, 129), TN_PADDED),
    )
)
MATMUL_CASES = (
    *EXACT_CASES,
    *TAIL_CASES,
    Case(SQUARE, "fp32"),
    Case(sizes(3, 517, 64), "fp16"),
    Case(sizes(517, 3, 64), "fp16"),
    Case(sizes(24, 16, 4096), "fp16"),
    Case(sizes(17, 30, 2601), "fp16"),  # split among programs, K gives no equal shares of whole blocks
    Case(sizes(521, 389, 40), "fp16"),  # more tiles than persistent kernels usually have programs
    *(Case(sizes(*shape), "bf16") for shape in ((3, 517, 64), (1031, 1027, 521), (1024, 1024, 1024))),
    Case(sizes(1024, 1024, 1024), "bf16", NT),
    Case(sizes(1024, 512, 4096), "bf16", bitwise=True),
    *(
        Case(sizes(33, 65, 17), dtype, layouts, allocates=True)
        for dtype, layouts in (("fp32", NT), ("fp16", NT), ("fp32", TN))
    ),
    Case(sizes(3, 70, 150), "fp16", FAR),
    *(Case(sizes(*shape), dtype) for shape in EVEN for dtype in ("fp16", "bf16")),
    Case(sizes(*EVEN[1]), "fp32"),
    *(Case(sizes(19, 21, 40), ("fp32", "fp16", "bf16")[k % 3], pair) for k, pair in enumerate(PAIRS)),
)
EPILOGUE_CASES = (
    *(Case(sizes(128, 128, 128), dtype, bitwise=True) for dtype in ("fp32", "fp16", "bf16")),
    *(Case(sizes(*shape), dtype, layouts)
      for dtype in ("fp32", "fp16", "bf16")
      for shape, layouts in (((100, 300, 257), {}), ((65, 40, 129), TN_PADDED))),
    Case(sizes(1031, 1027, 521), "bf16"),
    Case(sizes(33, 65, 17), "fp16", TN, allocates=True),
    Case(sizes(3, 70, 150), "fp16", FAR),
    *(Case(sizes(*shape), dtype)
      for shape, dtype in zip(EVEN, ("fp16", "fp32", "fp16", "bf16"), strict=True)),
    *(Case(sizes(19, 21, 40), ("fp32", "bf16", "fp16")[k % 3], pair) for k, pair in enumerate(PAIRS[::-2])),
)  # fmt: skip
SIDE = 4096
CODEGEN_CASE = Case(sizes(SIDE, SIDE, SIDE), "bf16")

LAB = Lab(
    title="autotuned matmul",
    teaches="tiles, tensor cores, autotuning, an epilogue",
    also_allowed=("triton.experimental.gluon", "triton.tools.tensor_descriptor"),
    exercises=(
        Exercise(
            name="matmul",
            file="autotuned_matmul.py",
            points=30,
            inputs=product_inputs,
            reference=lambda a, b: (a @ b,),
            torch_op=lambda a, b: (a @ b,),
            tolerance=Tolerance(unit),
            cases=MATMUL_CASES,
            symptom_of=symptom_of,
            splits_sums=True,
            speed=Speed(
                points=40,
                shapes=tuple(Case(sizes(side, side, side), "bf16") for side in (SIDE, 2 * SIDE)),
                baselines=(
                    Arm("torch.mm NN", torch_mm),
                    Arm("torch.mm NT", torch_mm, {"b": Layout(transposed=True)}),
                ),
                zero_at=30,
                passing_at=70,
                full_at=90,
                bytes_moved=lambda case: 2 * 3 * case.params["m"] ** 2,
                flops=lambda case: 2 * case.params["m"] * case.params["n"] * case.params["k"],
                smaller=lambda params: {name: side // 2 for name, side in params.items()},
            ),
            codegen=Codegen(CODEGEN_CASE, {"tensor cores": 5, "no spills": 5}),
        ),
        Exercise(
            name="matmul_bias_relu",
            file="autotuned_matmul.py",
            points=20,
            inputs=epilogue_inputs,
            reference=with_bias,
            torch_op=with_bias,
            tolerance=Tolerance(unit),
            cases=EPILOGUE_CASES,
            symptom_of=symptom_of,
            splits_sums=True,
            codegen=Codegen(CODEGEN_CASE),
        ),
    ),
    causes={
        Symptom.NOTHING_WRITTEN: (
            5,
            "the tiles never reach `out`: a new tensor was filled, or nothing was launched",
        ),
        Symptom.TAIL_UNWRITTEN: (
            1,
            "the last tiles have no program: look at what the grid counts, and at the last group",
        ),
        Symptom.PART_UNWRITTEN: (
            1,
            "whole tiles belong to no program: look at how pid becomes pid_m and pid_n",
        ),
        Mistake.SWAPPED_STRIDES: (
            2,
            "a transposed matrix was read or stored: row index times row stride, column times column stride",
        ),
        Mistake.STRIDES_IGNORED: (
            2,
            "right for contiguous matrices only: pass both strides of A and of B, and use them",
        ),
        Mistake.TAIL_OF_K_DROPPED: (
            3,
            "the last, partial block of K is missing: loop to cdiv(K, BLOCK_K), and mask it",
        ),
        Mistake.POINTERS_STAND_STILL: (
            3,
            "only the first block of K was summed: advance both pointers by BLOCK_K strides",
        ),
        Mistake.FIRST_BLOCK_OF_K_ONLY: (
            3,
            "right in the first block of K only: move each operand by BLOCK_K times its own stride along K",
        ),
        Mistake.PART_OF_K_MISSING: (
            3,
            "some blocks of K are missing: add each product to acc, and let no other program store your tile",
        ),
        Symptom.FIRST_CALL: (
            7,
            "only the first call with these sizes is wrong: the autotuner runs each config on the same "
            "`out`, so a kernel that adds to it must find it cleared each time",
        ),
        Symptom.ALL_ZERO: (
            3,
            "every element is 0: tl.dot changes no argument, it returns the sum: acc = tl.dot(a, b, acc)",
        ),
        Mistake.STARTS_FROM_OUT: (
            5,
            "NaN everywhere: `out` holds NaN before the call, so acc starts from tl.zeros, and `out` is "
            "cleared before atomics add to it",
        ),
        Mistake.OVERFLOW_TO_INF: (
            4,
            "inf from ordinary numbers: a sum beyond 65504 became fp16; sum in fp32, store in the dtype of C",
        ),
        Symptom.NOT_FINITE: (
            3,
            "NaN or inf: the last block of K reads past the end unless both loads are masked",
        ),
        Symptom.PRECISION: (
            4,
            "the sum lost digits: fp32 accumulator, input_precision='ieee', one rounding at the store",
        ),
        Symptom.NONDETERMINISTIC: (
            5,
            "two runs differ: two programs write the same tile, or add to an uncleared `out`",
        ),
        Symptom.OUT_OF_BOUNDS_WRITE: (
            5,
            "the store needs both masks, rows below M and columns below N, and both strides of `out`",
        ),
        Symptom.OUT_OF_BOUNDS_READ: (
            3,
            "NaN from outside a matrix: mask the rows of A, the columns of B and the last block of K",
        ),
        Mistake.NO_BIAS: (6, "the bias is missing: add it to the fp32 sums, one value for each column"),
        Mistake.NO_RELU: (6, "negative values remain: clamp the sums at 0 after the bias"),
        Mistake.BIAS_BY_ROW: (
            6,
            "the bias follows the rows: it has one value for each column, bias[None, :]",
        ),
        Mistake.BIAS_IN_EVERY_STEP: (
            6,
            "the bias is added in each step along K: add it once, after the loop",
        ),
        Mistake.RELU_BEFORE_BIAS: (6, "the clamp comes before the bias: add first, then clamp"),
        Mistake.WRONG_HALF: (6, "the negative values are kept and the positive lost: tl.maximum(..., 0)"),
        Mistake.RELU_UNASKED: (6, "matmul clamps its sums too: bias and ReLU belong below `if BIAS_RELU`"),
        Mistake.ROUNDED_BEFORE_BIAS: (
            6,
            "rounded twice: add the bias and clamp in fp32, and convert at the store",
        ),
        Symptom.SCALED: (
            7,
            "all elements are off by one factor: where trials of the autotuner each add to `out`, it needs "
            "reset_to_zero",
        ),
        Symptom.MUTATED: (
            5,
            "an input was written to: the result belongs in `out`; compare the order of the arguments in "
            "kernel and launch",
        ),
        Symptom.LAST_COLUMNS_WRONG: (
            2,
            "look at the strides of B and of the result, and at the mask of columns",
        ),
        Symptom.LAST_ROWS_WRONG: (2, "look at the strides of A and of the result, and at the mask of rows"),
        Symptom.SHARED_MEMORY: (
            7,
            "a config wants more shared memory than a block may use: fewer stages or a smaller tile",
        ),
        Symptom.SPILLS: (7, "what a thread holds does not fit its registers: a smaller tile, or more warps"),
        Symptom.NO_TENSOR_CORES: (
            9,
            "tl.dot on 16-bit operands with tiles of at least 16 x 16 x 16 uses tensor cores",
        ),
        Symptom.OFFSETS_WRAP: (
            2,
            "right where rows lie close together: beyond 2^31 elements, row number times stride needs int64",
        ),
        Symptom.WRONG: (1, "try 16 x 16 x 16 with one tile first, then M different from N, then tails"),
        Symptom.SLOW: (
            9,
            "try larger tiles (128 x 256 x 64), 8 warps, 3 or 4 stages, and the grouped order of tiles",
        ),
    },
)
