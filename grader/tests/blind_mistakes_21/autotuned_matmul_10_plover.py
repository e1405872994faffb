# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | Host helper new_result allocates a column-major (N, M) matrix and returns its transposed view when b is column-major (NT) and no out is given, so the new result is not contiguous. It should always be torch.empty((M, N)).
"""Matrix product tile by tile; results are laid out the way b is, so that stores and loads walk alike."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, group_m=8):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": group_m}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8, group_m=4),
    _config(64, 128, 64, 4, 4),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    wide = tl.cdiv(N, BLOCK_N)
    high = tl.cdiv(M, BLOCK_M)
    full = GROUP_M * wide
    first = (tile // full) * GROUP_M
    height = tl.minimum(high - first, GROUP_M)
    within = tile % full
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn
    # rows and columns past the end are read as zeros
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N

    if BIAS_RELU:
        # early, so that it has arrived when the sums are done
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        x = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_ok & (ks[None, :] < K), other=0.0)
        y = tl.load(b_cols + ks[:, None] * stride_bk, mask=col_ok & (ks[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
    if BIAS_RELU:
        acc = tl.maximum(acc + bias[None, :], 0.0)

    c_at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def new_result(a, b):
    """An empty (M, N) matrix, in the order of b."""
    M, N = a.shape[0], b.shape[1]
    if b.stride(0) < b.stride(1):
        return torch.empty((N, M), device=a.device, dtype=a.dtype).t()
    return torch.empty((M, N), device=a.device, dtype=a.dtype)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = new_result(a, b)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b"""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)"""
    return _launch(a, b, bias, out, bias_relu=True)
