# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | The tile of b is loaded as (BLOCK_N, BLOCK_K), columns of b down the tile, and goes into `tl.dot(x, w, acc, ...)` as it is, so the inner sizes BLOCK_K and BLOCK_N do not match in any config and the kernel does not compile; it should be `tl.dot(x, tl.trans(w), acc, ...)` (or the tile should be loaded as (BLOCK_K, BLOCK_N)).
"""y = x @ w tile by tile, in the manner of a Linear layer, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(128, 64, 32, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    # fp32 is computed without tensor cores, where a large tile unrolls into thousands of instructions.
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of y."""
    grid_m = tl.cdiv(M, BLOCK_M)
    grid_n = tl.cdiv(N, BLOCK_N)
    band = GROUP_M * grid_n
    top = (tile // band) * GROUP_M
    rows = min(grid_m - top, GROUP_M)
    rest = tile % band
    return (top + rest % rows) * BLOCK_M, (rest // rows) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr, w_ptr, y_ptr, bias_ptr, M, N, K,
    stride_xm, stride_xk, stride_wk, stride_wn, stride_ym, stride_yn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One BLOCK_M x BLOCK_N tile of y."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    sample = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    feature = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    inner = tl.arange(0, BLOCK_K)

    # Both operands lie with K along the row, so both tiles are read the same way.
    x_ptrs = x_ptr + sample[:, None] * stride_xm + inner[None, :] * stride_xk
    w_ptrs = w_ptr + feature[:, None] * stride_wn + inner[None, :] * stride_wk
    samples = sample[:, None] < M
    features = feature[:, None] < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        left = inner[None, :] < K - k
        x = tl.load(x_ptrs, mask=samples & left, other=0.0)
        w = tl.load(w_ptrs, mask=features & left, other=0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
        x_ptrs += BLOCK_K * stride_xk
        w_ptrs += BLOCK_K * stride_wk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + feature, mask=feature < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)

    y_ptrs = y_ptr + sample[:, None] * stride_ym + feature[None, :] * stride_yn
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=samples & (feature[None, :] < N))


def _launch(x, w, bias, y, bias_relu):
    (M, K), N = x.shape, w.shape[1]
    y = torch.empty((M, N), device=x.device, dtype=x.dtype) if y is None else y
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    linear_kernel[grid](
        x, w, y, bias, M, N, K,
        x.stride(0), x.stride(1), w.stride(0), w.stride(1), y.stride(0), y.stride(1), BIAS_RELU=bias_relu,
    )  # fmt: skip
    return y


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
