"""What a worker on a CPU does but once changes how long a launch takes, and nothing else."""

from textwrap import dedent

import pytest

from grader.tests.helpers.commands import python
from grader.tests.helpers.course import ROOT, SEED, swap
from grader.tests.helpers.submissions import Submissions
from grader.worker.session import Session

KERNEL = dedent("""\
    import inspect, sys
    import torch, triton, triton.language as tl
    from triton.runtime import interpreter
    from grader.worker.interpreted.known_builtins import remember_builtins

    @triton.jit
    def twice(x):
        return tl.sum(x + x, axis=0)

    @triton.jit
    def kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
        x = tl.load(x_ptr + tl.arange(0, BLOCK))
        tl.store(out_ptr, twice(x) + tl.max(x, axis=0))

    listed, whole = [], inspect.getmembers
    def counting(place, predicate=None):
        listed.append(place)
        return whole(place, predicate)
    inspect.getmembers = counting

    if sys.argv[1:] == ["known"]:
        remember_builtins()
        listed.clear()
    load, out = tl.load, torch.zeros(1)
    for _ in range(2):
        kernel[(1,)](torch.arange(16.0), out, BLOCK=16)
    assert tl.load is load
    print(out.item(), len(listed))
    """)


def listed(tmp_path, *arguments):
    file = tmp_path / "kernel.py"
    file.write_text(KERNEL)
    done = python(file, *arguments, TRITON_INTERPRET="1", PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    value, count = done.stdout.split()
    return float(value), int(count)


@pytest.mark.slow
def test_launches_and_calls_in_a_kernel_no_longer_list_the_builtins(tmp_path):
    value, count = listed(tmp_path)
    assert (value, count > 8) == (255.0, True)
    assert listed(tmp_path, "known") == (255.0, 0)


@pytest.mark.slow
def test_another_release_of_the_interpreter_is_left_as_it_is(tmp_path):
    begin, _ = swap(KERNEL, "if sys.argv", "interpreter.inspect = own = object()\nif sys.argv").split(
        "load, out"
    )
    (tmp_path / "other.py").write_text(begin + "assert interpreter.inspect is own\n")
    assert python(tmp_path / "other.py", "known", TRITON_INTERPRET="1", PYTHONPATH=str(ROOT)).returncode == 0


TYPES = dedent("""\
    import sys
    import torch, triton, triton.language as tl
    from triton.runtime import interpreter
    from grader.worker.interpreted.known_types import remember_types

    checked, checks = [], tl.core.validate_block_shape
    def counting(shape):
        checked.append(shape)
        return checks(shape)
    tl.core.validate_block_shape = counting

    if sys.argv[1:] == ["known"]:
        remember_types()

    @triton.jit
    def kernel(x_ptr, out_ptr, n, WIDTH: tl.constexpr):
        rows, cols = tl.arange(0, 4), tl.arange(0, 16)
        places = rows[:, None] * 16 + cols[None, :]
        x = tl.load(x_ptr + places, mask=places < n, other=-1)
        half = x.to(tl.float16) * 0.5
        tl.store(out_ptr + places, tl.trans(tl.trans(half + x)).to(tl.float32) + tl.sum(x, axis=0)[None, :])
        tl.store(out_ptr + places, tl.load(out_ptr + places) + tl.zeros((WIDTH,), tl.float32))
        tl.static_assert(x.shape[0] == 4 and x.shape[1] == 16 and x.numel == 64)
        tl.static_assert(x.dtype == tl.int16 and half.dtype == tl.float16 and places.dtype == tl.int32)

    x, out = torch.arange(64, dtype=torch.int16).view(4, 16), torch.empty(4, 16)
    checked.clear()
    for _ in range(3):
        kernel[(2,)](x, out, 60, WIDTH=16)
    whole = torch.where(x < 60, x, -1)
    assert torch.equal(out, whole * 1.5 + whole.sum(dim=0)), out
    try:
        kernel[(1,)](x, out, 60, WIDTH=16.0)
    except interpreter.InterpreterError as error:
        print(len(checked), "TypeError" in str(error))
    """)


@pytest.mark.slow
def test_a_shape_is_checked_once_and_not_for_every_value_that_has_it(tmp_path):
    (tmp_path / "kinds.py").write_text(TYPES)

    def checked(*arguments):
        done = python(tmp_path / "kinds.py", *arguments, TRITON_INTERPRET="1", PYTHONPATH=str(ROOT))
        assert done.returncode == 0, done.stderr
        count, refused = done.stdout.split()
        assert refused == "True"
        return int(count)

    assert 3 * checked("known") < checked()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["tensor", "block_type"])
