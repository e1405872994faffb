# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) in strip_kernel acc = tl.zeros(...) stands before the loop over the tiles of a strip, not inside it, so each tile after the first of its strip also holds the sums of those before it: shows in both functions wherever N > COLS (the width of a tile); (2) the epilogue is tl.maximum(acc, 0.0) + bias, ReLU before the bias: shows in every case of matmul_bias_relu; it should be tl.zeros at the start of each tile, and tl.maximum(acc + bias, 0.0)
"""Matrix product in which a program walks along a strip of tiles, so that its rows of a stay in the cache."""

import torch
import triton
import triton.language as tl


def _strip(rows, cols, depth, stages, warps):
    options = {"ROWS": rows, "COLS": cols, "DEPTH": depth}
    return triton.Config(options, num_stages=stages, num_warps=warps)


CONFIGS = [
    _strip(128, 128, 64, 3, 8),
    _strip(128, 64, 64, 3, 4),
    _strip(64, 128, 32, 4, 4),
    _strip(64, 64, 32, 3, 4),
]
STRIP = 4


def fitting(configs, named_args, **kwargs):
    single = named_args["x_ptr"].dtype == torch.float32
    largest = min(64 if single else 128, named_args["M"], named_args["N"])
    fit = [c for c in configs if max(c.kwargs["ROWS"], c.kwargs["COLS"]) <= largest]
    return fit if fit else configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def strip_kernel(
    x_ptr, w_ptr, y_ptr, bias_ptr, M, N, K,
    x_row, x_col, w_row, w_col, y_row, y_col,
    FUSED: tl.constexpr, TILES: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Program pid owns ROWS rows and up to TILES tiles of COLS columns of y."""
    down = tl.cdiv(M, ROWS)
    pid = tl.program_id(0)
    i = ((pid % down) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    begin = (pid // down) * TILES * COLS
    end = tl.minimum(begin + TILES * COLS, N)

    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for n in range(begin, end, COLS):
        j = (n + tl.arange(0, COLS)).to(tl.int64)[None, :]
        for start in range(0, K, DEPTH):
            k = (start + tl.arange(0, DEPTH)).to(tl.int64)
            x = tl.load(x_ptr + i * x_row + k[None, :] * x_col, mask=(i < M) & (k[None, :] < K), other=0.0)
            w = tl.load(w_ptr + k[:, None] * w_row + j * w_col, mask=(k[:, None] < K) & (j < N), other=0.0)
            acc = tl.dot(x, w, acc, input_precision="ieee")
        if FUSED:
            bias = tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
            y = tl.maximum(acc, 0.0) + bias
        else:
            y = acc
        tl.store(y_ptr + i * y_row + j * y_col, y.to(y_ptr.dtype.element_ty), mask=(i < M) & (j < N))


def _run(x, w, bias, y, fused):
    M, K = x.shape
    _, N = w.shape
    if y is None:
        y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = lambda meta: (triton.cdiv(M, meta["ROWS"]) * triton.cdiv(N, STRIP * meta["COLS"]),)  # noqa: E731
    strip_kernel[grid](
        x, w, y, bias, M, N, K, *x.stride(), *w.stride(), *y.stride(), FUSED=fused, TILES=STRIP
    )
    return y


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _run(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _run(a, b, bias, out, True)
