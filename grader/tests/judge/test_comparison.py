"""Tolerances: in every case of every lab sound results pass, worthless and imprecise ones do not."""

import contextlib
import dataclasses
import functools
import math
import warnings

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from grader.course import catalog
from grader.course.spec import Case, Exercise, Tolerance
from grader.judge import comparison
from grader.judge.inputs import draw, in_dtype
from grader.judge.shapes import shapes_of
from grader.worker.shared_memory import TORCH_DTYPES

MOST_ELEMENTS = 4_000_000
SEEDS = (11, 12, 13)
EXERCISES = {e.name: e for entry in catalog.find() for e in entry.lab.exercises}


def elements(exercise, case):
    """Of all inputs together."""
    shapes = shapes_of(exercise, case).values()
    return sum(math.prod(shape) for shape in shapes if isinstance(shape, tuple))


CASES = {
    f"{exercise.name}/{case.name}": (exercise, case)
    for exercise in EXERCISES.values()
    for case in exercise.cases
    if not case.gpu_only and elements(exercise, case) <= MOST_ELEMENTS
}


@dataclasses.dataclass(frozen=True, eq=False)
class Drawn:
    exercise: Exercise
    case: Case
    inputs: dict
    expected: comparison.Expected
    other: comparison.Expected

    def finding(self, *outputs, untouched=None):
        found = comparison.examine(self.exercise, self.case, self.expected, outputs, untouched)[0]
        assert comparison.is_right(self.exercise, self.case, self.expected, outputs) == (found is None)
        if self.exercise.follow is None:  # the short answer is the same
            assert comparison.within(self.case, self.expected, outputs) == (found is None)
        return found


def drawn(exercise, case, seed=SEEDS[0]):
    values = draw(exercise, case, seed, "cpu")
    other = comparison.expect(exercise, case, draw(exercise, case, seed, "cpu", call=1))
    return Drawn(exercise, case, values, comparison.expect(exercise, case, values), other)


def named(name):
    return drawn(*CASES[name])


def for_each(cases, check):
    """Check each of the named cases, and fail once with the names of all those that fail."""
    assert cases, "there is no case to check"
    failed = []
    for name, arguments in cases.items():
        try:
            check(*arguments)
        except Exception as error:  # whatever it is, the other cases are checked as well
            failed.append(f"{name}: {type(error).__name__}: {error}")
    if failed:
        pytest.fail(f"{len(failed)} of {len(cases)} cases fail\n" + "\n".join(failed))


def test_a_loop_over_cases_names_each_that_fails_and_goes_on_after_it():
    seen = []

    def check(value):
        seen.append(value)
        assert value % 2, "even"

    with pytest.raises(pytest.fail.Exception, match=r"(?s)^2 of 3 cases fail\nb: .*even.*\nc: .*even"):
        for_each({"b": (2,), "a": (1,), "c": (4,)}, check)
    assert seen == [2, 1, 4]
    with pytest.raises(AssertionError, match="no case"):
        for_each({}, check)


# Every case of every lab


def test_the_cases_examined_are_many_and_of_every_exercise_and_dtype():
    assert len(CASES) > 50
    assert {exercise.name for exercise, _ in CASES.values()} == set(EXERCISES)
    assert {case.dtype for _, case in CASES.values()} == set(TORCH_DTYPES)
    large = [c for c in CASES.values() if elements(*c) >= 2 * comparison.FEWEST_FOR_NULLS]
    assert len(large) > 50, "too few cases are large enough for worthless answers to be tried"


def rejects_every_worthless_answer(one):
    assert (
        comparison.accepted_nulls(one.exercise, one.case, one.expected, one.inputs, one.other.rounded) == []
    )


def accepts_the_reference_rounded_once(one):
    finding, used = comparison.examine(one.exercise, one.case, one.expected, one.expected.rounded)
    assert finding is None
    assert 0.0 <= used <= 1.0


