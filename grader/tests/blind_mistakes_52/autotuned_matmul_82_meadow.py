# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | A program sums two neighbouring blocks of columns in two accumulators that share each tile of a, and every second program walks along K from the end to the beginning (the masked tail comes first); helpers `load` and `finish`, and `fitting` counts 2 * HALF_N columns.
"""Matrix product, autotuned, and the same with bias and ReLU; a program sums two neighbouring blocks of columns.

Both blocks share each loaded tile of a. Every second program walks along K from the end to the beginning, so
that it finds in L2 what its neighbour has read last.
"""

import torch
import triton
import triton.language as tl


def _config(block_m, half_n, block_k, num_stages, num_warps):
    """A program owns block_m rows and 2 * half_n columns."""
    tile = {"BLOCK_M": block_m, "HALF_N": half_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 3, 8),
    _config(64, 64, 64, 3, 4),
    _config(64, 32, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], 2 * c.kwargs["HALF_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def load(ptr, i, j, stride_i, stride_j, height, width):
    """A block of a matrix, i a column of row numbers and j a row of column numbers; 0 outside."""
    return tl.load(ptr + i * stride_i + j * stride_j, mask=(i < height) & (j < width), other=0.0)


@triton.jit
def finish(acc, c_ptr, bias_ptr, i, j, stride_i, stride_j, M, N, BIAS_RELU: tl.constexpr):
    """Epilogue and store of one of the two blocks."""
    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    tl.store(c_ptr + i * stride_i + j * stride_j, acc.to(c_ptr.dtype.element_ty), mask=(i < M) & (j < N))


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, HALF_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x 2 HALF_N tile of c."""
    pid = tl.program_id(axis=0)
    m, n = place(pid, M, N, BLOCK_M, 2 * HALF_N, GROUP_M)
    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    left = (n + tl.arange(0, HALF_N)).to(tl.int64)[None, :]
    right = left + HALF_N

    steps = tl.cdiv(K, BLOCK_K)
    backward = pid % 2
    sum_left = tl.zeros((BLOCK_M, HALF_N), dtype=tl.float32)
    sum_right = tl.zeros((BLOCK_M, HALF_N), dtype=tl.float32)
    for step in range(steps):
        block = step + backward * (steps - 1 - 2 * step)
        ks = block * BLOCK_K + tl.arange(0, BLOCK_K)
        a = load(a_ptr, i, ks[None, :], stride_am, stride_ak, M, K)
        b = load(b_ptr, ks[:, None], left, stride_bk, stride_bn, K, N)
        sum_left = tl.dot(a, b, sum_left, input_precision="ieee")
        b = load(b_ptr, ks[:, None], right, stride_bk, stride_bn, K, N)
        sum_right = tl.dot(a, b, sum_right, input_precision="ieee")

    finish(sum_left, c_ptr, bias_ptr, i, left, stride_cm, stride_cn, M, N, BIAS_RELU)
    finish(sum_right, c_ptr, bias_ptr, i, right, stride_cm, stride_cn, M, N, BIAS_RELU)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, 2 * meta["HALF_N"]),)  # noqa: E731
    matmul_kernel[tiles](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
