# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `matmul_kernel`, the bias of the left half is loaded as `tl.load(bias_ptr + near, mask=exists, other=0.0)` with `exists = far < N`, the mask of the right half: it should be `near < N`. In a last tile of columns that is not full, columns of the left half whose partner HALF columns further lies past N get no bias; right where N is a multiple of BLOCK_N, and in matmul.
"""Matrix product whose tiles are finished in two halves, so that less is in flight at the store."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 64, 4, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 128
    size = min(widest, min(named_args["M"], named_args["N"]))
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept if kept else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile: groups of GROUP_M rows of tiles, column by column."""
    per_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    group = tile // per_group
    rest = tile % per_group
    rows = tl.minimum(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    return (group * GROUP_M + rest % rows) * BLOCK_M, (rest // rows) * BLOCK_N


@triton.jit
def relu_of(sums, bias):
    return tl.maximum(sums + bias.to(tl.float32)[None, :], 0.0)


@triton.jit
def put(c_ptr, rows, cols, values, M, N, stride_cm, stride_cn):
    """Store a part of a tile, as far as it lies inside of c."""
    offsets = rows.to(tl.int64)[:, None] * stride_cm + cols.to(tl.int64)[None, :] * stride_cn
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    tl.store(c_ptr + offsets, values.to(c_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows.to(tl.int64)[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols.to(tl.int64)[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        some = ks < K - k
        a = tl.load(a_ptrs, mask=(rows < M)[:, None] & some[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=some[:, None] & (cols < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    HALF: tl.constexpr = BLOCK_N // 2
    left, right = acc.reshape(BLOCK_M, 2, HALF).permute(0, 2, 1).split()
    near = n + tl.arange(0, HALF)
    far = near + HALF
    if BIAS_RELU:
        exists = far < N
        left = relu_of(left, tl.load(bias_ptr + near, mask=exists, other=0.0))
        right = relu_of(right, tl.load(bias_ptr + far, mask=exists, other=0.0))
    put(c_ptr, rows, near, left, M, N, stride_cm, stride_cn)
    put(c_ptr, rows, far, right, M, N, stride_cm, stride_cn)


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    _, N = b.shape
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    matmul_kernel[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides, summed in fp32 and rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), bias (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