def accepts_what_torch_computes(one):
    # Where every bit counts, torch may round twice: its word is no measure there.
    outputs = one.expected.rounded if one.case.bitwise else tuple(one.exercise.torch_op(**one.inputs))
    assert one.finding(*outputs) is None


def rejects_a_nan_in_the_last_element(one):
    outputs = [value.clone() for value in one.expected.rounded]
    if outputs[-1].numel() == 0:
        return
    # An element that one output shows to be kept, and another one to be dropped, is wrong for that.
    for value in outputs if one.exercise.follow else outputs[-1:]:
        value.view(-1)[-1] = float("nan")
    finding = one.finding(*outputs)
    assert (finding.reason, finding.wrong) == ("NONFINITE", 1)
    assert finding.index == tuple(size - 1 for size in outputs[-1].shape)


def accepts_fp32_arithmetic_where_pytorch_happens_to_be_exact(one):
    """PyTorch's own error adds to the tolerance, but on a GPU it may be almost nothing."""
    exercise, case = one.exercise, one.case
    if exercise.follow is not None or sum(value.numel() for value in one.expected.reference) > 2**17:
        return
    wide = in_dtype(one.inputs, torch.float64)
    exact = one.expected.rounded
    expected = comparison.calibrate(exercise, case, one.inputs, wide, one.expected.reference, exact)
    single = exercise.reference(**in_dtype(one.inputs, torch.float32))
    outputs = [value.to(own.dtype) for value, own in zip(single, exact, strict=True)]
    finding, _ = comparison.examine(exercise, case, expected, outputs)
    assert finding is None, (finding.reason, finding.used)


OF_EVERY_CASE = (
    rejects_every_worthless_answer, accepts_the_reference_rounded_once, accepts_what_torch_computes,
    rejects_a_nan_in_the_last_element, accepts_fp32_arithmetic_where_pytorch_happens_to_be_exact,
)  # fmt: skip


@functools.lru_cache(maxsize=1)
def drawn_once(name, seed):
    return drawn(*CASES[name], seed)


@pytest.mark.parametrize(
    "seed", [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.nightly) for seed in SEEDS[1:])]
)
@pytest.mark.parametrize("exercise", EXERCISES)
def test_every_case_accepts_sound_results_and_rejects_others(exercise, seed):
    """Every case that a CPU can run; bf16 too, which torch computes here."""
    checks = {
        f"{name}, {rule.__name__}": (rule, name)
        for name in CASES
        if CASES[name][0].name == exercise
        for rule in OF_EVERY_CASE
    }
    for_each(checks, lambda rule, name: rule(drawn_once(name, seed)))


# The self-test itself


def lenient(exercise):
    return dataclasses.replace(exercise, tolerance=Tolerance(exercise.tolerance.unit, 1e30, 1e30))


@pytest.mark.parametrize("name", ["softmax_forward", "softmax_backward", "matmul"])
def test_tolerance_without_bounds_accepts_every_worthless_answer(name):
    exercise = EXERCISES[name]
    case = next(case for case in exercise.cases if not case.bitwise and min(case.params.values()) > 16)
    one = drawn(lenient(exercise), case)
    accepted = comparison.accepted_nulls(one.exercise, case, one.expected, one.inputs, one.other.rounded)
    assert {"zeros", "uniform", "an earlier result", "fewer digits"} <= set(accepted)


def test_worthless_answer_that_happens_to_be_right_is_left_out_where_the_case_says_so():
    name = "softmax_forward/rows=7,cols=1009,values=constant,fp32"
    exercise, case = CASES[name]
    assert case.also_right
    strict = dataclasses.replace(case, also_right=())
    one = drawn(exercise, strict)
    accepted = comparison.accepted_nulls(exercise, strict, one.expected, one.inputs, one.other.rounded)
    assert sorted(accepted) == sorted(case.also_right)


