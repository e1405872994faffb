"""Causes found by experiment: through which strides a line steps, and how many programs a launch needs."""

import shutil
from pathlib import Path

import pytest

from grader.course import catalog
from grader.course.spec import Reason, Verdict
from grader.course.submission import Submission
from grader.judge.contrast import contrast
from grader.judge.experiments import numbers as experiments_numbers
from grader.judge.experiments.numbers import other_number
from grader.judge.experiments.of_file import Failed, by_experiment
from grader.judge.experiments.outputs import exchanged_outputs
from grader.judge.experiments.reach import steps
from grader.judge.experiments.rounding import rounded_down
from grader.judge.experiments.shifts import breaking_shift
from grader.judge.experiments.smallest import smallest_wrong
from grader.judge.experiments.strides import mistakes
from grader.judge.formula.of_file import formula_of_file
from grader.judge.formula.search import PLACES
from grader.judge.trial import Trial, elements
from grader.results.outcome import Outcome
from grader.tests.helpers.course import ROOT, swap
from grader.worker.shared_memory import Arena
from grader.worker.submission_worker import SubmissionWorker

HOMES = {
    exercise.name: (entry, exercise)
    for entry in (*catalog.capstone(), *catalog.find())
    for exercise in entry.lab.functions
    if exercise.native is None
}
LARGEST = 1 << 19  # elements of a case that is called here


def solution_of(name):
    entry, exercise = HOMES[name]
    return entry.submission(ROOT / "solutions", exercise)


@pytest.fixture(scope="module")
def arena():
    arena = Arena.create("cpu", 1 << 28)
    yield arena
    arena.close()


@pytest.fixture
def started(warm, arena, tmp_path):
    """Start a worker with a text for a function, beside what else its file imports."""
    workers = []

    def start(name, text):
        entry, exercise = HOMES[name]
        parts = entry.lab.imports.get(exercise.file, ())
        original = solution_of(name)
        for beside in (*(f"{one}.py" for one in entry.lab.given), *parts):
            shutil.copyfile(original.with_name(beside), tmp_path / beside)
        (tmp_path / original.name).write_text(text)
        submission = Submission.read(tmp_path / original.name)
        others = tuple(Submission.read(tmp_path / part) for part in parts)
        workers.append(
            SubmissionWorker(warm, submission, arena, interpreted=True, given=entry.given, parts=others)
        )
        assert workers[-1].start() is None
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


@pytest.fixture
def say(started):
    """Say what experiments show of a text for a function, by the name of a wrong case."""

    def said(name, text, wanted=lambda _: True):
        return said_of(started(name, text), HOMES[name][1], wanted)

    return said


def on_a_cpu(exercise):
    return [one for one in exercise.cases if not (one.needs_gpu or one.is_far or elements(one) > LARGEST)]


def said_of(worker, exercise, wanted):
    failed = []
    for case in on_a_cpu(exercise):
        if case.dtype != "fp32" or not wanted(case):
            continue
        trial = Trial(exercise, case, worker.session.seed)
        if trial.right(worker, witnessed=True) < 1.0:
            called = trial.call(worker, witnessed=True)
            if called is None:  # too slow for a trial, and its process was ended
                assert worker.start() is None
                continue
            unwritten = any(bool(one.any()) for one in called.untouched)
            reason = Reason.UNWRITTEN if unwritten else Reason.MISMATCH
            verdict = Verdict.OUT_OF_BOUNDS if worker.witnessed.outside else Verdict.WRONG
            failed.append(Failed(case.name, case, Outcome(verdict, reason)))
    assert failed, "nothing of this is wrong"
    return by_experiment(worker, exercise, failed)


def with_lines(text, words):
    """The words with each {code} replaced by the number of the line with this code."""
    while "{" in words:
        code = words[words.index("{") + 1 : words.index("}")]
        (line,) = [number for number, one in enumerate(text.split("\n"), 1) if code in one]
        words = words.replace("{" + code + "}", str(line))
    return words


SMALL = 1 << 14


