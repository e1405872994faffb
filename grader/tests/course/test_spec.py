"""What a lab may ask: bad values are refused when built, names read as text, and torch stays out."""

import ast
import subprocess
import sys

import pytest
import torch

from grader.course.spec import Arm, Case, Codegen, Exercise, Lab, Layout, Native, Speed, Tolerance
from grader.tests.helpers.course import ROOT

LIGHT = (
    "cli.main",
    "course.catalog",
    "course.items",
    "course.skeleton",
    "course.spec",
    "course.todos",
    "judge.run",
    "results.reading",
    "results.scoring",
    "worker.session",
)


def nothing(*_, **__):
    raise AssertionError("only built here, never called")


def speed(**changes):
    values = {
        "points": 20,
        "shapes": (Case({"n": 4096}),),
        "baselines": (Arm("torch.add", nothing),),
        "zero_at": 30,
        "passing_at": 60,
        "full_at": 90,
        "bytes_moved": nothing,
    }
    return Speed(**{**values, **changes})


def exercise(**changes):
    values = {
        "name": "row_sum",
        "file": "row_sum.py",
        "points": 30,
        "inputs": nothing,
        "reference": nothing,
        "torch_op": nothing,
        "tolerance": Tolerance(nothing),
        "cases": (Case({"n": 7}), Case({"n": 8})),
    }
    return Exercise(**{**values, **changes})


@pytest.mark.parametrize(("file", "native"), [("sum.cu", None), ("sum.py", Native("sum", nothing))])
def test_a_cuda_file_and_how_to_call_it_come_together(file, native):
    with pytest.raises(ValueError, match="do not match"):
        exercise(file=file, native=native)


def test_negative_pad_is_refused():
    with pytest.raises(ValueError, match="pad is -1"):
        Layout(pad=-1)


@pytest.mark.parametrize("dtype", ["fp64", "float32", "", "FP16"])
def test_dtype_that_the_course_does_not_use_is_refused(dtype):
    with pytest.raises(ValueError, match="not one of fp32, fp16, bf16"):
        Case({"n": 1}, dtype)


def test_another_dtype_for_a_random_choice_is_one_of_the_course():
    with pytest.raises(ValueError, match="also_in is 'fp8', not one of fp32, fp16, bf16"):
        Case({"n": 1}, also_in="fp8")


@pytest.mark.parametrize(
    ("zero", "passing", "full"),
    [(60, 60, 90), (70, 60, 90), (30, 95, 90), (-1, 60, 90), (30, 60, 101)],
    ids=["zero=passing", "zero>passing", "passing>full", "zero<0", "full>100"],
)
def test_speed_with_percents_out_of_order_is_refused(zero, passing, full):
    with pytest.raises(ValueError, match="not in order"):
        speed(zero_at=zero, passing_at=passing, full_at=full)


def test_speed_takes_full_points_at_the_passing_percent():
    assert speed(passing_at=90, full_at=90).passing_at == 90


@pytest.mark.parametrize("missing", ["shapes", "baselines"])
def test_speed_without_shapes_or_baselines_is_refused(missing):
    with pytest.raises(ValueError, match="at least one"):
        speed(**{missing: ()})


def test_exercise_without_cases_is_refused():
    with pytest.raises(ValueError, match="row_sum: no cases"):
        exercise(cases=())


def test_two_cases_of_one_name_are_refused():
    with pytest.raises(ValueError, match="case 'n=7,fp32' is listed twice"):
        exercise(cases=(Case({"n": 7}), Case({"n": 8}), Case({"n": 7}, bitwise=True)))


@pytest.mark.parametrize("name", ["row-sum", "", "1st_row", "row sum"])
def test_exercise_whose_name_cannot_be_a_function_is_refused(name):
    with pytest.raises(ValueError, match="not a function name"):
        exercise(name=name)


def test_lab_without_exercises_is_refused():
    with pytest.raises(ValueError, match="row sums: no exercises"):
        Lab("row sums", ())


def test_points_of_a_lab_add_every_tier():
    timed = exercise(speed=speed(points=20))
    inspected = exercise(points=5, codegen=Codegen(Case({"n": 7}), {"no spills": 1.5, "wide loads": 2}))
    assert Lab("row sums", (timed, inspected)).points == 30 + 20 + 5 + 1.5 + 2


def test_params_and_layouts_of_a_case_cannot_change():
    params = {"n": 7}
    case = Case(params, layouts={"x": Layout(pad=1)})
    params["n"] = 8
    assert case.params["n"] == 7
    with pytest.raises(TypeError):
        case.params["n"] = 9
    with pytest.raises(TypeError):
        case.layouts["y"] = Layout()