def test_values_that_hold_more_than_is_known_of_are_left_as_they_are(tmp_path, place):
    begin, _ = TYPES.split("if sys.argv")
    more = dedent(f"""\
        plain = tl.{place}.__init__
        def own(self, *args):
            plain(self, *args)
            self.layout = None
        tl.{place}.__init__ = own
        remember_types()
        assert tl.{place}.__init__ is own
        """)
    (tmp_path / "other.py").write_text(begin + more)
    done = python(tmp_path / "other.py", TRITON_INTERPRET="1", PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr


OVERFLOWS = dedent("""\
    import dataclasses, sys
    import torch, triton, triton.language as tl
    from triton.runtime import interpreter
    from grader.worker.interpreted.overflow import leave_out_the_check_for_overflow

    checked, semantic = [], interpreter.interpreter_semantic
    assure = semantic.device_assert
    semantic.device_assert = lambda *arguments: checked.append(arguments) or assure(*arguments)
    if "debug" in sys.argv:
        builder = interpreter.interpreter_builder
        builder.options = dataclasses.replace(builder.options, debug=True)
    if "left out" in sys.argv:
        leave_out_the_check_for_overflow()

    @triton.jit
    def kernel(out_ptr, a, b, OP: tl.constexpr):
        lanes = tl.arange(0, 4)
        if OP == "add":
            c = lanes + a + b
        elif OP == "sub":
            c = lanes + a - b
        else:
            c = (lanes - lanes + a) * b
        tl.store(out_ptr + lanes, c)

    large, small = 2**31 - 1, -(2**31)
    for a, b, op in (
        (2, 3, "add"), (large - 3, 1, "add"), (small, -1, "add"), (-5, large - 3, "sub"),
        (65536, 32767, "mul"), (65536, 32768, "mul"), (small, -1, "mul"), (2**31, 2**31 + 1, "sub"),
    ):
        out = torch.zeros(4, dtype=torch.int64)
        try:
            kernel[(1,)](out, a, b, OP=op)
            print(op, a, b, out.tolist())
        except interpreter.InterpreterError as error:
            print(op, a, b, "overflow" if "overflow detected" in str(error) else error)
    print(len(checked))
    """)


@pytest.mark.slow
def test_a_check_is_left_out_where_it_reports_nothing_and_there_alone(tmp_path):
    (tmp_path / "overflows.py").write_text(OVERFLOWS)

    def lines(*arguments):
        done = python(tmp_path / "overflows.py", *arguments, TRITON_INTERPRET="1", PYTHONPATH=str(ROOT))
        assert done.returncode == 0, done.stderr
        *found, checked = done.stdout.splitlines()
        assert len(found) == 8
        return found, int(checked)

    (plain, checked), (same, never) = lines(), lines("left out")
    assert plain == same
    assert not any(line.endswith("overflow") for line in plain)
    assert checked > never == 0
    with_debug = lines("debug", "left out")
    assert with_debug == lines("debug")
    assert sum(line.endswith("overflow") for line in with_debug[0]) >= 4


def test_a_worker_that_noted_operators_has_not_imported_the_compiler_of_torch(tmp_path):
    text = dedent("""\
        import sys, torch
        def elementwise_add(x, y, *, out=None):
            torch.empty_like(x)
            raise RuntimeError("there" if "torch._dynamo" in sys.modules else "missing")
        """)
    session = Session("cpu", SEED)  # that of the other tests imports it once an operator was graded
    submissions = Submissions(tmp_path, session)
    try:
        (outcome,) = submissions.grade(1, text, "elementwise_add/n=7,fp32").values()
    finally:
        submissions.run.close()
        session.close()
    assert "RuntimeError: missing" in outcome.where, outcome.where


def test_what_an_operator_needs_is_imported_by_the_parent_of_its_worker(submissions):
    text = dedent("""\
        import sys
        import triton  # triton_op
        def elementwise_add(x, y, *, out=None):
            raise RuntimeError("there" if "torch._inductor.utils" in sys.modules else "missing")
        """)
    (outcome,) = submissions.grade(1, text, "elementwise_add/n=7,fp32").values()
    assert "RuntimeError: there" in outcome.where, outcome.where


CONSTANTS = dedent("""\
    import sys
    import torch, triton, triton.language as tl
    from grader.worker.interpreted.constexpr_functions import give_constants_only_to_constexpr_functions

    if "patched" in sys.argv:
        give_constants_only_to_constexpr_functions()

    @triton.constexpr_function
    def half(size, more=0):
        return size // 2 + more

    @triton.constexpr_function
    def host_work(pair):
        return pair[0] + pair[1]

    @triton.jit
    def kernel(x_ptr, out_ptr, BAD: tl.constexpr, BLOCK: tl.constexpr):
        x = tl.load(x_ptr + tl.arange(0, half(BLOCK)))
        if BAD:
            x = host_work((x, x))
        tl.store(out_ptr + tl.arange(0, half(BLOCK, more=0)), x)

    out = torch.zeros(8)
    kernel[(1,)](torch.arange(8.0), out, BAD="bad" in sys.argv, BLOCK=16)
    print(out.tolist())
""")


@pytest.mark.slow
def test_a_constexpr_function_takes_constants_and_no_tensor(tmp_path):
    file = tmp_path / "constants.py"
    file.write_text(CONSTANTS)

    def run(*words):
        return python(file, *words, TRITON_INTERPRET="1", PYTHONPATH=str(ROOT))

    assert run("patched").stdout == run().stdout == f"{[float(k) for k in range(8)]}\n"
    assert run("bad").returncode == 0  # what Triton's interpreter does, and its compiler does not
    refused = run("patched", "bad")
    assert refused.returncode != 0
    assert "host_work takes constants, not a tensor" in refused.stderr
