"""The interpreter's shortcut changes how long a launch takes, and nothing else."""

from textwrap import dedent

from conftest import ROOT, python, swap

KERNEL = dedent("""\
    import inspect, sys
    import torch, triton, triton.language as tl
    from triton.runtime import interpreter
    from grader.interpreted import remember_builtins

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


def test_launches_and_calls_in_a_kernel_no_longer_list_the_builtins(tmp_path):
    value, count = listed(tmp_path)
    assert (value, count > 8) == (255.0, True)
    assert listed(tmp_path, "known") == (255.0, 0)


def test_another_release_of_the_interpreter_is_left_as_it_is(tmp_path):
    begin, _ = swap(KERNEL, "if sys.argv", "interpreter.inspect = own = object()\nif sys.argv").split(
        "load, out"
    )
    (tmp_path / "other.py").write_text(begin + "assert interpreter.inspect is own\n")
    assert python(tmp_path / "other.py", "known", TRITON_INTERPRET="1", PYTHONPATH=str(ROOT)).returncode == 0


def test_what_an_operator_needs_is_imported_by_the_parent_of_its_worker(submissions):
    text = dedent("""\
        import sys
        import triton  # triton_op
        def elementwise_add(x, y, *, out=None):
            raise RuntimeError("there" if "torch._inductor.utils" in sys.modules else "missing")
        """)
    (outcome,) = submissions.grade(1, text, "elementwise_add/n=7,fp32").values()
    assert "RuntimeError: there" in outcome.where, outcome.where
