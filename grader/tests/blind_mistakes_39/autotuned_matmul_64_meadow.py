# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | _launch describes out as BLAS does, by one leading dimension (ldc) and a flag C_BY_ROWS = out.stride(1) == 1; where stride(1) is not 1 the kernel takes the stride of rows as 1. It shows in both functions where neither stride of out is 1 (as every second column of a wider matrix) and M > 1: the results go to other addresses. Contiguous, padded and transposed out are right. Should pass both strides of out and use rows * stride_cm + cols * stride_cn.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl

# Programs of a launch, at most: each takes tile after tile until none is left.
PROGRAMS = 528


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, num_stages=3, num_warps=8),
    _config(256, 128, 64, num_stages=3, num_warps=8),
    _config(128, 128, 64, num_stages=4, num_warps=8),
    _config(64, 128, 64, num_stages=4, num_warps=4),
    _config(64, 64, 32, num_stages=4, num_warps=4),
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
    in_group = tl.cdiv(N, BLOCK_N) * GROUP_M
    first = tile // in_group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    rest = tile % in_group
    pid_m = first + rest % height
    pid_n = rest // height
    return pid_m * BLOCK_M, pid_n * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, ldc, C_BY_ROWS: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); each program owns every num_programs-th tile of c.

    a is (M, K), b (K, N) and c (M, N), bf16, fp16 or fp32, all of one dtype; bias is (N,) like them,
    contiguous, and read where BIAS_RELU.
    """
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    for tile in range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
        cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
        a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
        b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn

        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (ks[None, :] < K - k), other=0.0)
            b = tl.load(b_ptrs, mask=(ks[:, None] < K - k) & (cols[None, :] < N), other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
            a_ptrs += BLOCK_K * stride_ak
            b_ptrs += BLOCK_K * stride_bk

        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            acc = tl.maximum(acc + bias[None, :], 0.0)

        # One of the two factors is known when the kernel is compiled, and stores can be wide.
        if C_BY_ROWS:
            c_ptrs = c_ptr + rows[:, None] * ldc + cols[None, :]
        else:
            c_ptrs = c_ptr + rows[:, None] + cols[None, :] * ldc
        inside = (rows[:, None] < M) & (cols[None, :] < N)
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    by_rows = out.stride(1) == 1
    ldc = out.stride(0) if by_rows else out.stride(1)
    matmul_kernel[lambda meta: (min(PROGRAMS, tiles(meta)),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), ldc, C_BY_ROWS=by_rows, BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
