"""Errors get their cause: a table of broken solutions, graded as a student's file would be."""

import re

import pytest

from grader.course.spec import Verdict
from grader.judge import error_causes
from grader.judge.error_causes import FileFacts
from grader.judge.error_causes.failed import Failed
from grader.judge.error_causes.known_names import nearest
from grader.results.findings import Frame
from grader.results.outcome import Outcome
from grader.tests.helpers.broken_files import Grading, table

BROKEN = table()
EVERYDAY = {  # one of each way on which an error comes: screen, parser, interpreter, compiler, autograd, nvcc
    "program_id without its underscore", "load with default", "BLOCK not passed", "no grid",
    "grid is a number", "colon forgotten", "matplotlib", "saved tensors not unpacked", "continue in a kernel",
    "axis 1 of one axis", "name of rows that is not there", "a helper without __device__",
    "extern C forgotten",
}  # fmt: skip


@pytest.fixture(scope="module")
def grading(tmp_path_factory):
    found = Grading(tmp_path_factory.mktemp("broken"))
    yield found
    found.session.close()


def test_the_table_has_many_of_both_languages_and_no_name_twice():
    assert len([one for one in BROKEN if not one.is_native]) >= 75
    assert len([one for one in BROKEN if one.is_native]) >= 20
    names = [(one.of, one.name) for one in BROKEN]
    assert len(set(names)) == len(names)
    assert {one.name for one in BROKEN} >= EVERYDAY


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(
            one, marks=[] if one.name in EVERYDAY else [pytest.mark.slow], id=f"{one.of}: {one.name}"
        )
        for one in BROKEN
    ],
)
def test_the_cause_of_a_broken_file_is_named(grading, broken):
    errors = {
        tier: outcome
        for tier, outcome in grading.grade(broken).items()
        if outcome.verdict in error_causes.ERRORS
    }
    assert errors, "it failed, and not by an error"
    for tier, outcome in errors.items():
        lacking = [one for one in broken.says if not re.search(one, outcome.cause)]
        assert not lacking, f"{tier}, {outcome.label}: {outcome.cause!r} for {outcome.where!r}"


# What a rule makes of a message, without a run: other versions of Triton and Python say it in other words

KERNEL = """import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, x, mask=offs < n)


def add(x, *, out=None):
    add_kernel[(1,)](x, out, x.numel(), BLOCK=64)
"""


def cause(where, line=8, text=KERNEL, verdict=Verdict.CRASHED):
    frame = Frame(line=line, function="add_kernel", code=text.splitlines()[line - 1].strip())
    return error_causes.with_cause(Outcome(verdict, where=where, frames=(frame,)), FileFacts(text)).cause


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (
            "InterpreterError: AttributeError(\"module 'triton.language' has no attribute 'lod'\")",
            "`tl.load`",
        ),
        ("AttributeError: module 'triton.language' has no attribute 'lod'", "`tl.load`"),
        ("NameError: name 'of_s' is not defined", "`offs`"),
        ("ValueError: arange's range must be a power of 2", "power of two"),
        ("ValueError: Shape element 0 must be a power of 2", "power of two"),
        ("IndexError: axis 1 is out of bounds for array of dimension 1", "no axis 1"),
        (
            "ValueError: Value argument cannot be block type if pointer argument is not a block",
            "add the offsets to the pointer, or sum the block up",
        ),
        (
            "ValueError: Mask argument cannot be block type if pointer argument is not a block",
            "add the offsets to the pointer, or look whether they stand in another place",
        ),
    ],
)
def test_an_error_in_other_words_has_the_same_cause(where, said):
    assert said in cause(where)


