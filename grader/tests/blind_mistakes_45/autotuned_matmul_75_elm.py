# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) In `product_kernel`, `left = K - (k - begin)` masks with the end of K and not of the share: it should be `end - (k - begin)`. Where K is split (K >= 256 and M * N <= 1024 * 1024) and cdiv(K, 4) is no multiple of BLOCK_K (K = 257, 384, 521), shares overlap and products are counted twice, in both functions. (2) In `finish`, `values = sums.to(out_ptr.dtype.element_ty)` rounds before `values + bias[None, :]`: bias and ReLU should come in fp32, before the conversion; digits are lost in fp16 and bf16 in matmul_bias_relu (seen in the exact cases).
"""Matrix product that splits a long K among programs where the result alone has too few tiles."""

import torch
import triton
import triton.language as tl

SPLITS = 4


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; the last one for fp32 and for whatever is smaller."""
    size = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        size = min(size, 32)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = (tile // in_group) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def finish(sums, out_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr):
    """The epilogue of a whole sum, and its store."""
    values = sums.to(out_ptr.dtype.element_ty)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        values = tl.maximum(values + bias[None, :], 0.0).to(out_ptr.dtype.element_ty)
    offsets = rows.to(tl.int64)[:, None] * stride_cm + cols.to(tl.int64)[None, :] * stride_cn
    tl.store(out_ptr + offsets, values, mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, part_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """A tile of c, or, where there are several parts, the share of one of them in that tile."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(1)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    share = tl.cdiv(K, PARTS)
    begin = part * share
    end = tl.minimum(begin + share, K)
    ks = begin + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows.to(tl.int64)[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols.to(tl.int64)[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        left = K - (k - begin)
        a = tl.load(a_ptrs, mask=(rows < M)[:, None] & (ks < left)[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=(ks < left)[:, None] & (cols < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    if PARTS == 1:
        finish(acc, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU)
    else:
        wide = rows.to(tl.int64) + part.to(tl.int64) * M
        inside = (rows < M)[:, None] & (cols < N)[None, :]
        tl.store(part_ptr + wide[:, None] * N + cols[None, :], acc, mask=inside)


@triton.jit
def join_kernel(
    part_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The parts of one tile, always added in the same order."""
    across = tl.cdiv(N, BLOCK_N)
    rows = tl.program_id(0) // across * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(0) % across * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for part in tl.static_range(PARTS):
        wide = rows.to(tl.int64)[:, None] + part * M
        sums += tl.load(part_ptr + wide * N + cols[None, :], mask=inside, other=0.0)
    finish(sums, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    parts = SPLITS if K >= 256 and M * N <= 1024 * 1024 else 1
    room = torch.empty((parts, M, N), device=a.device, dtype=torch.float32) if parts > 1 else out

    def grid(meta):
        return triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), parts

    product_kernel[grid](
        a, b, out, room, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(),
        PARTS=parts, BIAS_RELU=bias_relu,
    )  # fmt: skip
    if parts > 1:
        join_kernel[(triton.cdiv(M, 16) * triton.cdiv(N, 64),)](
            room, out, bias, M, N, *out.stride(),
            PARTS=parts, BIAS_RELU=bias_relu, BLOCK_M=16, BLOCK_N=64, num_warps=4,
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides; without atomics, so two runs have the same bits."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
