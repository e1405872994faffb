"""Compiling ahead: a launch finds what it needs in the cache, work is shared, and errors have no effect."""

import json
import os
import time

import pytest

from grader.course import catalog
from grader.course.items import CODEGEN, CORRECTNESS, SPEED, graded_items
from grader.course.parts import parts_of
from grader.course.submission import Submission
from grader.judge import compile_ahead, run
from grader.judge.compile_ahead import CompileAhead, File, Launching
from grader.system import seeds
from grader.system.gpu import Gpu
from grader.tests.helpers.commands import python
from grader.tests.helpers.course import ROOT, solution, swap
from grader.worker.session import LEAN
from grader.worker.shared_memory import Arena

ARCH = 90
H200 = Gpu("H200", "580", "0" * 16, ARCH, 141 << 30, 4.8e12, 1e15, 1980)
# What a worker on a GPU does, with launches that reach a GPU only in name: its driver asks torch for the
# capability, each config of an autotuner is timed, and the compiler is Triton's own.
LAUNCHED = """
import json, sys, types
from grader.codegen.absent_gpu import AbsentGpu
from grader.course import catalog
from grader.course.items import CORRECTNESS, SPEED, graded_items
from grader.judge.correctness import lay_out
from grader.judge.inputs import Placer, numbers_in
from grader.judge.run import ARENA_BYTES
from grader.judge.shapes import shapes_of
from grader.worker import triton_settings, worker
from grader.worker.messages import Plan
from grader.worker.shared_memory import Arena
from grader.worker.submission_worker import _place
import triton
from triton.backends.nvidia.driver import CudaDriver

file, number, kind, seed = sys.argv[1:5]
given, names = map(json.loads, sys.argv[5:])
launches = []
triton_settings.do_once_for_all_workers()  # as the fork server does

class Named(CudaDriver):
    def __init__(self):
        self.get_current_device = lambda: 0
        self.get_current_stream = lambda device: 0
        self.get_device_capability = lambda device: (9, 0)
        self.launcher_cls = lambda src, metadata: lambda *arguments: launches.append(src.name)
        self.utils = types.SimpleNamespace(
            get_device_properties=lambda device: {"max_shared_mem": 232448},
            load_binary=lambda *binary: (object(), object(), 32, 0, 1024),
        )

    def get_benchmarker(self):
        def timed(call, **_):
            call()
            return [1.0, 1.0, 1.0]
        return timed

triton.runtime.driver.set_active(Named())
if kind == CORRECTNESS:
    triton_settings.tune_by_chance(int(seed), runs_first=True)
for path in given:
    worker._load(path, path.rpartition("/")[2].removesuffix(".py"))
module, arena = worker._load(file, "submission"), Arena.create("cpu", ARENA_BYTES["cpu"])
entry = next(entry for entry in catalog.find() if entry.number == int(number))
for item in reversed(list(graded_items(entry))):  # in another order than ahead
    if item.kind == kind and item.exercise.file == file.rpartition("/")[2] and item.name in names:
        shapes = shapes_of(item.exercise, item.case)
        inputs, outputs = lay_out(item.exercise, item.case, Placer(), shapes)
        call = tuple(map(_place, inputs)), {one.name: _place(one) for one in outputs}
        plan = Plan(
            plan=1, function=item.exercise.name, differentiable=item.exercise.differentiable,
            allocates=item.case.allocates, named=numbers_in(shapes), calls=(call,),
        )
        for function, tensors, named, _ in worker._ready(module, arena, plan):
            function(*tensors, **named)
print(len(launches))
"""


def file_of(tree, number, asked, name=""):
    """A file of a lab below `tree`, with all items of these kinds as calls."""
    entry = next(entry for entry in catalog.find() if entry.number == number)
    items = [item for item in graded_items(entry) if item.kind in asked and name in (item.exercise.file, "")]
    path = items[0].entry.submission(tree, items[0].exercise)
    submission = Submission.read(path)
    found = parts_of(submission, entry.lab.imports.get(path.name, ()), Submission.read)
    calls = [
        Launching(item.exercise, item.case, "chance" if item.kind == CORRECTNESS else "full")
        for item in items
        if item.exercise.file == path.name
    ]
    return File(submission, entry.given, tuple(part.submission for part in found), tuple(calls))


def written(tmp_path, number, text):
    """A tree with one text as a lab's only file."""
    (path,) = ROOT.glob(f"solutions/lab{number}_*/*.py")
    (tmp_path / path.parent.name).mkdir()
    (tmp_path / path.parent.name / path.name).write_text(text)
    return tmp_path


@pytest.fixture(scope="module")
def arena():
    arena = Arena.create("cpu", run.ARENA_BYTES["cpu"])
    yield arena
    arena.close()


@pytest.fixture
def compiled(warm, arena):
    """Compiles a file ahead, and returns its cache and how often each kernel was claimed."""
    begun = []

    def compile_it(file, many=1, **more):
        begun.append(CompileAhead(warm, arena, ARCH, **more, many=many))
        begun[-1].start([file])
        begun[-1].wait()
        return warm.cache(file.submission.path)

    yield compile_it
    for one in begun:
        one.close()


