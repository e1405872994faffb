"""The checks on generated code: what passes, what fails, and which kernel is named."""

import pytest

from grader.codegen.kernel_facts import CompiledKernel, config_of
from grader.codegen.ptx import multiplies_in_a_loop
from grader.course import catalog
from grader.course.items import CODEGEN, CORRECTNESS, graded_items
from grader.course.spec import Verdict
from grader.judge.codegen_checks import CHECKS, SYMPTOMS, TENSOR_CORES, Verified, check, outcome
from grader.judge.run import Run
from grader.tests.helpers.course import SEED, solution


def kernel(**changes):
    facts = {
        "name": "matmul_kernel",
        "constants": {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8},
        "num_warps": 8,
        "num_stages": 3,
        "shared_bytes": 147_456,
        "shared_limit_bytes": 227 * 1024,
        "registers": 168,
        "spill_bytes": 0,
        "tensor_core": "wgmma.mma_async",
        "async_copies": 12,
        "load_widths_bytes": (16,),
    }
    facts |= changes
    config = config_of(facts["constants"], facts["num_warps"], facts["num_stages"])
    return CompiledKernel(**facts, config=config)


@pytest.mark.parametrize("name", CHECKS)
def test_sound_kernels_pass_every_check(name):
    passed, words = check(name, [kernel(), kernel(num_warps=4)])
    assert passed
    assert words


@pytest.mark.parametrize("name", CHECKS)
def test_no_kernel_fails_every_check(name):
    assert check(name, []) == (False, "the call launched no Triton kernel")


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("tensor cores", {"tensor_core": ""}, "1 of 2 configs use wgmma.mma_async"),
        ("no spills", {"spill_bytes": 24}, "1 of 2 configs spill"),
        ("wide loads", {"load_widths_bytes": (8, 4)}, "widest global load 8 bytes a thread"),
        ("shared memory", {"shared_bytes": 227 * 1024 + 1}, "at most 227 of 227 KB"),
    ],
)
def test_one_bad_config_fails_its_check_and_is_named(name, changes, words):
    passed, found = check(name, [kernel(), kernel(num_warps=4, **changes)])
    assert not passed
    assert found.startswith(words)
    assert found.endswith("128x256x64, 4 warps, 3 stages")
    assert [other for other in CHECKS if not check(other, [kernel(**changes)])[0]] == [name]


PRODUCTS = 1000.0  # half of what the results of the verified cases take


def verified(**launched):
    return Verified({f"{name} 0": work for name, work in launched.items()}, PRODUCTS)


def of(name, **changes):
    return kernel(name=name, identity=f"{name} 0", **changes)


SUMS = {"name": "add_parts", "tensor_core": "", "identity": "add_parts 0"}


def test_a_second_kernel_that_adds_up_needs_no_tensor_cores():
    kernels = [of("product"), of("product", num_warps=4), kernel(**SUMS)]
    passed, words = check("tensor cores", kernels, verified(product=2000, add_parts=0))
    assert passed
    assert words == "2 of 2 configs use wgmma.mma_async"


@pytest.mark.parametrize("name", CHECKS)
def test_kernels_that_no_verified_run_launched_are_left_out(name):
    shown = of("shown")
    assert not check(name, [shown], verified(real=0))[0]
    assert "shown" in check(name, [shown], verified(real=0))[1]
    assert check(name, [shown], verified(shown=2000))[0]
    assert check(name, [shown])[0]  # where nothing could run


def test_tensor_cores_of_a_kernel_that_is_only_shown_do_not_count_for_the_one_that_runs():
    slow = of("slow", tensor_core="")
    assert not check("tensor cores", [of("shown"), slow], verified(slow=0))[0]


@pytest.mark.parametrize("work", [0, 999])
def test_a_kernel_whose_dot_is_never_reached_uses_no_tensor_cores(work):
    passed, words = check("tensor cores", [of("product")], verified(product=work))
    assert not passed
    assert "less than half of the products" in words


CALLS = {  # the work of tl.dot in each call by kernel, and whether that of `product` is enough
    "another kernel for small sizes": ([{"parts": 900}, {"product": 1000}], True),
    "beside a kernel without tl.dot": ([{"product": 10, "slow": 0}, {"product": 1000}], False),
    "only another kernel works": ([{"parts": 1000}, {"product": 0}], False),
    "it is never launched": ([{"parts": 1000}], False),
}


