# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | The decorators of matmul_kernel are in the wrong order: triton.heuristics stands above triton.autotune, so its EVEN_K lambda runs before a config is chosen, and args["BLOCK_K"] does not exist yet: KeyError 'BLOCK_K' at each launch of both functions, every case. triton.heuristics should stand between triton.autotune and triton.jit.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 128, 32, 4, 8),
    _config(64, 64, 32, 4, 4),
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
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    # Counted row by row, then regrouped so that GROUP_M rows are walked column by column.
    tile_m, tile_n = tl.swizzle2d(tile // tiles_n, tile % tiles_n, tiles_m, tiles_n, GROUP_M)
    return tile_m * BLOCK_M, tile_n * BLOCK_N


@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0})
@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); where all steps along K are full, the loads need no mask of K."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = tl.arange(0, BLOCK_M).to(tl.int64) + m
    cols = tl.arange(0, BLOCK_N).to(tl.int64) + n
    depth = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (rows[:, None] * stride_am + depth[None, :] * stride_ak)
    b_ptrs = b_ptr + (depth[:, None] * stride_bk + cols[None, :] * stride_bn)
    row_mask = rows[:, None] < M
    col_mask = cols[None, :] < N

    tl.assume(K > 0)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        if EVEN_K:
            a = tl.load(a_ptrs, mask=row_mask, other=0.0)
            b = tl.load(b_ptrs, mask=col_mask, other=0.0)
        else:
            present = depth < K - step * BLOCK_K
            a = tl.load(a_ptrs, mask=row_mask & present[None, :], other=0.0)
            b = tl.load(b_ptrs, mask=col_mask & present[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        total = tl.maximum(total + bias[None, :].to(tl.float32), 0.0)

    c_ptrs = c_ptr + (rows[:, None] * stride_cm + cols[None, :] * stride_cn)
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=row_mask & col_mask)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = a.new_empty((M, N))

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    am, ak = a.stride()
    bk, bn = b.stride()
    cm, cn = out.stride()
    matmul_kernel[grid](a, b, out, bias, M, N, K, am, ak, bk, bn, cm, cn, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