HELPERS = """import triton
import triton.language as tl


@triton.jit
def fold(acc, m, d, x):
    m_new = tl.maximum(m, x)
    return acc + x, m_new, d * 2.0 + x


@triton.jit
def write(ptr, offs, value, mask):
    tl.store(ptr + offs, value, mask=mask)


@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    value = tl.load(x_ptr + offs)
    mask = offs < n
    acc, m, d = fold(value, value, value, value)
    write(x_ptr, offs, value, mask)
"""
ANOTHER_ORDER = [
    (
        "acc, m, d = fold",
        "d, acc, m = fold",
        21,
        "unpacks `d`, `acc`, `m`, and `fold` returns in line 8 `acc`",
    ),
    ("return acc + x, m_new, d", "return m_new, acc + x, d", 21, "returns in line 8 `m_new`, `acc`, `d`"),
    ("offs, value, mask)\n", "offs, mask, value)\n", 22, "line 22 passes `mask` for `value` of `write`"),
]


@pytest.mark.parametrize(("old", "new", "line", "said"), ANOTHER_ORDER)
def test_values_in_another_order_than_their_names_say_are_named(old, new, line, said):
    assert old in HELPERS
    where = "ValueError: Mask must have boolean scalar type"
    at = HELPERS.rindex(old)
    text = HELPERS[:at] + new + HELPERS[at + len(old) :]
    assert said in cause(where, line, text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("acc, m, d = fold", "acc, m_new, d = fold"),
        ("acc, m, d = fold", "total, top, weight = fold"),  # names of the caller's own
        ("acc, m, d = fold", "total, acc, weight = fold"),  # one name alone says little
        ("fold(value, value, value, value)", "fold(d=value, m=value, acc=value, x=value)"),
    ],
)
def test_names_in_the_same_order_or_unlike_ones_are_no_cause(old, new):
    assert old in HELPERS
    where = "ValueError: Mask must have boolean scalar type"
    said = cause(where, 21, HELPERS.replace(old, new))
    assert "in this order" not in said
    assert "must be the same" not in said


IN_A_LOOP = """import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    m = tl.full([ROWS, 1], -float("inf"), tl.float32)
    d = tl.zeros({shape}, tl.float32)
    for start in range(0, n, COLS):
        x = tl.load(x_ptr + start + tl.arange(0, ROWS)[:, None] * n + tl.arange(0, COLS)[None, :])
        d {update}
    tl.store(x_ptr + tl.arange(0, ROWS), d)
"""
OF_AXES = "ValueError: Cannot make_shape_compatible: incompatible dimensions at index 1: 256 and 4"


@pytest.mark.parametrize(
    ("shape", "update", "said"),
    [
        ("(ROWS,)", "+= tl.sum(x, axis=1, keep_dims=True)", "keeps the axis that it reduces"),
        (
            "[ROWS]",
            "= d * m + tl.sum(x, axis=1)",
            "`d` begins with one axis in line 7, and line 10 gives it two",
        ),
        ("(ROWS,)", "= tl.maximum(d, tl.max(x, axis=1)[:, None])", "because of `tl.max(x, axis=1)[:, None]`"),
        ("(ROWS,)", "+= x", "line 10 gives it two axes: it must keep its shape"),
    ],
)
def test_a_block_that_gets_an_axis_in_a_loop_is_named_with_both_lines(shape, update, said):
    found = cause(OF_AXES, 10, IN_A_LOOP.format(shape=shape, update=update))
    assert said in found
    assert found.startswith("`d` begins with one axis in line 7, and line 10 gives it two axes")


@pytest.mark.parametrize(
    ("shape", "update"),
    [
        ("(ROWS, 1)", "+= tl.sum(x, axis=1, keep_dims=True)"),
        ("(ROWS,)", "+= tl.sum(x, axis=1)"),
        ("(ROWS, COLS)", "= d * m + x"),
        ("shape_of(ROWS)", "+= x"),  # what is not known is not said
        ("(ROWS,)", "+= helper(x)"),
    ],
)
def test_a_block_that_keeps_its_axes_is_no_cause(shape, update):
    assert "axis in line" not in cause(OF_AXES, 10, IN_A_LOOP.format(shape=shape, update=update))


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("bias[None, :]", "; line 6 makes `acc` of `bias[None, :]`"),
        ("tl.zeros((64, 64), tl.float32)", "; line 6 makes `acc` of `tl.zeros((64, 64), tl.float32)`"),
    ],
)
def test_where_an_accumulator_of_another_shape_comes_from_is_said(start, said):
    text = (
        "import triton\nimport triton.language as tl\n\n@triton.jit\ndef add_kernel(a, b, bias):\n"
        f"    acc = {start}\n    acc = tl.dot(a, b, acc)\n"
    )
    assert cause("AssertionError: accumulator shape is incompatible", 7, text).endswith(said)