@pytest.mark.parametrize("shape", [(7,), (3, 5), (5, 1), (2, 3, 4)], ids=str)
def test_plain_strides_are_those_of_torch(shape):
    assert Layout().strides(shape) == torch.empty(shape).stride()


@pytest.mark.parametrize("shape", [(3, 5), (5, 1), (2, 3, 4)], ids=str)
def test_padded_strides_are_those_of_a_slice_of_wider_rows(shape):
    wide = torch.empty(*shape[:-1], shape[-1] + 7)
    assert Layout(pad=7).strides(shape) == wide[..., : shape[-1]].stride()


@pytest.mark.parametrize("shape", [(3, 5), (5, 1)], ids=str)
def test_transposed_strides_are_those_of_a_transposed_tensor(shape):
    assert Layout(transposed=True).strides(shape) == torch.empty(shape[::-1]).T.stride()


def test_an_expanded_tensor_is_one_number_in_memory():
    assert Layout(expanded=True).strides((3, 5)) == torch.empty(1).expand(3, 5).stride()


def test_row_2_of_far_rows_begins_beyond_what_32_bits_count():
    step, one = Layout(far=True).strides((3, 5))
    assert (step, one) == Layout(transposed=True, far=True).strides((5, 3))[::-1]
    assert one == 1
    assert step < 2**31 < 2 * step


@pytest.mark.parametrize("other", ["transposed", "pad", "far"])
def test_an_expanded_tensor_has_no_other_layout(other):
    with pytest.raises(ValueError, match="strides of 0"):
        Layout(expanded=True, **{other: 1})


def test_far_rows_are_those_of_a_matrix_and_not_padded():
    with pytest.raises(ValueError, match="only a matrix"):
        Layout(far=True).strides((3, 5, 7))
    with pytest.raises(ValueError, match="not padded"):
        Layout(far=True, pad=1)


def test_padding_of_a_transposed_layout_lies_behind_the_stored_rows():
    stored = torch.empty(5, 3 + 7)[:, :3]
    assert Layout(transposed=True, pad=7).strides((3, 5)) == stored.T.stride()


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (Case({"n": 1009}), "n=1009,fp32"),
        (
            Case({"rows": 29, "cols": 1001}, "fp16", {"x": Layout(pad=7)}),
            "rows=29,cols=1001,x padded 7,fp16",
        ),
        (Case({"m": 3, "values": "huge"}, "bf16"), "m=3,values=huge,bf16"),
        (Case({"m": 3}, layouts={"b": Layout(True, 8)}), "m=3,b transposed,b padded 8,fp32"),
        (Case({"m": 3}, layouts={"b": Layout()}), "m=3,fp32"),
        (Case({"m": 3}, layouts={"b": Layout(expanded=True)}), "m=3,b expanded,fp32"),
        (Case({"m": 3}, layouts={"b": Layout(far=True)}, allocates=True), "m=3,b rows far apart,no out,fp32"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_name_of_a_case_reads_as_text(case, name):
    assert case.name == name


@pytest.mark.parametrize(
    ("dtype", "gpu_only", "needs"),
    [("fp32", False, False), ("fp16", False, False), ("bf16", False, True), ("fp32", True, True)],
)
def test_only_bf16_and_gpu_only_cases_need_a_gpu(dtype, gpu_only, needs):
    assert Case({"n": 1}, dtype, gpu_only=gpu_only).needs_gpu is needs


def modules_without_torch():
    """The list above, and every module whose docstring promises it."""
    package = ROOT / "grader"
    texts = {
        ".".join(path.relative_to(package).with_suffix("").parts): path.read_text("utf-8")
        for path in package.rglob("*.py")
        if "tests" not in path.relative_to(package).parts and path.name != "__init__.py"
    }
    promised = [name for name, text in texts.items() if "imports no torch" in docstring(text)]
    assert len(promised) >= 5, "too few modules promise it: was the phrase reworded?"
    return sorted({*promised, *LIGHT})


def docstring(text):
    return ast.get_docstring(ast.parse(text)) or ""


@pytest.mark.parametrize("module", modules_without_torch())
def test_module_that_answers_from_files_alone_imports_no_torch(module):
    lines = f"import grader.{module}, sys; print([m for m in ('torch', 'triton') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", lines], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_finding_the_labs_and_their_questions_imports_no_torch():
    lines = (
        "import sys; from grader.course import catalog, items;"
        "asked = [q.id for entry in catalog.find() for q in items.graded_items(entry)];"
        "print(len(asked) > 50, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", lines], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout.split(), done.stderr) == (["True", "False"], "")
