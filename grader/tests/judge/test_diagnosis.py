"""From wrong elements to a likely cause: regions in words, symptoms by exercise, and hints that exist."""

import ast
import dataclasses
import enum
import inspect
import re
import textwrap
import types

import pytest
import torch

from grader.course import catalog
from grader.course.spec import Case, Exercise, Lab, Reason, Tolerance
from grader.course.specimens import find
from grader.course.symptoms import Symptom
from grader.judge import comparison, diagnosis
from grader.judge.correctness import only_at_first
from grader.judge.diagnosis import GENERAL, cause_of, describe_region
from grader.judge.inputs import draw, in_dtype

ENTRIES = {entry.folder.name: entry for entry in catalog.find()}
CAPSTONE = {entry.folder.name: entry for entry in catalog.capstone() if entry.lab.causes}
LABS = {entry.number: entry.lab for entry in ENTRIES.values()}
EXERCISES = {e.name: (entry.lab, e) for entry in ENTRIES.values() for e in entry.lab.exercises}
SEED = 17


# Regions


def mask(rows, cols, *wrong):
    """True at the given (rows, columns)."""
    bad = torch.zeros(rows, cols, dtype=torch.bool)
    for where in wrong:
        bad[where] = True
    return bad


EVERY = slice(None)


@pytest.mark.parametrize(
    ("bad", "words", "region"),
    [
        (mask(5, 9, EVERY), "every element", "all"),
        (mask(5, 9, (EVERY, slice(6, 9))), "in columns 6 to 8, up to the last, in every row", "last columns"),
        (mask(5, 9, (EVERY, 8)), "in column 8, up to the last, in every row", "last columns"),
        (
            mask(5, 9, (slice(1, 3), slice(6, 9))),
            "in columns 6 to 8, up to the last, in rows 1 to 2",
            "last columns",
        ),
        (mask(5, 9, (EVERY, slice(0, 4))), "in columns 0 to 3, in every row", "first columns"),
        (mask(5, 9, (slice(1, 5), EVERY)), "in every row after the first", "rows after the first"),
        (mask(2, 9, (1, EVERY)), "in every row after the first", "rows after the first"),
        (mask(5, 9, (slice(3, 5), EVERY)), "in rows 3 to 4, down to the last", "last rows"),
        (mask(5, 9, (4, EVERY)), "in row 4, down to the last", "last rows"),
        (mask(5, 9, (2, EVERY)), "in all columns, in row 2", ""),
        (mask(5, 9, (2, 3)), "in column 3, in row 2", ""),
        (mask(5, 9, (slice(1, 4), slice(2, 5))), "in columns 2 to 4, in rows 1 to 3", ""),
        (mask(1, 9, EVERY)[0], "every element", "all"),
        (mask(1, 9, (0, slice(6, 9)))[0], "elements 6 to 8, up to the end", "end"),
        (mask(1, 9, (0, 8))[0], "element 8, up to the end", "end"),
        (mask(1, 9, (0, slice(0, 4)))[0], "elements 0 to 3", "start"),
        (mask(1, 9, (0, 4))[0], "element 4", ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_region_of_wrong_elements_is_named_in_words(bad, words, region):
    assert describe_region(bad) == (words, region)


def test_wrong_elements_of_a_batch_are_described_by_its_rows():
    bad = mask(6, 9, (slice(3, 6), EVERY)).reshape(2, 3, 9)
    assert describe_region(bad) == ("in rows 3 to 5, down to the last", "last rows")


def test_two_elements_in_opposite_columns_are_not_whole_rows():
    _, region = describe_region(mask(5, 9, (1, 0), (4, 8)))
    assert region not in ("last rows", "rows after the first")


# Symptoms that any exercise shows

DOUBLE = Exercise(
    name="double",
    file="double.py",
    points=1,
    inputs=lambda rng, case: {"x": rng.normal(case.params["rows"], case.params["cols"]) + 5.0},
    reference=lambda x: (2.0 * x,),
    torch_op=lambda x: (2.0 * x,),
    tolerance=Tolerance(lambda _case, _inputs, reference: (2.0**-23 * reference[0].abs(),)),
    cases=(Case({"rows": 6, "cols": 40}),),
)
PLAIN = Lab(
    "doubles", (DOUBLE,), {Symptom.WRONG: (1, "look again"), Symptom.TAIL_WRONG: (2, "look at the mask")}
)


def seen(change, untouched=None, earlier=(), exercise=DOUBLE):
    """What is said of a result after `change(out)`, which works in place."""
    (case,) = DOUBLE.cases
    inputs = draw(DOUBLE, case, SEED, "cpu")
    expected = comparison.expect(DOUBLE, case, inputs)
    got = expected.rounded[0].clone()
    change(got)
    finding, _ = comparison.examine(DOUBLE, case, expected, [got], untouched and [untouched(got)])
    assert finding is not None, "the change made nothing wrong"
    return diagnosis.diagnose(PLAIN, exercise, case, finding, inputs, expected.reference[0], got, earlier)


def nothing(*where):
    return lambda got: got.__setitem__(where or EVERY, 0.0)


@pytest.mark.parametrize(
    ("change", "symptom"),
    [
        (nothing(), Symptom.ALL_ZERO),
        (nothing(EVERY, slice(30, 40)), Symptom.TAIL_WRONG),
        (nothing(EVERY, slice(8, 40)), Symptom.LATER_BLOCKS_WRONG),
        (nothing(EVERY, slice(0, 8)), Symptom.FIRST_BLOCKS_WRONG),
        (nothing(slice(1, 6)), Symptom.LATER_ROWS_WRONG),
        (nothing(slice(4, 6)), Symptom.LAST_ROWS_WRONG),
        (nothing(slice(2, 4), slice(30, 40)), Symptom.LAST_COLUMNS_WRONG),
        (nothing(slice(2, 4), slice(10, 20)), Symptom.WRONG),
        (lambda got: got.mul_(0.25), Symptom.SCALED),
        (lambda got: got.neg_(), Symptom.SCALED),
        (lambda got: got.copy_(got.flip(1)), Symptom.WRONG),
        (lambda got: got.mul_(1.0 + 1e-3 * torch.linspace(0, 1, 40)), Symptom.PRECISION),
        (lambda got: got[2, 3].fill_(float("nan")), Symptom.NOT_FINITE),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_values_show_the_symptom_of_their_region(change, symptom):
    assert seen(change).symptom is symptom


@pytest.mark.parametrize(
    ("where", "symptom"),
    [
        (EVERY, Symptom.NOTHING_WRITTEN),
        ((EVERY, slice(30, 40)), Symptom.TAIL_UNWRITTEN),
        ((slice(4, 6), EVERY), Symptom.ROWS_UNWRITTEN),
        ((slice(1, 6), EVERY), Symptom.ROWS_UNWRITTEN),
        ((slice(2, 4), EVERY), Symptom.PART_UNWRITTEN),
    ],
    ids=["everything", "last columns", "last rows", "rows after the first", "rows in the middle"],
)
def test_elements_never_written_show_which_part_is_missing(where, symptom):
    found = seen(
        lambda got: got.__setitem__(where, float("nan")),
        untouched=torch.isnan,
    )
    assert found.symptom is symptom
    assert "never written" in found.pattern


def test_result_of_an_earlier_call_is_stale():
    earlier = torch.full((6, 40), 3.0)
    assert seen(lambda got: got.copy_(earlier), earlier=[torch.ones(6, 40), earlier]).symptom is Symptom.STALE
    assert seen(lambda got: got.copy_(earlier), earlier=[torch.ones(6, 40)]).symptom is not Symptom.STALE


def test_pattern_counts_the_wrong_elements_and_says_where():
    found = seen(nothing(EVERY, slice(30, 40)))
    assert found.pattern == "60 of 240 wrong, in columns 30 to 39, up to the last, in every row"
    assert (found.cause, found.hint) == ("look at the mask", 2)


# Causes


def test_cause_of_the_lab_comes_before_the_general_one():
    lab = Lab("doubles", (DOUBLE,), {Symptom.ALL_ZERO: (3, "the store is missing")})
    found = cause_of(lab, Symptom.ALL_ZERO)
    assert found == diagnosis.Diagnosis(Symptom.ALL_ZERO, "", "the store is missing", 3)


def test_general_cause_has_no_hint():
    found = cause_of(PLAIN, Symptom.ALL_ZERO)
    assert (found.cause, found.hint) == (GENERAL[Symptom.ALL_ZERO], None)


def test_symptom_without_a_cause_gets_the_advice_for_anything_wrong():
    found = cause_of(PLAIN, Symptom.LATER_ROWS_WRONG)
    assert (found.symptom, found.cause, found.hint) == (Symptom.LATER_ROWS_WRONG, "look again", 1)


def test_labs_name_causes():
    assert sum(len(lab.causes) for lab in LABS.values()) > 20


@pytest.mark.parametrize("entry", [*ENTRIES.values(), *CAPSTONE.values()], ids=[*ENTRIES, *CAPSTONE])
def test_every_cause_cites_a_hint_of_the_readme(entry):
    hints = {
        int(number) for number in re.findall(r"Hint (\d+),", (entry.folder / "README.md").read_text("utf-8"))
    }
    assert hints
    assert {symptom: hint for symptom, (hint, _) in entry.lab.causes.items() if hint not in hints} == {}


# What only a GPU shows no test without one sees: at least the hint that line one promises must be there. The
# symptoms that lead to each verdict; wrong values may show any symptom that the lab knows.
SYMPTOMS_OF = {
    "WRONG/NONDETERMINISTIC": [Symptom.NONDETERMINISTIC],
    "WRONG/PRECISION": [Symptom.PRECISION],
    "WRONG/UNWRITTEN": [
        Symptom.NOTHING_WRITTEN,
        Symptom.TAIL_UNWRITTEN,
        Symptom.PART_UNWRITTEN,
        Symptom.ROWS_UNWRITTEN,
    ],
    "OUT_OF_BOUNDS/WRITE": [Symptom.OUT_OF_BOUNDS_WRITE],
    "OUT_OF_BOUNDS/READ": [Symptom.OUT_OF_BOUNDS_READ, Symptom.UNMASKED_READ],
    "COMPILE_ERROR": list(diagnosis.FAILURES.values()),
    "SLOW": [Symptom.SLOW],
}
HINTED = [
    specimen
    for specimen in find("solutions/lab*/wrong/*.py", "solutions/gpu-programming/*/wrong/*.*")
    if specimen.where == "GPU" and specimen.hint is not None
]


@pytest.mark.parametrize("specimen", HINTED, ids=lambda specimen: specimen.name)
def test_a_mistake_that_only_a_gpu_shows_can_get_its_hint(specimen):
    lab = (ENTRIES | CAPSTONE)[specimen.path.parts[-3]].lab
    for verdict in specimen.screened:
        mismatch = verdict == "WRONG/MISMATCH"
        symptoms = [Symptom.WRONG, *lab.causes] if mismatch else SYMPTOMS_OF[verdict]
        hints = {symptom: cause_of(lab, symptom).hint for symptom in symptoms}
        assert specimen.hint in hints.values(), f"{verdict}: {hints}"


def test_a_sum_whose_blocks_overwrite_each_other_may_be_zero_and_gets_its_hint():
    assert cause_of(CAPSTONE["cuda-kernels"].lab, Symptom.ALL_ZERO).hint == 1


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_every_symptom_finds_a_cause_in_every_lab(entry):
    assert [symptom for symptom in Symptom if not cause_of(entry.lab, symptom).cause] == []


def named_in(function):
    """Members of enumerations that a function names: the symptoms that it may return."""
    nodes = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function))))
    named = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    kinds = [(function.__globals__.get(node.value.id), node.attr) for node in named]
    return {kind[member] for kind, member in kinds if isinstance(kind, enum.EnumMeta)}


@pytest.mark.parametrize("name", [name for name, (_, exercise) in EXERCISES.items() if exercise.symptom_of])
def test_every_symptom_of_an_exercise_is_a_cause_of_its_lab_and_is_shown_below(name):
    lab, exercise = EXERCISES[name]
    used = inspect.getclosurevars(exercise.symptom_of).nonlocals.values()
    symptoms = set().union(*map(named_in, [exercise.symptom_of, *filter(inspect.isfunction, used)]))
    assert symptoms
    assert symptoms <= set(lab.causes)
    # A gradient behind a right result has a test of its own, the last one.
    assert symptoms - {Symptom.GRADIENT} <= {symptom for _, symptom, *_ in MISTAKES}


def test_text_from_the_function_of_an_exercise_is_refused_with_its_words():
    exercise = dataclasses.replace(DOUBLE, symptom_of=lambda *_: "al zero")
    with pytest.raises(ValueError, match=r"double: 'al zero' .* did you mean Symptom\.ALL_ZERO"):
        seen(nothing(), exercise=exercise)


def member(lab, words):
    """The symptom of these words, for which the lab has a cause."""
    (found,) = [symptom for symptom in lab.causes if symptom == words]
    return found


# Mistakes of the labs


def power_of_two(n):
    return 1 << (n - 1).bit_length()


def block_of(x):
    """The width of block that the lab's own host function would take."""
    return min(power_of_two(x.shape[1]), 16384)


def masked_lanes_counted(x):
    """`other=0` in the sum: each lane past the end adds exp(0 - m)."""
    m = x.amax(dim=1, keepdim=True)
    lanes = -x.shape[1] % block_of(x)
    e = (x - m).exp()
    return e / (e.sum(dim=1, keepdim=True) + lanes * (-m).exp())


def last_block_summed(x):
    m = x.amax(dim=1, keepdim=True)
    start = (x.shape[1] - 1) // block_of(x) * block_of(x)
    return (x - m).exp() / (x - m)[:, start:].exp().sum(dim=1, keepdim=True)


def sum_not_rescaled(x):
    """The sum of each block keeps the scale of the maximum it was made with."""
    d, m = (
        torch.zeros(x.shape[0], 1, dtype=x.dtype),
        torch.full((x.shape[0], 1), -float("inf"), dtype=x.dtype),
    )
    for part in x.split(block_of(x), dim=1):
        m = torch.maximum(m, part.amax(dim=1, keepdim=True))
        d = d + (part - m).exp().sum(dim=1, keepdim=True)
    return (x - m).exp() / d


def stored_early(x):
    """Each block is normalised with the maximum and the sum of the columns up to its end."""
    parts = []
    for start in range(0, x.shape[1], 2048):
        stop = start + 2048
        m = x[:, :stop].amax(dim=1, keepdim=True)
        parts.append((x[:, start:stop] - m).exp() / (x[:, :stop] - m).exp().sum(dim=1, keepdim=True))
    return torch.cat(parts, dim=1)


def pointers_stand_still(block):
    """Every step along K multiplies the first tiles; the last one masks what lies past the end of K."""

    def product(a, b):
        steps, rest = divmod(a.shape[1], block)
        return steps * (a[:, :block] @ b[:block]) + a[:, :rest] @ b[:rest]

    return product


def tail_dropped(block):
    def product(a, b):
        kept = a.shape[1] // block * block
        return a[:, :kept] @ b[:kept]

    return product


SUMS = ("rows=4,cols=129,fp32", "rows=5,cols=127,fp32", "rows=29,cols=1001,fp32", "rows=3,cols=16385,fp32")
LONG = ("rows=3,cols=16385,fp32", "rows=2,cols=40000,fp16", "rows=7,cols=20011,values=ascending,fp32")
WIDE = ("rows=5,cols=128,fp32", "rows=29,cols=1001,fp32", "rows=2,cols=40000,fp16", "rows=3,cols=16385,bf16")
K_TAILS = (
    "m=100,n=300,k=257,fp32",
    "m=33,n=65,k=17,b transposed,fp16",
    "m=129,n=127,k=200,b transposed,bf16",
)
K_STEPS = (
    "m=100,n=300,k=257,fp32",
    "m=128,n=128,k=128,fp16",
    "m=24,n=16,k=4096,fp16",
    "m=1024,n=1024,k=1024,bf16",
)
SQUARE = ("m=128,n=128,k=128,fp32", "m=192,n=192,k=192,fp32", "m=128,n=128,k=128,bf16")
EPILOGUES = ("m=128,n=128,k=128,fp16", "m=100,n=300,k=257,fp32")
ADDED = ("n=7,fp32", "n=65537,bf16")

MISTAKES = (  # exercise, symptom, cases that show it, the wrong function in fp64
    ("elementwise_add", "one side only", ADDED, lambda x, **_: x),
    ("elementwise_add", "one side only", ADDED, lambda y, **_: y),
    ("elementwise_add", "one side only", ADDED, lambda x, **_: x + x),
    ("elementwise_add", "out is read", ADDED, lambda x, **_: x * float("nan")),
    ("softmax_forward", "sums below one", SUMS, masked_lanes_counted),
    ("softmax_forward", "sums above one", LONG, last_block_summed),
    ("softmax_forward", "sum not rescaled", LONG[2:], sum_not_rescaled),
    ("softmax_forward", "wrong axis", WIDE, lambda x: x.softmax(dim=0)),
    ("softmax_forward", "first blocks wrong", LONG[:2], stored_early),
    ("softmax_forward", "too flat", WIDE, lambda x: torch.softmax(0.6931 * x, dim=1)),
    ("softmax_backward", "no sum", WIDE, lambda dy, y: y * dy),
    ("softmax_backward", "factors exchanged", WIDE, lambda dy, y: dy * (y - (y * dy).sum(1, keepdim=True))),
    ("softmax_backward", "wrong sum", WIDE, lambda dy, y: y * (dy + (y * dy).sum(1, keepdim=True))),
    ("softmax_backward", "wrong sum", WIDE, lambda dy, y: y * (dy - (y * dy).sum(0))),
    ("softmax_backward", "infinite sum", WIDE, lambda dy, y: y.clamp(min=1e-9) * (dy - float("inf"))),
    ("matmul", "swapped strides", SQUARE, lambda a, b: a.T @ b),
    ("matmul", "swapped strides", SQUARE, lambda a, b: a @ b.T),
    ("matmul", "tail of k dropped", K_TAILS, tail_dropped(16)),
    ("matmul", "tail of k dropped", K_TAILS[::2], tail_dropped(64)),
    ("matmul", "pointers stand still", K_STEPS, pointers_stand_still(32)),
    ("matmul", "pointers stand still", K_STEPS[:1], pointers_stand_still(64)),
    ("matmul", "relu unasked", EPILOGUES, lambda a, b: (a @ b).clamp(min=0.0)),
    ("matmul", "strides ignored", K_TAILS[1:], lambda a, b: a @ b.T.reshape(b.shape)),
    ("matmul_bias_relu", "no bias", EPILOGUES, lambda a, b, **_: (a @ b).clamp(min=0.0)),
    ("matmul_bias_relu", "no relu", EPILOGUES, lambda a, b, bias: a @ b + bias),
)


def normed(x, eps, centred=True, rows=lambda d, variance, eps: d * (variance + eps).rsqrt()):
    """Rows less their mean, over what `rows` makes of the variance."""
    d = x - x.mean(dim=1, keepdim=True) if centred else x
    return rows(d, d.square().mean(dim=1, keepdim=True), eps)


def layer_normed(**changed):
    return lambda x, weight, bias: normed(x, 1e-5, **changed) * weight + bias


def counted_lanes(d, variance, eps):
    """Over the block, with (0 - mean)^2 for each lane past the end."""
    width = power_of_two(d.shape[1])
    return d * (variance * d.shape[1] / width + eps).rsqrt()


def with_masked_lanes(x, weight, bias):
    cols, mean = x.shape[1], x.mean(dim=1, keepdim=True)
    extra = (power_of_two(cols) - cols) / cols * mean.square()
    return normed(x, 1e-5, rows=lambda d, variance, eps: d * (variance + extra + eps).rsqrt()) * weight + bias


def rms_backward(dy, x, weight, terms=True, scaled=True):
    n, r = normed(x, 1e-6, centred=False), (x.square().mean(dim=1, keepdim=True) + 1e-6).rsqrt()
    g = dy * weight if scaled else dy
    dx = r * (g - terms * n * (g * n).mean(dim=1, keepdim=True))
    return dx, dy, n


def gradient_of_rows(dweight):
    """A right dx, and of dweight what `dweight(dy, n)` says."""

    def backward(dy, x, weight):
        dx, dy, n = rms_backward(dy, x, weight)
        return dx, dweight(dy, n)

    return backward


def dropped(x, p, seed, scale):
    kept = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) >= p
    return torch.where(kept, scale * x, 0.0 * x)


