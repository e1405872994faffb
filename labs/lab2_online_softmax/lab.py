"""Lab 2: what is asked of the online softmax, its gradient and its autograd function, and how they are
graded.
"""

from grader.course.spec import Arm, Case, Codegen, Exercise, Lab, Layout, Speed, Tolerance
from grader.course.symptoms import LabSymptom, Symptom

EPSILON = {"fp32": 2.0**-23, "fp16": 2.0**-10, "bf16": 2.0**-7}
SMALLEST = {"fp32": 2.0**-126, "fp16": 2.0**-14, "bf16": 2.0**-126}  # smallest normal number
LARGEST = {"fp32": 2.0**90, "fp16": 2.0**15, "bf16": 2.0**90}  # powers of two: see `far`
ITEM_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


def far(x, nearest):
    """Return powers of two from `nearest` on, up to 8 times as far from 0, by the size of x.

    Differences are so large that exp gives 0 or 1. Other numbers, multiplied by log2(e) before the maximum is
    subtracted, would lose the digits that decide.
    """
    return nearest * 2.0 ** x.abs().round().clamp(max=3.0)


def logits(rng, case):
    rows, cols, values = case.params["rows"], case.params["cols"], case.params.get("values", "normal")
    x = rng.normal(rows, cols, std=2.0)
    if values == "offset":  # x * log2(e), taken before the maximum is subtracted, loses digits
        x = x + 16384.0
    if values == "huge":  # exp overflows without the maximum subtracted
        x = far(x, 1024.0)
    if values == "negative":  # exp vanishes if a maximum starts at 0, or is that of the row beside it
        x[::2] = far(x[::2], -256.0)
    if values == "far below":  # a number that stands in for -inf may not be above them
        x = far(x, -32768.0)
    if values == "lowest":  # the same number at half of the columns, and less at the others
        x = (0.0 * x - LARGEST[case.dtype]).where(rng.uniform(rows, cols) > 0.5, -1.08 * LARGEST[case.dtype])
    if values == "outlier":  # one number towers over its row, in which it stands anywhere
        x = x.where(x < x.amax(dim=1, keepdim=True), 60.0)
    if values == "ascending":  # every block raises the maximum
        x = x.sort(dim=1).values
    if values == "descending":
        x = x.sort(dim=1, descending=True).values
    if values == "constant":
        x = x[:, :1] + 0.0 * x
    if values == "masked":  # a causal mask: -inf from the first column to the last but 97
        x[:, : cols - 97] = -float("inf")
    if values == "masked below":  # the same before values whose exp is 0 unless the maximum is subtracted
        x = far(x, -256.0)
        x[:, : cols - 97] = -float("inf")
    return x


def forward_inputs(rng, case):
    return {"x": logits(rng, case)}


def backward_inputs(rng, case):
    # y rounds to the case's dtype when it is lent; dy leans to one side, so that the sum of y * dy matters.
    return {
        "dy": rng.normal(case.params["rows"], case.params["cols"], mean=1.0),
        "y": logits(rng, case).softmax(dim=1),
    }


def gradient_inputs(rng, case):
    return {"x": logits(rng, case), "dy": rng.normal(case.params["rows"], case.params["cols"], mean=1.0)}


def softmax_units(case, x, y):
    """One rounding to the dtype, and fp32 errors of exp, which grow with the distance from the maximum."""
    distance = (x.amax(dim=1, keepdim=True) - x).clamp(max=200.0)
    fp32 = 8.0 * EPSILON["fp32"] * (1.0 + distance) * y
    return EPSILON[case.dtype] * y.clamp(min=SMALLEST[case.dtype]) + fp32 + 4.0 * SMALLEST["fp32"]


def gradient_units(case, dy, y, dx, y_error):
    """One rounding of dx, and the error of the factors: fp32 sums, and `y_error`, relative to y."""
    size = y * (dy.abs() + (y * dy.abs()).sum(dim=1, keepdim=True))
    rounding = EPSILON[case.dtype] * dx.abs().clamp(min=SMALLEST[case.dtype])
    return rounding + (8.0 * EPSILON["fp32"] + y_error) * size + 4.0 * SMALLEST["fp32"]


def forward_unit(case, inputs, reference):
    return (softmax_units(case, inputs["x"], reference[0]),)


def backward_unit(case, inputs, reference):
    return (gradient_units(case, inputs["dy"], inputs["y"], reference[0], 0.0),)