@pytest.mark.parametrize(("calls", "is_enough"), CALLS.values(), ids=list(CALLS))
def test_products_count_in_the_calls_that_launch_the_kernel(calls, is_enough):
    parts = tuple(verified(**work) for work in calls)
    both = Verified({"product 0": 0}, PRODUCTS * len(parts), calls=parts)
    assert check("tensor cores", [of("product")], both)[0] is is_enough


def test_tensor_cores_outside_a_loop_do_not_count():
    passed, words = check("tensor cores", [of("product", multiplies_in_a_loop=False)], verified(product=2000))
    assert not passed
    assert "in no loop" in words


CHEATS = catalog.ROOT / "grader" / "tests" / "cheats"
SOLUTION = catalog.ROOT / "solutions" / "lab3_autotuned_matmul" / "autotuned_matmul.py"


@pytest.fixture
def count_products(tmp_path):
    """Counts the products of lab 3's file as after its cases have passed on a GPU."""
    entry = next(entry for entry in catalog.find() if entry.number == 3)
    item = next(item for item in graded_items(entry) if item.name == TENSOR_CORES)
    copy = entry.submission(tmp_path, item.exercise)
    copy.parent.mkdir()
    sizes = ("m=128,n=128,k=128,fp32", "m=128,n=128,k=128,fp16")
    cases = [case for case in item.exercise.cases if case.name in sizes]
    assert len(cases) == 2

    def count(text, wanted=()):
        copy.write_text(text)
        run = Run(tmp_path, "cpu", 5, None, screened=False)
        try:
            wanted = set(wanted) or {kernel.identity for kernel in run.kernels(item)}
            launched = dict.fromkeys(wanted, 1)
            return wanted, run._with_products(item, Verified(launched, 1.0), cases, wanted)
        finally:
            run.close()

    return count


@pytest.mark.parametrize(
    ("file", "enough"),
    [(SOLUTION, True), (CHEATS / "c01_dot_behind_a_branch.py", False)],
    ids=["solution", "cheat"],
)
def test_products_of_a_file_that_ran_on_a_gpu_are_counted_in_the_interpreter(count_products, file, enough):
    # The solution launches another kernel for 16 bits than for the fp32 of the first case.
    wanted, counted = count_products(file.read_text())
    assert counted.is_counted
    assert counted.wanted == 128**3 / 2
    assert (sum(counted.launched[one] for one in wanted) >= counted.wanted) is enough


def test_a_file_that_launches_other_kernels_on_a_cpu_is_told_so(count_products):
    _, counted = count_products(SOLUTION.read_text(), {"only_on_a_gpu 0"})
    assert counted.launched["only_on_a_gpu 0"] == 0
    found = kernel(identity="only_on_a_gpu 0", multiplies_in_a_loop=True)
    passed, words = check(TENSOR_CORES, [found], counted)
    assert not passed
    assert "launch the same ones there" in words


def test_where_a_file_does_not_run_in_the_interpreter_its_launches_on_the_gpu_count(count_products):
    text = SOLUTION.read_text().replace("acc = tl.zeros(", "acc = tl.nothing(")
    _, counted = count_products(text, {"only_on_a_gpu 0"})
    assert counted == Verified({"only_on_a_gpu 0": 1}, 1.0)


ONE_KERNEL_FOR_TWO = """
import triton
import triton.language as tl


@triton.jit
def copy(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at))


def softmax_forward(x, *, out=None):
    copy[(1,)](x, out, BLOCK=128)
    copy[(2,)](x, out, BLOCK=128)
    return out


def softmax_backward(dy, y, *, out=None):
    return softmax_forward(dy, out=out)
"""


def test_two_exercises_of_a_file_that_launch_the_same_kernel_are_both_told_of_it(warm, tmp_path):
    entry = next(entry for entry in catalog.find() if entry.number == 2)
    items = [item for item in graded_items(entry) if item.kind == CODEGEN]
    file = entry.submission(tmp_path, items[0].exercise)
    file.parent.mkdir()
    file.write_text(ONE_KERNEL_FOR_TWO)
    run = Run(tmp_path, "codegen", SEED, None, screened=False, session=warm)
    outcomes = {item.exercise.name: run.answer(item) for item in items}
    run.close()
    assert outcomes.keys() == {"softmax_forward", "softmax_backward"}
    assert {outcome.where for outcome in outcomes.values()} == {"1 kernel compiled for sm_90"}
    assert {outcome.verdict for outcome in outcomes.values()} == {Verdict.PASS}
    assert {kernel.name for outcome in outcomes.values() for kernel in outcome.kernels} == {"copy"}