def replayed(scale=None, seed=0):
    """y right, and a gradient of another mask or another scale."""

    def both(x, dy, p, seed, other=seed):
        right = 1.0 / (1.0 - p)
        return dropped(x, p, seed, right), dropped(dy, p, seed + other, scale or right)

    return both


ROWS, NARROW = ("rows=7,cols=1001,fp32", "rows=5,cols=127,fp16"), ("rows=7,cols=1030,values=narrow,fp32",)
EPS = ("rows=5,cols=257,eps=1.0,fp32",)
KEPT, KEPT_BOTH = (
    ("n=30001,p=0.75,fp32", "n=30001,p=0.75,fp16"),
    ("n=30001,p=0.1,fp32", "n=30001,p=0.75,fp16"),
)
MISTAKES += (
    ("layer_norm_forward", "eps outside", NARROW, layer_normed(rows=lambda d, v, e: d / (v.sqrt() + e))),
    ("layer_norm_forward", "no eps", NARROW, layer_normed(rows=lambda d, v, _: d / v.sqrt())),
    ("layer_norm_forward", "no weight", ROWS, lambda x, bias, **_: normed(x, 1e-5) + bias),
    ("layer_norm_forward", "no bias", ROWS, lambda x, weight, **_: normed(x, 1e-5) * weight),
    ("layer_norm_forward", "divided by the block", ROWS[:1], layer_normed(rows=counted_lanes)),
    ("layer_norm_forward", "masked lanes", ("rows=7,cols=1030,values=far,fp32",), with_masked_lanes),
    ("layer_norm_forward", "variance over n - 1", ROWS[:1],
     layer_normed(rows=lambda d, v, e: d * (v * d.shape[1] / (d.shape[1] - 1) + e).rsqrt())),
    ("layer_norm_forward", "eps ignored", EPS, lambda x, weight, bias, **_: normed(x, 1e-5) * weight + bias),
    ("rms_norm_backward", "eps ignored", EPS, lambda dy, x, weight, **_: rms_backward(dy, x, weight)[0]),
    ("layer_norm_forward", "one column", ("rows=1,cols=1,fp32",), lambda x, **_: x * float("nan")),
    ("layer_norm_forward", "weight by row", ROWS,
     lambda x, weight, bias: normed(x, 1e-5) * weight[: len(x), None] + bias[: len(x), None]),
    ("layer_norm_forward", "centring", ROWS, layer_normed(centred=False)),
    ("rms_norm_forward", "centring", ROWS, lambda x, weight: normed(x, 1e-6) * weight),
    ("rms_norm_backward", "mean terms dropped", ROWS, lambda **t: rms_backward(**t, terms=False)[0]),
    ("rms_norm_backward", "no weight in dx", ROWS, lambda **t: rms_backward(**t, scaled=False)[0]),
    ("rms_norm_backward", "rows not summed", ROWS, gradient_of_rows(lambda dy, n: (dy * n)[0])),
    ("rms_norm_backward", "rows not summed", ROWS, gradient_of_rows(lambda dy, n: (dy * n)[:3].sum(dim=0))),
    ("rms_norm_backward", "sums not set", ROWS, gradient_of_rows(lambda dy, _: dy[0] * float("nan"))),
    ("rms_norm_backward", "dweight without n", ROWS, gradient_of_rows(lambda dy, _: dy.sum(dim=0))),
    ("dropout_forward", "not scaled", KEPT, lambda x, p, seed: dropped(x, p, seed, 1.0)),
    ("dropout_forward", "scaled by 1/p", KEPT, lambda x, p, seed: dropped(x, p, seed, 1.0 / p)),
    ("dropout_forward", "mask inverted", KEPT, lambda x, p, seed: dropped(x, 1.0 - p, seed, 1.0 / (1.0 - p))),
    ("dropout_forward", "mask repeats", KEPT,
     lambda x, p, seed: x / (1.0 - p) * (dropped(x[:4096], p, seed, 1.0) != 0).repeat(18)[: len(x)]),
    ("dropout_forward", "edge of p", ("n=4099,p=1.0,fp32",), lambda x, **_: x * float("nan")),
    ("dropout", "in evaluation", ("n=4099,p=0.5,training=False,fp32",),
     lambda x, dy, p, seed, **_: (dropped(x, p, seed, 2.0), dropped(dy, p, seed, 2.0))),
    ("dropout", "mask not replayed", KEPT_BOTH, replayed(seed=1)),
    ("dropout", "scaled gradient", KEPT_BOTH, replayed(scale=1.0)),
    ("dropout", "dy in memory order", ("n=2000,p=0.5,rows=40,dy transposed,fp32",), replayed(seed=1)),
)  # fmt: skip


