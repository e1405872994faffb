"""EXPECT PASS from matmul and matmul_bias_relu: ladder 4, as many programs as fit work through all tiles."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

# BLOCK_M, BLOCK_N, BLOCK_K, stages and warps. Four stages of 48 KB leave room for half a tile on its way out.
LARGE = 128, 256, 64, 4, 8
SMALL = 64, 64, 64, 4, 4
GROUP_M = 8


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and column of a tile, in the grouped order."""
    per_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // per_group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    return (first + tile % per_group % height) * BLOCK_M, tile % per_group // height * BLOCK_N


@triton.jit
def persistent_kernel(
    a_desc, b_desc, c_desc, bias_ptr, M, N, K, NT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program i takes tiles i, i + programs and so on."""
    HALF: tl.constexpr = BLOCK_N // 2
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    # Flattened, the two loops are one to the compiler: the next tile is loaded before this one ends.
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            a = a_desc.load([m, k])
            b = b_desc.load([n, k]).T if NT else b_desc.load([k, n])
            acc = tl.dot(a, b, acc, input_precision="ieee")
        left, right = acc.reshape(BLOCK_M, 2, HALF).permute(0, 2, 1).split()
        for side in tl.static_range(2):
            part = left if side == 0 else right
            if bias_ptr is not None:
                cols = n + side * HALF + tl.arange(0, HALF)
                bias = tl.load(bias_ptr + cols, cols < N, 0.0).to(tl.float32)
                part = tl.maximum(part + bias[None, :], 0.0)
            c_desc.store([m, n + side * HALF], part.to(c_desc.dtype))


@triton.jit
def pointer_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, am, ak, bk, bn, cm, cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """The same for operands that no descriptor takes, and one program a tile."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)[:, None]
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)[None, :]
    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        ks = start + tl.arange(0, BLOCK_K).to(tl.int64)
        a = tl.load(a_ptr + rows * am + ks[None, :] * ak, (rows < M) & (ks[None, :] < K), 0.0)
        b = tl.load(b_ptr + ks[:, None] * bk + cols * bn, (ks[:, None] < K) & (cols < N), 0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if bias_ptr is not None:
        acc = tl.maximum(acc + tl.load(bias_ptr + cols, cols < N, 0.0).to(tl.float32), 0.0)
    tl.store(c_ptr + rows * cm + cols * cn, acc.to(c_ptr.dtype.element_ty), (rows < M) & (cols < N))


def describable(matrix):
    """The copy engine takes rows without gaps inside that start at multiples of 16 bytes."""
    apart = matrix.stride(0) * matrix.element_size()
    return matrix.stride(1) == 1 and apart > 0 and apart % 16 == 0 and matrix.data_ptr() % 16 == 0


def describe(matrix, *block):
    return TensorDescriptor(matrix, matrix.shape, matrix.stride(), list(block))


def launch(a, b, bias, out):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    sixteen_bit = a.dtype != torch.float32
    large = sixteen_bit and M * N >= 2048 * 2048
    block_m, block_n, block_k, stages, warps = LARGE if large else SMALL
    tiles = triton.cdiv(M, block_m) * triton.cdiv(N, block_n)
    nt = not describable(b)
    if sixteen_bit and describable(a) and describable(b.T if nt else b) and describable(out):
        b_desc = describe(b.T, block_n, block_k) if nt else describe(b, block_k, block_n)
        c_desc = describe(out, block_m, block_n // 2)
        many = torch.cuda.get_device_properties(a.device).multi_processor_count if a.is_cuda else 4
        persistent_kernel[(min(tiles, many if large else 2 * many),)](
            describe(a, block_m, block_k), b_desc, c_desc, bias, M, N, K, NT=nt,
            BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP_M=GROUP_M,
            num_stages=stages, num_warps=warps,
        )  # fmt: skip
    else:
        pointer_kernel[(tiles,)](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(),
            BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=32, GROUP_M=GROUP_M, num_stages=3, num_warps=warps,
        )  # fmt: skip
    return out


def matmul(a, b, *, out=None):
    return launch(a, b, None, out)


def matmul_bias_relu(a, b, bias, *, out=None):
    return launch(a, b, bias, out)