def test_copy_of_an_input_is_among_the_worthless_answers():
    exercise = dataclasses.replace(EXERCISES["softmax_forward"], reference=lambda x: (x.clone(),))
    case = Case({"rows": 9, "cols": 31})
    # That of softmax is below 0 where a result is.
    tolerance = Tolerance(lambda *asked: tuple(1.0 + one.abs() for one in asked[2]))
    exercise = dataclasses.replace(exercise, torch_op=exercise.reference, tolerance=tolerance)
    one = drawn(exercise, case)
    assert "a copy of x" in comparison.accepted_nulls(
        exercise, case, one.expected, one.inputs, one.other.rounded
    )


# Precision


def softmax_in(x, dtype):
    """Every step rounded to `dtype`."""
    e = (x.to(dtype) - x.to(dtype).amax(dim=1, keepdim=True)).exp()
    return e / e.sum(dim=1, keepdim=True, dtype=dtype)


FP32 = [
    name
    for name, (exercise, case) in CASES.items()
    if case.dtype == "fp32"
    and not case.bitwise
    and elements(exercise, case) > 4 * comparison.FEWEST_FOR_NULLS
    and "fewer digits" not in case.also_right
]
LONG_ROWS = "rows=29,cols=1001"


@pytest.mark.parametrize(
    ("dtype", "lower"),
    [("fp32", torch.bfloat16), ("fp32", torch.float16), ("fp16", torch.float16), ("bf16", torch.bfloat16)],
    ids=["fp32 in bf16", "fp32 in fp16", "fp16 in fp16", "bf16 in bf16"],
)
def test_softmax_with_sums_in_16_bits_is_rejected_for_lost_digits(dtype, lower):
    one = named(f"softmax_forward/{LONG_ROWS},{dtype}")
    got = softmax_in(one.inputs["x"], lower).to(TORCH_DTYPES[dtype])
    assert one.finding(got).reason == "PRECISION"


@pytest.mark.parametrize(
    "dtype", ["fp32", "fp16", "bf16"], ids=["fp32 in bf16", "fp16 in fp16", "bf16 in bf16"]
)
def test_gradient_with_sums_in_16_bits_is_rejected(dtype):
    one = named(f"softmax_backward/{LONG_ROWS},{dtype}")
    lower = torch.float16 if dtype == "fp16" else torch.bfloat16
    dy, y = (one.inputs[name].to(lower) for name in ("dy", "y"))
    got = y * (dy - (y * dy).sum(dim=1, keepdim=True, dtype=lower))
    assert one.finding(got.to(TORCH_DTYPES[dtype])) is not None


def test_fp32_result_rounded_to_16_bits_is_rejected():
    def check(name, dtype):
        one = named(name)
        assert one.finding(*(value.to(dtype).float() for value in one.expected.rounded)) is not None

    lower = (torch.bfloat16, torch.float16)
    for_each({f"{name} in {dtype}": (name, dtype) for name in FP32 for dtype in lower}, check)


def test_fp32_product_of_inputs_cut_to_tf32_is_rejected():
    def check(name):
        one = named(name)
        cut = {key: tf32(value) for key, value in one.inputs.items()}
        finding = one.finding(*one.exercise.torch_op(**cut))
        assert finding is not None
        assert finding.reason == "PRECISION"

    for_each({name: (name,) for name in FP32 if name.startswith("matmul")}, check)


def test_long_sum_in_fp16_is_rejected():
    one = named("matmul/m=24,n=16,k=4096,fp16")
    got = summed_in(torch.float16, one.inputs["a"].float(), one.inputs["b"].float())
    assert one.finding(got.half()) is not None


