"""The judge uses parts of torch that are written in Python without importing torch's compiler."""

from grader.tests.helpers.commands import python

ALL_SHAPES_AND_FORMULAS = """
import sys
import torch
from grader.course import catalog
from grader.judge.formula.terms import terms_of
from grader.judge.inputs import draw, in_dtype, output_shapes
from grader.judge.shapes import shapes_of

count = 0
for entry in catalog.find():
    for exercise in entry.lab.exercises:
        for case in getattr(exercise, "cases", ()):
            output_shapes(exercise, shapes_of(exercise, case))
            count += 1
        cases = getattr(exercise, "cases", ())
        small = [case for case in cases if case.dtype == "fp32" and not case.needs_gpu]
        if small:
            case = min(small, key=lambda one: sum(n for n in one.params.values() if isinstance(n, int)))
            terms_of(exercise.reference, in_dtype(draw(exercise, case, 1, "cpu"), torch.float64))
assert count > 100
print([name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules])
import torch._dynamo
print(hasattr(torch._dynamo, "optimize"))
"""


def test_shapes_and_formulas_of_every_case_leave_the_compiler_out_and_it_can_be_imported_later(tmp_path):
    folder = tmp_path / "cache"
    done = python("-c", ALL_SHAPES_AND_FORMULAS, TMPDIR=str(tmp_path), TORCHINDUCTOR_CACHE_DIR=str(folder))
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == ["[]", "True"]


def test_the_stand_in_stays_until_the_last_of_several_threads_has_left():
    code = """
import sys, threading
from grader.judge.without_dynamo import without_dynamo
entered, leave = threading.Event(), threading.Event()
def first():
    with without_dynamo():
        entered.set()
        leave.wait()
thread = threading.Thread(target=first)
thread.start()
entered.wait()
with without_dynamo():
    leave.set()
    thread.join()
    print("torch._dynamo" in sys.modules)
print("torch._dynamo" in sys.modules)
"""
    done = python("-c", code)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == ["True", "False"]
