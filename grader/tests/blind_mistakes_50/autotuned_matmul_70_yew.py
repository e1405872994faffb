# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Nothing is wrong. Unusual: each program computes a BLOCK_N x BLOCK_M tile of the transposed result, `acc = tl.dot(bt, at, acc, ...)`, so the bias lies along the rows of the tile; tiles are grouped by columns (GROUP_N), and ReLU is `tl.where(acc < 0.0, 0.0, acc)`.
"""Matrix product by tiles of the transposed result: C^T = B^T A^T, each program one BLOCK_N x BLOCK_M tile of it."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_N": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(256, 128, 64, 3, 8),
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 4, 4),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and of at most 64 x 64 for fp32, which knows no tensor cores."""
    bound = min(named_args["M"], named_args["N"], 64 if named_args["a_ptr"].dtype == torch.float32 else 256)
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= bound and c.kwargs["BLOCK_N"] <= bound]
    return kept if kept else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_N: tl.constexpr):
    """First row and first column of C of one tile; GROUP_N columns of tiles are walked row by row."""
    down = tl.cdiv(M, BLOCK_M)
    across = tl.cdiv(N, BLOCK_N)
    strip = GROUP_N * down
    first = tile // strip * GROUP_N
    width = tl.minimum(across - first, GROUP_N)
    within = tile % strip
    return within // width * BLOCK_M, (first + within % width) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_N: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_N)
    # In this kernel columns of C run down a tile, and rows of C run across it.
    down = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[:, None]
    across = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[None, :]
    ks = tl.arange(0, BLOCK_K)
    bt_ptrs = b_ptr + down * stride_bn + ks[None, :] * stride_bk
    at_ptrs = a_ptr + ks[:, None] * stride_ak + across * stride_am

    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        left = K - k
        bt = tl.load(bt_ptrs, mask=(down < N) & (ks[None, :] < left), other=0.0)
        at = tl.load(at_ptrs, mask=(ks[:, None] < left) & (across < M), other=0.0)
        acc = tl.dot(bt, at, acc, input_precision="ieee")
        bt_ptrs += BLOCK_K * stride_bk
        at_ptrs += BLOCK_K * stride_ak

    if BIAS_RELU:
        # One value for each column of C, so one for each row of this tile.
        bias = tl.load(bias_ptr + down, mask=down < N, other=0.0).to(tl.float32)
        acc += bias
        acc = tl.where(acc < 0.0, 0.0, acc)

    ct_ptrs = c_ptr + down * stride_cn + across * stride_cm
    tl.store(ct_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(down < N) & (across < M))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), bias and ReLU in fp32."""
    return _launch(a, b, bias, out, bias_relu=True)
