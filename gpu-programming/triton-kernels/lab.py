"""The capstone's Triton kernels: what is asked of them, and how they are graded."""

import math

from grader.course.spec import Arm, Case, Codegen, Exercise, Lab, Layout, Speed, Tolerance
from grader.course.symptoms import LabSymptom, Symptom

EPSILON = {"fp32": 2.0**-23, "fp16": 2.0**-10, "bf16": 2.0**-7}
SMALLEST = {"fp32": 2.0**-126, "fp16": 2.0**-14, "bf16": 2.0**-126}  # smallest normal number
ITEM_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
EPS = 1e-5


# -- inputs


def swiglu_inputs(rng, case):
    rows, cols = case.params["rows"], case.params["cols"]
    # exp(-gate) of a huge gate overflows on one side, and exp(gate) on the other.
    size = 100.0 if case.params.get("values") == "huge" else 2.0
    return {"gate": size * rng.normal(rows, cols), "up": rng.normal(rows, cols)}


def add_rms_norm_inputs(rng, case):
    rows, cols, values = case.params["rows"], case.params["cols"], case.params.get("values", "normal")
    x, residual = rng.normal(rows, cols), 2.0 * rng.normal(rows, cols)
    if values == "far":  # in fp16 each square leaves its range
        residual = residual + (1000.0 if case.dtype == "fp32" else 320.0)
    if values == "narrow":  # eps decides
        x, residual = 0.001 * x, 0.001 * residual
    return {"x": x, "residual": residual, "weight": 1.0 + 0.5 * rng.normal(cols)}


def attention_inputs(rng, case):
    shape = [case.params[name] for name in ("batch", "heads", "length", "dim")]
    q, k, v = (rng.normal(*shape) for _ in range(3))
    values = case.params.get("values", "normal")
    if values == "huge":  # exp of a score overflows without the maximum subtracted
        q = 30.0 * q
    if values == "below":  # a number that stands in for -inf may not be above the scores
        # Powers of two: other scores, multiplied by log2(e) first, would lose the digits that decide.
        q, k = 0.0 * q + 16.0, 0.0 * k - 256.0 * 2.0 ** k[..., :1].abs().round().clamp(max=3.0)
    if values == "rising":  # every block of keys raises the maximum
        ramp = rng.normal(shape[2]).abs().cumsum(dim=0)
        q, k = q + 1.0, k + (2.0 * ramp / ramp[-1])[:, None]
    return {"q": q, "k": k, "v": v}


# -- references: in fp64, and in the case's dtype what PyTorch itself gives


def swiglu(gate, up):
    import torch

    return (torch.nn.functional.silu(gate) * up,)


def torch_swiglu(gate, up):
    return (swiglu(gate.float(), up.float())[0].to(gate.dtype),)


def add_rms_norm(x, residual, weight):
    import torch

    total = x + residual
    return torch.nn.functional.rms_norm(total, weight.shape, weight, EPS), total


def weights_of(q, k, scale=None, base=math.e, last=0):
    """Rows of the softmax of one head; query i sees the keys up to i + last, all of them where last is
    None.
    """
    scores = math.log(base) * (scale or q.shape[-1] ** -0.5) * (q @ k.T)
    if last is not None:
        future = scores.new_ones(scores.shape).triu(last + 1) > 0
        scores = scores.masked_fill(future, -math.inf)
    return scores.softmax(dim=-1)


def heads_of(*tensors):
    """One head of each tensor after the other: the scores of all of them at once would fill a GPU."""
    return zip(*(tensor.flatten(0, 1) for tensor in tensors), strict=True)


def attend(q, k, v, **options):
    import torch

    results = [weights_of(one, key, **options) @ value for one, key, value in heads_of(q, k, v)]
    return torch.stack(results).reshape(q.shape)


def attention(q, k, v):
    return (attend(q, k, v),)


def torch_attention(q, k, v):
    import torch

    return (torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),)


# -- the size of one acceptable error


def rounding(case, value):
    return EPSILON[case.dtype] * value.abs().clamp(min=SMALLEST[case.dtype])


def swiglu_unit(case, inputs, reference):
    gate, up, y = inputs["gate"], inputs["up"], reference[0]
    # The error of exp grows with its argument; quotients near the smallest numbers are flushed to 0.
    fp32 = 8.0 * EPSILON["fp32"] * (1.0 + gate.abs().clamp(max=200.0)) * y.abs()
    return (rounding(case, y) + fp32 + 64.0 * SMALLEST["fp32"] * (1.0 + up.abs()),)


