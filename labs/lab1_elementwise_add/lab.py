"""Lab 1: what is asked of elementwise_add, and how it is graded."""

import math

from grader.course.spec import Arm, Case, Codegen, Exercise, Lab, Speed, Tolerance
from grader.course.symptoms import LabSymptom, Symptom

ITEM_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
# Numbers at which a sum differs that is right elsewhere: smallest and largest finite, smallest normal.
SMALLEST = {"fp32": 2.0**-149, "fp16": 2.0**-24, "bf16": 2.0**-133}
NORMAL = {"fp32": 2.0**-126, "fp16": 2.0**-14, "bf16": 2.0**-126}
LARGEST = {"fp32": 2.0**128 - 2.0**104, "fp16": 65504.0, "bf16": 2.0**128 - 2.0**120}


def inputs(rng, case):
    n, values = case.params["n"], case.params.get("values", "normal")
    x, y = rng.normal(n), rng.normal(n)
    if values == "spikes":  # a few elements tower over the rest: a sampled or averaged answer misses them
        x = x.where(rng.uniform(n) > 0.01, 1e4 * x)
    if values == "cancelling":  # sums far smaller than either side
        y = -x + 1e-3 * y
    if values == "edges":
        x, y = edges(rng, case, x), edges(rng, case, y)
        y = y.where(~(x.isinf() & y.isinf()), 1.0)  # inf - inf is NaN, whose bits nobody promises
    return {"x": x, "y": y}


