# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Block pointers for a, b and c (`tl.make_block_ptr`, `tl.advance`, `boundary_check`, padding with zeros) instead of pointers and masks, and `tl.swizzle2d` for the order of the tiles.
"""Matrix product with block pointers: the tiles of a, b and c know their matrix, and check its edges."""

import torch
import triton
import triton.language as tl

SIZES = ("ROWS", "COLS", "DEPTH")
CONFIGS = [
    triton.Config(dict(zip(SIZES, sizes)), num_stages=stages, num_warps=warps)
    for sizes, stages, warps in (
        ((128, 128, 64), 4, 8),
        ((128, 128, 32), 4, 8),
        ((128, 64, 64), 4, 8),
        ((64, 128, 64), 4, 8),
        ((64, 64, 64), 4, 4),
        ((64, 64, 32), 3, 4),
    )
]


def fitting(configs, named_args, **kwargs):
    """Tiles that are not larger than the result; fp32 takes the last."""
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    m, n = named_args["M"], named_args["N"]
    kept = [c for c in configs if c.kwargs["ROWS"] <= m and c.kwargs["COLS"] <= n]
    return kept or configs[-1:]


@triton.jit
def place(M, N, ROWS: tl.constexpr, COLS: tl.constexpr):
    """First row and first column of the tile of this program, groups of eight rows of tiles at a time."""
    down = tl.cdiv(M, ROWS)
    across = tl.cdiv(N, COLS)
    pid = tl.program_id(0)
    i, j = tl.swizzle2d(pid // across, pid % across, down, across, 8)
    return i * ROWS, j * COLS


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def tile_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, EPILOGUE: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """One ROWS x COLS tile of c = a @ b, or of relu(a @ b + bias) where EPILOGUE."""
    m, n = place(M, N, ROWS, COLS)
    a_tile = tl.make_block_ptr(a_ptr, (M, K), (stride_am, stride_ak), (m, 0), (ROWS, DEPTH), (1, 0))
    b_tile = tl.make_block_ptr(b_ptr, (K, N), (stride_bk, stride_bn), (0, n), (DEPTH, COLS), (1, 0))
    c_tile = tl.make_block_ptr(c_ptr, (M, N), (stride_cm, stride_cn), (m, n), (ROWS, COLS), (1, 0))

    sums = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, DEPTH)):
        a = tl.load(a_tile, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(b_tile, boundary_check=(0, 1), padding_option="zero")
        sums = tl.dot(a, b, sums, input_precision="ieee")
        a_tile = tl.advance(a_tile, (0, DEPTH))
        b_tile = tl.advance(b_tile, (DEPTH, 0))

    if EPILOGUE:
        cols = n + tl.arange(0, COLS)
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        sums = tl.maximum(sums + bias[None, :], 0.0)
    tl.store(c_tile, sums.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


def _launch(a, b, bias, out, epilogue):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)

    grid = lambda meta: (triton.cdiv(M, meta["ROWS"]) * triton.cdiv(N, meta["COLS"]),)  # noqa: E731
    tile_kernel[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), EPILOGUE=epilogue)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, epilogue=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, epilogue=True)
