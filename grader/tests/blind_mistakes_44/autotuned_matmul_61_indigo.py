# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | `_launch`: the partial sums of a split K are in `torch.empty((shares, M, N), device=a.device, dtype=a.dtype)`; it should be `dtype=torch.float32`. Only for fp16 and bf16 where K > 64 and c has few tiles (at most 64 of 64 x 64, so K is split): each share is rounded to 16 bits before they are added, and the result is rounded more than once (seen where sums are whole numbers, such as 128 x 128 x 128); fp32 is right.
"""Autotuned matrix product; where c is small and K is long, several programs share a tile and a second kernel adds."""

import torch
import triton
import triton.language as tl

# A share of K is a multiple of this, so it is a multiple of every BLOCK_K below.
UNIT = 64
MOST_SHARES = 8
ADD_ROWS, ADD_COLS = 8, 128


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def epilogue(acc, bias_ptr, cols, N):
    """relu(acc + bias) in fp32, one bias for each column."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def share_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, share_k,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
    SHARES: tl.constexpr, BIAS_RELU: tl.constexpr, GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile of c[share], the products of share_k steps along K; the epilogue only where K is whole."""
    pid = tl.program_id(axis=0)
    share = pid % SHARES
    m, n = place(pid // SHARES, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_exists = rows[:, None] < M
    col_exists = cols[None, :] < N
    begin = share * share_k
    ks = begin + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    length = tl.minimum(share_k, K - begin)
    for done in range(0, length, BLOCK_K):
        a = tl.load(a_ptrs, mask=row_exists & (ks[None, :] < K - done), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K - done) & col_exists, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    if BIAS_RELU:
        acc = epilogue(acc, bias_ptr, cols, N)
    c_ptrs = c_ptr + share.to(tl.int64) * stride_cs + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


@triton.jit
def add_kernel(
    shares_ptr, c_ptr, bias_ptr, M, N, stride_ss, stride_sm, stride_cm, stride_cn,
    SHARES: tl.constexpr, BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c = the sum of the shares, always in the same order, and then the epilogue."""
    rows = (tl.program_id(axis=0) // tl.cdiv(N, COLS) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = (tl.program_id(axis=0) % tl.cdiv(N, COLS) * COLS + tl.arange(0, COLS)).to(tl.int64)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    ptrs = shares_ptr + rows[:, None] * stride_sm + cols[None, :]
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for _ in tl.static_range(SHARES):
        acc += tl.load(ptrs, mask=inside, other=0.0).to(tl.float32)
        ptrs += stride_ss
    if BIAS_RELU:
        acc = epilogue(acc, bias_ptr, cols, N)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    shares = max(1, min(MOST_SHARES, 128 // tiles, triton.cdiv(K, UNIT)))
    share_k = triton.cdiv(triton.cdiv(K, UNIT), shares) * UNIT
    if shares == 1:
        target, strides = out, (0, out.stride(0), out.stride(1))
    else:
        target = torch.empty((shares, M, N), device=a.device, dtype=a.dtype)
        strides = target.stride()
    grid = lambda meta: (  # noqa: E731
        shares * triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),
    )
    share_kernel[grid](
        a, b, target, bias, M, N, K, share_k, *a.stride(), *b.stride(), *strides,
        SHARES=shares, BIAS_RELU=bias_relu and shares == 1, GROUP_M=8,
    )  # fmt: skip
    if shares > 1:
        add_kernel[(triton.cdiv(M, ADD_ROWS) * triton.cdiv(N, ADD_COLS),)](
            target, out, bias, M, N, target.stride(0), target.stride(1), out.stride(0), out.stride(1),
            SHARES=shares, BIAS_RELU=bias_relu, ROWS=ADD_ROWS, COLS=ADD_COLS,
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the kernel that runs last has the epilogue. bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