def tf32(x):
    """The value with the 10 bits of mantissa that TF32 keeps."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def test_epilogue_on_a_rounded_product_is_rejected_bit_for_bit():
    rejected = []
    for dtype in ("fp16", "bf16"):
        one = named(f"matmul_bias_relu/m=128,n=128,k=128,{dtype}")
        a, b, bias = (one.inputs[name] for name in ("a", "b", "bias"))
        product = (a.float() @ b.float()).to(a.dtype)
        got = (product.float() + bias.float()).clamp(min=0.0).to(a.dtype)
        rejected.append(one.finding(got).reason)
    assert rejected == ["PRECISION", "PRECISION"]


def test_other_formula_is_a_mismatch_and_not_a_lack_of_digits():
    one = named(f"softmax_forward/{LONG_ROWS},fp32")
    assert one.finding(2.0 * one.expected.rounded[0]).reason == "MISMATCH"
    assert one.finding(one.expected.rounded[0].flip(1)).reason == "MISMATCH"
    assert one.finding(1.001 * one.expected.rounded[0]).reason == "PRECISION"


# Single elements


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("elementwise_add/n=1048579,fp32", lambda value: value.nextafter(value.new_tensor(9.0))),
        ("elementwise_add/n=1048579,bf16", lambda value: value * 1.02),
        ("matmul/m=1031,n=1027,k=521,bf16", lambda value: value + 5.0),
        ("softmax_forward/rows=1,cols=131072,fp32", lambda value: value * 1.001),
        ("softmax_forward/rows=1,cols=131072,bf16", lambda value: value * 0.0),
    ],
    ids=["one bit, fp32", "two percent, bf16", "one in a million, bf16", "a thousandth, fp32", "zero, bf16"],
)
def test_one_wrong_element_among_many_is_found_at_its_index(name, change):
    one = named(name)
    got = one.expected.rounded[0].clone()
    flat = got.view(-1)
    place = 2 * flat.numel() // 3
    flat[place] = change(flat[place])
    assert flat[place] != one.expected.rounded[0].view(-1)[place]
    finding = one.finding(got)
    assert finding.wrong == 1
    assert torch.tensor(finding.index).tolist() == [
        int(i) for i in torch.unravel_index(torch.tensor(place), got.shape)
    ]
    assert finding.got == flat[place].item()
    assert finding.expected == one.expected.reference[0].view(-1)[place].item()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")], ids=str)
@pytest.mark.parametrize("name", [f"softmax_forward/{LONG_ROWS},fp16", "elementwise_add/n=1009,fp32"])
def test_one_value_that_is_not_finite_is_found_at_its_index(name, value):
    one = named(name)
    got = one.expected.rounded[0].clone()
    got.view(-1)[777] = value
    finding = one.finding(got)
    assert (finding.reason, finding.wrong) == ("NONFINITE", 1)
    assert int(finding.bad.view(-1).nonzero()) == 777
    assert finding.got == value or math.isnan(value)


def test_errors_that_each_element_may_have_are_rejected_where_all_have_them():
    one = named("matmul/m=1031,n=1027,k=521,bf16")
    reference, allowed = one.expected.reference[0], one.expected.allowed[0]
    leaning = (reference + 0.9 * allowed).to(torch.bfloat16)
    within = (leaning.double() - reference).abs() <= allowed
    assert within.double().mean() > 0.5
    assert one.finding(leaning.where(within, one.expected.rounded[0])) is not None


@pytest.mark.parametrize("value", [0.0, 1e3, float("inf"), float("nan")], ids=str)
def test_wrong_output_uses_more_than_its_tolerance(value):
    one = named(f"softmax_forward/{LONG_ROWS},fp32")
    got = torch.full_like(one.expected.rounded[0], value)
    finding, used = comparison.examine(one.exercise, one.case, one.expected, [got])
    assert finding.used > 1.0
    assert used > 1.0


# Poison


@pytest.mark.parametrize(
    "name", [f"softmax_forward/{LONG_ROWS},fp32", "matmul/m=129,n=127,k=200,b transposed,fp16"]
)
def test_element_that_still_holds_its_poison_is_unwritten_and_not_nan(name):
    one = named(name)
    got = one.expected.rounded[0].clone()
    mask = torch.zeros(got.shape, dtype=torch.bool)
    mask[3:, 100:] = True
    got[mask] = float("nan")
    finding = one.finding(got, untouched=[mask])
    assert (finding.reason, finding.index) == ("UNWRITTEN", (3, 100))
    assert torch.equal(finding.bad, mask)
    assert one.finding(got).reason == "NONFINITE"


def test_unwritten_elements_come_before_wrong_ones():
    one = named(f"softmax_forward/{LONG_ROWS},fp32")
    got = torch.zeros_like(one.expected.rounded[0])
    mask = torch.zeros(got.shape, dtype=torch.bool)
    mask[-1, -1] = True
    got[-1, -1] = float("nan")
    finding = one.finding(got, untouched=[mask])
    assert (finding.reason, finding.wrong) == ("UNWRITTEN", 1)


def test_second_output_is_examined_and_named():
    one = named("softmax/rows=29,cols=1001,fp32")
    y, dx = one.expected.rounded
    assert one.finding(y, dx) is None
    assert one.finding(y, 2.0 * dx).output == "dx"
    assert one.finding(0.5 * y, 2.0 * dx).output == "y"


# Sums that must be exact

EXACT = [
    name for name, (exercise, case) in CASES.items() if case.bitwise and exercise.name.startswith("matmul")
]


def test_exact_products_are_asked_in_every_dtype():
    assert {CASES[name][1].dtype for name in EXACT} == set(TORCH_DTYPES)


def test_whole_numbers_sum_exactly_in_fp32_and_fit_the_dtype():
    def check(name, seed):
        one = drawn(*CASES[name], seed)
        single = one.exercise.reference(**{name: value.float() for name, value in one.inputs.items()})[0]
        assert torch.equal(single.double(), one.expected.reference[0])
        bound = one.inputs["a"].double().abs() @ one.inputs["b"].double().abs()
        assert bound.max() < 2**24, "a sum in another order could pass what fp32 holds exactly"
        assert one.expected.rounded[0].isfinite().all()

    for_each({f"{name}, seed {seed}": (name, seed) for name in EXACT for seed in SEEDS}, check)


def test_exact_product_with_coarse_sums_is_rejected():
    def check(name):
        one = named(name)
        a, b = one.inputs["a"].float(), one.inputs["b"].float()
        half, dtype = a.shape[1] // 2, one.inputs["a"].dtype
        coarse = {
            "fp32": tf32(a) @ b,
            "fp16": summed_in(torch.float16, a, b),
            "bf16": (a[:, :half] @ b[:half]).to(dtype) + (a[:, half:] @ b[half:]).to(dtype),
        }
        assert one.finding((a @ b).to(dtype)) is None
        finding = one.finding(coarse[one.case.dtype].to(dtype))
        assert finding is not None
        assert finding.reason == "PRECISION"

    for_each({name: (name,) for name in EXACT if name.startswith("matmul/")}, check)


def summed_in(dtype, a, b):
    """The product with a sum that is rounded to `dtype` after each step along K."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total = (total + a[:, k : k + 1] * b[k : k + 1]).to(dtype).float()
    return total


