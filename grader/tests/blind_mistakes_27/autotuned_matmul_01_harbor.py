# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | in matmul_kernel the mask of K is `ks < K` where a slice of K ends at `high`: K is split into slices of `span` numbers, and where span is no multiple of BLOCK_K the last block of each slice but the last goes on into the next slice, so these products are counted twice. Shows in matmul and matmul_bias_relu where K is split (M * N <= 65536 and K >= 256) and cdiv(K, slices) is no multiple of BLOCK_K, such as (100, 300, 257); right for K < 256, for larger results and for K = 384 or 4096. It should be `ks < high`.
"""Matrix product, autotuned, with bias and ReLU on request; where the result is small and K is long, K is split."""

import torch
import triton
import triton.language as tl

SHORTEST_SLICE = 128  # numbers along K
MOST_SLICES = 8
SMALL_RESULT = 65536  # elements: such a result alone does not keep a GPU busy


def _config(block_m, block_n, block_k, num_stages, num_warps):
    shape = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(shape, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
    _config(32, 32, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Leave out tiles that are wider than the result, and large ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    widest = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= widest and c.kwargs["BLOCK_N"] <= widest]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile of c, in groups of GROUP_M rows of tiles."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, span,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c[s] is the product over `span` numbers of K from s * span on; program (t, s) owns tile t of c[s].

    With a single slice c is the result itself, in its own dtype.
    """
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    s = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    lanes = tl.arange(0, BLOCK_K)
    row_exists = (rows < M)[:, None]
    col_exists = (cols < N)[None, :]
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn

    low = s * span
    high = tl.minimum(low + span, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(low, high, BLOCK_K):
        ks = (k + lanes).to(tl.int64)
        k_exists = ks < K
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_exists & k_exists[None, :], other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=k_exists[:, None] & col_exists, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_tile = c_ptr + s.to(tl.int64) * stride_cs + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


@triton.jit
def join_kernel(
    parts_ptr, out_ptr, bias_ptr, M, N, slices, stride_om, stride_on, BIAS_RELU: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """out = the sum of the slices, (slices, M, N) fp32 and contiguous, then bias and ReLU."""
    i = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)[:, None]
    j = tl.program_id(axis=1) * COLS + tl.arange(0, COLS)[None, :]
    inside = (i < M) & (j < N)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for s in range(0, slices):
        total += tl.load(parts_ptr + (s * M + i) * N + j, mask=inside, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias, 0.0)
    place_of = out_ptr + i.to(tl.int64) * stride_om + j.to(tl.int64) * stride_on
    tl.store(place_of, total.to(out_ptr.dtype.element_ty), mask=inside)


def slices_of(M, N, K):
    """How many slices K is split into: one, unless the result is small and K is long."""
    if M * N > SMALL_RESULT or K < 2 * SHORTEST_SLICE:
        return 1
    return min(MOST_SLICES, K // SHORTEST_SLICE)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = a.new_empty((M, N)) if out is None else out
    slices = slices_of(M, N, K)
    split = slices > 1
    target = torch.empty((slices, M, N), device=a.device, dtype=torch.float32) if split else out
    from_slice_to_slice = target.stride(0) if split else 0
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), slices)  # noqa: E731
    matmul_kernel[grid](
        a, b, target, bias, M, N, K, triton.cdiv(K, slices),
        a.stride(0), a.stride(1), b.stride(0), b.stride(1),
        from_slice_to_slice, target.stride(-2), target.stride(-1),
        BIAS_RELU=bias_relu and not split,
    )  # fmt: skip
    if split:
        join_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 64))](
            target, out, bias, M, N, slices, out.stride(0), out.stride(1),
            BIAS_RELU=bias_relu, ROWS=16, COLS=64,
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
