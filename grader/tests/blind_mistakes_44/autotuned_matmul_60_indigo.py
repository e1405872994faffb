# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Where `out` is stored by columns the transposed problem out^T = b^T @ a^T is launched, with the bias by rows; tiles by `tl.swizzle2d`, an EVEN_K heuristic below the autotuner, and K walked from its end to its beginning; nothing is wrong.
"""Matrix product that works on the transposed problem where `out` is stored by columns, autotuned."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]
NO_BIAS, BIAS_OF_COLUMNS, BIAS_OF_ROWS = 0, 1, 2


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K", "BIAS"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS: tl.constexpr, GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu of it plus one bias for each column (BIAS is 1) or for each row (2)."""
    tile = tl.program_id(axis=0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    tile_m, tile_n = tl.swizzle2d(tile // tiles_n, tile % tiles_n, tiles_m, tiles_n, GROUP_M)
    rows = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_exists = rows[:, None] < M
    col_exists = cols[None, :] < N
    lanes = tl.arange(0, BLOCK_K)
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn

    # From the end of K to its beginning: the partial step, if there is one, comes first.
    steps = tl.cdiv(K, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, steps):
        ks = (steps - 1 - step) * BLOCK_K + lanes
        a_exists = row_exists
        b_exists = col_exists
        if not EVEN_K:
            a_exists = row_exists & (ks[None, :] < K)
            b_exists = col_exists & (ks[:, None] < K)
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=a_exists, other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=b_exists, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS == 1:
        acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
    if BIAS == 2:
        acc += tl.load(bias_ptr + rows, mask=rows < M, other=0.0).to(tl.float32)[:, None]
    if BIAS > 0:
        acc = tl.where(acc < 0.0, 0.0, acc)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


def _launch(a, b, bias, out, kind):
    """c = a @ b into out; where its columns are contiguous, c^T = b^T @ a^T, whose rows are."""
    c = out
    if out.stride(0) < out.stride(1):
        a, b, c = b.T, a.T, out.T
        kind = BIAS_OF_ROWS if kind == BIAS_OF_COLUMNS else kind
    (M, K), N = a.shape, b.shape[1]
    matmul_kernel[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)](
        a, b, c, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1),
        BIAS=kind, GROUP_M=8,
    )  # fmt: skip
    return out


def _result(a, b):
    return torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, _result(a, b) if out is None else out, NO_BIAS)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, _result(a, b) if out is None else out, BIAS_OF_COLUMNS)
