# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product that shares a long K among programs where the result has too few tiles for all SMs."""

import torch
import triton
import triton.language as tl

STRIP = 256


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and of 64 x 64 for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    columns = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * columns
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cp, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (tile, part) sums one tile over one part of K, and stores it in matrix `part` of c.

    Where there is one part, c is the result itself.
    """
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(axis=1)
    # Parts are whole blocks of K; the last ones may be short or empty.
    length = tl.cdiv(tl.cdiv(K, tl.num_programs(axis=1)), BLOCK_K) * BLOCK_K
    begin = part * length
    end = tl.minimum(begin + length, K)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N
    ks = begin + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        lanes = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptrs, mask=row_ok & (lanes[None, :] < end), other=0.0)
        b = tl.load(b_ptrs, mask=(lanes[:, None] < end) & col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + part.to(tl.int64) * stride_cp + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


@triton.jit
def combine_kernel(
    parts_ptr, c_ptr, bias_ptr, N, parts, size, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adds the parts of one strip of a row, always in the same order, and has the epilogue."""
    strips = tl.cdiv(N, BLOCK)
    pid = tl.program_id(axis=0)
    row = (pid // strips).to(tl.int64)
    cols = (pid % strips * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    inside = cols < N
    ptrs = parts_ptr + row * N + cols
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for _ in range(0, parts):
        acc += tl.load(ptrs, mask=inside, other=0.0)
        ptrs += size
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    tl.store(c_ptr + row * stride_cm + cols * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _parts(M, N, K):
    """Twice as many, as long as SMs are idle and each part keeps at least 256 of K; 8 at most."""
    tiles = triton.cdiv(M, 128) * triton.cdiv(N, 128)
    parts = 1
    while parts < 8 and tiles * parts < 132 and K >= 512 * parts:
        parts *= 2
    return parts


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    parts = _parts(M, N, K)
    grid = lambda meta: (  # noqa: E731
        triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),
        parts,
    )
    if parts == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K,
            a.stride(0), a.stride(1), b.stride(0), b.stride(1), 0, out.stride(0), out.stride(1),
            BIAS_RELU=bias_relu,
        )  # fmt: skip
        return out
    sums = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](
        a, b, sums, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), M * N, N, 1,
        BIAS_RELU=False,
    )  # fmt: skip
    combine_kernel[(M * triton.cdiv(N, STRIP),)](
        sums, out, bias, N, parts, M * N, out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu, BLOCK=STRIP, num_warps=4,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the last kernel that runs has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)
