# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Holds the transpose of each tile of c (COLS x ROWS), by loading a and b with their indices exchanged, so the bias is `bias[:, None]`; strips of tile columns are walked row by row, and the ReLU is a `tl.where`.
"""Matrix product whose tiles are held the other way round: columns of c down, rows of c across."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"COLS": cols, "ROWS": rows, "STEP": step}, num_stages=stages, num_warps=warps)
    for cols, rows, step, stages, warps in (
        (256, 128, 64, 3, 8),
        (128, 256, 64, 3, 8),
        (128, 128, 64, 4, 8),
        (128, 64, 64, 4, 4),
        (64, 64, 32, 4, 4),
    )
]


def fitting(configs, named_args, **kwargs):
    """No tile larger than the result; 64 x 64 at most for fp32."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    kept = [c for c in configs if c.kwargs["COLS"] <= limit and c.kwargs["ROWS"] <= limit]
    return kept or configs[-1:]


@triton.jit
def strip(tile, down, across, WIDTH: tl.constexpr):
    """Tile row and tile column: strips of up to WIDTH tile columns, walked row by row."""
    size = WIDTH * down
    left = tile // size * WIDTH
    width = min(across - left, WIDTH)
    within = tile % size
    return within // width, left + within % width


@triton.jit
def relu(x):
    return tl.where(x < 0.0, 0.0, x)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def flipped_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    FUSED: tl.constexpr, COLS: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """acc is COLS x ROWS, the transpose of a tile of c: transposed tile of b times transposed tile of a."""
    row, col = strip(tl.program_id(axis=0), tl.cdiv(M, ROWS), tl.cdiv(N, COLS), 8)
    i = row * ROWS + tl.arange(0, ROWS)
    j = col * COLS + tl.arange(0, COLS)
    k = tl.arange(0, STEP)
    i_far = i.to(tl.int64)[None, :]
    j_far = j.to(tl.int64)[:, None]
    i_in = (i < M)[None, :]
    j_in = (j < N)[:, None]

    b_at = b_ptr + j_far * stride_bn + k[None, :] * stride_bk
    a_at = a_ptr + i_far * stride_am + k[:, None] * stride_ak
    acc = tl.zeros((COLS, ROWS), dtype=tl.float32)
    for done in range(0, K, STEP):
        k_in = k < K - done
        b_t = tl.load(b_at, mask=j_in & k_in[None, :], other=0.0)
        a_t = tl.load(a_at, mask=i_in & k_in[:, None], other=0.0)
        acc = tl.dot(b_t, a_t, acc, input_precision="ieee")
        b_at += STEP * stride_bk
        a_at += STEP * stride_ak

    if FUSED:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0)
        acc = relu(acc + bias[:, None].to(tl.float32))
    tl.store(c_ptr + j_far * stride_cn + i_far * stride_cm, acc.to(c_ptr.dtype.element_ty), mask=j_in & i_in)


def _launch(a, b, bias, out, fused):
    M, K = a.shape
    N = b.size(1)
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(N, meta["COLS"]) * triton.cdiv(M, meta["ROWS"]),)  # noqa: E731
    flipped_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        FUSED=fused,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, True)
