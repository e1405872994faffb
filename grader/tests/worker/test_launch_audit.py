"""What is loaded to see which kernels a GPU runs."""

import subprocess
import sys

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
