# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | `slices_kernel` stores slice s at `s * M * N + row * N + col`, but `join_kernel` reads `at = element[:, None] * SLICES + piece[None, :]`; it should be `element[:, None] + piece[None, :].to(tl.int64) * M * N`. Shows in both functions wherever K is shared (SLICES = 4: every result of fewer than 1024 * 1024 elements but 1 x 1); larger results are right.
"""Matrix product in two launches: slices of K into a workspace of fp32 sums, then one that joins them."""

import torch
import triton
import triton.language as tl

JOIN = 1024


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs whose tile the result fills, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    widest = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= widest]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def slices_kernel(
    a_ptr, b_ptr, sums_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, SLICES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Slice s has every SLICES-th block of K, from block s on."""
    piece = tl.program_id(axis=0) % SLICES
    m, n = place(tl.program_id(axis=0) // SLICES, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    start = piece * BLOCK_K
    a_ptrs = a_ptr + rows[:, None] * stride_am + (start + ks)[None, :] * stride_ak
    b_ptrs = b_ptr + (start + ks)[:, None] * stride_bk + cols[None, :] * stride_bn
    has_row, has_col = rows[:, None] < M, cols[None, :] < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(start, K, SLICES * BLOCK_K):
        a = tl.load(a_ptrs, mask=has_row & (ks[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K - k) & has_col, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += SLICES * BLOCK_K * stride_ak
        b_ptrs += SLICES * BLOCK_K * stride_bk
    at = (piece.to(tl.int64) * M + rows[:, None]) * N + cols[None, :]
    tl.store(sums_ptr + at, acc, mask=has_row & has_col)


@triton.jit
def plus(x, y):
    return x + y


@triton.jit
def join_kernel(
    sums_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SLICES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adds the slices of BLOCK elements of c, in fp32, and rounds once."""
    element = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    piece = tl.arange(0, SLICES)
    row, col = element // N, element % N
    exists = row < M
    at = element[:, None] * SLICES + piece[None, :]
    sums = tl.load(sums_ptr + at, mask=exists[:, None], other=0.0)
    total = tl.reduce(sums, 1, plus)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + col, mask=exists, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias, 0.0)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, total.to(c_ptr.dtype.element_ty), mask=exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    # Large results have tiles enough for the whole GPU; SLICES is a power of two for tl.arange.
    slices = 1 if M * N >= 1024 * 1024 else 4
    sums = torch.empty((slices, M, N), device=a.device, dtype=torch.float32)
    grid = lambda meta: (slices * triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    slices_kernel[grid](a, b, sums, M, N, K, *a.stride(), *b.stride(), SLICES=slices)
    join_kernel[(triton.cdiv(M * N, JOIN),)](
        sums, out, bias, M, N, *out.stride(), BIAS_RELU=bias_relu, SLICES=slices, BLOCK=JOIN
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; the sums stay in fp32 until the last launch."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias and ReLU are in the last launch."""
    return _launch(a, b, bias, out, bias_relu=True)
