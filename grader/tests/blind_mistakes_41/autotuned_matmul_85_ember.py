# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul and _launch: `EPILOGUE=bias is not None` is always true, because matmul calls `_launch(a, b, a, out)` with a as stand-in; it should pass a flag that is False for matmul. So matmul gives relu(a @ b + the first N elements of the memory of a), and reads past a where it has fewer elements than N. matmul_bias_relu is right.
"""Autotuned matrix product with a fused epilogue; tiles are walked in strips of a few tile columns."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, strip, num_stages, num_warps):
    """One candidate: the tile, the tile columns of a strip, the depth of the pipeline, the warps."""
    values = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "STRIP": strip}
    return triton.Config(values, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 4, 3, 8),
    _config(128, 256, 64, 4, 4, 8),
    _config(256, 128, 64, 8, 3, 8),
    _config(128, 128, 64, 8, 4, 8),
    _config(64, 128, 64, 8, 4, 4),
    _config(64, 64, 32, 8, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no larger than the result, and at most 64 wide for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)

    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= size and c.kwargs["BLOCK_N"] <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STRIP: tl.constexpr):
    """First row and first column of a tile. A strip is STRIP tiles wide and goes from top to bottom."""
    down = tl.cdiv(M, BLOCK_M)
    strip = tile // (STRIP * down)
    left = strip * STRIP
    width = tl.minimum(tl.cdiv(N, BLOCK_N) - left, STRIP)
    inside = tile - strip * (STRIP * down)
    return (inside // width) * BLOCK_M, (left + inside % width) * BLOCK_N


@triton.jit
def load_tile(ptr, rows, cols, n_rows, n_cols, stride_row, stride_col):
    """The elements at (rows, cols) of a matrix; 0 outside of it."""
    ptrs = ptr + rows[:, None] * stride_row + cols[None, :] * stride_col
    return tl.load(ptrs, mask=(rows < n_rows)[:, None] & (cols < n_cols)[None, :], other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def tile_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, EPILOGUE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    """c = a @ b, and with EPILOGUE relu(a @ b + bias); one program for each tile."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, STRIP)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a = load_tile(a_ptr, rows, ks, M, K, stride_am, stride_ak)
        b = load_tile(b_ptr, ks, cols, K, N, stride_bk, stride_bn)
        sums = tl.dot(a, b, sums, input_precision="ieee")
    if EPILOGUE:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        sums = tl.maximum(sums + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, sums.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


def _launch(a, b, bias, out):
    M, K = a.shape
    _, N = b.shape
    out = torch.empty((M, N), dtype=a.dtype, device=a.device) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    tile_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), EPILOGUE=bias is not None
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given.
    """
    # A kernel needs a pointer in each place; any tensor stands in for the bias.
    return _launch(a, b, a, out)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out)
