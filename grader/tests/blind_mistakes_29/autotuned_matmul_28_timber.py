# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | Split along K with a second kernel that adds up: partial_kernel stores its parts as (PARTS, M, N), at (part * M + row) * N + col, but add_kernel reads them as (M, PARTS, N), at (row * PARTS + part) * N + col. Each row of the result is the sum of four parts of other rows. Wrong for every M > 1; add_kernel should read at (part * M + row) * N + col.
"""Matrix product in two steps: K is split among programs, then their parts are added in a fixed order."""

import torch
import triton
import triton.language as tl

PARTS = 4


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
    _config(32, 32, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def partial_kernel(
    a_ptr, b_ptr, parts_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (tile, part) sums its share of the blocks of K; a part without a block stores zeros."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    ks = tl.arange(0, BLOCK_K).to(tl.int64)

    share = tl.cdiv(tl.cdiv(K, BLOCK_K), PARTS) * BLOCK_K
    start = part * share
    stop = tl.minimum(start + share, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(start, stop, BLOCK_K):
        at = k + ks
        a = tl.load(
            a_ptr + rows * stride_am + at[None, :] * stride_ak, mask=(rows < M) & (at < K)[None, :], other=0.0
        )
        b = tl.load(
            b_ptr + at[:, None] * stride_bk + cols * stride_bn, mask=(at < K)[:, None] & (cols < N), other=0.0
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    place_of = (part.to(tl.int64) * M + rows) * N + cols
    tl.store(parts_ptr + place_of, acc, mask=(rows < M) & (cols < N))


@triton.jit
def add_kernel(
    parts_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Adds the parts, applies the epilogue and rounds once."""
    across = tl.cdiv(N, COLS)
    pid = tl.program_id(axis=0)
    rows = (pid // across * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    cols = (pid % across * COLS + tl.arange(0, COLS)).to(tl.int64)[None, :]
    exists = (rows < M) & (cols < N)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for part in range(PARTS):
        total += tl.load(parts_ptr + (rows * PARTS + part) * N + cols, mask=exists, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias, 0.0)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, total.to(c_ptr.dtype.element_ty), mask=exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    parts = torch.empty((PARTS, M, N), device=a.device, dtype=torch.float32)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), PARTS)

    partial_kernel[grid](a, b, parts, M, N, K, *a.stride(), *b.stride(), PARTS=PARTS)
    blocks = triton.cdiv(M, 16) * triton.cdiv(N, 128)
    add_kernel[(blocks,)](
        parts, out, bias, M, N, *out.stride(), BIAS_RELU=bias_relu, PARTS=PARTS, ROWS=16, COLS=128
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the epilogue is in the second kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