def own_layout(case):
    return bool(case.layouts)


ROW_BY_BLOCK_POINTER = (
    """    for start in range(0, n_cols, BLOCK):
        # BEGIN TODO 2: normalise""",
    """    block = tl.make_block_ptr(
        x_row_ptr - row * stride_x + row * stride_y, (n_cols,), (1,), (0,), (BLOCK,), (0,)
    )
    for start in range(0, n_cols, BLOCK):
        # BEGIN TODO 2: normalise""",
    """        x = tl.load(
            x_row_ptr + offs, mask=offs < n_cols, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = (""",
    """        x = tl.load(block, boundary_check=(0,)).to(tl.float32)
        block = tl.advance(block, (BLOCK,))
        y = (""",
)
ROWS_BY_A_HELPER = (
    "@triton.jit\ndef softmax_backward_kernel(",
    """@triton.jit
def at(base, stride, offs):
    return base + tl.program_id(axis=0).to(tl.int64) * stride + offs


@triton.jit
def softmax_backward_kernel(""",
    "tl.store(dx_row_ptr + offs, dx,",
    "tl.store(at(dx_ptr, stride_dy, offs), dx,",
)
B_BY_BLOCK_POINTER = (
    "    for k in range(0, K, BLOCK_K):\n        a = tl.load(a_ptrs",
    """    b_tile = tl.make_block_ptr(
        b_ptr, (K, N), (stride_bn, stride_bk), (0, n), (BLOCK_K, BLOCK_N), (1, 0)
    )
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs""",
    "b = tl.load(b_ptrs, mask=mask_n & (offs_k[:, None] < K - k), other=0.0)",
    'b = tl.load(b_tile, boundary_check=(0, 1), padding_option="zero")',
    "b_ptrs += BLOCK_K * stride_bk",
    "b_tile = tl.advance(b_tile, (BLOCK_K, 0))",
)

STEP_OF_KEYS = "v_block = offs_n.to(tl.int64)[:, None] * stride_kn"

