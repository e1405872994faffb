# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product whose tiles are visited along a Z-order curve: 4 x 4 tiles make a patch, patches go row by row."""

import torch
import triton
import triton.language as tl


def tile_config(m, n, k, stages, warps):
    return triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps)


CONFIGS = [
    tile_config(128, 256, 64, 3, 8),
    tile_config(256, 128, 64, 3, 8),
    tile_config(128, 128, 64, 3, 8),
    tile_config(64, 128, 64, 3, 4),
    tile_config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result and, for fp32, no larger than 64 x 64; else the last one."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= limit and c.kwargs["BLOCK_N"] <= limit]
    return kept or configs[-1:]


@triton.jit
def place(code, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """First row and first column of tile number `code`; it may lie outside c, where a patch is not full.

    The low four bits are the place within the patch: bits 0 and 2 are the column, bits 1 and 3 the row.
    """
    patches_across = tl.cdiv(tl.cdiv(N, BLOCK_N), 4)
    patch = code // 16
    z = code % 16
    row = (patch // patches_across) * 4 + ((z >> 1) & 1) + ((z >> 3) & 1) * 2
    col = (patch % patches_across) * 4 + (z & 1) + ((z >> 2) & 1) * 2
    return row * BLOCK_M, col * BLOCK_N


@triton.jit
def one_tile(
    a_ptr, b_ptr, c_ptr, bias_ptr, m, n, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute and store the tile of c that starts at row m and column n."""
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    lanes = tl.arange(0, BLOCK_K).to(tl.int64)
    row_ok = rows < M
    col_ok = cols < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ka = (k + lanes)[None, :]
        kb = (k + lanes)[:, None]
        a = tl.load(a_ptr + rows * stride_am + ka * stride_ak, mask=row_ok & (ka < K), other=0.0)
        b = tl.load(b_ptr + kb * stride_bk + cols * stride_bn, mask=(kb < K) & col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        # cols is a row of numbers already, and so is the bias.
        bias = tl.load(bias_ptr + cols, mask=col_ok, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias). Programs whose tile lies outside c have nothing to do."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N)
    if (m < M) & (n < N):
        one_tile(
            a_ptr, b_ptr, c_ptr, bias_ptr, m, n, M, N, K,
            stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU,
            BLOCK_M, BLOCK_N, BLOCK_K,
        )  # fmt: skip


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        patches_down = triton.cdiv(M, 4 * meta["BLOCK_M"])
        patches_across = triton.cdiv(N, 4 * meta["BLOCK_N"])
        return (16 * patches_down * patches_across,)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