def add_rms_norm_units(case, inputs, reference):
    """The norm may see the sum before or after it is rounded to the dtype."""
    y, total = reference
    rstd = (total.square().mean(dim=1, keepdim=True) + EPS).rsqrt()
    of_total = rounding(case, total) + 8.0 * EPSILON["fp32"] * total.abs()
    return rounding(case, y) + of_total * rstd * inputs["weight"].abs(), rounding(case, total)


def attention_unit(case, inputs, reference):
    """One rounding, weights rounded to the dtype, and fp32 scores, whose error grows with their terms."""
    import torch

    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    errors = []
    for one, key, value in heads_of(q, k, v):
        weights = weights_of(one, key)
        reach = one.norm(dim=-1, keepdim=True) * key.norm(dim=-1).max() / math.sqrt(q.shape[-1])
        of_scores = EPSILON["fp32"] * (8.0 + reach) * (weights @ value.abs())
        errors.append(EPSILON[case.dtype] * (weights.square() @ value.square()).sqrt() + of_scores)
    return (rounding(case, reference[0]) + torch.stack(errors).reshape(q.shape),)


# -- mistakes


def nearest(others, expected, got):
    """The symptom of the wrong result that this is, where it is much nearer to that than to the right one."""
    near = [(got - other).norm().nan_to_num(nan=math.inf) for _, other in others]
    best = near.index(min(near))
    return others[best][0] if near[best] < 0.1 * (got - expected).norm() else None


class Mistake(LabSymptom):
    """Symptoms that only these exercises recognise, named after the mistake."""

    OTHER_OPERAND = "other operand"
    NO_FACTOR = "no factor"
    NOT_GATED = "not gated"
    OVERFLOW_OF_EXP = "overflow of exp"
    SIGN_OF_EXP = "sign of exp"
    NO_RESIDUAL = "no residual"
    NORM_OF_ANOTHER_ROW = "norm of another row"
    NO_WEIGHT = "no weight"
    WEIGHT_BY_ROW = "weight by row"
    NO_EPS = "no eps"
    EPS_OUTSIDE = "eps outside"
    CENTRING = "centring"
    DIVIDED_BY_THE_BLOCK = "divided by the block"
    OVERFLOW_TO_INF = "overflow to inf"
    LATER_KEYS_WRONG = "later keys wrong"
    NOT_DIVIDED_BY_THE_SUM = "not divided by the sum"
    DIAGONAL_OFF_BY_ONE = "diagonal off by one"
    NOT_CAUSAL = "not causal"
    NO_SCALE = "no scale"
    WRONG_SCALE = "wrong scale"
    EXP2 = "exp2"


def symptom_of_swiglu(case, inputs, expected, got):
    gate, up = inputs["gate"].double(), inputs["up"].double()
    if not got.isfinite().all():
        return Mistake.OVERFLOW_OF_EXP
    others = [
        (Mistake.OTHER_OPERAND, gate * swiglu(up, up)[0] / up),
        (Mistake.NO_FACTOR, gate.sigmoid() * up),
        (Mistake.NOT_GATED, gate * gate.sigmoid()),
        (Mistake.SIGN_OF_EXP, gate * (-gate).sigmoid() * up),
        (Mistake.EXP2, gate * (math.log(2.0) * gate).sigmoid() * up),
    ]
    return nearest(others, expected, got)


