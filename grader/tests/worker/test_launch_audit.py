"""What is loaded to see which kernels a GPU runs, and what is counted of host code."""

import subprocess
import sys

import torch
from torch._C import DispatchKey
from torch._ops import HigherOrderOperator

from grader.worker import launch_audit
from grader.worker.messages import IN_BACKWARD

# On a machine without a GPU the profiler records the CPU, through the same functions of PyTorch.
COUNTS = """
import functools, sys
import torch
from grader.worker import launch_audit
profile = launch_audit.profiler.profile
launch_audit.profiler.profile = lambda **options: profile(use_kineto=True)
torch.cuda.synchronize = lambda: None
with launch_audit.kernels_counted({"a file.py"}) as found:
    torch.ones(3) + 1
assert found.uncounted == [], found.uncounted
print(*[name for name in sys.modules if name.startswith(("torch._inductor", "torch._dynamo", "sympy"))])
"""


def test_counting_kernels_imports_no_part_of_the_compiler_of_torch():
    done = subprocess.run([sys.executable, "-c", COUNTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


class Product(torch.autograd.Function):
    """a @ b, whose gradients are two more products."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return torch.mm(a, b)

    @staticmethod
    def backward(ctx, dy):
        a, b = ctx.saved_tensors
        return torch.mm(dy, b.t()), torch.mm(a.t(), dy)


def test_an_operator_of_a_backward_pass_is_told_as_one():
    a, b = (torch.ones(2, 2, requires_grad=True) for _ in range(2))
    with launch_audit.operators() as seen:
        y = Product.apply(a, b)
        torch.autograd.grad(y, (a, b), torch.ones_like(y))
    assert seen() == ["mm", f"mm{IN_BACKWARD}"]


class OfHigherOrder(HigherOrderOperator):
    """An operator that gets a function, as the one that launches a kernel of wrap_triton."""

    def __init__(self, name):
        super().__init__(name)
        for key in (DispatchKey.AutogradCPU, DispatchKey.ADInplaceOrView):
            self.fallthrough(key)
        self.py_impl(DispatchKey.CompositeExplicitAutograd)(lambda tensor: tensor)

    def __call__(self, tensor):
        return super().__call__(tensor)


def test_a_launch_through_wrap_triton_is_no_operator_that_computes():
    launching, computing = OfHigherOrder("triton_kernel_wrapper_of_a_test"), OfHigherOrder("scan_of_a_test")
    with launch_audit.operators() as seen:
        launching(torch.ones(2))
    assert seen() == []
    with launch_audit.operators() as seen:
        computing(torch.ones(2))
    assert seen() == ["scan_of_a_test"]


def long_way(n):
    total = 0
    for k in range(n):
        total += k
    return total


def test_instructions_of_a_files_host_code_are_counted_and_no_others():
    counts = {}
    for files in ({__file__}, {"another.py"}):
        for n in (10, 1000):
            with launch_audit.kernels_disabled(files, calls=2) as found:
                long_way(n)
                long_way(n)
            counts[__file__ in files, n] = found.steps
    assert 40 < counts[True, 10] < 200
    assert 4_000 < counts[True, 1000] < 20_000
    assert counts[False, 1000] == 0


def test_a_long_computation_is_not_counted_to_its_end(monkeypatch):
    monkeypatch.setattr(launch_audit, "MOST_STEPS", 100)
    with launch_audit.kernels_disabled({__file__}, calls=1) as found:
        long_way(10_000)
    assert found.steps == 101