def linear(form):
    """A wrong LayerNorm + Linear: `form` gets what the right one is made of, by name."""

    def forward(x, gamma, beta, weight, bias):
        parts = types.SimpleNamespace(
            x=x, gamma=gamma, beta=beta, weight=weight, bias=bias, n=normed(x, 1e-5)
        )
        parts.mean, parts.s = x.mean(dim=1, keepdim=True), gamma * weight
        parts.r = (x.var(dim=1, correction=0, keepdim=True) + 1e-5).rsqrt()
        parts.product, parts.total = x @ parts.s.T, parts.s.sum(dim=1)
        parts.shift = weight @ beta + bias
        return form(parts)

    return forward


def linear_of_rows(rows):
    return linear(lambda t: normed(t.x, 1e-5, rows=rows) @ t.s.T + t.shift)


def transposed(t):
    s = t.s.reshape(-1, len(t.s))
    return t.r * (t.x @ s - t.mean * t.total) + t.shift


def of_first_tile(numbers):
    return numbers.take(torch.arange(len(numbers)) % 32).reshape(numbers.shape)


def dweight_from(rows):
    """y and every gradient right but that of the weight, which is dy.T @ rows(x)."""

    def both(x, gamma, beta, weight, bias, dy):
        leaves = [one.clone().requires_grad_() for one in (x, gamma, beta, weight, bias)]
        with torch.enable_grad():
            y = (normed(leaves[0], 1e-5) * leaves[1] + leaves[2]) @ leaves[3].T + leaves[4]
            dx, dgamma, dbeta, _, _ = torch.autograd.grad(y, leaves, dy)
        return y.detach(), dx, dgamma, dbeta, dy.T @ rows(x)

    return both