# By what is wrong: the function, the change of its solution, and what is said.
STRIDES = {
    "the stride of out for the input, by a block pointer": (
        "softmax_forward",
        ROW_BY_BLOCK_POINTER,
        "line {tl.load(block} steps through `x` with the row stride of `out`",
    ),
    "the stride of an input for the output, in a helper": (
        "softmax_backward",
        ROWS_BY_A_HELPER,
        "line {at(dx_ptr} steps through `out` with the row stride of `dy`",
    ),
    "strides exchanged in the launch": (
        "softmax_backward",
        ("dy.stride(0), y.stride(0), out", "y.stride(0), dy.stride(0), out"),
        "step through `dy` with the row stride of `y`; and lines",
    ),
    "rows taken for contiguous": (
        "softmax_forward",
        ("y_row_ptr = y_ptr + row * stride_y", "y_row_ptr = y_ptr + row * n_cols"),
        "line {tl.store(y_row_ptr} steps through `out` by its number of columns, not by its row stride",
    ),
    "a gradient taken for contiguous by autograd": (
        "softmax",
        ("softmax_backward(dy.contiguous(), y)", "softmax_backward(dy, y)"),
        "step through the columns of `dy` by 1, not by its column stride",
    ),
    "a mask of the store up to the stride": (
        "softmax_forward",
        ("y, mask=offs < n_cols, evict", "y, mask=offs < stride_y, evict"),
        "line {tl.store(y_row_ptr} steps through the columns of `out` up to the row stride of `out`, "
        "not up to their number",
    ),
    "the step along K of the other operand": (
        "matmul",
        ("b_ptrs += BLOCK_K * stride_bk", "b_ptrs += BLOCK_K * stride_ak"),
        "steps through the rows of `b` with the column stride of `a`",
    ),
    "strides of b exchanged, by a block pointer": (
        "matmul",
        B_BY_BLOCK_POINTER,
        "line {tl.load(b_tile} steps through `b` with row and column stride of `b` exchanged",
    ),
    "one stride of out for both axes": (
        "matmul",
        ("offs_m[:, None] * stride_cm + offs_n", "offs_m[:, None] * stride_cn + offs_n"),
        "line {tl.store(c_ptrs} steps through the rows of `out` with the column stride of `out`",
    ),
    "the columns of out side by side": (
        "matmul",
        ("offs_n[None, :] * stride_cn", "offs_n[None, :]"),
        "line {tl.store(c_ptrs} steps through the columns of `out` by 1, not by its column stride",
    ),
    "the row stride of another tensor, in a file with helpers": (
        "rms_norm_forward",
        ("x_row = x_ptr + row * stride_x", "x_row = x_ptr + row * stride_y"),
        "lines {tl.arange(0, BLOCK), N_COLS)} and {load(x_row, cols} step through `x` with the row stride of "
        "`out`",
    ),
    "memory of its own with the stride of an input": (
        "layer_norm_linear_forward",
        ("store(scaled_ptr + row * N_COLS", "store(scaled_ptr + row * stride_weight"),
        "line {store(scaled_ptr} steps through `scaled_ptr`, which is no tensor of the call, with the row "
        "stride of `weight`",
    ),
    "the stride of out for the other output": (
        "add_rms_norm",
        ("total_ptr + row * stride_total", "total_ptr + row * stride_out"),
        "line {tl.store(total_ptr} steps through `total` with the row stride of `out`",
    ),
    "the stride of up for gate": (
        "swiglu",
        ("gate_ptr + row * stride_gate", "gate_ptr + row * stride_up"),
        "line {gate = tl.load(} steps through `gate` with the row stride of `up`",
    ),
    "the step of keys for values": (
        "attention",
        ("v_block = offs_n.to(tl.int64)[:, None] * stride_vn", STEP_OF_KEYS),
        "steps through axis 2 of `v` with the stride of `k`",
    ),
    "heads taken for contiguous": (
        "attention",
        ("head * stride_oh + rows * stride_om", "head * length * DIM + rows * stride_om"),
        "steps through `out` as if it had no gaps, not by its strides",
    ),
}


@pytest.mark.parametrize("what", STRIDES)
def test_the_stride_that_is_mistaken_is_named_with_its_line(say, what):
    name, pairs, words = STRIDES[what]
    text = swap(solution_of(name).read_text(), *pairs)
    causes = say(name, text, own_layout)
    assert any(with_lines(text, words) in cause for cause in causes.values()), causes


ONE_PROGRAM_SHORT = ("(triton.cdiv(n, BLOCK),)", "(max(n // BLOCK, 1),)")
IN_TWO_AXES = (
    "pid = tl.program_id(axis=0).to(tl.int64)",
    "pid = (tl.program_id(axis=1) * 2 + tl.program_id(axis=0)).to(tl.int64)",
    "grid = (triton.cdiv(n, BLOCK),)",
    "grid = (2, triton.cdiv(n, 4 * BLOCK))",
)
A_SECOND_LAUNCH = (
    "        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)",
    """        half = n // 2
        blocks = triton.cdiv(half, BLOCK)
        elementwise_add_kernel[(blocks,)](x, y, out, half, BLOCK=BLOCK)
        elementwise_add_kernel[(blocks // 2 + 1,)](x[half:], y[half:], out[half:], n - half, BLOCK=BLOCK)""",
)

