"""What only a GPU can show: the worker's faults stay its own, and the judge's clock tells fast from slow."""

import dataclasses
import re
import time

import pytest
import torch

from grader.course import catalog
from grader.course.items import CORRECTNESS, SPEED, graded_items
from grader.course.spec import Verdict
from grader.judge import speed
from grader.judge.run import REFERENCE, Run
from grader.system import gpu
from grader.worker.session import Session

pytestmark = [pytest.mark.gpu, pytest.mark.whole_gpu]

LAB1 = "lab1_elementwise_add"
SOURCE = (catalog.ROOT / "solutions" / LAB1 / "elementwise_add.py").read_text("utf-8")
KERNEL_ADD = "tl.store(out_ptr + offs, x + y, mask=mask)"


@pytest.fixture(scope="module")
def here():
    found, missing = gpu.find()
    assert found, missing
    return found


def all_questions(kind, lab=None):
    asked = [
        q
        for entry in catalog.find()
        if lab in (None, entry.number)
        for q in graded_items(entry)
        if q.kind == kind
    ]
    assert asked
    return asked


def change(source, old, new):
    assert old in source
    return source.replace(old, new)


@pytest.fixture
def grade_add(here, tmp_path):
    """Grades a text as lab 1's file: outcomes of the items of one kind that a filter lets through."""
    runs = []

    def grade(text, kind=CORRECTNESS, keep=None, limit_s=None):
        (tmp_path / LAB1).mkdir(exist_ok=True)
        (tmp_path / LAB1 / "elementwise_add.py").write_text(text)
        run = Run(tmp_path, "gpu", 7, here, screened=False)
        runs.append(run)
        asked = [q for q in all_questions(kind, 1) if keep is None or keep(q)]
        assert asked
        if limit_s:
            asked = [dataclasses.replace(q, case=dataclasses.replace(q.case, limit_s=limit_s)) for q in asked]
        return [run.answer(q) for q in asked]

    yield grade
    for run in runs:
        run.close()


def one_size(q):
    return q.case.params["n"] == 65537 and q.case.dtype == "fp32"


@pytest.mark.parametrize("lab", [entry.number for entry in catalog.find()])
def test_solution_passes_every_case_in_every_dtype(lab, here):
    run = Run(catalog.ROOT / "solutions", "gpu", 11, here)
    try:
        bad = {q.id: run.answer(q) for q in all_questions(CORRECTNESS, lab)}
    finally:
        run.close()
    assert {name: (o.verdict, o.where) for name, o in bad.items() if o.verdict is not Verdict.PASS} == {}


def test_reference_in_the_students_seat_reads_100_percent(here):
    # A bias shows in every pair of workers; chance, in one of them. So what is off is measured once more.
    asked, measured = all_questions(SPEED), {}
    for seed in (12, 13):
        run = Run(REFERENCE, "gpu", seed, here)
        try:
            outcomes = {q.id: (q, run.answer(q)) for q in asked}
        finally:
            run.close()
        for name, (_, outcome) in outcomes.items():
            timing = outcome.timing
            assert timing is not None, (name, outcome)
            percents = (timing.percent_of_baseline, timing.interval_percent)
            measured.setdefault(name, []).append((*percents, outcome.verdict))
        asked = [q for name, (q, _) in outcomes.items() if not 98.5 < measured[name][-1][0] < 101.5]
        if not asked:
            return
    pytest.fail(f"twice off in two pairs of workers: { {q.id: measured[q.id] for q in asked} }")


def test_workers_on_the_gpu_load_what_was_compiled_ahead_and_compile_nothing(here):
    entry = next(entry for entry in catalog.find() if entry.number == 3)
    asked = list(graded_items(entry))
    run = Run(catalog.ROOT / "solutions", "gpu", 14, here)
    try:
        run.warm(asked)
        run._ahead.wait()
        cache = run.session.cache(run.submission(asked[0]).path)
        ahead = compiled_in(cache)
        outcomes = {q.id: run.answer(q) for q in asked}
        later = compiled_in(cache) - ahead
    finally:
        run.close()
    assert {name: o.where for name, o in outcomes.items() if o.verdict is not Verdict.PASS} == {}
    assert {suffix for _, suffix in ahead} >= {".cubin"}
    assert len(ahead) > 20
    assert later == set()


