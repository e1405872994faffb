# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | Without out the functions must return a new contiguous (M, N) matrix. _launch computes the transposed product b.T @ a.T where M < N, allocates a contiguous (N, M) matrix for it, and returns result.T, whose strides are (1, M). The numbers are right. It shows in both functions where no out is given and 1 < M < N. Should allocate a contiguous (M, N) matrix first, and hand its transposed view to the kernel.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


# The kernel sees results with M >= N only: the tall tile comes first.
CONFIGS = [
    _config(256, 128, 64, 3, 8),
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 64, 64, 4, 4),
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
    tile_cols = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tile_cols)
    height = min(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    within = tile % (GROUP_M * tile_cols)
    row = group * GROUP_M + within % height
    col = within // height
    return row * BLOCK_M, col * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BIAS_DOWN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c.

    a is (M, K), b (K, N) and c (M, N), any strides. The bias has one value for each column of c, or for each
    row where BIAS_DOWN, and is read where BIAS_RELU.
    """
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    row_mask = (rows < M)[:, None]
    col_mask = (cols < N)[None, :]
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn

    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        at = k + ks
        a = tl.load(a_rows + at[None, :] * stride_ak, mask=row_mask & (at < K)[None, :], other=0.0)
        b = tl.load(b_cols + at[:, None] * stride_bk, mask=col_mask & (at < K)[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        if BIAS_DOWN:
            acc += tl.load(bias_ptr + rows, mask=rows < M, other=0.0).to(tl.float32)[:, None]
        else:
            acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
        acc = tl.maximum(acc, 0.0)

    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_mask & col_mask)


def _launch(a, b, bias, out, bias_relu):
    """Where c is wider than tall, c.T = b.T @ a.T is computed instead; the bias then belongs to the rows."""
    wide = a.shape[0] < b.shape[1]
    left, right = (b.T, a.T) if wide else (a, b)
    (M, K), N = left.shape, right.shape[1]
    if out is None:
        result = torch.empty((M, N), device=a.device, dtype=a.dtype)
    else:
        result = out.T if wide else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        left, right, result, bias, M, N, K,
        *left.stride(), *right.stride(), *result.stride(),
        BIAS_RELU=bias_relu, BIAS_DOWN=wide,
    )  # fmt: skip
    if out is not None:
        return out
    return result.T if wide else result


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