def kernels(cache):
    return {path.parent.name for path in cache.glob("*/*.cubin")}


def launch(file, number, kind, cache, names):
    """Launch calls of a file as on a GPU, with a cache; return the number of launches."""
    seed = seeds.for_a_worker(20240229)
    given = [str(path) for path in file.given] + [str(one.path) for one in file.parts]
    done = python(
        "-c", LAUNCHED, file.submission.path, number, kind, seed, json.dumps(given), json.dumps(names),
        TRITON_CACHE_DIR=str(cache),
        TRITON_DEFAULT_FP_FUSION="1",  # as in every worker; it is a part of the cache's key
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout)


CASES = [
    pytest.param(1, "elementwise_add.py", id="lab 1"),
    pytest.param(3, "autotuned_matmul.py", id="lab 3", marks=pytest.mark.nightly),
    pytest.param(4, "dropout.py", id="numbers", marks=pytest.mark.nightly),
    pytest.param(4, "rms_norm_backward.py", id="gradients", marks=pytest.mark.nightly),
]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "name"), CASES)
@pytest.mark.parametrize("kind", [CORRECTNESS, SPEED])
def test_a_launch_on_the_gpu_finds_all_that_it_needs_in_the_cache(compiled, number, name, kind):
    file = file_of(ROOT / "solutions", number, [kind], name)
    cache = compiled(file)
    before = kernels(cache)
    assert before
    names = [one.case.name for one in file.calls]
    assert launch(file, number, kind, cache, names) >= len(names) // 2  # some have nothing to compute
    assert kernels(cache) == before


def elementwise(tmp_path, *pairs):
    """Lab 1's file with a text of its own, and two of its cases with one kernel."""
    tree = written(tmp_path, 1, swap(solution(1), *pairs))
    file = file_of(tree, 1, [CORRECTNESS])
    kept = tuple(one for one in file.calls if one.case.name in ("n=127,fp32", "n=129,fp32"))
    assert len(kept) == 2
    return File(file.submission, file.given, file.parts, kept)


LAUNCH = "elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)"


def test_each_kernel_is_compiled_once_however_many_workers_there_are(compiled, tmp_path):
    several = "; ".join(LAUNCH.replace("BLOCK=BLOCK", f"BLOCK={2**k}") for k in (7, 8, 9))
    file = elementwise(tmp_path, LAUNCH, several.replace("; ", "\n        "))
    cache = compiled(file, many=3)
    assert len(kernels(cache)) == 3
    assert {path.name for path in cache.iterdir()} >= {"claims", *kernels(cache)}


def test_a_call_that_fails_leaves_the_others_to_be_compiled(compiled, tmp_path):
    file = elementwise(tmp_path, LAUNCH, f"assert n != 127\n        {LAUNCH}")
    assert len(kernels(compiled(file))) == 1


def test_what_does_not_compile_or_load_or_ends_its_process_has_no_consequence(compiled, tmp_path):
    for number, change in enumerate(["x + y + undefined", "x + + ", "x + tl.dot(x, y)"]):
        (tmp_path / str(number)).mkdir()
        assert kernels(compiled(elementwise(tmp_path / str(number), "x + y", change))) == set()
    (tmp_path / "end").mkdir()
    ended = elementwise(tmp_path / "end", LAUNCH, f"__import__('os')._exit(0)\n        {LAUNCH}")
    assert kernels(compiled(ended)) == set()


def test_a_file_that_takes_for_ever_is_stopped(compiled, tmp_path):
    file = elementwise(tmp_path, LAUNCH, f"while n:\n            pass\n        {LAUNCH}")
    began = time.monotonic()
    compiled(file, limit_s=1.0)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("after_s", [0.0, 0.02, 1.0])
def test_a_run_that_ends_early_ends_the_workers(warm, arena, tmp_path, after_s):
    file = elementwise(tmp_path, LAUNCH, f"while n:\n            pass\n        {LAUNCH}")
    ahead = CompileAhead(warm, arena, ARCH, many=2)
    ahead.start([file, file])
    time.sleep(after_s)
    began = time.monotonic()
    ahead.close()
    assert time.monotonic() - began < 20
    assert ahead._running == set()


def test_a_quarter_of_the_cores_is_left_to_grading_and_memory_bounds_the_rest(monkeypatch):
    def here(cores, gigabytes):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
        memory = type("Memory", (), {"available": gigabytes << 30})
        monkeypatch.setattr(compile_ahead.psutil, "virtual_memory", lambda: memory)
        return compile_ahead.workers_here()

    assert here(1, 24) == here(2, 24) == here(16, 1) == here(16, 0) == 1
    assert (here(4, 24), here(8, 24), here(16, 24)) == (3, 6, 12)
    assert here(128, 512) == compile_ahead.MOST_WORKERS


class Asked:
    """Stands in for CompileAhead, and keeps what it is asked."""

    def __init__(self, _session, _arena, arch):
        self.arch, self.files, self.waits = arch, [], []

    def start(self, files):
        self.files = list(files)

    def wait(self, path=None):
        self.waits.append(path)

    def close(self):
        pass