def symptom_of_add_rms_norm(case, inputs, expected, got):
    x, residual, weight = (inputs[name].double() for name in ("x", "residual", "weight"))
    total, (rows, cols) = x + residual, x.shape
    if not got.isfinite().all():
        return Mistake.OVERFLOW_TO_INF if case.dtype == "fp16" else None
    if bool((expected - total).norm() < 1e-6 * total.norm()):
        return nearest([(Mistake.NO_RESIDUAL, x), (Mistake.NO_RESIDUAL, residual)], expected, got)

    def normed(of, by, lanes=cols, eps=EPS):
        return of * (by.square().sum(dim=1, keepdim=True) / lanes + eps).rsqrt()

    root = total.square().mean(dim=1, keepdim=True).sqrt()
    centred = total - total.mean(dim=1, keepdim=True)
    others = [
        *((Mistake.NORM_OF_ANOTHER_ROW, normed(of, by) * weight)
          for of in (x, residual, total) for by in (x, residual, total) if not of is by is total),
        (Mistake.NO_WEIGHT, normed(total, total)),
        (Mistake.NO_EPS, total / root * weight),
        (Mistake.EPS_OUTSIDE, total / (root + EPS) * weight),
        (Mistake.CENTRING, normed(centred, centred) * weight),
        *((Mistake.DIVIDED_BY_THE_BLOCK, normed(total, total, lanes) * weight)
          for lanes in {-(-cols // 2**k) * 2**k for k in range(18)} - {cols}),
    ]  # fmt: skip
    if rows <= cols:
        others.append((Mistake.WEIGHT_BY_ROW, normed(total, total) * weight[:rows, None]))
    return nearest(others, expected, got)


def symptom_of_attention(case, inputs, expected, got):
    q, k, v = (inputs[name].double() for name in ("q", "k", "v"))
    dim = q.shape[-1]
    if not got.isfinite().all():
        # Without its own key the first query has none, and 0 / 0 is NaN.
        first = got.isfinite().all(dim=-1)[:, :, 1:].all() and got[:, :, 0].isnan().all()
        return Mistake.DIAGONAL_OFF_BY_ONE if bool(first) else None
    others = [
        (Mistake.NO_SCALE, attend(q, k, v, scale=1.0)),
        (Mistake.WRONG_SCALE, attend(q, k, v, scale=1.0 / dim)),
        (Mistake.EXP2, attend(q, k, v, base=2.0)),
        (Mistake.NOT_CAUSAL, attend(q, k, v, last=None)),
        (Mistake.DIAGONAL_OFF_BY_ONE, attend(q, k, v, last=1)),
    ]
    if symptom := nearest(others, expected, got):
        return symptom
    error = (got - expected).norm(dim=-1) > 1e-2 * expected.norm(dim=-1)
    wrong = error.flatten(0, 1).any(dim=0).nonzero().flatten()
    nearly = case.dtype != "fp32" and bool((got - expected).norm() < 3e-2 * expected.norm())
    if not len(wrong) or nearly:
        return None
    ratio = got / expected
    spread = (ratio / ratio.median(dim=-1, keepdim=True).values - 1.0).abs()
    if bool(spread.median() < 1e-2):
        return Mistake.NOT_DIVIDED_BY_THE_SUM
    return Mistake.LATER_KEYS_WRONG if int(wrong[0]) >= 16 else None


# -- baselines


def add(gate, up, *, out):
    import torch

    torch.add(gate, up, out=out)


def two_copies(x, residual, weight, *, out, total):
    out.copy_(x)
    total.copy_(residual)


def sdpa(q, k, v, *, out):
    # The result stays where PyTorch leaves it: a copy to `out` would be work that no attention needs.
    torch_attention(q, k, v)


# -- cases


def shapes(rows, cols, **more):
    return {"rows": rows, "cols": cols, **more}


def sequences(batch, heads, length, dim, **more):
    return {"batch": batch, "heads": heads, "length": length, "dim": dim, **more}


FAR = Layout(far=True)
EVEN = ((3, 48), (2, 1536), (1, 24576))  # multiples of 16, 512 and 8192 that twice as much does not divide
SMALL = ((1, 1), (3, 2), (5, 127), (4, 129), (7, 1001))
SIX_BLOCKS = (3, 2600)  # of 512 columns, three of 1024: a count of warps that follows it is no power of two
# A prime number of rows, more than there usually are programs; whole blocks alone, in more than one row.
MANY, WHOLE = (149, 3), (3, 4096)
TOGETHER = (8, 384), (64, 24)  # rows that are whole blocks of 512 or 1024 only together
SWIGLU_CASES = (
    *(Case(shapes(r, c), "fp32") for r, c in (*SMALL, (1, 16385))),
    *(Case(shapes(r, c), "fp16") for r, c in (*SMALL[2:], (2, 4099))),
    *(Case(shapes(r, c), "bf16") for r, c in (*SMALL, (1000, 3001), (3, 131072))),
    *(Case(shapes(7, 1009, values="huge"), dtype) for dtype in ("fp32", "fp16", "bf16")),
    *(Case(shapes(7, 1001), dtype, {"gate": Layout(pad=24), "up": Layout(pad=8), "out": Layout(pad=7)})
      for dtype in ("fp32", "fp16", "bf16")),
    Case(shapes(5, 127), "fp16", dict.fromkeys(("gate", "up"), Layout(pad=9)), allocates=True),
    *(Case(shapes(*shape), dtype) for shape, dtype in ((MANY, "fp32"), (WHOLE, "fp16"))),
    *(Case(shapes(*shape), dtype) for shape, dtype in zip(TOGETHER, ("fp32", "fp16"), strict=True)),
    Case(shapes(3, 257), "fp16", dict.fromkeys(("gate", "up", "out"), FAR)),
    *(Case(shapes(*shape), dtype) for shape, dtype in zip(EVEN, ("fp32", "fp16", "bf16"), strict=True)),
    # Each tensor has another layout than those beside it.
    Case(shapes(*SIX_BLOCKS), "fp32", {"up": Layout(pad=14)}),
    Case(shapes(3, 130), "fp16", {"out": FAR}),
)  # fmt: skip
PADDED_ROWS = {
    name: Layout(pad=pad) for name, pad in zip(("x", "residual", "out", "total"), (24, 8, 7, 5), strict=True)
}
NORM_CASES = (
    *(Case(shapes(r, c), "fp32") for r, c in (*SMALL, (2, 40000))),
    *(Case(shapes(r, c), "fp16") for r, c in (*SMALL[2:], (2, 16385))),
    *(Case(shapes(r, c), "bf16") for r, c in (*SMALL, (1000, 3001), (3, 131072))),
    *(Case(shapes(7, 1009, values=values), dtype)
      for values in ("far", "narrow") for dtype in ("fp32", "fp16", "bf16")),
    *(Case(shapes(7, 1001), dtype, PADDED_ROWS) for dtype in ("fp32", "fp16", "bf16")),
    Case(shapes(5, 127), "fp16", dict.fromkeys(("x", "residual"), Layout(pad=9)), allocates=True),
    *(Case(shapes(*shape), dtype) for shape, dtype in ((MANY, "fp32"), (WHOLE, "fp16"))),
    Case(shapes(3, 257), "fp16", dict.fromkeys(PADDED_ROWS, FAR)),
    *(Case(shapes(*shape), dtype) for shape, dtype in zip(EVEN, ("fp16", "fp32", "bf16"), strict=True)),
    Case(shapes(3, 130), "fp16", {"total": FAR}),
    Case(shapes(3, 130), "fp16", {"x": Layout(pad=14)}),
    Case(shapes(*SIX_BLOCKS), "fp32", {"out": Layout(pad=14)}),
)  # fmt: skip
PADDED_HEADS = {
    name: Layout(pad=pad) for name, pad in zip(("q", "k", "v", "out"), (24, 8, 16, 7), strict=True)
}
SWAPPED = Layout(swapped=True)  # as a projection leaves them: all heads of one position beside each other
SWAPPED_HEADS = dict.fromkeys(("q", "k", "v", "out"), SWAPPED)
ATTENTION_CASES = (
    # One key has the weight 1.
    *(Case(sequences(1, 2, 1, 64), dtype, also_right=("a copy of v",)) for dtype in ("fp32", "fp16", "bf16")),
    *(Case(sequences(*s), "fp32") for s in ((1, 1, 33, 16), (1, 2, 67, 64))),
    *(Case(sequences(*s), "fp16") for s in ((2, 3, 64, 32), (1, 1, 129, 128), (1, 2, 150, 64))),
    *(Case(sequences(1, 2, 100, 64, values=values), "fp16") for values in ("huge", "rising")),
    Case(sequences(1, 1, 70, 32, values="huge"), "fp32"),
    # Of keys whose scores are all the same, the mean of v: it may have few digits, or be seen before.
    *(Case(sequences(1, 1, 48, 64, values="below"), dtype, also_right=("an earlier result", "fewer digits"))
      for dtype in ("fp32", "bf16")),
    *(Case(sequences(1, 1, *s), "fp16") for s in ((48, 16), (80, 32), (144, 16))),
    *(Case(sequences(2, 3, 40, 16), dtype, layouts)
      for layouts in (SWAPPED_HEADS, {"q": Layout(pad=16), "v": SWAPPED, "out": SWAPPED})
      for dtype in ("fp16", "bf16")),
    Case(sequences(2, 3, 40, 16), "fp32", {"k": SWAPPED, "out": Layout(pad=16)}),
    *(Case(sequences(1, 2, 77, 64), dtype, PADDED_HEADS) for dtype in ("fp32", "fp16", "bf16")),
    Case(sequences(1, 2, 40, 32), "fp16", dict.fromkeys(("q", "k", "v"), Layout(pad=8)), allocates=True),
    Case(sequences(3, 11, 17, 16), "fp16"),
    *(Case(sequences(*s), "bf16")
      for s in ((1, 1, 33, 16), (2, 3, 64, 32), (2, 3, 1000, 128), (1, 5, 2049, 64), (1, 2, 4096, 128))),
    *(Case(sequences(1, 3, 1003, 64, values=values), "bf16") for values in ("huge", "rising")),
)  # fmt: skip
TIMED_ROWS = tuple(Case(shapes(2**27 // cols, cols), "bf16") for cols in (4096, 16384))
TIMED_HEADS = (Case(sequences(4, 16, 4096, 128), "bf16"), Case(sequences(2, 32, 8192, 64), "bf16"))


def timed(points, baseline, tensors):
    return Speed(
        points=points, shapes=TIMED_ROWS, baselines=(baseline,), zero_at=30, passing_at=60, full_at=85,
        bytes_moved=lambda case: tensors * case.params["rows"] * case.params["cols"] * ITEM_BYTES[case.dtype],
        smaller=lambda params: {**params, "rows": params["rows"] // 2},
    )  # fmt: skip


def elements(case):
    return math.prod(case.params[name] for name in ("batch", "heads", "length", "dim"))


LAB = Lab(
    title="the capstone's Triton kernels",
    search_s=25.0,
    also_allowed=("triton.tools.tensor_descriptor",),
    exercises=(
        Exercise(
            "swiglu", "swiglu.py", 7, swiglu_inputs, swiglu, torch_swiglu, Tolerance(swiglu_unit),
            SWIGLU_CASES, symptom_of=symptom_of_swiglu, speed=timed(7, Arm("torch.add", add), 3),
            codegen=Codegen(Case(shapes(4096, 4096), "bf16"), {"wide loads": 1}),
        ),
        Exercise(
            "add_rms_norm", "add_rms_norm.py", 9, add_rms_norm_inputs, add_rms_norm, add_rms_norm,
            Tolerance(add_rms_norm_units), NORM_CASES, ("out", "total"), symptom_of=symptom_of_add_rms_norm,
            speed=timed(8, Arm("two copies", two_copies), 4),
            codegen=Codegen(Case(shapes(4096, 4096), "bf16"), {"wide loads": 1}),
        ),
        Exercise(
            "attention", "attention.py", 13, attention_inputs, attention, torch_attention,
            Tolerance(attention_unit), ATTENTION_CASES, symptom_of=symptom_of_attention,
            speed=Speed(
                points=10, shapes=TIMED_HEADS, baselines=(Arm("scaled_dot_product_attention", sdpa),),
                zero_at=20, passing_at=40, full_at=65,
                bytes_moved=lambda case: 4 * elements(case) * ITEM_BYTES[case.dtype],
                # Two products over half of the keys.
                flops=lambda case: 2 * elements(case) * (case.params["length"] + 1),
                smaller=lambda params: {**params, "heads": params["heads"] // 2},
            ),
            codegen=Codegen(Case(sequences(1, 2, 4096, 128), "bf16"), {"tensor cores": 2, "no spills": 2}),
        ),
    ),
    signs=(Mistake.NOT_DIVIDED_BY_THE_SUM, Mistake.LATER_KEYS_WRONG),
    causes={
        Symptom.NOTHING_WRITTEN: (
            1, "a result never reaches `out` or `total`: pass both to the kernel, and store",
        ),
        Symptom.TAIL_UNWRITTEN: (
            1, "the end of each row is missing: round the blocks up, or go on tile by tile",
        ),
        Symptom.PART_UNWRITTEN: (
            1, "some blocks have no program: count the grid and decode the program's number",
        ),
        Symptom.ROWS_UNWRITTEN: (1, "whole rows were never written: row i starts at i times its row stride"),
        Symptom.OUT_OF_BOUNDS_WRITE: (
            1, "the store needs a mask, and the strides of the tensor it stores to",
        ),
        Symptom.PADDED_WRITE: (1, "a result was stepped through with strides that are not its own"),
        Symptom.OUT_OF_BOUNDS_READ: (
            1, "NaN from outside an input: a mask is missing, or the strides are another tensor's",
        ),
        Symptom.UNMASKED_READ: (
            1, "NaN from behind an input: a load has no mask; 0 * NaN is NaN, so values need one, too",
        ),
        Symptom.OFFSETS_WRAP: (
            1, "right where rows lie close together: beyond 2^31 elements the offset of a row needs int64",
        ),
        Symptom.MUTATED: (1, "an input was written to; results belong in `out` and `total`"),
        Mistake.OTHER_OPERAND: (2, "the activation belongs to gate: silu(gate) * up, not gate * silu(up)"),
        Mistake.NO_FACTOR: (2, "silu(gate) is gate * sigmoid(gate): the factor gate is missing"),
        Mistake.NOT_GATED: (2, "the factor up is missing"),
        Mistake.OVERFLOW_OF_EXP: (
            2, "NaN or inf: exp(gate) of a large gate is inf, and inf / inf no number: use exp(-gate)",
        ),
        Mistake.SIGN_OF_EXP: (2, "the sigmoid is 1 / (1 + exp(-gate)): the sign in exp is missing"),
        Mistake.NO_RESIDUAL: (3, "total is x + residual, both of them"),
        Mistake.NORM_OF_ANOTHER_ROW: (3, "the norm is that of total: square and scale x + residual"),
        Mistake.NO_WEIGHT: (3, "the weight is missing: multiply by one value for each column"),
        Mistake.WEIGHT_BY_ROW: (3, "the weight belongs to columns: load it with the column offsets"),
        Mistake.NO_EPS: (3, "rows of small values are wrong: eps is missing under the root"),
        Mistake.EPS_OUTSIDE: (3, "rows of small values are wrong: 1 / sqrt(mean + eps), eps under the root"),
        Mistake.CENTRING: (3, "RMSNorm does not subtract the mean"),
        Mistake.DIVIDED_BY_THE_BLOCK: (3, "the sum was divided by the width of the tile, not by n_cols"),
        Symptom.LATER_BLOCKS_WRONG: (
            3, "right in the first tile only: move on in x, residual and weight alike",
        ),
        Mistake.OVERFLOW_TO_INF: (
            4, "inf or NaN in fp16: squares and sums leave its range, so take them in fp32",
        ),
        Symptom.ALL_ZERO: (4, "every element is 0: a sum in fp16 overflows, and x / inf is 0: sum in fp32"),
        Symptom.PRECISION: (
            4, "digits are lost: convert to fp32 after the load, and round once, at the store",
        ),
        Symptom.NOT_FINITE: (
            5, "NaN or inf: subtract the maximum before exp, start it at -inf, and mask before it is taken",
        ),
        Mistake.LATER_KEYS_WRONG: (
            5, "right in the first block of keys only: rescale acc and d by exp(m_old - m_new) alike",
        ),
        Mistake.NOT_DIVIDED_BY_THE_SUM: (
            5, "each row is off by one factor: divide by d, and rescale d like acc",
        ),
        Mistake.DIAGONAL_OFF_BY_ONE: (
            6, "query i sees key i and no later one: i >= j, counted from the start",
        ),
        Mistake.NOT_CAUSAL: (6, "keys after the query count: put -inf in place of their scores"),
        Mistake.NO_SCALE: (7, "the scores lack the factor 1 / sqrt(dim)"),
        Mistake.WRONG_SCALE: (7, "the scores are divided by the square root of dim, not by dim"),
        Mistake.EXP2: (7, "exp2(x) is exp(x * ln 2): multiply the scores by log2(e)"),
        Symptom.SPILLS: (8, "a tile does not fit the registers: fewer queries, or more warps"),
        Symptom.NO_TENSOR_CORES: (
            8, "tl.dot on 16-bit operands, not on their fp32 copies, uses tensor cores",
        ),
        Symptom.SHARED_MEMORY: (8, "a config wants more shared memory than a block may use: fewer stages"),
        Symptom.SLOW: (9, "look at bytes in flight, at the configs you try, and at keys that nobody needs"),
        Symptom.NONDETERMINISTIC: (1, "two runs differ: two programs write the same element"),
        Symptom.WRONG: (9, "start with one row or one head that fits one block, then one that does not"),
    },
)  # fmt: skip
