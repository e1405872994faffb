# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Each program has two accumulators, left and right half of its BLOCK_N columns, which share the tile of a; tiles are counted in groups of columns (GROUP_N); `triton.heuristics` under the autotuner finds out whether BLOCK_K divides K and drops the mask along K then.
"""Matrix product, autotuned: each program sums two tiles side by side, which share what it loads of a.

The tiles are counted in groups of columns. Where BLOCK_K divides K, which a heuristic finds out for each config,
the loads need no mask along K.
"""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    """BLOCK_N counts the columns of both tiles."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_N": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 32, 4, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


def _even_k(args):
    return args["K"] % args["BLOCK_K"] == 0


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_N: tl.constexpr):
    """First row and first column of a program: groups of GROUP_N columns of tiles are walked row by row."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_N * tiles_m
    first = tile // in_group * GROUP_N
    width = min(tiles_n - first, GROUP_N)
    within = tile % in_group
    return within // width * BLOCK_M, (first + within % width) * BLOCK_N


@triton.jit
def fetch(ptrs, side_ok, k_ok, EVEN_K: tl.constexpr):
    """A tile of a or b, 0 outside of the matrix."""
    if EVEN_K:
        return tl.load(ptrs, mask=side_ok, other=0.0)
    else:
        return tl.load(ptrs, mask=side_ok & k_ok, other=0.0)


@triton.jit
def leave(acc, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr):
    """The epilogue in fp32, one rounding, and the store."""
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    where = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(where, acc.to(c_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"EVEN_K": _even_k})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_N: tl.constexpr,
    EVEN_K: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns BLOCK_M x BLOCK_N of c, in two halves."""
    HALF: tl.constexpr = BLOCK_N // 2
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_N)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    west = (n + tl.arange(0, HALF)).to(tl.int64)
    east = west + HALF
    ks = tl.arange(0, BLOCK_K)
    row_ok, west_ok, east_ok = (rows < M)[:, None], (west < N)[None, :], (east < N)[None, :]
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    west_ptrs = b_ptr + ks[:, None] * stride_bk + west[None, :] * stride_bn
    east_ptrs = b_ptr + ks[:, None] * stride_bk + east[None, :] * stride_bn

    west_acc = tl.zeros((BLOCK_M, HALF), dtype=tl.float32)
    east_acc = tl.zeros((BLOCK_M, HALF), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        k_ok = ks < K - k
        a = fetch(a_ptrs, row_ok, k_ok[None, :], EVEN_K)
        west_acc = tl.dot(a, fetch(west_ptrs, west_ok, k_ok[:, None], EVEN_K), west_acc, input_precision="ieee")
        east_acc = tl.dot(a, fetch(east_ptrs, east_ok, k_ok[:, None], EVEN_K), east_acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        west_ptrs += BLOCK_K * stride_bk
        east_ptrs += BLOCK_K * stride_bk

    leave(west_acc, c_ptr, bias_ptr, rows, west, M, N, stride_cm, stride_cn, BIAS_RELU)
    leave(east_acc, c_ptr, bias_ptr, rows, east, M, N, stride_cm, stride_cn, BIAS_RELU)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out

    def programs(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[programs](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
