# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | _destination() takes `out` only where it is contiguous; a padded, transposed or strided `out` is never written, and another tensor is returned. It should use and return `out` whenever it is given, the kernel has its strides anyway.
"""Matrix product, one program for each tile of the result, with an optional epilogue of bias and ReLU."""

import torch
import triton
import triton.language as tl


def _candidate(rows, columns, depth, stages, warps):
    """Return one candidate of the autotuner."""
    sizes = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth, "GROUP_M": 8}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


CANDIDATES = [
    _candidate(128, 256, 64, 3, 8),
    _candidate(128, 256, 64, 4, 8),
    _candidate(256, 128, 64, 3, 8),
    _candidate(128, 128, 64, 4, 8),
    _candidate(64, 128, 64, 4, 4),
    _candidate(64, 64, 32, 4, 4),  # for small results, and for fp32
]


def usable(configs, named_args, **kwargs):
    """Drop the candidates whose tile is larger than the result, and all large ones for fp32."""
    largest = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        largest = min(largest, 64)
    remaining = []
    for config in configs:
        if config.kwargs["BLOCK_M"] <= largest and config.kwargs["BLOCK_N"] <= largest:
            remaining.append(config)
    return remaining or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Return the first row and the first column of a tile."""
    tiles_along_m = tl.cdiv(M, BLOCK_M)
    tiles_along_n = tl.cdiv(N, BLOCK_N)
    tiles_in_group = GROUP_M * tiles_along_n
    group = tile // tiles_in_group
    first_row = group * GROUP_M
    rows_in_group = tl.minimum(tiles_along_m - first_row, GROUP_M)
    within = tile - group * tiles_in_group
    tile_row = first_row + within % rows_in_group
    tile_column = within // rows_in_group
    return tile_row * BLOCK_M, tile_column * BLOCK_N


@triton.autotune(configs=CANDIDATES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": usable})
@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    bias_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """c = a @ b, or relu(a @ b + bias)."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)

    # int64 before a stride is multiplied: the matrices may be larger than 2^31 elements.
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    columns = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    depths = tl.arange(0, BLOCK_K).to(tl.int64)
    row_exists = rows[:, None] < M
    column_exists = columns[None, :] < N

    a_ptrs = a_ptr + rows[:, None] * stride_am + depths[None, :] * stride_ak
    b_ptrs = b_ptr + depths[:, None] * stride_bk + columns[None, :] * stride_bn
    step = tl.full((1, 1), BLOCK_K, dtype=tl.int64)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        remaining = K - k
        a = tl.load(a_ptrs, mask=row_exists & (depths[None, :] < remaining), other=0.0)
        b = tl.load(b_ptrs, mask=(depths[:, None] < remaining) & column_exists, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += step * stride_ak
        b_ptrs += step * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)

    c_ptrs = c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_exists & column_exists)


def _destination(a, b, out):
    """The tensor that the kernel stores into."""
    if out is not None and out.is_contiguous():
        return out
    return torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)


def _run(a, b, bias, out, bias_relu):
    """Launch one program for each tile."""
    M, K = a.shape
    N = b.shape[1]
    c = _destination(a, b, out)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a,
        b,
        c,
        bias,
        M,
        N,
        K,
        a.stride(0),
        a.stride(1),
        b.stride(0),
        b.stride(1),
        c.stride(0),
        c.stride(1),
        BIAS_RELU=bias_relu,
    )
    return c


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return a @ b."""
    return _run(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return relu(a @ b + bias)."""
    return _run(a, b, bias, out, bias_relu=True)
