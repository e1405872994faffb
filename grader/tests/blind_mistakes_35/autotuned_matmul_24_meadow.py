# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product; where a small result has a long K, several programs share a tile and a second kernel adds up."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps)
    for m, n, k, stages, warps in (
        (128, 256, 64, 3, 8),
        (256, 128, 64, 3, 8),
        (128, 128, 64, 3, 8),
        (64, 128, 64, 4, 4),
        (64, 64, 32, 4, 4),
        (32, 32, 32, 3, 4),
    )
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and small ones for fp32."""
    limit = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    limit = min(limit, named_args["M"], named_args["N"])
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= limit and c.kwargs["BLOCK_N"] <= limit]
    return kept or configs[-1:]


@triton.jit
def last_touch(total, bias_ptr, cols, exists, BIAS_RELU: tl.constexpr):
    """Bias and ReLU on fp32 sums; cols has the column of each, or of each column."""
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=exists, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias, 0.0)
    return total


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def part_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
    ALONE: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Axis 0 counts tiles, axis 1 the parts of K; each part has a slice of c of its own.

    ALONE: K is one part, and c the result itself.
    """
    # Four rows of tiles form a group, walked column by column; the last group may be lower.
    tile = tl.program_id(0)
    down = tl.cdiv(M, BLOCK_M)
    group = 4 * tl.cdiv(N, BLOCK_N)
    top = tile // group * 4
    height = tl.minimum(down - top, 4)
    rows = (top + tile % group % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tile % group // height * BLOCK_N + tl.arange(0, BLOCK_N)

    row_ok = (rows < M)[:, None]
    col_ok = (cols < N)[None, :]
    a_rows = a_ptr + rows.to(tl.int64)[:, None] * stride_am
    b_cols = b_ptr + cols.to(tl.int64)[None, :] * stride_bn

    # Parts begin at whole blocks; the last ones may be shorter, or empty.
    part = tl.program_id(1)
    span = tl.cdiv(tl.cdiv(K, BLOCK_K), tl.num_programs(1)) * BLOCK_K
    first = part * span
    last = tl.minimum(first + span, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(first, last, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_ok & (ks < K)[None, :], other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=col_ok & (ks < K)[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if ALONE:
        acc = last_touch(acc, bias_ptr, cols[None, :], col_ok, BIAS_RELU)
    c_tile = c_ptr + part.to(tl.int64) * stride_cs
    c_tile += rows.to(tl.int64)[:, None] * stride_cm + cols.to(tl.int64)[None, :] * stride_cn
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


@triton.jit
def add_up_kernel(
    parts_ptr, c_ptr, bias_ptr, N, total, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sum of the slices, always in the same order, for BLOCK elements of the result."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = at < total
    acc = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(PARTS):
        acc += tl.load(parts_ptr + at + part * total, mask=exists, other=0.0)
    row = at // N
    col = at % N
    acc = last_touch(acc, bias_ptr, col, exists, BIAS_RELU)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=exists)


def _parts(M, N, K):
    """Into how many parts K is split: a small result alone would leave most of the GPU idle."""
    return max(1, min(8, K // 512)) if M * N <= 512 * 512 else 1


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    parts = _parts(M, N, K)
    if parts == 1:
        target, strides = out, (0, out.stride(0), out.stride(1))
    else:
        target = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
        strides = (M * N, N, 1)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), parts)  # noqa: E731
    part_kernel[grid](
        a, b, target, bias, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), *strides,
        ALONE=parts == 1, BIAS_RELU=bias_relu,
    )  # fmt: skip
    if parts > 1:
        add_up_kernel[(triton.cdiv(M * N, 1024),)](
            target, out, bias, N, M * N, out.stride(0), out.stride(1),
            PARTS=parts, BIAS_RELU=bias_relu, BLOCK=1024,
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b in fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the kernel that stores the result has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)