def both_units(case, inputs, reference):
    y, dx = reference
    x, dy = inputs["x"], inputs["dy"]
    # Backward starts from the rounded y, whose error relative to y is that of the forward pass.
    y_error = softmax_units(case, x, y) / y.clamp(min=SMALLEST[case.dtype])
    return softmax_units(case, x, y), gradient_units(case, dy, y, dx, y_error)


def backward(dy, y):
    return y * (dy - (y * dy).sum(dim=1, keepdim=True))


def softmax_and_gradient(x, dy):
    y = x.softmax(dim=1)
    return y, backward(dy, y)


def torch_backward(dy, y):
    import torch

    return (torch.ops.aten._softmax_backward_data(dy, y, 1, dy.dtype),)


def torch_both(x, dy):
    y = x.softmax(dim=1)
    return y, torch_backward(dy, y)[0]


def copy(x, *, out):
    out.copy_(x)


def torch_softmax(x, *, out):
    import torch

    torch.softmax(x, dim=1, out=out)


def add(dy, y, *, out):
    import torch

    torch.add(dy, y, out=out)


def torch_softmax_backward(dy, y, *, out):
    import torch

    torch.ops.aten._softmax_backward_data.out(dy, y, 1, dy.dtype, grad_input=out)


class Mistake(LabSymptom):
    """Symptoms that only these exercises recognise, named after the mistake."""

    SUMS_BELOW_ONE = "sums below one"
    SUMS_ABOVE_ONE = "sums above one"
    SUM_NOT_RESCALED = "sum not rescaled"
    TOO_FLAT = "too flat"
    WRONG_AXIS = "wrong axis"
    NO_SUM = "no sum"
    FACTORS_EXCHANGED = "factors exchanged"
    WRONG_SUM = "wrong sum"
    INFINITE_SUM = "infinite sum"


def symptom_of_forward(case, inputs, expected, got):
    x, sums = inputs["x"].double(), got.sum(dim=1)
    if sums.isfinite().all() and _close(got, (0.6931471805599453 * x).softmax(dim=1), expected):
        return Mistake.TOO_FLAT
    # What rounding may add up to: a share of each element, and for fp16 the spacing of its smallest numbers.
    slack = {"fp32": 1e-4, "fp16": 1e-3 + x.shape[1] * 2.0**-25, "bf16": 8e-3}[case.dtype]
    if not sums.isfinite().all() or (sums - 1.0).abs().max() <= slack:
        return None
    if x.shape[0] > 1 and (got.sum(dim=0) - 1.0).abs().max() < 1e-2:
        return Mistake.WRONG_AXIS
    # Medians, because the smallest numbers of fp16 are rounded far.
    first, last = (
        (got / expected)[:, part].nanmedian(dim=1).values for part in (slice(99), slice(-99, None))
    )
    if (first > 1.1).all() and ((last - 1.0).abs() < 1e-2).all():
        return Symptom.FIRST_BLOCKS_WRONG
    if (sums <= slack).all():
        return Mistake.SUMS_BELOW_ONE
    # Masked lanes that were counted add as many terms exp(0 - m) to each row's sum as the last block lacks.
    top = x.amax(dim=1)
    lanes = (1.0 / sums - 1.0) * (x - top[:, None]).exp().sum(dim=1) * top.exp()
    missing = [-x.shape[1] % 2**k for k in range(18)]
    if any(lack and ((lanes - lack).abs() <= 0.1 * lack).all() for lack in missing):
        return Mistake.SUMS_BELOW_ONE
    if case.dtype != "fp32" and (sums - 1.0).abs().max() < 0.05:
        return None  # sums of many roundings look like this, too
    return Mistake.SUMS_ABOVE_ONE if (sums > 1.0 + slack).any() else Mistake.SUM_NOT_RESCALED


def symptom_of_backward(case, inputs, expected, got):
    dy, y = inputs["dy"].double(), inputs["y"].double()
    if got.isinf().any() and not got.isnan().any():
        return Mistake.INFINITE_SUM
    if not got.isfinite().all():
        return None
    if _close(got, y * dy, expected):
        return Mistake.NO_SUM
    if _close(got, dy * (y - (y * dy).sum(dim=1, keepdim=True)), expected):
        return Mistake.FACTORS_EXCHANGED
    error = (got - expected).abs()
    bad = error > 1e-2 * (expected.abs() + y * dy.abs())
    everywhere = bad.any(dim=1).all() and bad[:, 0].any() and bad[:, -1].any()
    return Mistake.WRONG_SUM if everywhere and error.norm() > 3e-2 * expected.norm() else None


