# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product, autotuned, with bias and ReLU; a column-major result is computed as b.T @ a.T."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
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
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    row, col = tl.swizzle2d(tile // across, tile % across, down, across, GROUP_M)
    return row * BLOCK_M, col * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BIAS_OF_ROWS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias), with one number of the bias for each column, or for each row of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)[:, None]).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)[None, :]).to(tl.int64)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        ka, kb = ks[None, :], ks[:, None]
        a = tl.load(a_ptr + rows * stride_am + ka * stride_ak, mask=(rows < M) & (ka < K), other=0.0)
        b = tl.load(b_ptr + kb * stride_bk + cols * stride_bn, mask=(kb < K) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        if BIAS_OF_ROWS:
            bias = tl.load(bias_ptr + rows, mask=rows < M, other=0.0)
        else:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        acc = tl.maximum(acc + bias.to(tl.float32), 0.0)
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, c, mask=(rows < M) & (cols < N))


def _launch(a, b, bias, out, bias_relu):
    (M, N), K = (a.shape[0], b.shape[1]), a.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    # Neighbours in memory lie in one row of what the kernel sees.
    turned = out.stride(0) < out.stride(1)
    left, right, result = (b.T, a.T, out.T) if turned else (a, b, out)
    height, width = result.shape

    def grid(meta):
        return (triton.cdiv(height, meta["BLOCK_M"]) * triton.cdiv(width, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        left, right, result, bias, height, width, K,
        *left.stride(), *right.stride(), *result.stride(),
        BIAS_RELU=bias_relu, BIAS_OF_ROWS=turned,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