def without_eps(**given):
    return {name: value for name, value in given.items() if name != "eps"}


LINEAR = "layer_norm_linear_forward"
PLAIN_ROWS, ASIDE = ("rows=70,cols=129,outs=40,fp32",), ("rows=37,cols=129,outs=70,values=aside,fp32",)
LINEAR_NARROW = ("rows=37,cols=129,outs=70,values=narrow,fp32",)
LINEAR_BOTH = ("rows=70,cols=127,outs=40,fp32",)
MISTAKES += (
    (LINEAR, "mean left in", PLAIN_ROWS, linear(lambda t: t.r * t.product + t.shift)),
    (LINEAR, "mean not scaled", PLAIN_ROWS, linear(lambda t: t.r * t.product - t.mean * t.total + t.shift)),
    (LINEAR, "shift scaled", PLAIN_ROWS, linear(lambda t: t.r * (t.product - t.mean * t.total + t.shift))),
    (LINEAR, "another tile", PLAIN_ROWS,
     linear(lambda t: of_first_tile(t.r) * (t.product - of_first_tile(t.mean) * t.total) + t.shift)),
    (LINEAR, "another tile", PLAIN_ROWS,
     linear(lambda t: t.r * (t.product - t.mean * of_first_tile(t.total)) + of_first_tile(t.shift))),
    (LINEAR, "mean of other columns", ASIDE,
     linear(lambda t: t.r * (t.product - t.mean * t.weight.sum(dim=1)) + t.shift)),
    (LINEAR, "no beta", PLAIN_ROWS, linear(lambda t: t.n @ t.s.T + t.bias)),
    (LINEAR, "no bias", PLAIN_ROWS, linear(lambda t: t.n @ t.s.T + t.weight @ t.beta)),
    (LINEAR, "no gamma", PLAIN_ROWS, linear(lambda t: t.n @ t.weight.T + t.shift)),
    (LINEAR, "weight transposed", PLAIN_ROWS, linear(transposed)),
    (LINEAR, "eps outside", LINEAR_NARROW, linear_of_rows(lambda d, v, e: d / (v.sqrt() + e))),
    (LINEAR, "eps ignored", ("rows=9,cols=130,outs=20,eps=1.0,fp32",),
     lambda **given: linear(lambda t: t.n @ t.s.T + t.shift)(**without_eps(**given))),
    (LINEAR, "no eps", LINEAR_NARROW, linear_of_rows(lambda d, v, _: d / v.sqrt())),
    (LINEAR, "variance over n - 1", PLAIN_ROWS,
     linear_of_rows(lambda d, v, e: d * (v * d.shape[1] / (d.shape[1] - 1) + e).rsqrt())),
    ("layer_norm_linear", "dweight of other rows", LINEAR_BOTH, dweight_from(lambda x: x)),
    ("layer_norm_linear", "dweight of other rows", LINEAR_BOTH, dweight_from(lambda x: normed(x, 1e-5))),
)  # fmt: skip
SHOWN = [(name, symptom, case, wrong) for name, symptom, cases, wrong in MISTAKES for case in cases]


