"""Kernels launched with an integer that is 1 or 2, in the interpreter or compiled for a GPU, as a program.

The environment's TRITON_INTERPRET says which. Prints a line for each launch: the kernel's name, the integer,
and `taken` or the last line of the error.
"""

import os

import torch
import triton
import triton.language as tl

COMPILED = os.environ["TRITON_INTERPRET"] == "0"
if COMPILED:
    from grader.codegen import absent_gpu

    absent_gpu.install(90)
else:
    from grader.worker.interpreted import every_mend

    every_mend.apply()


@triton.jit
def widened(n):
    return n.to(tl.int64)


@triton.jit
def added_up(total, n):
    for i in range(n):
        total += i
    return total


@triton.jit
def method(out, n):
    tl.store(out, n.to(tl.int64))


@triton.jit
def dtype(out, n):
    tl.store(out, tl.full((), 1, n.dtype))


@triton.jit
def method_in_a_helper(out, n):
    tl.store(out, widened(n))


@triton.jit
def function(out, n):
    tl.store(out, tl.cast(n, tl.int64))


@triton.jit
def method_after_assignment(out, n):
    m = n
    n -= 1
    tl.store(out, m.to(tl.int64) + n.to(tl.int64))


@triton.jit
def method_of_a_product(out, n):
    tl.store(out, (n * tl.program_id(0)).to(tl.int64) + tl.program_id(0).to(tl.int64) * n)


@triton.jit
def part_of_a_tuple(out, n):
    tl.store(out, n[0].to(tl.int64))


@triton.jit
def written_type(out, n: tl.int32):
    tl.store(out, n.to(tl.int64))


@triton.jit(do_not_specialize=["n"])
def named_as_it_is(out, n):
    tl.store(out, n.to(tl.int64))


@triton.jit(do_not_specialize=[1])
def counted_as_it_is(out, n):
    tl.store(out, n.to(tl.int64))


@triton.jit
def mask(out, n):
    at = tl.arange(0, 4)
    tl.store(out + at, at + n, mask=(at < n) & (n > at))


@triton.jit
def sizes(out, n):
    tl.store(out, tl.cdiv(n, 4) + min(n, 4) + tl.minimum(n, tl.program_id(0)) + tl.program_id(0) % n - n // 2)


@triton.jit
def shape_of_a_block(out, n):
    tl.store(out + tl.arange(0, 2 * n), n)


@triton.jit
def bounds(out, n):
    for i in range(n):
        tl.store(out + i, i)
    at = 0
    while at < n:
        at += 1
    if n == 1 and tl.program_id(0) < n:
        tl.store(out, at)


@triton.jit
def counted_down(out, n):
    while n > 0:
        n -= 1
    tl.store(out, n)


@triton.jit
def changed_in_a_loop(out, n):
    for _ in range(3):
        n = n * 2
    tl.store(out, n)


@triton.jit
def changed_while_unrolled(out, n):
    for _ in tl.static_range(3):
        n = n * 2
    tl.store(out, n)


@triton.jit
def constant_of_a_helper(out, n):
    tl.store(out, added_up(0, n))


@triton.jit
def value_of_a_helper(out, n):
    start = 0
    tl.store(out, added_up(start, n))


KERNELS = (
    method, dtype, method_in_a_helper, function, method_after_assignment, method_of_a_product,
    part_of_a_tuple, written_type, named_as_it_is, counted_as_it_is, mask, sizes, shape_of_a_block, bounds,
    counted_down, changed_in_a_loop, changed_while_unrolled, constant_of_a_helper, value_of_a_helper,
)  # fmt: skip


def said(kernel, number):
    """What the launch says."""
    passed = (number, 3) if kernel is part_of_a_tuple else number
    launch = kernel.warmup if COMPILED else kernel.run
    try:
        launch(
            torch.zeros(64, dtype=torch.int32), passed, grid=(1,), **({} if COMPILED else {"warmup": False})
        )
    except Exception as error:
        while error.__cause__ is not None:
            error = error.__cause__
        return str(error).strip().splitlines()[-1]
    return "taken"


if __name__ == "__main__":
    for one in KERNELS:
        for value in (1, 2):
            print(one.__name__, value, said(one, value))