PROGRAMS = {
    "the last block of a vector": (
        "elementwise_add",
        ONE_PROGRAM_SHORT,
        "line {elementwise_add_kernel[grid]} launches 4 programs, and 5 are needed (n=4099",
    ),
    "an axis of the grid": (
        "elementwise_add",
        IN_TWO_AXES,
        "line {elementwise_add_kernel[grid]} launches 2 x 1 programs; with 4 x 1 or 2 x 2 every element is",
    ),
    "the second of two launches": (
        "elementwise_add",
        A_SECOND_LAUNCH,
        "line {x[half:]} launches 2 programs, and 3 are needed (n=4099",
    ),
    "rows, two for each program": (
        "softmax_forward",
        ("online_softmax_kernel[(n_rows,)]", "online_softmax_kernel[(n_rows - n_rows // 4,)]"),
        "line {online_softmax_kernel[(} launches",
    ),
    "no program at all": (
        "softmax_backward",
        ("softmax_backward_kernel[(n_rows,)]", "softmax_backward_kernel[(n_rows // 8,)]"),
        "launches 0 programs, and",
    ),
    "tiles of a product": (
        "matmul",
        (
            'tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"])',
            'tiles = lambda meta: max(M // meta["BLOCK_M"], 1)',
        ),
        "line {launch(a, b, out, bias} launches",
    ),
    "rows of a gradient": (
        "fused_softmax_backward",
        ("launch = on(gradient_kernel, dy)[(n_rows,)]", "launch = on(gradient_kernel, dy)[(n_rows - 1,)]"),
        "line {launch(dy, y, out} launches",
    ),
    "columns of an inner vector": (
        "layer_norm_linear_forward",
        ("launch = on(scale_kernel, x)[(N,)]", "launch = on(scale_kernel, x)[(N - N // 3,)]"),
        "line {launch(weight, gamma} launches",
    ),
    "too many groups": (
        "rms_norm_backward",
        ("COLS), sums.shape[0])]", "COLS), GROUPS)]"),
        "line {launch(dy, x, rstd, sums} launches 1 x 32 programs; with 1 x 3 none reads or writes outside",
    ),
    "blocks of a row": (
        "swiglu",
        ('n_rows * triton.cdiv(n_cols, meta["BLOCK"])', 'n_rows * (n_cols // meta["BLOCK"] or 1)'),
        "line {launch(gate, up} launches",
    ),
    "rows of a norm": (
        "add_rms_norm",
        ("add_rms_norm_kernel[(n_rows,)]", "add_rms_norm_kernel[(n_rows // 2,)]"),
        "line {add_rms_norm_kernel[(} launches",
    ),
    "queries": (
        "attention",
        ('triton.cdiv(length, meta["BLOCK_M"]),)', 'max(length // meta["BLOCK_M"], 1),)'),
        "line {launch(q, k, v, out} launches",
    ),
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_the_launch_with_another_number_of_programs_than_needed_is_named(say, what):
    name, pairs, words = PROGRAMS[what]
    text = swap(solution_of(name).read_text(), *pairs)
    causes = say(name, text)
    assert any(with_lines(text, words) in cause for cause in causes.values()), causes


@pytest.mark.parametrize("operator", ["+", "-"])
def test_where_a_launched_program_stores_nothing_the_number_of_programs_is_not_blamed(say, operator):
    text = swap(
        solution_of("elementwise_add").read_text(),
        *("offs = pid * BLOCK", "offs = (pid - pid // 3) * BLOCK"),
        *("offs < n\n", "(offs < n) & (pid % 3 < 2)\n"),
        *("x + y,", f"x {operator} y,"),
    )
    causes = [cause for cause in say("elementwise_add", text).values() if "launches" in cause]
    assert causes
    assert all("which are enough, but program " in cause for cause in causes), causes


IN_TURNS = """import torch
import triton
import triton.language as tl


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    hop = tl.num_programs(axis=0) * BLOCK
    at = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    other = at
    for start in range(tl.program_id(axis=0) * BLOCK, n, hop):
        x, y = tl.load(x_ptr + at, mask=at < n), tl.load(y_ptr + other, mask=other < n)
        tl.store(out_ptr + at, x + y, mask=at < n)
        at += hop
        other += BLOCK


def elementwise_add(x, y, *, out=None):
    out = torch.empty_like(x) if out is None else out
    if x.numel():
        elementwise_add_kernel[(min(triton.cdiv(x.numel(), 256), 4),)](x, y, out, x.numel(), BLOCK=256)
    return out
"""


def test_of_programs_that_take_turns_a_mistake_between_turns_is_no_launch_that_is_too_small(say):
    causes = say("elementwise_add", IN_TURNS)
    words = with_lines(IN_TURNS, "line {elementwise_add_kernel[(}: the first turn of a program is right")
    assert any(cause.startswith(words) for cause in causes.values()), causes
    assert not any("launches" in cause for cause in causes.values())


WITHOUT_GAPS = """import torch
import triton
import triton.language as tl


@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_rows, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr
):
    at = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row, col = at // n_cols, at % n_cols
    gate = tl.load(gate_ptr + row * stride_gate + col, mask=row < n_rows, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + col, mask=row < n_rows, other=0.0).to(tl.float32)
    last = (n_rows - 1) * stride_out + n_cols
    tl.store(out_ptr + at, gate * tl.sigmoid(gate) * up, mask=at < last)


def swiglu(gate, up, *, out=None):
    out = torch.empty_like(gate) if out is None else out
    strides = gate.stride(0), up.stride(0), out.stride(0)
    grid = (triton.cdiv(gate.numel(), 32),)
    swiglu_kernel[grid](gate, up, out, *gate.shape, *strides, BLOCK=32)
    return out
"""


def test_a_launch_that_writes_between_rows_is_not_said_to_have_too_few_programs(say):
    """With more of them memory is written up to the last row, but not with what belongs there."""
    causes = say("swiglu", WITHOUT_GAPS, own_layout)
    assert not any("launches" in cause for cause in causes.values()), causes


def functions_of(path):
    """The functions that a file of the blind mistakes or of the solutions answers, if they have layouts."""
    first = path.read_text("utf-8").split("\n")[0]
    name = first.removeprefix("# ").partition(" | ")[0].rpartition("/")[2] if " | " in first else path.name
    return [
        exercise.name
        for entry, exercise in HOMES.values()
        if exercise.file == name and any(one.layouts for one in on_a_cpu(exercise))
    ]


RIGHT = [
    (path, name)
    for path in (
        *sorted(ROOT.glob("grader/tests/blind_mistakes_*/honest_*.py")),
        *sorted(ROOT.glob("solutions/lab[1-4]*/*.py")),
        *sorted(ROOT.glob("solutions/gpu-programming/triton-kernels/*.py")),
    )
    for name in functions_of(path)
]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "name"), RIGHT, ids=lambda one: getattr(one, "stem", one))
def test_of_a_right_file_no_stride_is_said_to_be_mistaken(started, path, name):
    worker, exercise = started(name, path.read_text("utf-8")), HOMES[name][1]
    looked_at = 0
    for case in on_a_cpu(exercise):
        seen = steps(worker, exercise, case) if case.layouts else None
        if seen and seen.followed:
            looked_at += 1
            assert mistakes(seen) == {}, case.name
    assert looked_at


