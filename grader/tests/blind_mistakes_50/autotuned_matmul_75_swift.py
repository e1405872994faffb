# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `matmul_kernel`, `tile = tl.reshape(sums.to(...), (BLOCK_M, BLOCK_N))` does not transpose the (BLOCK_N, BLOCK_M) sums, it only reads them in another shape; it should be `tl.trans(sums.to(...))`. Wrong in both functions in all cases but M = N = 1.
"""Matrix product, autotuned: each program sums a tile of the transposed result, b.T @ a.T, and stores it turned."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_N": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_N: tl.constexpr):
    """First row and first column of one of the tiles of c; GROUP_N columns of tiles are walked row by row."""
    strip = GROUP_N * tl.cdiv(M, BLOCK_M)
    first = tile // strip * GROUP_N
    width = tl.minimum(tl.cdiv(N, BLOCK_N) - first, GROUP_N)
    within = tile % strip
    return (within // width) * BLOCK_M, (first + within % width) * BLOCK_N


@triton.jit
def spots(base, i, stride_i, j, stride_j):
    """Addresses of a block: i down, j across."""
    return base + i[:, None] * stride_i + j[None, :] * stride_j


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_N: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias), one BLOCK_M x BLOCK_N tile a program."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_N)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    bt_ptrs = spots(b_ptr, cols, stride_bn, ks, stride_bk)
    at_ptrs = spots(a_ptr, ks, stride_ak, rows, stride_am)
    sums = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        bt = tl.load(bt_ptrs, mask=(cols < N)[:, None] & (ks < K - k)[None, :], other=0.0)
        at = tl.load(at_ptrs, mask=(ks < K - k)[:, None] & (rows < M)[None, :], other=0.0)
        sums = tl.dot(bt, at, sums, input_precision="ieee")
        bt_ptrs += BLOCK_K * stride_bk
        at_ptrs += BLOCK_K * stride_ak
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        sums = tl.maximum(sums + bias[:, None], 0.0)
    tile = tl.reshape(sums.to(c_ptr.dtype.element_ty), (BLOCK_M, BLOCK_N))
    tl.store(spots(c_ptr, rows, stride_cm, cols, stride_cn), tile, mask=(rows < M)[:, None] & (cols < N)[None, :])


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