@pytest.mark.parametrize(
    ("name", "symptom", "case_name", "wrong"),
    SHOWN,
    ids=[f"{symptom}-{k}-{name}/{case}" for k, (name, symptom, case, _) in enumerate(SHOWN)],
)
def test_mistake_is_recognised_by_its_symptom(name, symptom, case_name, wrong):
    lab, exercise = EXERCISES[name]
    (case,) = [case for case in exercise.cases if case.name == case_name]
    found = diagnosed(lab, exercise, case, wrong)
    assert found.symptom is member(lab, symptom)
    assert (found.hint, found.cause) == lab.causes[symptom]


def diagnosed(lab, exercise, case, wrong):
    """What is said of the result of a wrong function."""
    inputs = draw(exercise, case, SEED, "cpu")
    expected = comparison.expect(exercise, case, inputs)
    wrongs = wrong(**in_dtype(inputs, torch.float64))
    wrongs = wrongs if isinstance(wrongs, tuple) else (wrongs,)  # of the first output, or of several
    got = [value.to(right.dtype) for value, right in zip(wrongs, expected.rounded, strict=False)]
    got += expected.rounded[len(got) :]
    finding, _ = comparison.examine(exercise, case, expected, got)
    assert finding is not None, "this mistake changes nothing here"
    k = exercise.outputs.index(finding.output)
    return diagnosis.diagnose(lab, exercise, case, finding, inputs, expected.reference[k], got[k], [])


