# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | The kernel's parameters are ordered `stride_bn, stride_bk`, but the launch passes `b.stride(0), b.stride(1)`, so the two strides of b are exchanged; the launch should pass `b.stride(1), b.stride(0)` (or the signature should have `stride_bk, stride_bn`).
"""Matrix product with an autotuned tile shape.

The kernel takes the strides of each operand as (outer, inner): for a and c the row comes first, and
the tile of b is walked column by column.
"""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    along_m = tl.cdiv(M, BLOCK_M)
    along_n = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * along_n
    first = (tile // per_group) * GROUP_M
    height = tl.minimum(along_m - first, GROUP_M)
    within = tile % per_group
    tile_row = first + within % height
    tile_col = within // height
    return tile_row * BLOCK_M, tile_col * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr,
    M, N, K,
    stride_am, stride_ak,
    stride_bn, stride_bk,
    stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)

    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    p = tl.arange(0, BLOCK_K)
    i_exists = i < M
    j_exists = j < N

    a_tile = a_ptr + i[:, None] * stride_am + p[None, :] * stride_ak
    b_tile = b_ptr + p[:, None] * stride_bk + j[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for done in range(0, K, BLOCK_K):
        p_exists = p < K - done
        a = tl.load(a_tile, mask=i_exists[:, None] & p_exists[None, :], other=0.0)
        b = tl.load(b_tile, mask=p_exists[:, None] & j_exists[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j_exists, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)

    c_tile = c_ptr + i[:, None] * stride_cm + j[None, :] * stride_cn
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=i_exists[:, None] & j_exists[None, :])


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (tiles(meta),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias,
        M, N, K,
        a.stride(0), a.stride(1),
        b.stride(0), b.stride(1),
        out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