def edges(rng, case, x):
    """Replace two elements in three by zeros of both signs and numbers at the ends of the range."""
    numbers = (0.0, SMALLEST[case.dtype], NORMAL[case.dtype], LARGEST[case.dtype], math.inf)
    # The zeros first and often, because two of them have to meet.
    kinds = (-0.0, -0.0, -0.0, *numbers, *(-one for one in numbers[1:]))
    drawn = rng.integers(0, len(kinds) * 3 // 2, *x.shape)
    for kind, number in enumerate(kinds):
        x = x.where(drawn != kind, number)
    return x


def torch_add(x, y, *, out=None):
    import torch

    return torch.add(x, y, out=out)


def unit(case, inputs, reference):
    return tuple(expected.abs() for expected in reference)  # bitwise cases: only named in messages


class Mistake(LabSymptom):
    """Symptoms that only these exercises recognise, named after the mistake."""

    ONE_SIDE_ONLY = "one side only"
    OUT_IS_READ = "out is read"
    SIGN_OF_ZERO = "sign of zero"
    AT_THE_EDGES = "at the edges"


def symptom_of(case, inputs, expected, got):
    x, y = inputs["x"].double(), inputs["y"].double()
    if got.numel() and got.isnan().all():  # a load past the end, by contrast, leaves the first block whole
        return Mistake.OUT_IS_READ
    if any(got.equal(side) for side in (x, y, 2.0 * x, 2.0 * y)):
        return Mistake.ONE_SIDE_ONLY
    if case.params.get("values") == "edges":
        return symptom_at_the_edges(case, x, y, expected, got)
    return None


def symptom_at_the_edges(case, x, y, expected, got):
    wrong = (got != expected) | (got.signbit() != expected.signbit())
    if wrong.any() and ((got == 0.0) & (expected == 0.0))[wrong].all():
        return Mistake.SIGN_OF_ZERO
    smallest, largest = 2.0 * NORMAL[case.dtype], LARGEST[case.dtype]
    sizes = [one.abs() for one in (x, y, expected)]
    usual = [(smallest < size) & (size < largest) for size in sizes]
    return None if (usual[0] & usual[1] & usual[2] & wrong).any() else Mistake.AT_THE_EDGES


SIZES = (1, 7, 127, 128, 129, 1009, 65537)
EVEN = (48, 1536)  # multiples of 16 and of 512 that twice as much does not divide
BLOCKS = tuple(2**k for k in range(8, 14))  # a block is a power of two: up to 8192, one of these is one
CASES = (
    *(Case({"n": n}, "fp32", bitwise=True) for n in (*SIZES, 2**20 + 3)),
    *(Case({"n": n}, "fp16", bitwise=True) for n in (7, 129, 65537)),
    *(Case({"n": n}, "bf16", bitwise=True) for n in (*SIZES, 2**20 + 3)),
    *(Case({"n": n}, dtype, bitwise=True) for n, dtype in zip(EVEN, ("fp32", "fp16"), strict=True)),
    *(Case({"n": n}, "fp32", bitwise=True) for n in BLOCKS),
    *(Case({"n": 4099, "values": values}, "fp32", bitwise=True) for values in ("spikes", "cancelling")),
    *(Case({"n": 4099, "values": "edges"}, dtype, bitwise=True) for dtype in ("fp32", "fp16", "bf16")),
    *(Case({"n": n}, dtype, bitwise=True, allocates=True) for n, dtype in ((0, "fp32"), (1009, "fp16"))),
    # Last: of most mistakes other cases say more than one without elements.
    *(Case({"n": 0}, dtype, bitwise=True) for dtype in ("fp32", "fp16", "bf16")),
)

LAB = Lab(
    title="elementwise add",
    teaches="programs, blocks, masks, the grid",
    also_allowed=("triton.experimental.gluon", "triton.tools.tensor_descriptor"),
    exercises=(
        Exercise(
            name="elementwise_add",
            file="elementwise_add.py",
            points=70,
            inputs=inputs,
            reference=lambda x, y: (x + y,),
            torch_op=lambda x, y: (x + y,),
            tolerance=Tolerance(unit),
            cases=CASES,
            symptom_of=symptom_of,
            speed=Speed(
                points=30,
                shapes=(Case({"n": 2**28}, "fp32", bitwise=True),),
                baselines=(Arm("torch.add", torch_add),),
                zero_at=40,
                passing_at=70,
                full_at=90,
                bytes_moved=lambda case: 3 * case.params["n"] * ITEM_BYTES[case.dtype],
                smaller=lambda params: {"n": params["n"] // 2},
            ),
            codegen=Codegen(Case({"n": 2**20}, "fp32")),
        ),
    ),
    causes={
        Symptom.NOTHING_WRITTEN: (
            4,
            "the sums never reach `out`: a new tensor was filled, or nothing was launched (small n: hint 3)",
        ),
        Symptom.TAIL_UNWRITTEN: (
            3,
            "the grid is one program short: // drops the last, partial block, cdiv keeps it",
        ),
        Symptom.PART_UNWRITTEN: (1, "some elements belong to no program: look at the offsets"),
        Symptom.TAIL_WRONG: (2, "the last, partial block is treated differently: look at the mask"),
        Symptom.OUT_OF_BOUNDS_WRITE: (2, "the store has no mask, or the mask lets lanes past n through"),
        Symptom.NO_MASK: (2, "a load has no mask: the lanes past n read what lies behind x or y"),
        Symptom.OUT_OF_BOUNDS_READ: (
            1,
            "NaN from behind the end of x or y: look at the offsets of the loads",
        ),
        Mistake.ONE_SIDE_ONLY: (
            1,
            "one of the two loads is missing from the sum, or both read the same tensor",
        ),
        Mistake.OUT_IS_READ: (4, "NaN everywhere: `out` is no input, and what lies in it before is no zero"),
        Symptom.ALL_ZERO: (
            2,
            "every element is 0: is the mask true where elements exist, and is the sum stored?",
        ),
        Mistake.SIGN_OF_ZERO: (
            2,
            "right but for the sign of a zero: -0.0 + -0.0 is -0.0, and becomes 0.0 where 0.0 is added to it",
        ),
        Mistake.AT_THE_EDGES: (
            2,
            "right but at the ends of the range: inf, the largest and the smallest numbers are added, too",
        ),
        Symptom.PRECISION: (1, "right but for the last digits: add in the dtype of the inputs, or in fp32"),
        Symptom.POWER_OF_TWO: (1, "the length of a tl.arange must be a power of two: fixed, with a mask"),
        Symptom.DIVISION_BY_ZERO: (3, "n may be 0: launch nothing then, and divide by no size that can be 0"),
        Symptom.MUTATED: (4, "the sum was stored into an input instead of `out`"),
        Symptom.WRONG: (1, "the wrong elements meet: look at the offsets of the loads and of the store"),
        Symptom.SLOW: (
            5,
            "lanes that are neighbours should touch neighbouring addresses, in blocks of 1024 or so",
        ),
    },
)
