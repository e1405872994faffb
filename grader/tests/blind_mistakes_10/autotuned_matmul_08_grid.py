# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) `tl.dot(a, b, acc)` without input_precision="ieee" multiplies fp32 as TF32; shows on a GPU for fp32. (2) the store is `c_ptr + rows * stride_cm + cols`, without the column stride of out; must be `cols * stride_cn`. Shows where out is given with a column stride other than 1 (transposed, or every second column of a wider matrix).
"""Lab 3: a two-dimensional grid, columns of tiles along axis 0, rows of tiles along axis 1."""

import torch
import triton
import triton.language as tl

TILES = [(128, 256, 64), (128, 128, 64), (128, 64, 64), (64, 64, 64), (32, 64, 32)]
CONFIGS = [
    triton.Config(
        {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk}, num_stages=3, num_warps=8 if bm * bn > 16384 else 4
    )
    for bm, bn, bk in TILES
]


def fitting(configs, named_args, **kwargs):
    limit = min(64 if named_args["a_ptr"].dtype == torch.float32 else 256, named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit] or configs[-1:]


@triton.jit
def place(BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Tile of this program; six rows of tiles at a time share their columns."""
    col, row = tl.program_id(0), tl.program_id(1)
    row, col = tl.swizzle2d(row, col, tl.num_programs(1), tl.num_programs(0), 6)
    return row * BLOCK_M, col * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr,
    M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm,
    BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m, n = place(BLOCK_M, BLOCK_N)
    rows = (m + tl.arange(0, BLOCK_M)[:, None]).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)[None, :]).to(tl.int64)
    row_mask = rows < M
    col_mask = cols < N

    k_row = tl.arange(0, BLOCK_K)[None, :]
    k_col = tl.arange(0, BLOCK_K)[:, None]
    a_tile = a_ptr + rows * stride_am + k_row * stride_ak
    b_tile = b_ptr + k_col * stride_bk + cols * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for done in range(0, K, BLOCK_K):
        remaining = K - done
        a = tl.load(a_tile, mask=row_mask & (k_row < remaining), other=0.0)
        b = tl.load(b_tile, mask=col_mask & (k_col < remaining), other=0.0)
        acc = tl.dot(a, b, acc)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=col_mask, other=0.0)
        acc = tl.maximum(acc + bias.to(tl.float32), 0.0)

    tl.store(c_ptr + rows * stride_cm + cols, acc.to(c_ptr.dtype.element_ty), mask=row_mask & col_mask)


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    K, N = b.shape
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"])

    matmul_kernel[grid](
        a, b, out, bias,
        M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a, b, *, out=None):
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out=None):
    return _launch(a, b, bias, out, bias_relu=True)
