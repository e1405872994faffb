"""Kernels with a race, and right ones that look alike: one function each, called by test_witness.py.

A function named race_... has two programs that access one element in no order; one named honest_... has none.
Run as a file, it prints what was seen of each, as JSON.
"""

import json
import sys

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from grader.worker.interpreted.libdevice import compute_functions_of_libdevice
from grader.worker.interpreted.reductions import both_groupings
from grader.worker.protocol import encode
from grader.worker.witness.births import traced
from grader.worker.witness.recorder import recorded

BLOCK, N = 16, 60
PARTS = 4


def vector(n=N):
    return torch.arange(1.0, n + 1.0)


# Sums and counts


@triton.jit
def add_by_load_and_store(x, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + offs, mask=offs < n, other=0.0), axis=0)
    tl.store(out, tl.load(out) + total)


def race_sum_by_load_and_store():
    add_by_load_and_store[(PARTS,)](vector(), torch.zeros(1), N, BLOCK)


@triton.jit
def add_by_atomic(x, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + offs, mask=offs < n, other=0.0), axis=0))


def honest_sum_by_atomic():
    add_by_atomic[(PARTS,)](vector(), torch.zeros(1), N, BLOCK)


@triton.jit
def first_program_clears(x, out, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    if pid == 0:
        tl.store(out, 0.0)
    tl.atomic_add(out, tl.sum(tl.load(x + offs, mask=offs < n, other=0.0), axis=0))


def race_first_program_clears():
    first_program_clears[(PARTS,)](vector(), torch.empty(1), N, BLOCK)


@triton.jit
def add_and_read_back(x, total, out, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + offs, mask=offs < n, other=0.0), axis=0))
    tl.store(out + pid, tl.load(total))


def race_sum_read_before_all_have_added():
    add_and_read_back[(PARTS,)](vector(), torch.zeros(1), torch.empty(PARTS), N, BLOCK)


@triton.jit
def last_one_finishes(x, total, count, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + offs, mask=offs < n, other=0.0), axis=0))
    if tl.atomic_add(count, 1) == tl.num_programs(0) - 1:
        tl.store(out, tl.load(total) / n)


def honest_last_program_by_a_counter():
    last_one_finishes[(PARTS,)](
        vector(), torch.zeros(1), torch.zeros(1, dtype=torch.int32), torch.empty(1), N, BLOCK
    )


@triton.jit
def last_number_finishes(x, total, out, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + offs, mask=offs < n, other=0.0), axis=0))
    if pid == tl.num_programs(0) - 1:
        tl.store(out, tl.load(total) / n)


def race_program_with_the_last_number_finishes():
    """The values are right in the interpreter, where this program happens to run last."""
    last_number_finishes[(PARTS,)](vector(), torch.zeros(1), torch.empty(1), N, BLOCK)