@pytest.mark.parametrize(
    ("launch", "decorated", "said"),
    [
        (
            "x, out, x.numel(), BLOCK=64, num_warps=4",
            True,
            "by the configs of the autotuner and by the launch",
        ),
        ("x, out, x.numel(), num_warps=4", True, "by the configs of the autotuner and by the launch"),
        ("x, out, x.numel(), 64, num_warps=4, BLOCK=64", False, "by its place and by its name"),
    ],
)
def test_an_option_that_is_given_twice_is_given_by_a_config_where_there_are_any(launch, decorated, said):
    text = KERNEL.replace("x, out, x.numel(), BLOCK=64", launch)
    if decorated:
        text = text.replace("@triton.jit", "@triton.autotune(CONFIGS, key=['n'])\n@triton.jit")
    name = "num_warps" if decorated else "BLOCK"
    where = f"TypeError: the launch got multiple values for keyword argument '{name}'"
    line = next(at for at, one in enumerate(text.splitlines(), 1) if one.startswith("    add_kernel["))
    assert said in cause(where, line, text)


@pytest.mark.parametrize(
    ("launch", "said"),
    [
        ("x, weight, out, x.stride(0), out.stride(0), eps", "`n_rows`, parameter 4 of `norm_kernel`"),
        ("weight, out, len(x), x.stride(0), out.stride(0), eps", "`x_ptr`, parameter 1 of"),
        ("x, weight, out, len(x), x.stride(0), out.stride(0)", "does not pass `eps`, a parameter of"),
        ("a, b, c, d, e, f", "does not pass `eps`, a parameter of"),  # names that say nothing
    ],
)
def test_a_value_that_is_missing_in_the_middle_of_a_launch_is_found_by_the_names(launch, said):
    text = KERNEL.replace("add_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr)", "norm_kernel({})").format(
        "x_ptr, weight_ptr, out_ptr, n_rows, stride_x, stride_out, eps, BLOCK: tl.constexpr"
    )
    text = text.replace(
        "add_kernel[(1,)](x, out, x.numel(), BLOCK=64)", f"norm_kernel[(1,)]({launch}, BLOCK=64)"
    )
    where = "TypeError: norm_kernel() missing 1 required positional argument: 'eps'"
    assert said in cause(where, 13, text)


@pytest.mark.parametrize(
    "where",
    [
        "RuntimeError: something that nobody has seen",
        "KeyError: 'a'",
        "AssertionError",
        "ValueError: 3",
        "stopped at the time limit of 20 s",
        "",
    ],
)
def test_an_unknown_error_has_no_cause(where):
    assert cause(where) == ""


def test_a_line_that_triton_only_quotes_comes_first():
    quoted = "\n".join(KERNEL.splitlines()[5:8])
    said = f"CompilationError: at 3:8:\n{quoted}\n        ^\nload() got an unexpected keyword argument 'fill'"
    text = KERNEL.replace("mask=offs < n)\n    tl.store", "fill=0, mask=offs < n)\n    tl.store")
    said = said.replace("mask=offs", "fill=0, mask=offs")
    host = Frame(line=13, function="add", code="add_kernel[(1,)](x, out, x.numel(), BLOCK=64)")
    outcome = error_causes.with_cause(
        Outcome(Verdict.COMPILE_ERROR, where=said, frames=(host,)), FileFacts(text)
    )
    assert [one.line for one in outcome.frames] == [8, 13]
    assert outcome.where == "CompilationError: load() got an unexpected keyword argument 'fill'"
    assert "`other`" in outcome.cause


