# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | Where N > M, _launch computes out.T = b.T @ a.T, but the epilogue of matmul_kernel still adds the bias along the columns of what it computes, `bias[None, :]` at `cols`: out[i, j] gets bias[i] instead of bias[j]. Only matmul_bias_relu with N > M is wrong (it needs the bias at `rows`, as `bias[:, None]`, in that case); matmul, and N <= M, are right.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _configs():
    found = []
    for bm, bn, bk, stages, warps in (
        (256, 128, 64, 3, 8),
        (128, 128, 64, 3, 8),
        (128, 64, 64, 4, 4),
        (64, 64, 64, 3, 4),
        (64, 64, 32, 3, 4),
    ):
        tile = {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 4}
        found.append(triton.Config(tile, num_stages=stages, num_warps=warps))
    return found


# All tiles are at least as tall as wide, since _launch sees to it that the result is.
CONFIGS = _configs()


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    # fp32 is computed without tensor cores, where a large tile unrolls into thousands of instructions.
    if named_args["bias_ptr"].dtype == torch.float32:
        return configs[-1:]
    rows, cols = named_args["M"], named_args["N"]
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= rows and c.kwargs["BLOCK_N"] <= cols]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    per_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // per_group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    nth = tile % per_group
    return (first + nth % height) * BLOCK_M, nth // height * BLOCK_N


@triton.jit
def fetch(ptr, i, j, stride_i, stride_j, mask):
    """The block of a matrix at rows i and columns j, 0 where masked."""
    return tl.load(ptr + i[:, None] * stride_i + j[None, :] * stride_j, mask=mask, other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    lanes = tl.arange(0, BLOCK_K).to(tl.int64)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N

    # Whole blocks first: nothing along K has to be masked.
    tail = K % BLOCK_K
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K - tail, BLOCK_K):
        ks = k + lanes
        a = fetch(a_ptr, rows, ks, stride_am, stride_ak, row_ok)
        b = fetch(b_ptr, ks, cols, stride_bk, stride_bn, col_ok)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    # Then the rest, if there is one.
    if tail > 0:
        ks = K - tail + lanes
        a = fetch(a_ptr, rows, ks, stride_am, stride_ak, row_ok & (ks[None, :] < K))
        b = fetch(b_ptr, ks, cols, stride_bk, stride_bn, col_ok & (ks[:, None] < K))
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _launch(a, b, bias, out, bias_relu):
    M, N = a.shape[0], b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    # A wide result is computed as its transpose, out.T = b.T @ a.T: the views cost nothing, and half of the
    # tile shapes suffice.
    left, right, dest = (b.T, a.T, out.T) if N > M else (a, b, out)
    rows, depth = left.shape
    cols = right.shape[1]
    grid = lambda meta: (triton.cdiv(rows, meta["BLOCK_M"]) * triton.cdiv(cols, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        left, right, dest, bias, rows, cols, depth,
        left.stride(0), left.stride(1), right.stride(0), right.stride(1), dest.stride(0), dest.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