def compiled_in(cache):
    """Kernels and launchers in a cache."""
    found = [path for path in cache.glob("*/*") if path.suffix in (".cubin", ".so")]
    return {(path.parent.name, path.suffix) for path in found}


def test_twice_the_work_reads_half_the_percent(grade_add):
    launch = "        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)"
    (outcome,) = grade_add(change(SOURCE, launch, f"{launch}\n{launch}"), SPEED)
    assert outcome.verdict is Verdict.SLOW
    assert 46 < outcome.timing.percent_of_baseline < 54


def test_an_answer_that_is_right_only_for_the_first_calls_is_wrong(grade_add):
    text = change(SOURCE, "BLOCK = 1024\n", "BLOCK = 1024\nCALLS = []\n")
    text = change(
        text,
        "    n = x.numel()\n",
        "    n = x.numel()\n    CALLS.append(n)\n    if len(CALLS) > 40:\n        return out\n",
    )
    (outcome,) = grade_add(text, SPEED)
    assert outcome.verdict is Verdict.WRONG


def test_work_on_a_side_stream_is_waited_for_or_found_missing(grade_add):
    launch = "        elementwise_add_kernel[grid]"
    text = change(SOURCE, launch, f"        with torch.cuda.stream(torch.cuda.Stream()):\n    {launch}")
    (outcome,) = grade_add(text + "\n\ntorch.cuda.synchronize = lambda *a: None\n", SPEED)
    honest = outcome.verdict in (Verdict.PASS, Verdict.SLOW) and outcome.timing.percent_of_baseline < 102
    assert honest or outcome.verdict in (Verdict.WRONG, Verdict.INCONCLUSIVE)


def test_a_kernel_that_never_ends_is_killed_and_the_next_file_is_graded_well(grade_add):
    forever = change(
        SOURCE,
        KERNEL_ADD,
        "i = 0.0\n    while i != 12345.0:\n        i = tl.atomic_add(out_ptr, 0.0)\n    " + KERNEL_ADD,
    )
    began = time.monotonic()
    (outcome,) = grade_add(forever, keep=one_size, limit_s=10)
    assert outcome.verdict is Verdict.TIMEOUT
    assert time.monotonic() - began < 60
    assert [o.verdict for o in grade_add(SOURCE, keep=one_size)] == [Verdict.PASS]


def test_an_illegal_access_ends_its_worker_alone(grade_add):
    wild = change(SOURCE, KERNEL_ADD, "tl.store(out_ptr + offs + (1 << 40), x + y, mask=mask)")
    (outcome,) = grade_add(wild, keep=one_size)
    assert outcome.verdict is Verdict.CRASHED
    assert "illegal memory access" in outcome.where
    assert [o.verdict for o in grade_add(SOURCE, keep=one_size)] == [Verdict.PASS]


def test_a_missing_mask_is_found_by_the_guard_bands(grade_add):
    (outcome,) = grade_add(change(SOURCE, "mask = offs < n", "mask = offs < n + 5"), keep=one_size)
    assert (outcome.verdict, outcome.reason) == (Verdict.OUT_OF_BOUNDS, "WRITE")


def test_gpu_memory_that_does_not_suffice_is_named(grade_add):
    hoard = change(
        SOURCE, "    n = x.numel()\n", "    n = x.numel()\n    torch.empty(1 << 50, device=x.device)\n"
    )
    (outcome,) = grade_add(hoard, keep=one_size)
    assert (outcome.verdict, outcome.reason) == (Verdict.OUT_OF_MEMORY, "GPU")


def test_shared_memory_that_does_not_suffice_is_a_compile_error_with_a_cause(here, tmp_path):
    lab3 = "lab3_autotuned_matmul"
    text = (catalog.ROOT / "solutions" / lab3 / "autotuned_matmul.py").read_text("utf-8")
    # In each list, because the strides of the case decide which kernel runs.
    text, lists = re.subn(r"= \[(\s*_config\(\d[^\]]*)\]", "= [_config(256, 256, 128, 4, 8, HOOK)]", text)
    assert lists == 2
    text = text.replace("HOOK", "None", 1).replace("HOOK", "set_blocks", 1)
    (tmp_path / lab3).mkdir()
    (tmp_path / lab3 / "autotuned_matmul.py").write_text(text)
    run = Run(tmp_path, "gpu", 3, here)
    try:
        asked = next(q for q in all_questions(CORRECTNESS, 3) if q.case.dtype == "bf16")
        outcome = run.answer(asked)
    finally:
        run.close()
    assert outcome.verdict is Verdict.COMPILE_ERROR
    assert "shared memory" in outcome.cause


