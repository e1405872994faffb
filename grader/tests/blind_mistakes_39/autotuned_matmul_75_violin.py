# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | In finish the ReLU is tl.max(acc + bias[None, :], 0) instead of tl.maximum(..., 0.0): tl.max takes 0 as an axis and reduces the tile to (BLOCK_N,), so the tl.store of matmul_kernel does not compile (cannot broadcast, rank mismatch). Every case of matmul_bias_relu; matmul is right, as it is compiled without the epilogue.
"""Matrix product by programs that walk over the tiles, autotuned, and the same with bias and ReLU."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 3, 4),
    _config(32, 32, 32, 3, 4),
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
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def product(
    a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The sums of one tile, in fp32."""
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (ks[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K - k) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    return acc


@triton.jit
def finish(acc, bias_ptr, cols, N):
    """Bias and ReLU, still in fp32."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.max(acc + bias[None, :], 0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program pid owns the tiles pid, pid + programs, pid + 2 * programs, ... of c."""
    count = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(axis=0), count, tl.num_programs(axis=0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = tl.arange(0, BLOCK_M).to(tl.int64) + m
        cols = tl.arange(0, BLOCK_N).to(tl.int64) + n
        sums = product(
            a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
            BLOCK_M, BLOCK_N, BLOCK_K,
        )  # fmt: skip
        if BIAS_RELU:
            sums = finish(sums, bias_ptr, cols, N)
        c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        inside = (rows[:, None] < M) & (cols[None, :] < N)
        tl.store(c_ptrs, sums.to(c_ptr.dtype.element_ty), mask=inside)


def _programs(x):
    """How many programs run at a time: one for each SM, a handful without a GPU."""
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 8


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    most = _programs(a)
    # Small tiles leave room for more than one program on an SM.
    grid = lambda meta: (min(tiles(meta), most if meta["BLOCK_M"] * meta["BLOCK_N"] > 8192 else 4 * most),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