def test_a_loop_that_nothing_ends_is_the_cause_of_a_timeout():
    text = "def add(x, *, out=None):\n    i = 0\n    while i < 3:\n        x = 1\n"
    found = error_causes.with_cause(Outcome(Verdict.TIMEOUT, where="stopped"), FileFacts(text))
    assert "line 3" in found.cause
    text = text.replace("x = 1", "i += 1")
    ended = error_causes.with_cause(Outcome(Verdict.TIMEOUT, where="stopped"), FileFacts(text))
    assert ended.cause == ""


README = """
| TODO | task | hint |
|---|---|---|
| 1 | offsets | 4 |
"""


@pytest.mark.parametrize(
    ("where", "hint"),
    [("ValueError: arange's range must be a power of 2", 4), ("NameError: name 'of_s' is not defined", None)],
)
def test_the_hint_is_that_of_the_task_in_which_the_line_is_and_a_slip_needs_none(where, hint):
    marked = KERNEL.replace("    offs =", "    # BEGIN TODO 1: offsets\n    offs =")
    frame = Frame(line=9, function="add_kernel", code="")
    failed = Outcome(Verdict.CRASHED, where=where, frames=(frame,))
    assert error_causes.with_cause(failed, FileFacts(marked, "add.py", README)).hint == hint
    closed = marked.replace("    x = tl.load", "    # END TODO 1\n    x = tl.load")
    lower = Outcome(Verdict.CRASHED, where=where, frames=(Frame(line=10, function="add_kernel", code=""),))
    assert error_causes.with_cause(lower, FileFacts(closed, "add.py", README)).hint is None


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.WRONG, Verdict.NOT_STARTED, Verdict.NOT_GRADED])
def test_what_is_no_error_is_left_as_it_is(verdict):
    outcome = Outcome(verdict, where="NameError: name 'of_s' is not defined")
    assert error_causes.with_cause(outcome, FileFacts(KERNEL)) is outcome


@pytest.mark.parametrize("text", ["", "def f(:", "x = 1", "\0", "(" * 2000])
def test_no_text_of_a_file_stops_the_rules(text):
    outcome = Outcome(Verdict.CRASHED, where="TypeError: 'int' object is not iterable")
    assert Failed.of(outcome, text).line == 0
    assert error_causes.with_cause(outcome, FileFacts(text)).verdict is Verdict.CRASHED


@pytest.mark.parametrize(
    ("name", "names", "near"),
    [
        ("programid", ["program_id", "load"], "program_id"),
        ("BLOCK_SIZE_M", ["BLOCK_N", "BLOCK_M"], "BLOCK_M"),
        ("GROUP_M", ["GROUP_SIZE_M", "BLOCK_M"], "GROUP_SIZE_M"),
        ("softmax_online", ["softmax", "load"], None),
        ("zz", ["xx", "yy"], None),
    ],
)
def test_the_nearest_name_is_near(name, names, near):
    assert nearest(name, names) == near


@pytest.mark.parametrize(
    ("shapes", "told"),
    [
        (
            {"x": (4, 2), "rstd": (4,), "eps": ()},
            "`x` has the shape (4, 2), `rstd` has the shape (4,); "
            "`rstd[:, None]` has one number for each row",
        ),
        (
            {"random": (512, 2, 2), "x": (2048,), "y": (2048,)},
            "`random` has the shape (512, 2, 2), `x` and `y` have the shape (2048,); "
            "with `tl.reshape` the elements of `random` have the shape (2048,)",
        ),
        ({"a": (4, 8), "b": (4, 2)}, "`a` has the shape (4, 8), `b` has the shape (4, 2)"),
        (
            {"m": (4,), "rstd": (4,), "x": (4, 2)},
            "`m` and `rstd` have the shape (4,), `x` has the shape (4, 2); "
            "`rstd[:, None]` has one number for each row",
        ),
    ],
)
def test_blocks_that_do_not_go_together_are_named_with_their_shapes(shapes, told):
    outcome = Outcome(
        Verdict.CRASHED,
        where="ValueError: Cannot make_shape_compatible: incompatible dimensions at index 1: 2 and 4",
        frames=(Frame(line=1, function="kernel", code="y = x * rstd"),),
        shapes=shapes,
    )
    found = error_causes.with_cause(outcome, FileFacts("y = x * rstd\n"))
    assert found.cause == f"two blocks do not go together: {told}"


