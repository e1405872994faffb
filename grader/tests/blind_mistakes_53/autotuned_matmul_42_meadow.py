# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Unusual: the accumulator starts from the bias (in fp32) and the loop adds the products to it; ReLU by `tl.where` at the end; masks are left out by heuristics where M, N or K consists of whole blocks of the config; groups of columns of tiles instead of rows.
"""Autotuned matrix product whose sums start from the bias; masks exist only where a size needs them."""

import torch
import triton
import triton.language as tl


# (BLOCK_M, BLOCK_N, BLOCK_K), stages, warps
SHAPES = (
    ((128, 256, 64), 3, 8),
    ((256, 128, 64), 3, 8),
    ((128, 128, 64), 4, 8),
    ((128, 64, 64), 3, 4),
    ((64, 128, 64), 3, 4),
    ((64, 64, 32), 3, 4),
)
CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_N": 8}, num_stages=stages, num_warps=warps)
    for (m, n, k), stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_N: tl.constexpr):
    """First row and first column of a tile: GROUP_N columns of tiles are walked row by row."""
    in_group = GROUP_N * tl.cdiv(M, BLOCK_M)
    first = tile // in_group * GROUP_N
    width = tl.minimum(tl.cdiv(N, BLOCK_N) - first, GROUP_N)
    within = tile % in_group
    return (within // width) * BLOCK_M, (first + within % width) * BLOCK_N


@triton.jit
def load_where(ptrs, first_ok, second_ok, FIRST: tl.constexpr, SECOND: tl.constexpr):
    """A block of a matrix, 0 outside; an axis that is whole (FIRST, SECOND) needs no mask."""
    if FIRST and SECOND:
        return tl.load(ptrs)
    elif FIRST:
        return tl.load(ptrs, mask=second_ok, other=0.0)
    elif SECOND:
        return tl.load(ptrs, mask=first_ok, other=0.0)
    else:
        return tl.load(ptrs, mask=first_ok & second_ok, other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics(
    {
        "WHOLE_M": lambda args: args["M"] % args["BLOCK_M"] == 0,
        "WHOLE_N": lambda args: args["N"] % args["BLOCK_N"] == 0,
        "WHOLE_K": lambda args: args["K"] % args["BLOCK_K"] == 0,
    }
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_N: tl.constexpr,
    WHOLE_M: tl.constexpr, WHOLE_N: tl.constexpr, WHOLE_K: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(bias + a @ b); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_N)
    rows = (m.to(tl.int64) + tl.arange(0, BLOCK_M))[:, None]
    cols = (n.to(tl.int64) + tl.arange(0, BLOCK_N))[None, :]
    k_row = tl.arange(0, BLOCK_K)[None, :]
    k_column = tl.arange(0, BLOCK_K)[:, None]

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if BIAS_RELU:
        acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    a_ptrs = a_ptr + rows * stride_am + k_row * stride_ak
    b_ptrs = b_ptr + k_column * stride_bk + cols * stride_bn
    for k in range(0, K, BLOCK_K):
        a = load_where(a_ptrs, rows < M, k_row < K - k, WHOLE_M, WHOLE_K)
        b = load_where(b_ptrs, k_column < K - k, cols < N, WHOLE_K, WHOLE_N)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if BIAS_RELU:
        acc = tl.where(acc < 0.0, 0.0, acc)
    c_ptrs = c_ptr + rows * stride_cm + cols * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
