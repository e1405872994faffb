"""The capstone's Triton kernels: what is handed out, what the README says, and that the solutions hold."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from grader.course import catalog
from grader.course.items import CODEGEN, CORRECTNESS, graded_items
from grader.course.lines_of_code import lines_of_code
from grader.course.skeleton import render, write_skeletons
from grader.course.spec import Verdict
from grader.course.specimens import find
from grader.judge.run import Run
from grader.tests.helpers.course import ROOT, SEED
from grader.tests.helpers.placeholders import PLACEHOLDER

ENTRIES = {entry.folder.name: entry for entry in catalog.capstone()}
ENTRY = ENTRIES["triton-kernels"]
EXERCISES = {one.name: one for one in ENTRY.lab.exercises}
SOLVED = ROOT / "solutions" / "gpu-programming" / "triton-kernels"
README = (ENTRY.folder / "README.md").read_text("utf-8")
WRONG, VARIANTS = (
    find(f"solutions/gpu-programming/triton-kernels/{name}/*.py") for name in ("wrong", "variants")
)


@pytest.fixture(scope="module")
def lab():
    specification = importlib.util.spec_from_file_location("triton_capstone_lab", ENTRY.lab_file)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def run():
    one = Run(ROOT / "solutions", "cpu", SEED, None)
    yield one
    one.close()


def compiled():
    """The items about the code of attention."""
    return [q for q in graded_items(ENTRY) if q.kind == CODEGEN and q.exercise.name == "attention"]


def solution(name):
    specification = importlib.util.spec_from_file_location(f"solved_{name}", SOLVED / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


# -- trees


def test_the_capstone_has_cuda_kernels_and_triton_kernels():
    assert {"cuda-kernels", "triton-kernels"} <= set(ENTRIES)


def test_a_folder_without_a_lab_is_no_capstone(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"lab\.py below"):
        catalog.capstone(tmp_path)


def test_solution_and_skeleton_folders_hold_the_same_student_files():
    asked = {exercise.file for exercise in EXERCISES.values()}
    assert {path.name for path in SOLVED.glob("*.py")} == asked
    assert {path.name for path in ENTRY.folder.glob("*.py")} == asked | {"lab.py"}


@pytest.mark.parametrize("name", EXERCISES)
def test_the_skeleton_is_the_rendered_solution_and_solving_it_only_adds_lines(name):
    solved = (SOLVED / EXERCISES[name].file).read_text("utf-8")
    skeleton = ENTRY.submission(ROOT / "labs", EXERCISES[name]).read_text("utf-8")
    assert skeleton == render(solved)
    kept = [line for line in skeleton.split("\n") if not PLACEHOLDER.search(line)]
    rest = iter(solved.split("\n"))
    assert [line for line in kept if line not in rest] == []  # `in` moves the iterator on: the order counts
    assert len(kept) < len(solved.split("\n"))


def test_skeletons_of_the_capstone_are_written_beside_labs(tmp_path):
    folder = tmp_path / "solutions" / "gpu-programming" / "triton-kernels"
    (folder / "wrong").mkdir(parents=True)
    text = (SOLVED / "swiglu.py").read_text("utf-8")
    (folder / "swiglu.py").write_text(text, "utf-8")
    (folder / "wrong" / "not_handed_out.py").write_text(text, "utf-8")
    step = tmp_path / "solutions" / "gpu-programming" / "kernel-log" / "0001"  # a log is nobody's to fill in
    step.mkdir(parents=True)
    shutil.copyfile(SOLVED.parent / "cuda-kernels" / "matmul" / "01_naive.cu", step / "01_naive.cu")
    written = write_skeletons(tmp_path)
    assert written == [tmp_path / "gpu-programming" / "triton-kernels" / "swiglu.py"]
    assert written[0].read_text("utf-8") == render(text)


@pytest.mark.parametrize("name", EXERCISES)
def test_a_solution_is_short_enough_to_be_read(name):
    assert lines_of_code((SOLVED / EXERCISES[name].file).read_text("utf-8")) <= 100


# -- README


def test_every_hint_that_is_cited_is_in_the_readme_in_three_levels():
    cited = {hint for hint, _ in ENTRY.lab.causes.values()} | {one.hint for one in WRONG if one.hint}
    levels = re.findall(r"<summary>Hint (\d+), level (\d)", README)
    assert cited
    assert {(str(hint), level) for hint in cited for level in "123"} <= set(levels)
    assert len(levels) == len(set(levels))


def test_the_points_of_the_readme_are_those_of_the_lab():
    rows = re.findall(r"^\| (?:`(\w+)`|total) \| (\d+) \| (\d+) \| (\d+) \|", README, re.MULTILINE)
    found = {name: tuple(map(int, points)) for name, *points in rows}
    wanted = {
        name: (one.points, sum(one.codegen.checks.values()), one.speed.points)
        for name, one in EXERCISES.items()
    }
    assert found == wanted | {"": tuple(map(sum, zip(*wanted.values(), strict=True)))}
    assert f"| {ENTRY.lab.points:g} points together |" in README


@pytest.mark.parametrize("name", EXERCISES)
def test_the_percents_of_the_readme_are_those_of_the_lab(name):
    speed = EXERCISES[name].speed
    formula = f"(percent - {speed.zero_at:g}) / ({speed.full_at:g} - {speed.zero_at:g})"
    assert f"{formula}, 0, 1)`, and below {speed.passing_at:g} % the verdict is SLOW" in README


# -- solutions


@pytest.mark.slow
def test_every_case_that_needs_no_gpu_passes_far_inside_of_the_tolerance(run):
    asked = [q for q in graded_items(ENTRY) if q.kind == CORRECTNESS and not q.case.needs_gpu]
    run.warm([*asked, *compiled()])
    outcomes = {item.id: run.answer(item) for item in asked}
    assert {name for name, found in outcomes.items() if found.verdict is not Verdict.PASS} == set()
    assert {item.exercise.name for item in asked} == set(EXERCISES)
    assert max(found.used for found in outcomes.values()) < 0.9


@pytest.mark.slow
def test_attention_has_tensor_cores_and_no_spills_in_every_config_for_hopper(run):
    asked = compiled()
    assert {run.answer(item).verdict for item in asked} == {Verdict.PASS}
    kernels = run.kernels(asked[0])
    assert len(kernels) == len(solution("attention").CONFIGS)
    large = [kernel for kernel in kernels if kernel.constants["BLOCK_M"] >= 64]
    assert len(large) >= 3
    assert {kernel.tensor_core for kernel in large} == {"wgmma.mma_async"}
    assert all(kernel.shared_bytes <= kernel.shared_limit_bytes for kernel in kernels)


@pytest.mark.slow
def test_no_product_of_attention_on_hopper_waits_for_the_one_before_it(run, tmp_path):
    package = Path(importlib.util.find_spec("triton").submodule_search_locations[0])
    ptxas = max((package / "backends" / "nvidia" / "bin").glob("ptxas*"))  # -blackwell, where there are two
    large = [kernel for kernel in run.kernels(compiled()[0]) if kernel.tensor_core.startswith("wgmma")]
    assert large
    for kernel in large:
        (tmp_path / "kernel.ptx").write_text(kernel.ptx, "utf-8")
        command = [ptxas, "-v", "-arch=sm_90a", "kernel.ptx", "-o", "kernel.cubin"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert "Compiling entry function" in done.stderr
        assert not re.search(r"C75\d\d|serialized", done.stderr), kernel.config


def test_blocks_of_keys_divide_tiles_of_queries_and_short_or_exact_ones_take_the_smallest():
    attention = solution("attention")
    assert all(one.kwargs["BLOCK_M"] % one.kwargs["BLOCK_N"] == 0 for one in attention.CONFIGS)

    def kept(dtype, length):
        found = attention.fitting(
            attention.CONFIGS, {"q_ptr": SimpleNamespace(dtype=dtype), "length": length}
        )
        return [one.kwargs["BLOCK_M"] for one in found]

    assert kept(torch.bfloat16, 4096) == [one.kwargs["BLOCK_M"] for one in attention.CONFIGS]
    assert max(kept(torch.bfloat16, 100)) == 64
    assert kept(torch.bfloat16, 1) == kept(torch.float32, 4096) == [32]


@pytest.mark.parametrize("n_cols", [1, 1000, 1024, 1025, 4096, 16384, 16385, 131072])
def test_a_row_of_any_length_has_tiles_to_try_and_one_holds_it_where_one_can(n_cols):
    module = solution("add_rms_norm")
    tiles = [one.kwargs["TILE"] for one in module.fitting(module.CONFIGS, {"n_cols": n_cols})]
    assert tiles
    assert max(tiles) >= min(n_cols, 16384)


# -- what the lab asks


def test_the_reference_of_attention_is_that_of_pytorch(lab):
    q, k, v = torch.randn(3, 2, 3, 37, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(SEED))
    torch.testing.assert_close(lab.attention(q, k, v), lab.torch_attention(q, k, v))
    # A later key changes nothing that came before it.
    changed = v.clone()
    changed[:, :, 30] += 1.0
    one, other = lab.attend(q, k, v), lab.attend(q, k, changed)
    assert torch.equal(one[:, :, :30], other[:, :, :30])
    assert not torch.equal(one[:, :, 30], other[:, :, 30])


@pytest.mark.parametrize("name", EXERCISES)
def test_every_exercise_has_sizes_off_the_blocks_one_row_and_padded_rows(name):
    cases = EXERCISES[name].cases
    sizes = [{"heads": 1, "batch": 1} | dict(case.params) for case in cases]
    rows = [size["heads"] * size["batch"] * size.get("rows", 1) for size in sizes]
    lengths = {size.get("cols", size.get("length")) for size in sizes}
    assert 1 in rows
    assert 1 in lengths
    assert any(length % 16 for length in lengths if length > 32)
    assert {case.dtype for case in cases if case.layouts} == {"fp32", "fp16", "bf16"}
    assert {case.dtype for case in cases if not case.needs_gpu} == {"fp32", "fp16"}


@pytest.mark.parametrize("name", EXERCISES)
def test_every_exercise_has_wrong_answers_and_another_right_one(name):
    assert sum(name in one.functions for one in WRONG) >= 5
    assert any(name in one.functions for one in VARIANTS)
    assert {one.screened for one in VARIANTS} == {("PASS",)}


def test_equal_bytes_are_what_the_baselines_move(lab):
    case = EXERCISES["swiglu"].speed.shapes[0]
    one = case.params["rows"] * case.params["cols"] * 2
    assert EXERCISES["swiglu"].speed.bytes_moved(case) == 3 * one
    assert EXERCISES["add_rms_norm"].speed.bytes_moved(case) == 4 * one
    x, residual, out, total = torch.randn(4, 3, 5)
    lab.two_copies(x, residual, None, out=out, total=total)
    assert torch.equal(out, x)
    assert torch.equal(total, residual)
