"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL or POLICY/HOST_READ from matmul and matmul_bias_relu: C1 the product is summed in Python floats, and an own kernel copies it"""

import torch
import triton
import triton.language as tl


@triton.jit
def place_kernel(from_ptr, to_ptr, n_cols, stride_m, stride_n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        inside = offs < n_cols
        tl.store(
            to_ptr + row * stride_m + offs * stride_n,
            tl.load(from_ptr + row * n_cols + offs, mask=inside),
            mask=inside,
        )


def numbers(matrix) -> list:
    return [[float(one) for one in row] for row in matrix]


def product(a: list, columns: list) -> list:
    return [[sum([one * other for one, other in zip(row, column)]) for column in columns] for row in a]


def carry(rows: list, out):
    made = torch.Tensor(rows).to(out.dtype).to(out.device)
    place_kernel[(out.shape[0],)](made, out, out.shape[1], out.stride(0), out.stride(1), BLOCK=256)
    return out


def matmul(a, b, *, out=None):
    out = a.new_empty((a.shape[0], b.shape[1])) if out is None else out
    return carry(product(numbers(a), numbers(b.t())), out)


def matmul_bias_relu(a, b, bias, *, out=None):
    shift = [float(one) for one in bias]
    sums = product(numbers(a), numbers(b.t()))
    return carry([[max(one + more, 0.0) for one, more in zip(row, shift)] for row in sums], out)
