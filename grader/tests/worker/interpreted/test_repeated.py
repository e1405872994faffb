"""What types decide of a builtin is worked out once; other values give what the interpreter itself gives."""

from textwrap import dedent

import pytest

from grader.tests.helpers.commands import python
from grader.tests.helpers.course import ROOT

KERNEL = dedent("""\
    import sys
    import torch, triton, triton.language as tl
    from triton.language.semantic import TritonSemantic
    from grader.worker.interpreted import launches, repeated

    launches.replace_once_for_a_launch()
    if sys.argv[1:] == ["once"]:
        repeated.repeat_what_types_decide()
    checked, check = [], TritonSemantic.binary_op_type_checking_impl
    def counting(self, *values, **options):
        checked.append(1)
        return check(self, *values, **options)
    TritonSemantic.binary_op_type_checking_impl = counting

    @triton.jit
    def kernel(x_ptr, y_ptr, out_ptr, n, step, BLOCK: tl.constexpr, ZERO: tl.constexpr):
        rows = tl.program_id(0) * 4 + tl.arange(0, 4)
        cols = tl.arange(0, BLOCK)
        at = rows[:, None] * step + cols[None, :]
        inside = (rows[:, None] < n) & (cols[None, :] < step)
        x = tl.load(x_ptr + at, mask=inside, other=1.0)
        y = tl.load(y_ptr + at, mask=inside, other=2.0).to(tl.float32)
        twice, both = x + x, x + y  # of the same types: the first has one operand, and not two
        sign = 1.0 / (x * 0.0 + ZERO) + 1.0 / (-0.0 * (y * y + 1.0))
        values = tl.where(sign < 0, twice / 3, both * -2) + tl.maximum(x, y) - tl.exp(-tl.abs(y))
        values += (rows % 3)[:, None] + (at // 5).to(tl.float32) * (y > float("nan")) + tl.sqrt(tl.abs(x))
        product = tl.dot(tl.reshape(x, (4, BLOCK)), tl.trans(y), input_precision="ieee")
        values += tl.sum(product, axis=1)[:, None]
        tl.store(out_ptr + at, values.to(out_ptr.dtype.element_ty), mask=inside)

    torch.manual_seed(0)
    for call in range(3):
        for zero in (0.0, -0.0):
            x, y = torch.randn(7, 12), torch.randn(7, 12).half()
            out = torch.full((7, 12), 9.0)
            checked.clear()
            kernel[(2,)](x, y, out, 7, 12, BLOCK=16, ZERO=zero)
            print(call, len(checked), out.double().numpy().tobytes().hex())
    """)


@pytest.mark.slow
def test_results_are_those_of_the_interpreter_itself_and_types_are_looked_at_once(tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL)

    def told(*arguments):
        done = python(tmp_path / "kernel.py", *arguments, TRITON_INTERPRET="1", PYTHONPATH=str(ROOT))
        assert done.returncode == 0, done.stderr
        calls = [line.split() for line in done.stdout.splitlines()]
        assert len(calls) == 6
        return [int(count) for _, count, _ in calls], [bits for *_, bits in calls]

    each, plain = told()
    once, repeated = told("once")
    assert repeated == plain
    assert len({*plain}) == 6
    assert min(each) > 20
    assert once[0] > 20
    assert once[2:] == [0, 0, 0, 0]