OTHER_MISTAKES = {
    "a sign": ("elementwise_add", ("x + y, mask", "x - y, mask")),
    "a value that is not used": ("softmax_forward", ("y = (tl.exp(x - m) / d)", "y = (tl.exp(x - m) / 2.0)")),
    "the wrong term": ("softmax_backward", ("y * (dy - dot)", "y * dy - dot")),
    "half of the numbers": (
        "matmul",
        ("in range(0, K, BLOCK_K)", "in range(0, K // 2, BLOCK_K)"),
    ),
    "a factor": ("swiglu", ("gate / (1.0 + tl.exp(-gate)) * up", "gate / (1.0 + tl.exp(gate)) * up")),
    "a rounding": ("add_rms_norm", ("squares += total * total", "squares += total")),
    "another scale": ("attention", ("scale = 1.0 / (math.log(2.0)", "scale = 2.0 / (math.log(2.0)")),
    "a mean": ("rms_norm_forward", ("squares / N_COLS", "squares / BLOCK")),
}


@pytest.mark.parametrize("what", OTHER_MISTAKES)
def test_nothing_is_said_of_a_mistake_of_another_kind(say, what):
    name, pairs = OTHER_MISTAKES[what]
    assert say(name, swap(solution_of(name).read_text(), *pairs), lambda case: elements(case) <= SMALL) == {}