TROUBLE = {
    "stores far outside": (KERNEL_ADD.replace("offs,", "offs + far,"), ""),
    "a kernel that never ends": (
        "i = 0.0\n    while (far > 0) & (i != 12345.0):\n        i = tl.atomic_add(out_ptr, 0.0)\n    "
        + KERNEL_ADD,
        "",
    ),
    "the process ends": (KERNEL_ADD, "if far:\n            __import__('os')._exit(0)\n        "),
}


def in_trouble(kind, call):
    """The solution, which does something bad at its n-th call and after it."""
    kernel, host = TROUBLE[kind]
    text = change(SOURCE, KERNEL_ADD, kernel)
    text = change(text, "    n,\n    BLOCK: tl.constexpr,", "    n,\n    far,\n    BLOCK: tl.constexpr,")
    launch = "elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)"
    counted = f"CALLS[0] += 1\n        far = (CALLS[0] >= {call}) << 44\n        {host}"
    text = change(text, launch, counted + launch.replace("n, BLOCK", "n, far, BLOCK"))
    return change(text, "BLOCK = 1024\n", "BLOCK = 1024\nCALLS = [0]\n")


@pytest.fixture(scope="module")
def bench(here, tmp_path_factory):
    """Times texts as lab 1's file, all in one session: outcome and seconds."""
    session, folder = Session("cuda", 7), tmp_path_factory.mktemp("bench")
    (item,) = all_questions(SPEED, 1)

    def grade(text):
        source = folder / str(len(list(folder.iterdir())))
        (source / LAB1).mkdir(parents=True)
        (source / LAB1 / "elementwise_add.py").write_text(text)
        run, began = Run(source, "gpu", 7, here, screened=False, session=session), time.monotonic()
        try:
            return run.answer(item), time.monotonic() - began
        finally:
            run.close()

    grade(SOURCE)  # the first pays for the imports
    yield grade
    session.close()


def middle_of_three(bench):
    """The outcome whose percentage is between the other two, because one measurement moves by a percent."""
    return sorted((bench(SOURCE) for _ in range(3)), key=lambda one: one[0].timing.percent_of_baseline)[1]


@pytest.mark.parametrize("kind", TROUBLE)
def test_trouble_in_the_middle_of_the_rounds_costs_its_own_verdict_only(
    bench, kind, monkeypatch, record_property
):
    rounds, limit_s = [], 10.0
    take = speed.SpeedTest._round
    monkeypatch.setattr(speed, "BLOCK_LIMIT_S", limit_s)
    monkeypatch.setattr(
        speed.SpeedTest, "_round", lambda *told: rounds.append(time.monotonic()) or take(*told)
    )
    good, usual_s = middle_of_three(bench)
    free, _ = torch.cuda.mem_get_info()
    rounds.clear()
    with monkeypatch.context() as shorter:
        shorter.setattr(speed, "WARM_US", 0.0)  # one block, and two in each round
        bad, _ = bench(in_trouble(kind, 10 * good.timing.calls_per_block))
    verdict_s = time.monotonic() - rounds[-1]
    assert 1 < len(rounds) < 5, "it was to happen in the third round"
    assert bad.verdict in (Verdict.CRASHED, Verdict.TIMEOUT), bad.where
    assert verdict_s < limit_s + 10.0
    after, next_s = middle_of_three(bench)
    moved = after.timing.percent_of_baseline / good.timing.percent_of_baseline - 1.0
    left = free - torch.cuda.mem_get_info()[0]
    told = {"verdict": bad.verdict.value, "verdict_s": verdict_s, "usual_s": usual_s, "next_s": next_s}
    record_property("recovery", {"trouble": kind, **told, "moved": moved, "left_bytes": left})
    assert abs(moved) < 0.01
    assert next_s < usual_s + 5.0
    assert left < 64 << 20