@pytest.fixture
def warmed(warm, monkeypatch):
    """Warms a run of a tier over items of the solutions; returns the run and its items."""
    monkeypatch.setattr(compile_ahead, "CompileAhead", Asked)
    runs = []

    def warm_up(tier, source=ROOT / "solutions", kinds=(CORRECTNESS, SPEED), labs=(1, 3)):
        items = [item for entry in catalog.find() if entry.number in labs for item in graded_items(entry)]
        items = [item for item in items if item.kind in kinds]
        runs.append(run.Run(source, tier, 7, H200, session=warm))
        runs[-1].warm(items)
        return runs[-1], items

    yield warm_up
    for one in runs:
        one.close()


def test_a_gpu_run_compiles_each_case_and_each_timed_shape_ahead(warmed):
    begun, items = warmed("gpu")
    files = begun._ahead.files
    assert [file.submission.path.name for file in files] == ["elementwise_add.py", "autotuned_matmul.py"]
    tunings = {CORRECTNESS: "chance", SPEED: "full"}
    wanted = [(item.case, tunings[item.kind]) for item in items]
    assert [(one.case, one.tuning) for file in files for one in file.calls] == wanted
    assert begun._ahead.arch == H200.capability


def test_the_cases_of_all_files_are_begun_before_the_timed_shapes_of_any(warm, arena, monkeypatch):
    begun = []
    monkeypatch.setattr(CompileAhead, "_make", lambda _, file, tuning, *__: begun.append((file, tuning)))
    files = [file_of(ROOT / "solutions", number, [CORRECTNESS, SPEED]) for number in (1, 3)]
    ahead = CompileAhead(warm, arena, ARCH, many=1)  # so that all begin in the order of their turns
    ahead.start(files)
    ahead.wait()
    ahead.close()
    assert begun == [(file, tuning) for tuning in ("chance", "full") for file in files]


def test_long_rows_are_compiled_first_and_all_else_in_the_order_of_the_cases(warm, arena, monkeypatch):
    """A kernel that holds a long row in one block takes seconds, for which the case would wait."""
    made = []
    monkeypatch.setattr(CompileAhead, "_make", lambda *asked: made.extend(asked[3]))
    file = file_of(ROOT / "solutions", 2, [CORRECTNESS])
    ahead = CompileAhead(warm, arena, ARCH, many=1)
    ahead.start([file])
    ahead.wait()
    ahead.close()
    rows = [inputs[0].tensor.shape[1] for plan in made for inputs, _ in plan.calls]
    long = [cols for cols in rows if cols > compile_ahead.LONG_ROW]
    assert long
    assert rows[: len(long)] == long
    assert rows != sorted(rows, reverse=True)  # the order of the rest was not changed
    assert sorted(rows) == sorted(call.case.params["cols"] for call in file.calls)


def test_other_tiers_a_lean_machine_and_the_reference_compile_nothing_ahead(warmed, monkeypatch):
    assert warmed("cpu")[0]._ahead is None
    assert warmed("gpu", run.REFERENCE, [SPEED])[0]._ahead is None
    monkeypatch.setenv(LEAN, "1")
    assert warmed("gpu")[0]._ahead is None


def test_a_shape_is_timed_only_after_all_is_compiled(warmed, monkeypatch):
    begun, items = warmed("gpu")

    class Reached(BaseException):
        pass

    def arena(_):
        raise Reached

    monkeypatch.setattr(begun, "_arena", arena)
    with pytest.raises(Reached):
        begun.answer(next(item for item in items if item.kind == SPEED))
    assert begun._ahead.waits == [None]


def test_codegen_waits_for_its_own_file_only(warmed):
    begun, items = warmed("gpu", kinds=[CODEGEN], labs=[1])
    for found in begun._kernels.values():
        found.result()
    assert set(begun._ahead.waits) == {begun.submission(item).path for item in items}


TUNED = """
import sys

import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from grader.codegen.absent_gpu import AbsentGpu
from grader.worker.triton_settings import tune_by_chance


@triton.autotune([triton.Config({"BLOCK": 2**k}) for k in range(4, 12)], key=["n"])
@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr, n)


triton.runtime.driver.set_active(AbsentGpu(90))
JITFunction.run = lambda *_, **__: None
tune_by_chance(int(sys.argv[1]), runs_first=True)
for n in map(int, sys.argv[2:]):
    kernel[(1,)](None, n)
    print(n, kernel.best_config)
"""


@pytest.mark.slow
def test_the_choice_of_a_config_follows_from_the_seed_and_the_sizes_and_from_no_earlier_call(tmp_path):
    (tmp_path / "tuned.py").write_text(TUNED)

    def chosen(*told):
        done = python(tmp_path / "tuned.py", *told, PYTHONPATH=str(ROOT))
        assert done.returncode == 0, done.stderr[-2000:]
        return sorted(done.stdout.splitlines())

    sizes = range(1, 9)
    first = chosen(5, *sizes)
    assert first == chosen(5, *reversed(sizes))
    assert first != chosen(6, *sizes)
    assert len({line.partition(" ")[2] for line in first}) > 1