def test_outputs_that_have_each_others_values_are_told(started):
    name = "layer_norm_backward"
    exercise = HOMES[name][1]
    cases = [case for case in on_a_cpu(exercise) if not case.allocates]
    text = solution_of(name).read_text()
    right = "return dx, dweight, dbias"
    assert right in text
    worker = started(name, text)
    assert exchanged_outputs(worker, exercise, cases) == ""
    turned = text.replace(f"def {name}(", "def plain(", 1)
    turned += (
        f"\n\ndef {name}(dy, x, weight, *, eps=1e-5, dx=None, dweight=None, dbias=None):\n"
        "    return plain(dy, x, weight, eps=eps, dx=dx, dweight=dbias, dbias=dweight)\n"
    )
    said = exchanged_outputs(started(name, turned), exercise, cases)
    assert said == "`dweight` gets what belongs in `dbias`, and `dbias` what belongs in `dweight`"


def test_a_result_for_another_eps_is_told(started):
    name = "rms_norm_forward"
    exercise = HOMES[name][1]
    cases = [case for case in on_a_cpu(exercise) if not case.is_far and not case.needs_gpu]
    text = solution_of(name).read_text()
    assert other_number(started(name, text), exercise, cases, text) == {}
    wrong = [case for case in cases if case.params.get("eps") is not None]
    assert len(wrong) == 2
    for number in ("1e-6", "1e-5"):  # both fit the case with eps=1
        constant = swap(text, "tl.cast(eps, tl.float32)", number)
        said = other_number(started(name, constant), exercise, wrong, constant)
        assert set(said) == {case.name for case in wrong}
        for case in wrong:
            words = (
                f"with eps={case.params['eps']:g} the values in `out` are those of eps={float(number):g}: "
            )
            assert said[case.name].startswith(words)


def test_of_numbers_that_fit_a_case_the_one_that_fits_the_others_is_told(started, monkeypatch):
    name = "rms_norm_forward"
    exercise = HOMES[name][1]
    wrong = [case for case in on_a_cpu(exercise) if case.params.get("eps") is not None]
    text = swap(solution_of(name).read_text(), "tl.cast(eps, tl.float32)", "1e-5")
    fits = experiments_numbers._fits

    def near(trial, called, wrong, one):
        """As in a run where digits of 1 + 1e-5 and 1 + 1e-6 are within the tolerance."""
        return fits(trial, called, wrong, one) or (trial.case.params["eps"] == 1.0 and one.other == 1e-6)

    monkeypatch.setattr(experiments_numbers, "_fits", near)
    said = other_number(started(name, text), exercise, wrong, text)
    assert len(said) == 2
    assert all("those of eps=1e-05" in words for words in said.values())


def test_a_row_stride_that_is_ignored_is_no_cause_where_there_are_no_gaps(say):
    ignored = ("x, out, n_cols, x.stride(0)", "x, out, n_cols, n_cols")
    halved = ("y = (tl.exp(x - m) / d)", "y = (tl.exp(x - m) / d * 0.5)")  # every case is wrong
    causes = say("softmax_forward", swap(solution_of("softmax_forward").read_text(), *ignored, *halved))
    assert causes
    assert all("x padded" in name for name in causes), causes


def test_strides_of_a_matrix_are_no_cause_where_the_tensor_is_a_vector(say):
    text = (Path(__file__).parents[1] / "blind_mistakes_16" / "dropout_03_raven.py").read_text()
    causes = say("dropout", text)
    vectors = {name for name in causes if "rows=" not in name}
    assert causes.keys() - vectors
    assert not any("stride" in causes[name] for name in vectors)


def test_a_vector_follows_a_sum_that_is_sought_where_the_vector_is_long_enough(started):
    name = "rms_norm_backward"
    text = swap(solution_of(name).read_text(), "dweight += dy * x * rstd", "dweight += dy * x")
    cases = sorted((one for one in on_a_cpu(HOMES[name][1]) if one.dtype == "fp32"), key=elements)
    assert cases[0].params["cols"] < PLACES
    worker = started(name, text)
    assert worker.start() is None
    said = formula_of_file(worker, HOMES[name][1], cases)
    assert said == "the values in `dweight` are those of `sum(dy * x, axis=0)`"