def test_sum_that_kept_its_old_scale_is_led_to_the_hint_on_rescaling():
    lab, exercise = EXERCISES["softmax_forward"]
    (case,) = [case for case in exercise.cases if case.params.get("values") == "ascending"]
    found = diagnosed(lab, exercise, case, sum_not_rescaled)
    assert found.symptom is not member(lab, "wrong axis")
    assert found.hint == lab.causes[Symptom.LATER_BLOCKS_WRONG][0]


def test_counted_lanes_of_constant_rows_are_no_wrong_axis():
    lab, exercise = EXERCISES["softmax_forward"]
    (case,) = [case for case in exercise.cases if case.params.get("values") == "constant"]
    x = draw(exercise, case, SEED, "cpu")["x"].double()
    found = exercise.symptom_of(case, {"x": x}, x.softmax(dim=1), masked_lanes_counted(x))
    assert found is not member(lab, "wrong axis")


def test_wrong_gradient_behind_a_right_result_is_named():
    lab, exercise = EXERCISES["softmax"]
    case = exercise.cases[0]
    inputs = draw(exercise, case, SEED, "cpu")
    expected = comparison.expect(exercise, case, inputs)
    got = [expected.rounded[0], expected.rounded[0] * inputs["dy"].flip(1)]
    finding, _ = comparison.examine(exercise, case, expected, got)
    assert finding.output == "dx"
    found = diagnosis.diagnose(lab, exercise, case, finding, inputs, expected.reference[1], got[1], [])
    assert (found.symptom, found.hint) == (Symptom.GRADIENT, lab.causes[Symptom.GRADIENT][0])


def test_only_a_file_with_an_autotuner_is_told_of_it_where_its_first_call_is_wrong():
    """A race of the capstone's CUDA sum, which has no autotuner, was told that a kernel is tuned in it."""
    lab, bad = CAPSTONE["cuda-kernels"].lab, torch.ones(1, dtype=torch.bool)
    finding = comparison.Finding("out", Reason.MISMATCH, (0,), 0.0, 1.0, bad, 2.0)
    causes = [only_at_first(lab, finding, is_tuned).cause for is_tuned in (True, False)]
    assert ["autotuned" in cause for cause in causes] == [True, False], causes
    assert "two runs differ" in causes[1]
