"""Triton kernels of the survey: repeated reads and copies of one working set, and an empty kernel."""

from __future__ import annotations

import triton
import triton.language as tl

BLOCK = 4096  # int32 for each step of a program: four loads of 16 bytes for each thread of 8 warps


# A program reads other blocks in each pass, and loads bypass L1 (.cg): neither the compiler nor L1 can
# save a read.
@triton.jit(do_not_specialize=["n_blocks", "total_blocks"])
def read_kernel(
    x_ptr,  # (n_blocks * BLOCK,) int32
    out_ptr,  # (programs,) int32
    n_blocks, total_blocks,  # of the working set, and of all passes over it
    BLOCK: tl.constexpr,
):  # fmt: skip
    """out[p] = sum of block v % n_blocks over v = p, p + programs, ... below total_blocks, modulo 2^32."""
    pid = tl.program_id(axis=0)
    offs = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.int32)
    for step in range(pid, total_blocks, tl.num_programs(axis=0)):
        start = (step % n_blocks).to(tl.int64) * BLOCK
        acc += tl.load(x_ptr + start + offs, cache_modifier=".cg")
    tl.store(out_ptr + pid, tl.sum(acc, axis=0))


@triton.jit(do_not_specialize=["n_blocks", "total_blocks"])
def copy_kernel(
    x_ptr, y_ptr,  # (n_blocks * BLOCK,) int32
    n_blocks, total_blocks,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """y = x, total_blocks / n_blocks times over; programs may write the same block at the same time."""
    pid = tl.program_id(axis=0)
    offs = tl.arange(0, BLOCK)
    for step in range(pid, total_blocks, tl.num_programs(axis=0)):
        start = (step % n_blocks).to(tl.int64) * BLOCK
        tl.store(y_ptr + start + offs, tl.load(x_ptr + start + offs, cache_modifier=".cg"))


@triton.jit
def empty_kernel(x_ptr):
    """Do nothing; its time is the launch overhead."""