def test_a_formula_that_the_right_values_follow_is_not_named(started):
    """Where digits alone are lost the wrong values follow the right formula."""
    text = (Path(__file__).parents[1] / "blind_mistakes_36" / "swiglu_07_willow.py").read_text()
    exercise, worker = HOMES["swiglu"][1], started("swiglu", text)
    cases = [one for one in on_a_cpu(exercise) if one.dtype == "fp32" and "values" not in one.params]
    wrong = [one for one in cases if Trial(exercise, one, worker.session.seed).right(worker) < 1.0]
    assert len(wrong) > 1
    assert formula_of_file(worker, exercise, sorted(wrong, key=elements)) == ""


def test_a_constant_that_spoils_a_softmax_without_its_maximum_is_told(started):
    exercise, text = HOMES["softmax_forward"][1], solution_of("softmax_forward").read_text()
    cases = [one for one in on_a_cpu(exercise) if elements(one) >= 128 and "values" not in one.params]
    assert breaking_shift(started("softmax_forward", text), exercise, cases) == ""
    clamped = swap(text, "tl.exp(x - shift)", "tl.exp(tl.minimum(x, 80.0))", "d * tl.exp(m - shift)", "d")
    clamped = swap(clamped, "tl.exp(x - m)", "tl.exp(tl.minimum(x, 80.0))")
    said = breaking_shift(started("softmax_forward", clamped), exercise, cases)
    assert said.startswith("adding 100 to every element of `x` must not change the result, and spoils it: ")


def test_a_constant_that_changes_nothing_where_there_is_one_key_is_not_told_of_others(started):
    """Attention over one key is its value, whatever q is: this was said of every case."""
    text = (Path(__file__).parents[1] / "blind_mistakes_25" / "attention_01_badger.py").read_text()
    exercise = HOMES["attention"][1]
    right = [one for one in on_a_cpu(exercise) if one.params["length"] == 1]
    assert right
    said = breaking_shift(started("attention", text), exercise, right)
    assert "every element of `k` must not change" in said  # that adds the same to each score of a query
    assert "`q`" not in said


BLOCKED_ADD = '''"""Add two vectors."""

import torch
import triton
import triton.language as tl

WIDTH = 512


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, WIDTH: tl.constexpr):
    pid = tl.program_id(axis=0)
    lanes = tl.arange(0, WIDTH)
    offs = pid.to(tl.int64) * WIDTH + lanes
    count = tl.where(pid == tl.num_programs(axis=0) - 1, n % WIDTH, WIDTH)
    x = tl.load(x_ptr + offs, mask=offs < n)
    y = tl.load(y_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, x + y, mask=lanes < count)


def elementwise_add(x, y, *, out=None):
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n:
        elementwise_add_kernel[(triton.cdiv(n, WIDTH),)](x, y, out, n, WIDTH=WIDTH)
    return out
'''


def test_elements_that_the_mask_of_a_store_leaves_out_are_told_with_its_line(say):
    line = 1 + BLOCKED_ADD.splitlines().index("    tl.store(out_ptr + offs, x + y, mask=lanes < count)")
    found = say("elementwise_add", BLOCKED_ADD, lambda case: case.params["n"] in (512, 1024))
    assert set(found.values()) == {
        f"line {line}: the mask of this store leaves out elements that exist, `out[0]` to `[511]`, and no "
        "other lane stores them (n=512)"
    }


def smallest_of(started, name, text, wanted):
    worker, exercise = started(name, text), HOMES[name][1]
    return smallest_wrong(worker, exercise, [one for one in on_a_cpu(exercise) if wanted(one)])


