# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_kernel loads the tile of b as lines of (BN, BK) and turns it into (BK, BN) by tl.reshape(y, (BK, BN)), which keeps the order of the elements and does not transpose: the dot multiplies scrambled numbers. Wrong in both functions in every case but M = N = K = 1 and the like (K = 1 with N = 1). It should be tl.trans(y).
"""Matrix product in which a and b are read by the same helper: lines along K."""

import torch
import triton
import triton.language as tl


def _tile(bm, bn, bk, stages, warps):
    return triton.Config({"BM": bm, "BN": bn, "BK": bk, "GROUP": 8}, num_stages=stages, num_warps=warps)


CONFIGS = [
    _tile(128, 128, 64, 3, 8),
    _tile(128, 64, 64, 4, 4),
    _tile(64, 128, 32, 4, 4),
    _tile(64, 64, 32, 4, 4),
    _tile(32, 32, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 128
    widest = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= widest]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """First row and first column of a tile, in groups of GROUP rows of tiles."""
    down = tl.cdiv(M, BM)
    across = tl.cdiv(N, BN)
    i, j = tl.swizzle2d(tile // across, tile % across, down, across, GROUP)
    return i * BM, j * BN


@triton.jit
def load_lines(base, lines, count, stride_line, k, K, stride_k, BK: tl.constexpr):
    """BK numbers from k on of each line: a row of a, or a column of b; 0 outside."""
    ks = k + tl.arange(0, BK)
    where = base + lines.to(tl.int64)[:, None] * stride_line + ks[None, :] * stride_k
    return tl.load(where, mask=(lines < count)[:, None] & (ks < K)[None, :], other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BM, BN, GROUP)
    rows = m + tl.arange(0, BM)
    cols = n + tl.arange(0, BN)

    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = load_lines(a_ptr, rows, M, stride_am, k, K, stride_ak, BK)
        y = load_lines(b_ptr, cols, N, stride_bn, k, K, stride_bk, BK)
        acc = tl.dot(x, tl.reshape(y, (BK, BN)), acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)

    c_at = c_ptr + rows.to(tl.int64)[:, None] * stride_cm + cols.to(tl.int64)[None, :] * stride_cn
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = a.new_empty((M, N))

    def grid(meta):
        return (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1), BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)
