# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) matmul_kernel: each program takes tl.cdiv(K, PARTS) of K, which need not be a multiple of BLOCK_K, but masks its last step by ks < K instead of ks < stop, so the products after its share are counted again by the next program; both functions are wrong wherever cdiv(K, 4) is no multiple of BLOCK_K and K is above 1 (K = 17, 40, 129, 257, ...); (2) gather_kernel stores at c_ptr + row * stride_cm + col without the column stride of out, wrong where out is transposed or every second column of a wider matrix; should be col * stride_cn with out.stride(1)
"""Matrix product with K shared by PARTS programs: partial sums in fp32, added up by a second kernel."""

import torch
import triton
import triton.language as tl

PARTS = 4


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 4),
    _config(128, 128, 32, 4, 8),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tile_cols = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tile_cols)
    start = group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - start, GROUP_M)
    offset = tile - start * tile_cols
    return (start + offset % height) * BLOCK_M, (offset // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, part_ptr, M, N, K, total,
    stride_am, stride_ak, stride_bk, stride_bn, PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """part[p] = a[:, share p of K] @ b[share p of K], packed rows; p is the second number of a program."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    p = tl.program_id(axis=1)
    i = m + tl.arange(0, BLOCK_M)
    j = n + tl.arange(0, BLOCK_N)
    i_far = i.to(tl.int64)[:, None]
    j_far = j.to(tl.int64)[None, :]

    share = tl.cdiv(K, PARTS)
    start = p * share
    stop = min(start + share, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(start, stop, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        ks_far = ks.to(tl.int64)
        a = tl.load(
            a_ptr + i_far * stride_am + ks_far[None, :] * stride_ak,
            mask=(i[:, None] < M) & (ks[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + ks_far[:, None] * stride_bk + j_far * stride_bn,
            mask=(ks[:, None] < K) & (j[None, :] < N),
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    spots = part_ptr + p.to(tl.int64) * total + i_far * N + j_far
    tl.store(spots, acc, mask=(i[:, None] < M) & (j[None, :] < N))


@triton.jit
def gather_kernel(
    part_ptr, c_ptr, bias_ptr, total, N, stride_cm,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """c = the sum of the parts, element by element, with the epilogue."""
    at = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = at < total
    row = at // N
    col = at % N
    value = tl.zeros((BLOCK,), tl.float32)
    spots = part_ptr + at
    for _ in range(PARTS):
        value += tl.load(spots, mask=there, other=0.0)
        spots += total
    if BIAS_RELU:
        value += tl.load(bias_ptr + col, mask=there, other=0.0).to(tl.float32)
        value = tl.maximum(value, 0.0)
    tl.store(c_ptr + row * stride_cm + col, value.to(c_ptr.dtype.element_ty), mask=there)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    parts = torch.empty((PARTS, M, N), device=a.device, dtype=torch.float32)

    def grid(meta):
        return triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), PARTS

    matmul_kernel[grid](a, b, parts, M, N, K, M * N, *a.stride(), *b.stride(), PARTS=PARTS)
    gather_kernel[(triton.cdiv(M * N, 1024),)](
        parts, out, bias, M * N, N, out.stride(0), PARTS=PARTS, BIAS_RELU=bias_relu, BLOCK=1024
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the second kernel has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)
