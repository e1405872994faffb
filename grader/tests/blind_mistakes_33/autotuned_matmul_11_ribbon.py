# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | _layout keeps only one stride of a and of b and takes the other to be 1: where x.stride(1) is not 1 it assumes that x.stride(0) is 1. Right for contiguous, padded and transposed operands; wrong in both functions where neither stride of a or of b is 1 (every second column of a wider matrix): row numbers then move by 1 element instead of by stride(0). Both strides of each operand should reach the kernel.
"""Matrix product tile by tile; the kernel knows along which axis an operand lies."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 4, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 32, 4, 4),
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
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    first = group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile - first * tiles_n
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def addresses(base, i, j, pitch, BY_ROW: tl.constexpr):
    """Pointers to the elements (i, j), rows or columns of the matrix being `pitch` apart."""
    if BY_ROW:
        at = base + i[:, None] * pitch + j[None, :]
    else:
        at = base + i[:, None] + j[None, :] * pitch
    return at


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, pitch_a, pitch_b, stride_cm, stride_cn,
    A_BY_ROW: tl.constexpr, B_BY_ROW: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a_mask = (rows < M)[:, None] & (ks < K)[None, :]
        b_mask = (ks < K)[:, None] & (cols < N)[None, :]
        a = tl.load(addresses(a_ptr, rows, ks, pitch_a, A_BY_ROW), mask=a_mask, other=0.0)
        b = tl.load(addresses(b_ptr, ks, cols, pitch_b, B_BY_ROW), mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


def _layout(x):
    """The distance between rows of x, or between its columns where those are contiguous, and which of both."""
    by_row = x.stride(1) == 1
    pitch = x.stride(0) if by_row else x.stride(1)
    return pitch, by_row


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    pitch_a, a_by_row = _layout(a)
    pitch_b, b_by_row = _layout(b)
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](
        a, b, out, bias, M, N, K, pitch_a, pitch_b, out.stride(0), out.stride(1),
        A_BY_ROW=a_by_row, B_BY_ROW=b_by_row, BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