IN_SHORT_ROWS = """    if BLOCK < 1024:
        count = 0
        for start in range(0, n_cols, BLOCK):
            count += 0.5
"""


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_branch_that_the_checked_size_does_not_take_is_read_as_well(warm, tmp_path, is_broken):
    entry = next(entry for entry in catalog.find() if entry.number == 2)
    item = next(item for item in graded_items(entry) if item.kind == CODEGEN)
    text = solution(2)
    first = text.index("    row = ", text.index("@triton.jit"))
    end = text.index("\n", first) + 1
    added = IN_SHORT_ROWS if is_broken else IN_SHORT_ROWS.replace("count = 0", "count = 0.0")
    file = entry.submission(tmp_path, item.exercise)
    file.parent.mkdir()
    file.write_text(f"{text[:end]}{added}{text[end:]}")
    run = Run(tmp_path, "codegen", SEED, None, screened=False, session=warm)
    outcome = run.answer(item)
    run.close()
    assert outcome.verdict is (Verdict.COMPILE_ERROR if is_broken else Verdict.PASS), outcome
    assert ("Loop-carried variable" in outcome.where and "rows=1,cols=1" in outcome.where) is is_broken


LOOP = """
$L__BB0_1:
  bra.uni $L__BB0_3;
$L__BB0_2:
  wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {%f1}, %rd1, %rd2;
  @%p1 bra $L__BB0_2;
$L__BB0_3:
  ret;
"""


@pytest.mark.parametrize(
    ("ptx", "found"),
    [
        (LOOP, True),
        (LOOP.replace("@%p1 bra $L__BB0_2;", ""), False),
        (LOOP.replace("@%p1 bra $L__BB0_2;", "bra $L__BB0_3;"), False),
        (LOOP.replace("wgmma.mma_async", "fma"), False),
        ("", False),
    ],
    ids=["in a loop", "once", "forward", "no tensor cores", "empty"],
)
def test_a_loop_is_a_branch_back_over_the_instruction(ptx, found):
    assert multiplies_in_a_loop(ptx) is found


def test_config_that_spills_most_is_the_one_named():
    kernels = [kernel(spill_bytes=8, num_warps=16), kernel(spill_bytes=640, num_warps=4), kernel()]
    _, words = check("no spills", kernels)
    assert "2 of 3" in words
    assert "640 bytes" in words
    assert "4 warps" in words


def test_kernel_without_global_loads_has_no_narrow_one():
    assert check("wide loads", [kernel(load_widths_bytes=())])[0]


def test_kernel_may_use_all_of_its_shared_memory():
    assert check("shared memory", [kernel(shared_bytes=227 * 1024)])[0]


def graded_checks():
    return [
        (entry.lab, name)
        for entry in catalog.find()
        for exercise in entry.lab.exercises
        for name in (exercise.codegen.checks if exercise.codegen else ())
    ]


def test_checks_with_points_exist():
    assert graded_checks()
    assert {name for _, name in graded_checks()} <= set(CHECKS)


@pytest.mark.parametrize(("lab", "name"), graded_checks(), ids=lambda value: getattr(value, "title", value))
def test_failed_check_earns_nothing_and_cites_the_cause_of_the_lab(lab, name):
    found = outcome(lab, name, False, "1 of 2", [kernel()])
    assert (found.verdict, found.share) == (Verdict.WRONG, 0.0)
    assert (found.hint, found.cause) == lab.causes[SYMPTOMS[name]]


def test_outcome_carries_the_facts_without_listings():
    lab, name = graded_checks()[0]
    found = outcome(lab, name, True, "2 of 2", [kernel(ptx="// ptx", sass="// sass")])
    (facts,) = found.kernels
    assert (found.verdict, found.share, found.hint) == (Verdict.PASS, 1.0, None)
    assert facts.config == "128x256x64, 8 warps, 3 stages"
    assert not {"ptx", "sass"} & set(facts.model_dump())


def test_half_of_the_products_of_a_case_that_passed_are_wanted(warm):
    entry = next(entry for entry in catalog.find() if entry.number == 3)
    item = next(
        item
        for item in graded_items(entry)
        if item.kind == CORRECTNESS and item.name == "m=128,n=128,k=128,fp32"
    )
    run = Run(catalog.ROOT / "solutions", "cpu", SEED, None, session=warm)
    assert run.answer(item).verdict is Verdict.PASS
    found = run._verified[entry.folder, item.exercise.name]
    assert sum(found.launched.values()) == 2 * found.wanted == 2 * 128**3
    run.close()
