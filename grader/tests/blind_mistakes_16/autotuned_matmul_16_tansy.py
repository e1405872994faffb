# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product. A small result with a long K has too few tiles for the GPU: there K is cut into pieces."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    return [c for c in configs if c.kwargs["BLOCK_M"] <= size and c.kwargs["BLOCK_N"] <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def epilogue(acc, bias_ptr, cols, N):
    """relu(acc + bias), still in fp32."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cp, stride_cm, stride_cn,
    PIECES: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c[piece] = the product over one piece of K; with one piece c is the result."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    piece = tl.program_id(axis=1)
    # whole blocks, so that only the last piece has a tail
    length = tl.cdiv(tl.cdiv(K, BLOCK_K), PIECES) * BLOCK_K
    begin = piece * length
    end = tl.minimum(begin + length, K)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
        b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        acc = epilogue(acc, bias_ptr, cols, N)
    c_ptrs = c_ptr + piece.to(tl.int64) * stride_cp + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def add_kernel(
    parts_ptr, c_ptr, bias_ptr, M, N, stride_pp, stride_pm, stride_cm, stride_cn,
    PIECES: tl.constexpr, BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c = the sum of all pieces, always in the same order, then the epilogue."""
    blocks_n = tl.cdiv(N, COLS)
    rows = (tl.program_id(0) // blocks_n * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = (tl.program_id(0) % blocks_n * COLS + tl.arange(0, COLS)).to(tl.int64)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for piece in tl.static_range(PIECES):
        ptrs = parts_ptr + piece * stride_pp + rows[:, None] * stride_pm + cols[None, :]
        acc += tl.load(ptrs, mask=inside, other=0.0)
    if BIAS_RELU:
        acc = epilogue(acc, bias_ptr, cols, N)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    pieces = 4 if K >= 512 and M * N <= 512 * 512 else 1
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), pieces)  # noqa: E731
    strides = (*a.stride(), *b.stride())
    if pieces == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, *strides, 0, *out.stride(), PIECES=1, BIAS_RELU=bias_relu
        )
        return out
    parts = torch.empty((pieces, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](
        a, b, parts, bias, M, N, K, *strides, *parts.stride(), PIECES=pieces, BIAS_RELU=False
    )
    add_kernel[(triton.cdiv(M, 16) * triton.cdiv(N, 64),)](
        parts, out, bias, M, N, parts.stride(0), parts.stride(1), *out.stride(),
        PIECES=pieces, BIAS_RELU=bias_relu, ROWS=16, COLS=64,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
