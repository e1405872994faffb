# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `sums_kernel`, where K is shared by programs, the mask uses `left = K - k`; it should be `stop - k`. Where the length of a part is no multiple of BLOCK_K, the elements behind the end of a part are counted twice: small results (fewer than 132 tiles of 64 x 64) with K from 256 on that does not divide into such parts, as (100, 300, 257), in both functions. With one part, or parts of whole blocks (K = 384, 4096), it is right.
"""Matrix product that adds fp32 sums by atomics, so that K may be shared; a second kernel has the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(128, 64, 64, 3, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles."""
    per_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // per_group * GROUP_M
    height = tl.minimum(GROUP_M, tl.cdiv(M, BLOCK_M) - first)
    within = tile % per_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(
    configs=CONFIGS,
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": fitting},
    reset_to_zero=["sums_ptr"],
)
@triton.jit
def sums_kernel(
    a_ptr, b_ptr, sums_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """sums += a @ b, where sums is (M, N), fp32, contiguous; axis 1 of the grid shares K."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N

    length = tl.cdiv(K, tl.num_programs(1))
    start = tl.program_id(1) * length
    stop = tl.minimum(start + length, K)
    a_ptrs = a_ptr + rows.to(tl.int64)[:, None] * stride_am + (start + ks)[None, :] * stride_ak
    b_ptrs = b_ptr + (start + ks)[:, None] * stride_bk + cols.to(tl.int64)[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(start, stop, BLOCK_K):
        left = K - k
        a = tl.load(a_ptrs, mask=row_ok & (ks[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < left) & col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    where = rows.to(tl.int64)[:, None] * N + cols[None, :]
    tl.atomic_add(sums_ptr + where, acc, mask=row_ok & col_ok, sem="relaxed")


@triton.jit
def round_kernel(
    sums_ptr, c_ptr, bias_ptr, N, size, stride_cm, stride_cn, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr
):
    """c = the sums, or relu(sums + bias), rounded once; size is the number of elements."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = i < size
    row = i // N
    col = i % N
    value = tl.load(sums_ptr + i, mask=exists, other=0.0)
    if BIAS_RELU:
        value += tl.load(bias_ptr + col, mask=exists, other=0.0).to(tl.float32)
        value = tl.maximum(value, 0.0)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, value.to(c_ptr.dtype.element_ty), mask=exists)


def _parts(M, N, K):
    """Programs that share K: several where there are fewer tiles than SMs and K is long."""
    few = triton.cdiv(M, 64) * triton.cdiv(N, 64) < 132
    return max(1, min(8, K // 128)) if few else 1


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    parts = _parts(M, N, K)
    grid = lambda meta: (  # noqa: E731
        triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),
        parts,
    )
    sums_kernel[grid](a, b, sums, M, N, K, *a.stride(), *b.stride())
    size = M * N
    round_kernel[(triton.cdiv(size, 1024),)](
        sums, out, bias, N, size, out.stride(0), out.stride(1), BIAS_RELU=bias_relu, BLOCK=1024
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