def test_sum_of_two_vectors_rounded_from_fp64_is_what_torch_gives_bit_for_bit():
    def check(name):
        one = named(name)
        assert one.case.bitwise
        assert one.finding(one.inputs["x"] + one.inputs["y"]) is None

    for_each({name: (name,) for name in CASES if name.startswith("elementwise_add/")}, check)


def test_negative_zero_is_not_zero_where_every_bit_counts():
    one = named("elementwise_add/n=7,fp32")
    flat = one.expected.rounded[0].clone()
    exact = dataclasses.replace(one.expected, rounded=(torch.zeros_like(flat),))
    assert comparison.examine(one.exercise, one.case, exact, [-torch.zeros_like(flat)])[0].wrong == 7


@pytest.mark.parametrize("seed", [82, 281, 552, 891])  # of 1500, those that the norm refused
def test_a_sound_gradient_of_few_elements_that_cancel_is_right(seed):
    (exercise,) = (e for entry in catalog.find() for e in entry.lab.exercises if e.name == "softmax_backward")
    (case,) = (case for case in exercise.cases if case.name == "rows=3,cols=2,fp32")
    inputs = draw(exercise, case, seed, "cpu")
    dy, y = inputs["dy"], inputs["y"]
    sound = y * dy - y * (y * dy).sum(1, keepdim=True)
    assert comparison.examine(exercise, case, comparison.expect(exercise, case, inputs), [sound])[0] is None


