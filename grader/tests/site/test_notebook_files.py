"""Files of the course that a notebook loads."""

import os
import subprocess
import sys

from grader.tests.helpers.course import ROOT

# `sys.argv[1]` is loaded before the file that imports it, or behind it.
LOADS = """
import sys
from torch._library.custom_ops import OPDEFS
from grader.site.notebooks.lesson import solution
files = ["layer_norm_backward.py", "layer_norm_linear_backward.py"]
first, second = (solution(f"lab4_production_slice/{file}") for file in files[:: int(sys.argv[1])])
norm = first if int(sys.argv[1]) == 1 else second
assert norm is sys.modules["layer_norm_backward"]
assert OPDEFS["course::layer_norm_backward"] is norm.backward_op
"""


def test_a_file_that_another_one_imports_registers_its_operators_once():
    for step in ("1", "-1"):
        done = subprocess.run(
            [sys.executable, "-c", LOADS, step], cwd=ROOT, env=os.environ | {"TRITON_INTERPRET": "1"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