def test_the_smallest_wrong_call_is_told_with_the_largest_smaller_one_that_is_right(started):
    found = smallest_of(started, "elementwise_add", BLOCKED_ADD, lambda case: case.params["n"] == 2048)
    assert found.words == "the smallest wrong call is n=512,fp32; with n=511 it is right"
    assert {513, 511} <= {case.params["n"] for case in found.right}
    assert {512, 1024, 2048} <= {case.params["n"] for case in found.wrong}


def test_what_is_unusual_and_does_not_matter_is_left_out_of_the_smallest_call(started):
    text = swap(solution_of("dropout").read_text(), "n = x.numel()", "n = x.shape[0]")
    found = smallest_of(started, "dropout", text, lambda case: "rows" in case.params)
    assert not any(case.layouts for case in found.wrong if case.params["n"] < 10)
    assert found.words.startswith("the smallest wrong call is n=2,")
    assert "dy" not in contrast(found.wrong, found.right)


@pytest.mark.parametrize("name", ["elementwise_add", "softmax_forward"])
def test_a_right_file_has_no_smallest_wrong_call(started, name):
    text = solution_of(name).read_text()
    assert smallest_of(started, name, text, lambda case: elements(case) < 1 << 14) is None


def test_one_output_of_several_that_follows_another_eps_is_told(started):
    file = ROOT / "grader/tests/blind_mistakes_26/layer_norm_linear_backward_01_ribbon.py"
    worker, exercise = started("layer_norm_linear", file.read_text()), HOMES["layer_norm_linear"][1]
    wrong = [one for one in on_a_cpu(exercise) if one.params.get("eps") == 1.0]
    found = other_number(worker, exercise, wrong, file.read_text())
    assert len(found) == len(wrong) > 0
    assert all(
        said.startswith("with eps=1 the values in `dweight` are those of eps=1e-05")
        for said in found.values()
    )


def test_the_number_of_programs_is_no_cause_of_cases_that_other_values_make_wrong(started):
    """Too few programs in short cases, and a sum from 0.0, which loses the sign of zeros in all of them."""
    text = solution_of("elementwise_add").read_text()
    text = swap(text, "x + y, mask=mask", "0.0 + x + y, mask=mask")
    text = swap(text, "(triton.cdiv(n, BLOCK),)", "(n // BLOCK + (n > 4000),)")
    exercise, worker = HOMES["elementwise_add"][1], started("elementwise_add", text)
    sizes = [one for one in on_a_cpu(exercise) if one.dtype == "fp32" and one.params["n"] > 1]
    trials = [Trial(exercise, case, worker.session.seed) for case in sizes]
    wrong = [one.case for one in trials if one.right(worker, witnessed=True) < 1.0]
    edges = [case.name for case in wrong if case.params.get("values") == "edges"]
    assert edges
    assert len(edges) < len(wrong)
    alike = Outcome(Verdict.WRONG, Reason.MISMATCH)
    found = by_experiment(worker, exercise, [Failed(case.name, case, alike) for case in wrong])
    assert sorted(found) == sorted(case.name for case in wrong if case.name not in edges)


def test_a_division_that_rounds_down_is_named_where_rounding_it_up_writes_every_element(started):
    name = "softmax_backward"
    text = (Path(__file__).parents[1] / "blind_mistakes_35" / "online_softmax_28_anchor.py").read_text()
    exercise, worker = HOMES[name][1], started(name, text)
    cases = [one for one in on_a_cpu(exercise) if one.params.get("rows") == 149 and one.dtype == "fp32"]
    assert cases
    line = text.split("\n").index("    per_program = n_rows // programs") + 1
    said = f"line {line}: `n_rows // programs` drops the last, partial block"
    assert rounded_down(worker, exercise, cases, text) == said
    up = swap(text, "per_program = n_rows // programs", "per_program = (n_rows + programs - 1) // programs")
    few = swap(up, "softmax_backward_kernel[(programs,)]", "softmax_backward_kernel[(1,)]")
    assert rounded_down(started(name, few), exercise, cases, few) == ""
    assert rounded_down(started(name, up), exercise, cases, up) == ""  # nothing is wrong
