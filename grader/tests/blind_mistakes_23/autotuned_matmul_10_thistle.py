# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | Without out, new_result allocates rows padded to a multiple of 16 elements with torch.empty_strided: the returned matrix is not contiguous where N is not a multiple of 16 and M > 1. All values are right; it should be torch.empty((M, N), ...).
"""Matrix product. A program computes two tiles, one above the other, and uses every tile of b for both."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 4}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


# BLOCK_M is the height of one of the two tiles: 64 x 256 makes a program of 128 x 256.
CONFIGS = [
    _config(64, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 8),
    _config(64, 128, 32, 4, 8),
    _config(64, 64, 32, 3, 4),
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
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_a_group = GROUP_M * tiles_n
    first = tile // in_a_group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % in_a_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def finish(acc, c_ptr, bias, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr):
    """Epilogue and store of one tile."""
    if BIAS_RELU:
        acc = tl.maximum(acc + bias[None, :], 0.0)
    tl.store(
        c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(rows < M)[:, None] & (cols < N)[None, :],
    )


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns 2 BLOCK_M rows and BLOCK_N columns of c."""
    m, n = place(tl.program_id(axis=0), M, N, 2 * BLOCK_M, BLOCK_N, GROUP_M)
    upper = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    lower = upper + BLOCK_M
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)

    a_upper = a_ptr + upper[:, None] * stride_am
    a_lower = a_ptr + lower[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn
    upper_ok = (upper < M)[:, None]
    lower_ok = (lower < M)[:, None]
    cols_ok = (cols < N)[None, :]

    acc_upper = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    acc_lower = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in tl.range(0, K, BLOCK_K):
        across = (k + ks)[None, :]
        down = (k + ks)[:, None]
        b = tl.load(b_cols + down * stride_bk, mask=(down < K) & cols_ok, other=0.0)
        a0 = tl.load(a_upper + across * stride_ak, mask=upper_ok & (across < K), other=0.0)
        a1 = tl.load(a_lower + across * stride_ak, mask=lower_ok & (across < K), other=0.0)
        acc_upper = tl.dot(a0, b, acc_upper, input_precision="ieee")
        acc_lower = tl.dot(a1, b, acc_lower, input_precision="ieee")

    bias = tl.zeros((BLOCK_N,), dtype=tl.float32)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    finish(acc_upper, c_ptr, bias, upper, cols, M, N, stride_cm, stride_cn, BIAS_RELU)
    finish(acc_lower, c_ptr, bias, lower, cols, M, N, stride_cm, stride_cn, BIAS_RELU)


def new_result(a, M, N):
    """Memory for the result. Each row starts at a multiple of 16 elements, so that stores can be 16 bytes wide."""
    pitch = triton.cdiv(N, 16) * 16
    return torch.empty_strided((M, N), (pitch, 1), device=a.device, dtype=a.dtype)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = new_result(a, M, N)
    tiles = lambda meta: triton.cdiv(M, 2 * meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
