# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | In `TILES`, `(128, 192): (64, 4, 8)` makes a config with BLOCK_N = 192, and `tl.arange(0, BLOCK_N)` and `tl.zeros` need powers of two ("arange's range must be a power of 2"): the config has to go or be 128 x 256 or 128 x 128. Compile error in both functions for 16-bit matrices whose result is at least 192 x 192, where `fitting` keeps this config; right for fp32 and smaller results.
"""Matrix product for Hopper: tiles for 132 SMs, persistent programs, bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl

SMS = 132

# (rows, columns): (depth, stages, warps). A stage of 128 x 256 x 64 takes 48 KB, one of 128 x 192 x 64 takes 40 KB.
# At 4096 there are 32 x 22 tiles of 128 x 192, 5.3 rounds of 132 programs; of 128 x 256 it is 3.9.
TILES = {
    (128, 256): (64, 3, 8),
    (128, 192): (64, 4, 8),
    (128, 128): (64, 4, 8),
    (64, 128): (64, 4, 4),
    (64, 64): (32, 4, 4),
}
CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps)
    for (m, n), (k, stages, warps) in TILES.items()
]


def fitting(configs, named_args, **kwargs):
    """No tile beyond the result; fp32 has no tensor cores, so it takes the last one."""
    if named_args["bias_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """First row and column of a tile, eight rows of tiles at a time."""
    strip = 8 * tl.cdiv(N, BLOCK_N)
    first = tile // strip * 8
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, 8)
    within = tile % strip
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def persistent_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); each program takes every num_programs-th tile."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    for tile in range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N)
        rows = m + tl.arange(0, BLOCK_M).to(tl.int64)
        cols = n + tl.arange(0, BLOCK_N).to(tl.int64)
        row_exists = (rows < M)[:, None]
        col_exists = (cols < N)[None, :]
        a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
        b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            left = K - k
            a = tl.load(a_ptrs, mask=row_exists & (ks[None, :] < left), other=0.0)
            b = tl.load(b_ptrs, mask=(ks[:, None] < left) & col_exists, other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
            a_ptrs += BLOCK_K * stride_ak
            b_ptrs += BLOCK_K * stride_bk
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            acc = tl.maximum(acc + bias[None, :], 0.0)
        c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (min(SMS, tiles(meta)),)  # noqa: E731
    persistent_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