def test_a_gradient_of_another_shape_is_named():
    text = """
class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        return x

    @staticmethod
    def backward(ctx, dy):
        return dx, dweight
"""
    error = (
        "RuntimeError: Function FunctionBackward returned an invalid gradient at index 1 - got [129, 6] but "
    )
    outcome = Outcome(Verdict.CRASHED, where=f"{error}expected shape compatible with [6, 129]")
    told = "gradient 2 that `backward` returns, `dweight`, must be like `weight`: it is transposed"
    assert error_causes.with_cause(outcome, FileFacts(text)).cause == told


def test_what_a_newer_triton_has_removed_is_named():
    error = "NotImplementedError('Block pointers have been removed in favor of the tensor descriptor API')"
    outcome = Outcome(Verdict.CRASHED, where=f"InterpreterError: {error}")
    found = error_causes.with_cause(outcome, FileFacts("p = tl.make_block_ptr(x, (n,), (1,), (0,), (8,))\n"))
    assert found.cause.startswith("this version of Triton has no block pointers")
    assert "`tl.make_tensor_descriptor`" in found.cause


FIRST_IN_A_LOOP = KERNEL.replace(
    "    x = tl.load(x_ptr + offs, mask=offs < n)\n",
    "    for at in range(0, n, BLOCK):\n        x = tl.load(x_ptr + at + offs, mask=at + offs < n)\n",
)


def test_a_name_that_triton_forgets_behind_a_loop_is_said_with_the_loop():
    said = cause("NameError: x is not defined", 10, FIRST_IN_A_LOOP, Verdict.COMPILE_ERROR)
    assert said.startswith("`x` gets its first value in the loop of line 8")
    said = cause("NameError: name 'x' is not defined", 10, FIRST_IN_A_LOOP)
    assert said.startswith("`x` is read before a value is assigned to it")


def test_a_name_that_triton_forgets_in_a_kernel_that_the_line_calls_is_said_with_the_loop():
    text = FIRST_IN_A_LOOP + "\n\n@triton.jit\ndef outer(x_ptr, n):\n    add_kernel(x_ptr, x_ptr, n, 64)\n"
    line = text.splitlines().index("    add_kernel(x_ptr, x_ptr, n, 64)") + 1
    said = cause("NameError: x is not defined", line, text, Verdict.COMPILE_ERROR)
    assert said.startswith("`x` gets its first value in the loop of line 8")


def test_a_name_that_triton_forgets_behind_a_condition_is_said_with_the_condition():
    text = FIRST_IN_A_LOOP.replace("for at in range(0, n, BLOCK):", "if n > 4:").replace("at + ", "")
    said = cause("NameError: x is not defined", 10, text, Verdict.COMPILE_ERROR)
    assert said.startswith("`x` gets its first value in the condition of line 8")


def test_a_reduction_of_two_values_is_told_from_a_choice():
    text = KERNEL.replace("    x = ", "    n = tl.min(n, BLOCK)\n    x = ")
    assert "of two values `tl.minimum` takes one" in cause(
        "ValueError: axis 64 out of bounds for shape []", 8, text
    )
    text = KERNEL.replace("    x = ", "    n = tl.min(offs, 1)\n    x = ")
    assert cause("ValueError: axis 1 out of bounds for shape [64]", 8, text).startswith(
        "the block has no axis 1"
    )


JOINING = """import triton
import triton.language as tl


@triton.jit
def merge(left, right):
    return left[0] + right[0], left[1] + right[1]


@triton.jit
def add_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    total, squares = tl.reduce((x, x * x), 0, merge)
    tl.store(out_ptr, total + squares)
"""


