# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | for an out that is not contiguous the kernel fills a contiguous matrix, and out.copy_(result) moves it over; host code only checks, allocates and launches, and copy_ is not in the list of LANGUAGE.md; must store through the strides of out. Shows as a broken rule of the file, whatever is called.
"""Matrix product; c is always stored to a contiguous matrix."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 4),
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
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = (tile // in_group) * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); c is contiguous."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    row_mask = (rows < M)[:, None]
    col_mask = (cols < N)[None, :]
    a_tile = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_tile = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_tile, mask=row_mask & (ks < K - k)[None, :], other=0.0)
        b = tl.load(b_tile, mask=col_mask & (ks < K - k)[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_tile = c_ptr + rows[:, None] * N + cols[None, :]
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=row_mask & col_mask)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    direct = out is not None and out.is_contiguous()
    result = out if direct else torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, result, bias, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), BIAS_RELU=bias_relu
    )
    if out is None or direct:
        return result
    out.copy_(result)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
