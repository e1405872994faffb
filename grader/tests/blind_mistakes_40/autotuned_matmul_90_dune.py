# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | In `add_kernel`, `parts = tl.arange(0, PARTS)` needs a power of two, but `_launch` computes `parts = min(8, triton.cdiv(K, 128))`, which is 3, 5, 6 or 7 as well: compile error "arange's range must be a power of 2". It should be a power of two, or a loop over the parts. Shows with fewer than 64 tiles of 128 x 128 for K of 257 to 384 and of 513 to 896, as 100 x 300 x 257 and 16 x 192 x 384; both functions.
"""Autotuned matrix product; where tiles are few, several programs share K and a second kernel adds up."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_stages=stages, num_warps=warps)
    for m, n, k, stages, warps in (
        (128, 256, 64, 3, 8),
        (256, 128, 64, 3, 8),
        (128, 128, 64, 4, 8),
        (64, 128, 64, 4, 4),
        (64, 64, 32, 4, 4),
    )
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


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cp, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (pid, part) owns one tile; with PARTS = 1 that is c itself, else sums over a part of K."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(axis=1)
    blocks = tl.cdiv(tl.cdiv(K, BLOCK_K), PARTS)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    a_rows = a_ptr + rows * stride_am
    b_cols = b_ptr + cols * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for block in range(0, blocks):
        ks = (part * blocks + block) * BLOCK_K + tl.arange(0, BLOCK_K)
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=(rows < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=(cols < N) & (ks[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU and PARTS == 1:
        acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc, 0.0)
    c_ptrs = c_ptr + part.to(tl.int64) * stride_cp + rows * stride_cm + cols * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def add_kernel(
    sums_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """c = the sum over the parts of K, with the epilogue; a program owns BLOCK elements, row by row."""
    e = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    inside = e < M * N
    parts = tl.arange(0, PARTS)
    sums = tl.load(sums_ptr + parts[:, None] * M * N + e[None, :], mask=inside[None, :], other=0.0)
    total = tl.sum(sums, axis=0)
    row, col = e // N, e % N
    if BIAS_RELU:
        total = tl.maximum(total + tl.load(bias_ptr + col, mask=inside, other=0.0).to(tl.float32), 0.0)
    c_ptrs = c_ptr + row.to(tl.int64) * stride_cm + col.to(tl.int64) * stride_cn
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    few = triton.cdiv(M, 128) * triton.cdiv(N, 128) < 64
    # At most 8 parts; with fewer, a part has 128 numbers of K or less.
    parts = min(8, triton.cdiv(K, 128)) if few else 1
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (tiles(meta), parts)  # noqa: E731
    if parts == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1),
            0, out.stride(0), out.stride(1), PARTS=1, BIAS_RELU=bias_relu,
        )  # fmt: skip
    else:
        sums = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
        matmul_kernel[grid](
            a, b, sums, bias, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1),
            M * N, N, 1, PARTS=parts, BIAS_RELU=bias_relu,
        )  # fmt: skip
        add_kernel[(triton.cdiv(M * N, 512),)](
            sums, out, bias, M, N, out.stride(0), out.stride(1), PARTS=parts, BIAS_RELU=bias_relu, BLOCK=512
        )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
