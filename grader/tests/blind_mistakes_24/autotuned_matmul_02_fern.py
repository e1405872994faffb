# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_kernel sums the transposed tile (columns of c down, rows across), but stores `sums` through pointers with rows down and columns across, so each tile of c is transposed in itself. It should store `tl.trans(sums)`; all tiles are square, so the shapes agree.
"""C = A B, computed as tiles of B^T A^T.  A 2-D grid; every program works down a list of tile columns."""

import torch
import triton
import triton.language as tl

# square tiles only: edge, depth, stages, warps
CONFIGS = [
    triton.Config({"TILE": edge, "BLOCK_K": depth}, num_stages=stages, num_warps=warps)
    for edge, depth, stages, warps in [
        (128, 64, 3, 8),
        (128, 32, 4, 8),
        (128, 32, 4, 4),
        (64, 64, 4, 4),
        (64, 32, 3, 4),
    ]
]


def fitting(configs, named_args, **kwargs):
    """fp32 gets the 64 x 64 tiles, and small results do not get large tiles."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    good = [config for config in configs if config.kwargs["TILE"] <= limit]
    return good if good else configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
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
    TILE: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    # axis 0: the tile row.  axis 1: where to start in that row.
    rows = (tl.program_id(axis=0) * TILE + tl.arange(0, TILE)).to(tl.int64)
    row_exists = rows < M
    for column in range(tl.program_id(axis=1), tl.cdiv(N, TILE), tl.num_programs(axis=1)):
        cols = (column * TILE + tl.arange(0, TILE)).to(tl.int64)
        col_exists = cols < N
        sums = tl.zeros((TILE, TILE), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
            k_exists = ks < K
            # B^T: columns of B go down.  A^T: rows of A go across.
            b_t = tl.load(
                b_ptr + cols[:, None] * stride_bn + ks[None, :] * stride_bk,
                mask=col_exists[:, None] & k_exists[None, :],
                other=0.0,
            )
            a_t = tl.load(
                a_ptr + ks[:, None] * stride_ak + rows[None, :] * stride_am,
                mask=k_exists[:, None] & row_exists[None, :],
                other=0.0,
            )
            sums = tl.dot(b_t, a_t, sums, input_precision="ieee")
        if BIAS_RELU:
            # the columns of C go down in sums, and so does the bias
            bias = tl.load(bias_ptr + cols, mask=col_exists, other=0.0).to(tl.float32)
            sums = tl.maximum(sums + bias[:, None], 0.0)
        tl.store(
            c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
            sums.to(c_ptr.dtype.element_ty),
            mask=row_exists[:, None] & col_exists[None, :],
        )


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    # Axis 1 of a CUDA grid is short (65535), so it is capped and the kernel loops.
    grid = lambda meta: (triton.cdiv(M, meta["TILE"]), min(triton.cdiv(N, meta["TILE"]), 64))  # noqa: E731
    matmul_kernel[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), bias of shape (N,)."""
    return _launch(a, b, bias, out, bias_relu=True)
