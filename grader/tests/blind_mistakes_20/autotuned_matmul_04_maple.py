# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In matmul_kernel the last step along K slides back to K - BLOCK_K, and its mask `fresh = ks >= 0` lets in columns that the main loop has already summed, so they count twice: wrong where K > BLOCK_K is no multiple of BLOCK_K. It should be fresh = ks >= full.
"""Matrix product tile by tile, autotuned, without masks along K in the main loop."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 256, 64, 3, 8), _config(256, 128, 64, 3, 8)]
CONFIGS += [_config(128, 128, 64, 3, 8)]
CONFIGS += [_config(64, 128, 64, 4, 4), _config(64, 64, 32, 4, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column; every second group is walked from right to left, like a plough."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    within = tile % (GROUP_M * tiles_n)
    height = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    column = within // height
    column += (group % 2) * (tiles_n - 1 - 2 * column)
    return (group * GROUP_M + within % height) * BLOCK_M, column * BLOCK_N


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
    lanes = tl.arange(0, BLOCK_K).to(tl.int64)
    rows_in = (rows < M)[:, None]
    cols_in = (cols < N)[None, :]
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    full = K // BLOCK_K * BLOCK_K
    for k in range(0, full, BLOCK_K):
        ks = k + lanes
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=rows_in, other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=cols_in, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if full < K:
        # The last step ends exactly at K, so it stays inside a and b. If K is shorter than a tile it begins
        # before the first column, and those lanes are 0.
        ks = K - BLOCK_K + lanes
        fresh = ks >= 0
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=rows_in & fresh[None, :], other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=cols_in & fresh[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=rows_in & cols_in)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
