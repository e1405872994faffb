# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product. A small result with a long K is split along K: sums in a workspace, and a second kernel for the rest."""

import torch
import triton
import triton.language as tl

STEP = 64  # BLOCK_K of every config: a part of K is a multiple of it
LONG = 1024  # K from which a split is worth a second kernel
FEW = 64  # tiles of 64 x 64 below which one program a tile leaves SMs without work


def _config(block_m, block_n, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": STEP, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 3, 8),
    _config(256, 128, 3, 8),
    _config(128, 128, 3, 8),
    _config(64, 128, 4, 4),
    _config(64, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K", "part"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, part,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c[s] = a[:, part s] @ b[part s, :], where part s of K has `part` elements; with one part also the epilogue."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    s = tl.program_id(axis=1)
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    inside = (rows < M)[:, None] & (cols < N)[None, :]

    begin = s * part
    end = tl.minimum(begin + part, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K).to(tl.int64)
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=(rows < M)[:, None] & (ks < end)[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
            mask=(ks < end)[:, None] & (cols < N)[None, :],
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + s.to(tl.int64) * stride_cs + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit
def gather_kernel(
    sums_ptr, bias_ptr, c_ptr, M, N, parts, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c = the sum of all parts, or relu(that + bias); sums is (parts, M, N), fp32, contiguous."""
    across = tl.cdiv(N, COLS)
    block = tl.program_id(axis=0)
    rows = (block // across * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    cols = (block % across * COLS + tl.arange(0, COLS)).to(tl.int64)[None, :]
    inside = (rows < M) & (cols < N)
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    at = rows
    for _ in range(parts):
        acc += tl.load(sums_ptr + at * N + cols, mask=inside, other=0.0)
        at += M
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    strides = (a.stride(0), a.stride(1), b.stride(0), b.stride(1))

    if K < LONG or triton.cdiv(M, 64) * triton.cdiv(N, 64) > FEW:
        product_kernel[lambda meta: (tiles(meta), 1)](
            a, b, out, bias, M, N, K, K, *strides, 0, out.stride(0), out.stride(1), BIAS_RELU=bias_relu
        )
        return out

    part = triton.cdiv(triton.cdiv(K, 4), STEP) * STEP
    parts = triton.cdiv(K, part)
    sums = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    product_kernel[lambda meta: (tiles(meta), parts)](
        a, b, sums, bias, M, N, K, part, *strides, sums.stride(0), sums.stride(1), sums.stride(2), BIAS_RELU=False
    )
    gather_kernel[(triton.cdiv(M, 16) * triton.cdiv(N, 64),)](
        sums, bias, out, M, N, parts, out.stride(0), out.stride(1), BIAS_RELU=bias_relu, ROWS=16, COLS=64
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)