def _close(got, other, expected):
    """Whether a result is this other one, and these inputs tell the two apart."""
    size = other.abs().max()
    return bool((got - other).abs().max() < 1e-2 * size and (other - expected).abs().max() > 1e-2 * size)


def shapes(rows, cols, **more):
    return {"rows": rows, "cols": cols, **more}


PADDED = {"x": Layout(pad=24), "out": Layout(pad=7)}
SMALL = ((1, 1), (3, 2), (5, 127), (5, 128), (4, 129), (29, 1001))
LONG = ((3, 16385), (2, 40000), (1, 131072))
# Multiples of 16, 512 and 8192 that twice as much does not divide.
EVEN = ((3, 48), (2, 1536), (1, 24576))
# A prime number of rows, more than there usually are programs; whole blocks alone, in more than one row.
MANY, WHOLE = (149, 3), (3, 4096)
SIX_BLOCKS = (3, 2600)  # of 512 columns, three of 1024: a count of warps that follows it is no power of two
NARROW = (37, 100)  # a program may have several of these rows, each of which has a maximum of its own
SPREAD = Layout(step=2)
FAR = Layout(far=True)
# Of a row whose largest values are all the same: one share, which may have few digits, or be seen before.
ONE_VALUE = ("an earlier result", "fewer digits")