@triton.jit
def count_values(x, counts, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    bins = (tl.load(x + offs, mask=inside, other=0.0)).to(tl.int32) % 8
    tl.store(counts + bins, tl.load(counts + bins, mask=inside) + 1, mask=inside)


def race_histogram_by_load_and_store():
    count_values[(PARTS,)](vector(), torch.zeros(8, dtype=torch.int32), N, BLOCK)


@triton.jit
def count_by_atomics(x, counts, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    bins = (tl.load(x + offs, mask=inside, other=0.0)).to(tl.int32) % 8
    tl.atomic_add(counts + bins, 1, mask=inside)


def honest_histogram_by_atomics():
    count_by_atomics[(PARTS,)](vector(), torch.zeros(8, dtype=torch.int32), N, BLOCK)


# Locks


@triton.jit
def under_a_lock(x, out, lock, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x_offs = pid * BLOCK + offs
    part = tl.load(x + x_offs, mask=x_offs < n, other=0.0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + offs, tl.load(out + offs) + part)
    tl.atomic_xchg(lock, 0)


def lock():
    return torch.zeros(1, dtype=torch.int32)


def honest_sum_under_a_lock():
    under_a_lock[(PARTS,)](vector(), torch.zeros(BLOCK), lock(), N, BLOCK)


@triton.jit
def released_too_early(x, out, lock, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x_offs = pid * BLOCK + offs
    part = tl.load(x + x_offs, mask=x_offs < n, other=0.0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    total = tl.load(out + offs) + part
    tl.atomic_xchg(lock, 0)
    tl.store(out + offs, total)


def race_lock_released_before_the_store():
    released_too_early[(PARTS,)](vector(), torch.zeros(BLOCK), lock(), N, BLOCK)


@triton.jit
def read_before_the_lock(x, out, lock, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x_offs = pid * BLOCK + offs
    total = tl.load(out + offs) + tl.load(x + x_offs, mask=x_offs < n, other=0.0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + offs, total)
    tl.atomic_xchg(lock, 0)


def race_load_before_the_lock():
    read_before_the_lock[(PARTS,)](vector(), torch.zeros(BLOCK), lock(), N, BLOCK)


@triton.jit
def a_lock_each(x, out, lock, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x_offs = pid * BLOCK + offs
    part = tl.load(x + x_offs, mask=x_offs < n, other=0.0)
    while tl.atomic_cas(lock + pid, 0, 1) == 1:
        pass
    tl.store(out + offs, tl.load(out + offs) + part)
    tl.atomic_xchg(lock + pid, 0)


def race_each_program_has_its_own_lock():
    a_lock_each[(PARTS,)](vector(), torch.zeros(BLOCK), torch.zeros(PARTS, dtype=torch.int32), N, BLOCK)


@triton.jit
def grouped_under_locks(x, out, locks, counts, n, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    """As the tutorial of layer norm sums the gradients of its weights."""
    pid = tl.program_id(0)
    offs, group = tl.arange(0, BLOCK), pid % GROUPS
    x_offs = pid * BLOCK + offs
    part = tl.load(x + x_offs, mask=x_offs < n, other=0.0)
    while tl.atomic_cas(locks + group, 0, 1) == 1:
        pass
    if tl.load(counts + group) == 0:
        tl.atomic_xchg(counts + group, 1)
    else:
        part += tl.load(out + group * BLOCK + offs)
    tl.store(out + group * BLOCK + offs, part)
    tl.atomic_xchg(locks + group, 0)


def honest_groups_under_locks():
    zeros = torch.zeros(4, dtype=torch.int32)
    grouped_under_locks[(PARTS,)](vector(), torch.empty(2 * BLOCK), zeros[:2], zeros[2:], N, 2, BLOCK)


@triton.jit
def waits_for_the_one_before(x, out, flags, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + offs, mask=offs < n, other=0.0), axis=0)
    if pid > 0:
        while tl.load(flags + pid - 1, volatile=True) == 0:
            pass
        total += tl.load(out + pid - 1)
    tl.store(out + pid, total)
    tl.atomic_xchg(flags + pid, 1)


def honest_prefix_sum_with_flags():
    waits_for_the_one_before[(PARTS,)](
        vector(), torch.empty(PARTS), torch.zeros(PARTS, dtype=torch.int32), N, BLOCK
    )


@triton.jit
def takes_the_one_before(x, out, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + offs, mask=offs < n, other=0.0), axis=0)
    if pid > 0:
        total += tl.load(out + pid - 1)
    tl.store(out + pid, total)


def race_prefix_sum_without_flags():
    """The values are right in the interpreter, where the programs run in their order."""
    takes_the_one_before[(PARTS,)](vector(), torch.empty(PARTS), N, BLOCK)


# Elements and tiles


@triton.jit
def add_blocks(x, y, out, n, STEP: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * STEP + tl.arange(0, BLOCK)
    mask = offs < n
    total = tl.load(x + offs, mask=mask) + tl.load(y + offs, mask=mask)
    tl.store(out + offs, total + tl.program_id(0), mask=mask)


def honest_blocks():
    add_blocks[(PARTS,)](vector(), vector(), torch.empty(N), N, BLOCK, BLOCK)


def honest_in_place():
    x = vector()
    add_blocks[(PARTS,)](x, vector(), x, N, BLOCK, BLOCK)


def race_blocks_overlap():
    add_blocks[(PARTS,)](vector(), vector(), torch.empty(N), N, BLOCK - 4, BLOCK)


@triton.jit
def shifted_last_block(x, out, n, BLOCK: tl.constexpr):
    offs = tl.minimum(tl.program_id(0) * BLOCK, n - BLOCK) + tl.arange(0, BLOCK)
    tl.store(out + offs, 2.0 * tl.load(x + offs))


def honest_last_block_is_shifted_back():
    """Two programs store the same values into the elements of both."""
    shifted_last_block[(PARTS,)](vector(), torch.empty(N), N, BLOCK)


def race_last_block_is_shifted_back_in_place():
    x = vector()
    shifted_last_block[(PARTS,)](x, x, N, BLOCK)


@triton.jit
def shift_by_one(x, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offs, tl.load(x + offs + 1, mask=offs + 1 < n), mask=offs + 1 < n)


def honest_shift_by_one():
    shift_by_one[(PARTS,)](vector(), torch.empty(N), N, BLOCK)


def race_shift_by_one_in_place():
    x = vector()
    shift_by_one[(PARTS,)](x, x, N, BLOCK)


@triton.jit
def sum_of_a_row(x, out, cols, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    offs = part * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + row * cols + offs, mask=offs < cols, other=0.0), axis=0)
    tl.store(out + row, total)


def honest_a_program_a_row():
    sum_of_a_row[(4, 1)](vector(60).view(4, 15), torch.empty(4), 15, BLOCK)


def race_two_programs_a_row():
    sum_of_a_row[(2, 2)](vector(60).view(2, 30), torch.empty(2), 30, BLOCK)


@triton.jit
def product(a, b, c, m, n, k, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    tiles_m, tiles_n = tl.cdiv(m, BLOCK), tl.cdiv(n, BLOCK)
    pid = tl.program_id(0)
    first = pid // (GROUP * tiles_n) * GROUP
    height = min(tiles_m - first, GROUP)
    row = first + pid % (GROUP * tiles_n) % height
    column = pid % (GROUP * tiles_n) // height
    rows, columns = row * BLOCK + tl.arange(0, BLOCK), column * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for step in range(0, k, BLOCK):
        at = step + inner
        left = (rows[:, None] < m) & (at[None, :] < k)
        right = (at[:, None] < k) & (columns[None, :] < n)
        x = tl.load(a + rows[:, None] * k + at[None, :], mask=left, other=0.0)
        y = tl.load(b + at[:, None] * n + columns[None, :], mask=right, other=0.0)
        total += tl.dot(x, y)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], total, mask=inside)


def honest_grouped_tiles():
    m, n, k = 40, 35, 20
    product[(9,)](torch.randn(m, k), torch.randn(k, n), torch.empty(m, n), m, n, k, 2, 16)


@triton.jit
def split_k(a, b, c, k, PART: tl.constexpr, ATOMIC: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for step in range(tl.program_id(0) * PART, (tl.program_id(0) + 1) * PART, BLOCK):
        at = step + offs
        x = tl.load(a + offs[:, None] * k + at[None, :])
        y = tl.load(b + at[:, None] * BLOCK + offs[None, :])
        total += tl.dot(x, y)
    out = c + offs[:, None] * BLOCK + offs[None, :]
    if ATOMIC:
        tl.atomic_add(out, total)
    else:
        tl.store(out, tl.load(out) + total)


def split(atomic):
    a, b = torch.randn(16, 64), torch.randn(64, 16)
    split_k[(2,)](a, b, torch.zeros(16, 16), 64, 32, atomic, 16)


def honest_split_k_by_atomics():
    split(atomic=True)


def race_split_k_by_load_and_store():
    split(atomic=False)


@triton.jit
def partial_sums(x, parts, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + pid, tl.sum(tl.load(x + offs, mask=offs < n, other=0.0), axis=0))


@triton.jit
def divide_by_sum(x, parts, out, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(parts + tl.arange(0, PARTS)), axis=0)
    tl.store(out + offs, tl.load(x + offs, mask=offs < n) / total, mask=offs < n)


def honest_two_launches():
    parts, out = torch.empty(PARTS), torch.empty(N)
    partial_sums[(PARTS,)](vector(), parts, N, BLOCK)
    divide_by_sum[(PARTS,)](vector(), parts, out, N, PARTS, BLOCK)


@triton.jit
def both_at_once(x, parts, out, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    block = tl.load(x + offs, mask=offs < n, other=0.0)
    tl.store(parts + pid, tl.sum(block, axis=0))
    total = tl.sum(tl.load(parts + tl.arange(0, PARTS)), axis=0)
    tl.store(out + offs, block / total, mask=offs < n)


def race_two_passes_in_one_launch():
    both_at_once[(PARTS,)](vector(), torch.zeros(PARTS), torch.empty(N), N, PARTS, BLOCK)


@triton.jit
def scratch_by_program(x, scratch, out, n, SLOTS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    offs = pid * BLOCK + lanes
    place = scratch + pid % SLOTS * BLOCK + lanes
    tl.store(place, 2.0 * tl.load(x + offs, mask=offs < n, other=0.0))
    tl.store(out + offs, tl.load(place), mask=offs < n)


def honest_scratch_of_each_program():
    scratch_by_program[(PARTS,)](vector(), torch.empty(PARTS * BLOCK), torch.empty(N), N, PARTS, BLOCK)


def race_scratch_shared_by_two_programs():
    """The values are right in the interpreter, where one program ends before the next one begins."""
    scratch_by_program[(PARTS,)](vector(), torch.empty(2 * BLOCK), torch.empty(N), N, 2, BLOCK)


@triton.jit
def rows_into_one(x, out, cols, BLOCK: tl.constexpr):
    row, offs = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + offs, tl.load(x + row * cols + offs, mask=offs < cols), mask=offs < cols)


def race_every_row_stores_one_result():
    rows_into_one[(4,)](vector(60).view(4, 15), torch.empty(15), 15, BLOCK)


@triton.jit
def persistent(x, out, n, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        offs = block * BLOCK + tl.arange(0, BLOCK)
        # No mask: lanes past the end do the last element once more.
        offs = tl.where(offs < n, offs, n - 1)
        tl.store(out + offs, tl.load(x + offs) + 1.0)


def honest_persistent_without_masks():
    persistent[(3,)](vector(), torch.empty(N), N, BLOCK)


@triton.jit
def first_program_alone(x, out, n, BLOCK: tl.constexpr):
    rows = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[:, None]
    mask = (rows < n) & (tl.program_id(0) == 0)
    tl.store(out + rows, tl.load(x + rows, mask=mask, other=0.0), mask=mask)


def honest_first_program_alone_stores():
    """The interpreter holds the mask of the others as whole numbers."""
    first_program_alone[(2, PARTS)](vector(), torch.empty(N), N, BLOCK)


@triton.jit
def in_the_order_of_programs(x, out, n, WRONG: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    pointer = tl.make_block_ptr(x, (n,), (1,), (block * BLOCK,), (BLOCK,), (0,))
    values = tl.load(pointer, boundary_check=(0,))
    to = block // 2 if WRONG else block
    target = tl.make_block_ptr(out, (n,), (1,), (to * BLOCK,), (BLOCK,), (0,))
    tl.store(target, values, boundary_check=(0,))


def honest_block_pointers():
    in_the_order_of_programs[(PARTS,)](vector(), torch.empty(N), N, False, BLOCK)


def race_block_pointers():
    in_the_order_of_programs[(PARTS,)](vector(), torch.empty(N), N, True, BLOCK)


# Addresses outside of a tensor, and some that look like it


@triton.jit
def doubled(x, out, n, first, BLOCK: tl.constexpr):
    offs = first + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offs, 2.0 * tl.load(x + offs, mask=offs < n), mask=offs < n)


def inside_whole_vector():
    doubled[(PARTS,)](vector(), torch.empty(N), N, 0, BLOCK)


def inside_storage_of_a_view():
    """A kernel may walk from a view over all that the view was taken from."""
    x = vector(2 * N)
    doubled[(PARTS,)](x[N // 2 :], torch.empty(N), N, 0, BLOCK)
    doubled[(PARTS,)](x[:1], torch.empty(N), N, 0, BLOCK)


def outside_before_the_first():
    doubled[(1,)](vector(8), torch.empty(8), 8, -2, 8)


def outside_of_scratch():
    doubled[(1,)](vector(16), torch.empty(12), 16, 0, 16)


def outside_by_far():
    """Nothing is mapped there: a load or store by the interpreter would end the process."""
    doubled[(1,)](vector(16), torch.empty(16), 1 << 40, 1 << 37, 16)


@triton.jit
def doubled_without_masks(x, out, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offs, 2.0 * tl.load(x + offs))  # unmasked


def outside_without_a_mask():
    doubled_without_masks[(2,)](vector(24), torch.empty(32), 16)


@triton.jit
def rows_copied(x, out, cols, stride, BLOCK: tl.constexpr):
    at, offs = tl.program_id(0), tl.arange(0, BLOCK)
    mask = offs < cols
    tl.store(out + at * cols + offs, tl.load(x + at * stride + offs, mask=mask), mask=mask)


def inside_rows_with_gaps():
    x = torch.zeros(4, 20)[:, :15]
    rows_copied[(4,)](x, torch.empty(4, 15), 15, x.stride(0), 16)


def outside_by_the_stride_of_another():
    rows_copied[(4,)](torch.zeros(4, 15), torch.empty(4, 15), 15, 20, 16)


@triton.jit
def one_of_two(x, y, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    pointers = tl.where(offs % 2 == 0, x + offs, y + offs)
    tl.store(out + offs, tl.load(pointers, mask=offs < n), mask=offs < n)


def inside_either_tensor():
    one_of_two[(PARTS,)](vector(), vector(), torch.empty(N), N, BLOCK)


@triton.jit
def bits_copied(x, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(x.to(tl.pointer_type(tl.int32)) + offs, mask=offs < n)
    tl.store(out.to(tl.pointer_type(tl.int32)) + offs, bits, mask=offs < n)


def inside_as_another_type():
    bits_copied[(PARTS,)](vector(), torch.empty(N), N, BLOCK)


def outside_as_another_type():
    bits_copied[(PARTS,)](vector(), torch.empty(N - 1), N, BLOCK)


@triton.jit
def described(x, out, rows, cols, BLOCK: tl.constexpr):
    first = tl.make_tensor_descriptor(x, shape=[rows, cols], strides=[cols, 1], block_shape=[4, BLOCK])
    second = tl.make_tensor_descriptor(out, shape=[rows, cols], strides=[cols, 1], block_shape=[4, BLOCK])
    second.store([0, 0], first.load([0, 0]))


def inside_descriptor():
    described[(1,)](torch.zeros(3, 20), torch.empty(3, 20), 3, 20, 32)


def outside_descriptor():
    described[(1,)](torch.zeros(3, 20), torch.empty(3, 20), 4, 20, 32)


# Where a NaN or inf that is stored comes from


@triton.jit
def divided_by_sum(x, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    block = tl.load(x + offs, mask=offs < n, other=0.0)
    tl.store(out + offs, block / tl.sum(block, axis=0), mask=offs < n)


def born_of_zero_by_zero():
    divided_by_sum[(2,)](torch.zeros(BLOCK), torch.empty(BLOCK), BLOCK, BLOCK)


@triton.jit
def divided_each(x, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    block = tl.load(x + offs, mask=offs < n, other=0.0)
    tl.store(out + offs, tl.exp(100.0 * (block / block)), mask=offs < n)


def born_in_a_lane_that_is_stored():
    """In lanes past the end 0 / 0 comes first, but is stored nowhere."""
    divided_each[(1,)](vector(10), torch.empty(10), 10, BLOCK)


@triton.jit
def softmax_without_maximum(x, out, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    powers = tl.exp(tl.load(x + offs, mask=offs < n, other=-float("inf")))
    tl.store(out + offs, powers / powers, mask=offs < n)


def born_of_an_overflow():
    softmax_without_maximum[(1,)](100.0 * vector(10), torch.empty(10), 10, BLOCK)


@triton.jit
def maximum_of_nothing(x, out, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    block = tl.load(x + offs, mask=offs < n, other=-float("inf"))
    tl.store(out + offs, tl.exp(block - tl.max(block, axis=0)), mask=offs < n)


def born_of_infinity_minus_infinity():
    maximum_of_nothing[(1,)](torch.full((10,), -float("inf")), torch.empty(10), 10, BLOCK)


@triton.jit
def rounded(x, out, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out + offs, (1e4 * tl.load(x + offs, mask=offs < n)).to(tl.float16), mask=offs < n)


def born_of_rounding():
    rounded[(1,)](vector(10), torch.empty(10, dtype=torch.float16), 10, BLOCK)


# Where what is stored loses its digits


@triton.jit
def variance_of_squares(x, out, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    block = tl.load(x + offs, mask=offs < n, other=0.0)
    mean = tl.sum(block, axis=0) / n
    tl.store(out, tl.sum(block * block, axis=0) / n - mean * mean)


def lost_in_a_difference_of_squares():
    variance_of_squares[(1,)](3000.7 + 0.37 * vector(10), torch.empty(1), 10, BLOCK)


def kept_near_zero():
    variance_of_squares[(1,)](vector(10), torch.empty(1), 10, BLOCK)


@triton.jit
def powers_of_two(x, out, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    block = tl.load(x + offs, mask=offs < n, other=-float("inf")) * 1.4426950408889634
    tl.store(out + offs, tl.exp2(block - tl.max(block, axis=0)), mask=offs < n)


def lost_before_a_maximum_is_subtracted():
    powers_of_two[(1,)](16384.0 + 0.37 * vector(10), torch.empty(10), 10, BLOCK)


@triton.jit
def halved(x, out, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    block = tl.load(x + offs, mask=offs < n, other=0.0).to(tl.float16)
    tl.store(out + offs, block.to(tl.float32), mask=offs < n)


def lost_in_a_conversion():
    halved[(1,)](1.0 + 1e-3 * vector(10), torch.empty(10), 10, BLOCK)


@triton.jit
def complement(x, out, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    block = tl.load(x + offs, mask=offs < n, other=0.0)
    tl.store(out + offs, 1.0 - 1.0 / (1.0 + tl.exp(block)), mask=offs < n)


def lost_in_one_lane_of_many():
    complement[(1,)](torch.tensor([1.0, 0.0, -12.0, -200.0] + 6 * [2.0]), torch.empty(10), 10, BLOCK)


@triton.jit
def half_and_half(x, out, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    block = tl.load(x + offs, mask=offs < n, other=0.0)
    tl.store(out + offs, 0.5 + 0.5 * libdevice.tanh(0.5 * block), mask=offs < n)


def lost_behind_a_function_of_libdevice():
    half_and_half[(1,)](torch.tensor([1.0, 0.0, -12.0, -200.0] + 6 * [2.0]), torch.empty(10), 10, BLOCK)


def kept_where_all_lanes_are_near_one():
    complement[(1,)](torch.full((10,), 1.5), torch.empty(10), 10, BLOCK)


def kept_but_for_the_dtype_of_the_result():
    rounded[(1,)](1e-4 * vector(10), torch.empty(10, dtype=torch.float16), 10, BLOCK)


@triton.jit
def variance(x, out, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    block = tl.load(x + offs, mask=offs < n, other=0.0)
    apart = tl.where(offs < n, block - tl.sum(block, axis=0) / n, 0.0)
    tl.store(out, tl.sum(apart * apart, axis=0) / n)


def kept_by_differences():
    variance[(1,)](1000.7 + 0.37 * vector(10), torch.empty(1), 10, BLOCK)


# Offsets beyond 2^31 elements, of which no memory is touched


@triton.jit
def step_by_rows(x, stride, WIDE: tl.constexpr):
    row = tl.program_id(0)
    if WIDE:
        row = row.to(tl.int64)
    at = row * stride
    tl.load(x + at + tl.arange(0, 8))


def far_rows():
    return torch.empty((1 << 31) + 8, dtype=torch.int8).as_strided((3, 8), (1 << 30, 1))


def wraps_in_32_bits():
    step_by_rows[(3,)](far_rows(), 1 << 30, WIDE=False)


def fits_in_64_bits():
    step_by_rows[(3,)](far_rows(), 1 << 30, WIDE=True)


def fits_where_no_tensor_is_wide():
    step_by_rows[(1,)](vector(), 1 << 30, WIDE=False)


@triton.jit
def squared(a, b):
    return a + b * b


@triton.jit
def added(a, b):
    return a + b


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def rescaled(m_a, d_a, m_b, d_b):
    m = tl.maximum(m_a, m_b)
    return m, d_a * tl.exp(m_a - m) + d_b * tl.exp(m_b - m)


@triton.jit
def reduce_a_block(x, COMBINE: tl.constexpr):
    block = tl.load(x + tl.arange(0, 16))
    if COMBINE == "squared":
        tl.store(x, tl.reduce(block, 0, squared))
    elif COMBINE == "scanned":
        tl.store(x + tl.arange(0, 16), tl.associative_scan(block, 0, squared))
    elif COMBINE == "added":
        tl.store(x, tl.reduce(block, 0, added))
    elif COMBINE == "rescaled":
        m, d = tl.reduce((block, tl.full((16,), 1.0, tl.float32)), 0, rescaled)
        tl.store(x, m + d)
    else:
        tl.store(x, tl.reduce(block, 0, larger))


def grouping_of_a_reduction():
    reduce_a_block[(1,)](torch.arange(16.0), COMBINE="squared")


def grouping_of_a_scan():
    reduce_a_block[(1,)](torch.arange(16.0), COMBINE="scanned")


def grouping_beyond_the_first_three():
    reduce_a_block[(1,)](torch.tensor([*[0.0] * 3, *range(1, 14)]), COMBINE="squared")


def associative_pair():
    reduce_a_block[(1,)](torch.arange(16.0), COMBINE="rescaled")


def associative_with_masked_lanes():
    reduce_a_block[(1,)](torch.full((16,), -float("inf")), COMBINE="rescaled")


def associative_where_terms_cancel():
    """In fp32 one grouping gives 0.001, and the other 0: that is rounding, and no mistake."""
    reduce_a_block[(1,)](torch.tensor([1e8, -1e8, 1e-3, *[0.0] * 13]), COMBINE="added")


def associative_maximum():
    reduce_a_block[(1,)](torch.arange(16.0), COMBINE="larger")


WATCHED = (
    "race_", "honest_", "outside_", "inside_", "wraps_", "fits_", "grouping_", "associative_",
)  # fmt: skip


def main():
    compute_functions_of_libdevice()
    arena = torch.zeros(1)  # nothing is lent: all tensors are the functions' own
    lent = range(arena.data_ptr(), arena.data_ptr() + 4)
    for name, function in list(globals().items()):
        if name.startswith(WATCHED):
            with recorded([__file__], lent, grouped=both_groupings) as seen:
                function()
            print(json.dumps({"name": name, "seen": encode(seen())}))
            with recorded([__file__], lent, only_bounds=True) as seen:
                function()
            print(json.dumps({"name": f"bounds_{name}", "seen": encode(seen())}))
        if name.startswith(("born_", "lost_", "kept_", "honest_")):
            with traced([__file__]) as seen:
                function()
            print(json.dumps({"name": f"traced_{name}", "seen": encode(seen())}))


if __name__ == "__main__":
    sys.exit(main())
