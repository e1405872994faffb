"""What the fork server does once, so that no worker has to do it at its first launch."""

from grader.tests.helpers.commands import python

FIRST_LAUNCH = """
import sys, torch, triton
from grader.codegen import offline
from grader.worker import triton_settings
if sys.argv[1] == "prepared":
    triton_settings.do_once_for_all_workers()
offline.install(90, sys.argv[2])
before, opened = set(sys.modules), []
sys.addaudithook(lambda event, found: opened.append(str(found[0])) if event == "open" else None)
sys.path.insert(0, sys.argv[3])
from own_kernel import add_kernel
add_kernel[(1,)](torch.empty(8), 8, BLOCK=8)
print(any("libtriton.so" in name for name in opened))
print(any(name.startswith("triton.experimental.gluon") for name in set(sys.modules) - before))
"""
KERNEL = """
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, 1.0, mask=at < n)
"""


def first_launch(tmp_path, how):
    """Whether a first launch read Triton's library, and whether it imported Gluon."""
    (tmp_path / "own_kernel.py").write_text(KERNEL)
    done = python("-c", FIRST_LAUNCH, how, tmp_path, tmp_path, TRITON_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


def test_a_first_launch_neither_hashes_the_compiler_nor_imports_gluon(tmp_path):
    assert first_launch(tmp_path, "prepared") == ["False", "False"]


def test_without_preparation_a_first_launch_does_both(tmp_path):
    """Otherwise the test above would find nothing to look at."""
    assert first_launch(tmp_path, "plain") == ["True", "True"]


ASKS = """
import os

def elementwise_add(x, y, *, out=None):
    raise RuntimeError("fused: " + os.environ["TRITON_DEFAULT_FP_FUSION"])
"""


def test_fusion_in_a_worker_is_the_graders_choice(submissions, monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")
    (outcome,) = submissions.grade(1, ASKS, "elementwise_add/n=7,fp32").values()
    assert outcome.where == "RuntimeError: fused: 1"