FORWARD_CASES = (
    *(Case(shapes(r, c), "fp32") for r, c in (*SMALL, *LONG)),
    *(Case(shapes(r, c), "fp16") for r, c in (*SMALL[2:], LONG[1])),
    *(Case(shapes(r, c), "bf16") for r, c in (*SMALL, *LONG, (1000, 3001))),
    *(Case(shapes(7, 20011, values=values), "fp32") for values in ("ascending", "descending", "masked")),
    Case(shapes(5, 1009, values="offset"), "fp32"),
    *(
        Case(shapes(7, 20011, values=values), "fp32", also_right=ONE_VALUE)
        for values in ("huge", "negative", "masked below")
    ),
    Case(shapes(*NARROW, values="negative"), "fp32", also_right=ONE_VALUE),
    *(Case(shapes(*shape), dtype) for shape, dtype in zip(EVEN, ("fp16", "fp32", "fp32"), strict=True)),
    Case(shapes(3, 1009, values="outlier"), "fp32"),
    Case(shapes(3, 1009, values="far below"), "fp32", also_right=ONE_VALUE),
    *(
        Case(shapes(3, 1009, values="lowest"), dtype, also_right=ONE_VALUE)
        for dtype in ("fp32", "fp16", "bf16")
    ),
    Case(shapes(7, 1009, values="constant"), "fp32", also_right=("uniform", "an earlier result")),
    *(Case(shapes(29, 1001), dtype, PADDED) for dtype in ("fp32", "fp16", "bf16")),
    *(Case(shapes(5, 127), dtype, {"x": Layout(pad=9)}, allocates=True) for dtype in ("fp32", "fp16")),
    *(Case(shapes(*shape), dtype) for shape, dtype in ((MANY, "fp32"), (WHOLE, "fp16"))),
    Case(shapes(3, 1009), "fp32", {"x": Layout(pad=15)}),
    Case(shapes(*SIX_BLOCKS), "fp32", {"out": Layout(pad=15)}),
    Case(shapes(3, 257), "fp16", {"x": FAR, "out": FAR}),
    Case(shapes(3, 1009), "fp16", {"out": FAR}),
)
BACKWARD_CASES = (
    *(Case(shapes(r, c), "fp32") for r, c in (*SMALL, *LONG)),
    *(Case(shapes(r, c), "fp16") for r, c in (*SMALL[2:], LONG[1])),
    *(Case(shapes(r, c), "bf16") for r, c in (*SMALL[2:], *LONG, (1000, 3001))),
    *(Case(shapes(29, 1001), dtype, {"dy": Layout(pad=24), "y": Layout(pad=8), "out": Layout(pad=7)})
      for dtype in ("fp32", "fp16", "bf16")),
    *(Case(shapes(5, 127), dtype, dict.fromkeys(("dy", "y"), Layout(pad=9)), allocates=True)
      for dtype in ("fp32", "fp16")),
    *(Case(shapes(*shape), dtype) for shape, dtype in ((MANY, "fp32"), (WHOLE, "fp16"))),
    Case(shapes(3, 257), "fp16", {"dy": FAR, "y": FAR, "out": FAR}),
    *(Case(shapes(*shape), dtype) for shape, dtype in zip(EVEN, ("fp32", "fp16", "fp32"), strict=True)),
    Case(shapes(*SIX_BLOCKS), "fp32", {"y": Layout(pad=15)}),
    Case(shapes(3, 1009), "fp16", {"out": FAR}),
)  # fmt: skip
GRADIENT_CASES = (
    *(Case(shapes(r, c), "fp32") for r, c in ((4, 129), (29, 1001), (2, 40000))),
    *(Case(shapes(r, c), "fp16") for r, c in ((5, 127), (29, 1001))),
    *(Case(shapes(r, c), "bf16") for r, c in ((29, 1001), (100, 20011))),
    Case(shapes(5, 20011, values="masked"), "fp32"),
    Case(shapes(5, 20011, values="masked below"), "fp32", also_right=ONE_VALUE),
    Case(shapes(29, 1001), "fp32", {"x": Layout(pad=24)}),
    *(Case(shapes(5, 129), "fp32", {"dy": layout})
      for layout in (Layout(expanded=True), Layout(transposed=True), Layout(pad=9), SPREAD)),
    Case(shapes(5, 144), "fp16", {"x": Layout(pad=8), "dy": Layout(transposed=True, pad=3)}),
    Case(shapes(3, 1009, values="far below"), "fp32", also_right=ONE_VALUE),
    Case(shapes(3, 1009, values="lowest"), "fp32", also_right=ONE_VALUE),
)  # fmt: skip
TIMED = tuple(Case(shapes(2**28 // cols, cols), "bf16") for cols in (4096, 32768))

LAB = Lab(
    title="online softmax",
    teaches="reductions, numerical stability, a gradient, row strides",
    also_allowed=("triton.experimental.gluon", "triton.tools.tensor_descriptor"),
    exercises=(
        Exercise(
            name="softmax_forward",
            file="online_softmax.py",
            points=30,
            inputs=forward_inputs,
            reference=lambda x: (x.softmax(dim=1),),
            torch_op=lambda x: (x.softmax(dim=1),),
            tolerance=Tolerance(forward_unit),
            cases=FORWARD_CASES,
            symptom_of=symptom_of_forward,
            speed=Speed(
                points=20,
                shapes=TIMED,
                baselines=(Arm("copy", copy),),
                peers=(Arm("torch.softmax", torch_softmax),),
                zero_at=30,
                passing_at=60,
                full_at=85,
                bytes_moved=lambda case: (
                    2 * case.params["rows"] * case.params["cols"] * ITEM_BYTES[case.dtype]
                ),
                smaller=lambda params: {**params, "rows": params["rows"] // 2},
            ),
            codegen=Codegen(Case(shapes(4096, 4096), "bf16")),
        ),
        Exercise(
            name="softmax_backward",
            file="online_softmax.py",
            points=20,
            inputs=backward_inputs,
            reference=lambda dy, y: (backward(dy, y),),
            torch_op=torch_backward,
            tolerance=Tolerance(backward_unit),
            cases=BACKWARD_CASES,
            symptom_of=symptom_of_backward,
            speed=Speed(
                points=15,
                shapes=TIMED,
                baselines=(Arm("add", add),),
                peers=(Arm("torch.softmax backward", torch_softmax_backward),),
                zero_at=30,
                passing_at=60,
                full_at=85,
                bytes_moved=lambda case: (
                    3 * case.params["rows"] * case.params["cols"] * ITEM_BYTES[case.dtype]
                ),
                smaller=lambda params: {**params, "rows": params["rows"] // 2},
            ),
            codegen=Codegen(Case(shapes(4096, 4096), "bf16")),
        ),
        Exercise(
            name="softmax",
            file="online_softmax.py",
            points=15,
            inputs=gradient_inputs,
            reference=softmax_and_gradient,
            torch_op=torch_both,
            tolerance=Tolerance(both_units),
            cases=GRADIENT_CASES,
            outputs=("y", "dx"),
            differentiable=True,
        ),
    ),
    signs=(Mistake.SUMS_BELOW_ONE, Mistake.SUMS_ABOVE_ONE, Mistake.SUM_NOT_RESCALED, Mistake.WRONG_SUM),
    causes={
        Symptom.NOTHING_WRITTEN: (
            5,
            "the result never reaches `out`: a new or a contiguous tensor was filled instead",
        ),
        Symptom.TAIL_UNWRITTEN: (2, "the row is longer than one block: loop over it"),
        Symptom.PART_UNWRITTEN: (
            2,
            "some columns or rows belong to no block: loop over the whole row, one program a row",
        ),
        Symptom.ROWS_UNWRITTEN: (
            5,
            "whole rows were never written: one program a row, and row i starts at i times the row stride",
        ),
        Mistake.SUMS_BELOW_ONE: (
            1,
            "masked lanes are counted in the sum: they must load -inf, so that exp gives 0",
        ),
        Mistake.SUMS_ABOVE_ONE: (
            2,
            "the sum misses earlier blocks, or was not rescaled when the maximum rose",
        ),
        Mistake.SUM_NOT_RESCALED: (
            2,
            "the rows sum to less than 1, each by another share: rescale the sum when the maximum rises",
        ),
        Mistake.TOO_FLAT: (
            8,
            "the rows sum to 1, but are too flat: exp2(x) is exp(x * ln 2), multiply x - m by log2(e)",
        ),
        Mistake.WRONG_AXIS: (2, "the columns sum to 1, not the rows: reduce along the row"),
        Symptom.NOT_FINITE: (
            3,
            "inf or NaN: subtract the maximum before exp, start it at -inf, and mind -inf - (-inf)",
        ),
        Symptom.TAIL_WRONG: (1, "only the last, partial block is wrong: look at its mask and at `other`"),
        Symptom.LATER_BLOCKS_WRONG: (
            2,
            "right up to the first block, wrong behind it: carry the maximum and the sum along",
        ),
        Symptom.FIRST_BLOCKS_WRONG: (4, "early blocks were normalised with a maximum that rose later"),
        Symptom.LATER_ROWS_WRONG: (5, "only row 0 is right: the start of row i is i times the row stride"),
        Mistake.NO_SUM: (6, "dx is y * dy: the sum of y * dy over the row is missing"),
        Mistake.FACTORS_EXCHANGED: (
            6,
            "y and dy have changed places: dx is y * (dy - s), and dy comes first in the call",
        ),
        Mistake.WRONG_SUM: (
            6,
            "the sum s of y * dy runs over one whole row, all blocks of it, and is subtracted",
        ),
        Mistake.INFINITE_SUM: (1, "inf: masked lanes must add 0 to the sum of y * dy, so load 0 there"),
        Symptom.OUT_OF_BOUNDS_WRITE: (
            1,
            "the store has no mask, or the row stride of `out` was taken to be n_cols",
        ),
        Symptom.PADDED_WRITE: (5, "`out` was stepped through with a row stride that is not its own"),
        Symptom.OUT_OF_BOUNDS_READ: (
            5,
            "NaN from between the rows: the row stride was taken to be n_cols, or a mask is missing",
        ),
        Symptom.UNMASKED_READ: (
            1,
            "NaN from behind the row: a load has no mask, or no row ends where it says",
        ),
        Symptom.POWER_OF_TWO: (5, "the width of a block must be a power of two: the next one, and a mask"),
        Symptom.FLAT_VIEW: (5, "a padded matrix has no flat view: pass its row stride to the kernel"),
        Symptom.NO_GRADIENT_FUNCTION: (
            7,
            "autograd saw no function: softmax() must return OnlineSoftmax.apply(x)",
        ),
        Symptom.MUTATED: (5, "an input was written to; the result belongs in `out`"),
        Symptom.PRECISION: (
            8,
            "the error is several times PyTorch's: compute exp and the sums in fp32, round at the store",
        ),
        Symptom.GRADIENT: (7, "save the result for the backward pass, and give the kernel a contiguous dy"),
        Symptom.OFFSETS_WRAP: (
            5,
            "right where rows lie close together: beyond 2^31 elements the offset of a row needs int64",
        ),
        Symptom.DY_LAYOUT: (7, "right for a contiguous dy, and autograd hands over any layout"),
        Symptom.WRONG: (2, "start with a row that fits one block, then one that does not"),
        Symptom.SLOW: (9, "look at warps per row, the width of a block, and how often the row is read"),
    },
)