# As torch says it on a GPU where autograd's own thread is the first to multiply matrices.
NO_CONTEXT = (
    "Attempting to run cuBLAS, but there was no current CUDA context! "
    "Attempting to set the primary context... "
    "(Triggered internally at /pytorch/aten/src/ATen/cuda/CublasHandlePool.cpp:335.)"
)


@pytest.mark.parametrize(
    ("words", "heard"), [(NO_CONTEXT, False), ("cuBLAS is deprecated", True)], ids=["no context", "another"]
)
def test_of_gradients_only_the_warning_that_cublas_has_no_context_is_not_heard(monkeypatch, words, heard):
    exercise, grad = EXERCISES["layer_norm_linear"], torch.autograd.grad
    case = exercise.cases[0]
    inputs = draw(exercise, case, SEEDS[0], "cpu")
    wanted = comparison.expect(exercise, case, inputs)

    def warning(*arguments):
        warnings.warn(words, UserWarning, stacklevel=2)
        return grad(*arguments)

    monkeypatch.setattr(torch.autograd, "grad", warning)
    with pytest.warns(UserWarning, match=words) if heard else contextlib.nullcontext():
        expected = comparison.expect(exercise, case, inputs)
    assert all(map(torch.equal, expected.reference, wanted.reference))


# On a GPU: each question to which Python needs the answer waits for all the work before it


class Waits(TorchDispatchMode):
    """Counts what would wait for a GPU: a number that Python reads, and sizes that the values decide."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        named = named or {}
        waits = function.name() in ("aten::_local_scalar_dense", "aten::equal", "aten::nonzero")
        # Several numbers are read at once by a copy to the host, which is seen as the stack before it.
        self.count += waits or function.name() == "aten::stack"
        return function(*arguments, **named)


def waits(call, *arguments):
    with Waits() as mode:
        call(*arguments)
    return mode.count


def test_what_waits_is_counted():
    value = torch.tensor([1.0, 2.0])
    assert waits(value[0].item) == 1
    assert waits(lambda: bool(value.any())) == 1
    assert waits(value.sum) == 0


@pytest.mark.parametrize("name", ["softmax_forward/rows=29,cols=1001,fp16", "layer_norm_backward"])
def test_a_right_output_is_waited_for_once(name):
    one = named(next(case for case in CASES if case.startswith(name)))
    outputs = len(one.expected.rounded)
    wide = {k: v.double() if isinstance(v, torch.Tensor) else v for k, v in one.inputs.items()}
    by_torch = tuple(one.exercise.torch_op(**one.inputs))
    arguments = one.exercise, one.case, one.inputs, wide, one.expected.reference, by_torch
    assert waits(comparison.calibrate, *arguments) == outputs
    assert waits(comparison.examine, one.exercise, one.case, one.expected, by_torch) == outputs
    assert waits(comparison.invalid, one.case, [one.expected, one.other]) == 1


def test_worthless_answers_are_waited_for_together():
    one = named(next(case for case in CASES if case.startswith("softmax_forward/rows=29")))
    asked = one.exercise, one.case, one.expected, one.inputs, one.other.rounded
    worthless = [*comparison._nulls(one.expected, one.inputs, one.other.rounded)]
    assert len(worthless) > 3
    # The verdict about each is put together from its parts, and all are read at the end.
    assert waits(comparison.accepted_nulls, *asked) <= len(worthless) + 1