@pytest.mark.parametrize(
    ("joins", "where"),
    [
        ("merge(left, right)", "TypeError: merge() takes 2 positional arguments but 4 were given"),
        ("merge(a, b, c, d, e)", "TypeError: merge() missing 1 required positional argument: 'e'"),
    ],
)
def test_a_function_that_joins_is_told_how_many_numbers_it_gets(joins, where):
    text = JOINING.replace("merge(left, right)", joins)
    said = cause(where, 14, text)
    assert "`tl.reduce` of a tuple of 2 blocks calls `merge` with 4 numbers" in said
    assert said.endswith(f"it takes {joins.count(',') + 1}")


def test_a_function_that_joins_with_the_right_number_of_parameters_is_not_named():
    text = JOINING.replace("merge(left, right)", "merge(a, b, c, d)")
    said = cause("TypeError: merge() takes 4 positional arguments but 5 were given", 14, text)
    assert "numbers, those of one side and then of" not in said


def test_a_size_of_a_table_that_is_no_power_of_two_is_named():
    where = "ValueError: arange's range must be a power of 2"
    table = "TILES = {(64, 192): (32, 4), (128, 64): (32, 4)}\n" + KERNEL
    assert cause(where, 8, table).endswith("must be a power of two, and 192 in line 1 is none")
    inside = KERNEL + "\n\ndef tiles():\n    return [(64, 192, 32), (128, 192, 64)]\n"
    assert cause(where, 7, inside).endswith(f"and 192 in line {inside.count(chr(10))} is none")
    made = "CONFIGS = [config(64, 192), config(64, 64)]\n" + KERNEL
    assert cause(where, 8, made).endswith("and 192 in line 1 is none")
    two = "TILES = [(96, 64), (192, 64)]\n" + KERNEL
    assert cause(where, 8, two).endswith("take the next one, and a mask")


def test_offsets_of_a_block_pointer_are_of_32_bits():
    where = "AssertionError: Block pointers only support 32 bit `offsets/block_shape`, add a `.to(tl.int32)`"
    assert "added to the base" in cause(where)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("strides must be 16-byte aligned", "must be a multiple of 16 bytes"),
        ("base must be 16-byte aligned", "must be a multiple of 16 bytes"),
        ("Last dimension must be contiguous", "must lie side by side"),
    ],
)
def test_a_layout_that_no_descriptor_has_is_said_to_be_why(message, said):
    assert said in cause(f"AssertionError: {message}", 13)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"BLOCK": 192, "n": 64}, "line 7 runs with BLOCK = 192"),
        ({"BLOCK": 192, "n": 60}, "take the next one, and a mask"),
        ({}, "take the next one, and a mask"),
    ],
)
def test_the_one_number_of_a_line_that_is_no_power_of_two_is_named(numbers, said):
    frame = Frame(line=7, function="add_kernel", code=KERNEL.splitlines()[6].strip())
    where = "ValueError: arange's range must be a power of 2"
    outcome = Outcome(Verdict.CRASHED, where=where, frames=(frame,), numbers=numbers)
    assert error_causes.with_cause(outcome, FileFacts(KERNEL)).cause.endswith(said)


def test_a_value_for_masked_lanes_without_a_mask_is_named():
    assert "`other=` and no mask" in cause("ValueError: `other` cannot be provided without `mask`")


@pytest.mark.parametrize(
    ("passed", "said"),
    [
        ("count(n)", "must be a power of two, and line 13 passes `count(n)`"),
        ("6", "must be a power of two"),
    ],
)
def test_what_is_passed_as_the_number_of_warps_is_named(passed, said):
    text = KERNEL.replace("BLOCK=64", f"BLOCK=64, num_warps={passed}")
    assert cause("AssertionError: num_warps must be a power of 2", 13, text).endswith(said)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("TypeError: join() got multiple values for argument '_semantic'", "`tl.join` gets more"),
        ("TypeError: multiple values for argument '_semantic'", "a function of triton.language in this line"),
    ],
)
def test_a_function_of_triton_with_too_many_arguments_is_named(where, said):
    text = KERNEL.replace("tl.load(x_ptr + offs, mask=offs < n)", "tl.reshape(tl.join(a, b, c), (2,))")
    assert cause(where, text=text).startswith(said)
