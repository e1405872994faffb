# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In partial_kernel each share of K is `tl.cdiv(K, BLOCK_K) // SHARES` blocks, rounded down: where the number of blocks is no multiple of SHARES, the last blocks of K belong to no share and are missing from both functions. Shows only for M * N <= 2^20 and K >= 128, as K = 129, 150, 200 or 257; right for K = 128, 192, 384, 4096 or where one share does all. It must be rounded up, tl.cdiv(tl.cdiv(K, BLOCK_K), SHARES).
"""Split-K: partial sums of each share of K in one kernel, their merge with the epilogue in another."""

import torch
import triton
import triton.language as tl

LARGEST_SPLIT = 2**20


def _candidate(tile_m, tile_n, tile_k, num_stages, num_warps):
    return triton.Config(
        {"BLOCK_M": tile_m, "BLOCK_N": tile_n, "BLOCK_K": tile_k},
        num_stages=num_stages,
        num_warps=num_warps,
    )


CANDIDATES = [
    _candidate(128, 256, 64, 3, 8),
    _candidate(128, 128, 64, 4, 8),
    _candidate(64, 64, 64, 4, 4),
    _candidate(32, 64, 64, 4, 4),
    _candidate(32, 32, 32, 3, 2),
]


def _reasonable(configs, named_args, **kwargs):
    m, n = named_args["M"], named_args["N"]
    wide = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    result = []
    for c in configs:
        if c.kwargs["BLOCK_M"] <= min(m, wide) and c.kwargs["BLOCK_N"] <= min(n, wide):
            result.append(c)
    if not result:
        result.append(configs[-1])
    return result


@triton.jit
def tile_place(pid, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    num_m = tl.cdiv(M, BLOCK_M)
    num_n = tl.cdiv(N, BLOCK_N)
    per_group = 8 * num_n
    first_m = pid // per_group * 8
    group = tl.minimum(num_m - first_m, 8)
    pid_m = first_m + pid % per_group % group
    pid_n = pid % per_group // group
    return pid_m * BLOCK_M, pid_n * BLOCK_N


@triton.jit
def epilogue(acc, bias_ptr, offs_n, N):
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0)
    return tl.maximum(acc + bias.to(tl.float32)[None, :], 0.0)


@triton.autotune(
    configs=CANDIDATES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": _reasonable}
)
@triton.jit
def partial_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
    SHARES: tl.constexpr, LAST: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Share s of the products along K, stored in slice s of c; the epilogue where LAST."""
    share = tl.program_id(1)
    m, n = tile_place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N)
    offs_m = m + tl.arange(0, BLOCK_M).to(tl.int64)
    offs_n = n + tl.arange(0, BLOCK_N).to(tl.int64)

    blocks = tl.cdiv(K, BLOCK_K) // SHARES
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for block in range(share * blocks, (share + 1) * blocks):
        offs_k = block * BLOCK_K + tl.arange(0, BLOCK_K).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if LAST:
        acc = epilogue(acc, bias_ptr, offs_n, N)
    c_ptrs = c_ptr + share.to(tl.int64) * stride_cs + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=c_mask)


@triton.jit
def merge_kernel(
    partial_ptr, c_ptr, bias_ptr, M, N, stride_ps, stride_pm, stride_cm, stride_cn,
    SHARES: tl.constexpr, LAST: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    m, n = tile_place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N)
    offs_m = m + tl.arange(0, BLOCK_M).to(tl.int64)
    offs_n = n + tl.arange(0, BLOCK_N).to(tl.int64)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    source = partial_ptr + offs_m[:, None] * stride_pm + offs_n[None, :]
    acc = tl.load(source, mask=mask, other=0.0)
    for s in tl.static_range(1, SHARES):
        acc += tl.load(source + s * stride_ps, mask=mask, other=0.0)
    if LAST:
        acc = epilogue(acc, bias_ptr, offs_n, N)
    tl.store(
        c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=mask,
    )


def _compute(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    # A large result has tiles enough for the whole GPU.
    shares = max(1, min(8, K // 64)) if M * N <= LARGEST_SPLIT else 1
    split = shares > 1
    target = torch.empty((shares, M, N), device=a.device, dtype=torch.float32) if split else out.unsqueeze(0)
    grid = lambda meta: (  # noqa: E731
        triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),
        shares,
    )
    partial_kernel[grid](
        a, b, target, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1),
        target.stride(0), target.stride(1), target.stride(2),
        SHARES=shares, LAST=bias_relu and not split,
    )  # fmt: skip
    if split:
        merge_kernel[(triton.cdiv(M, 32) * triton.cdiv(N, 64),)](
            target, out, bias, M, N, target.stride(0), target.stride(1), out.stride(0), out.stride(1),
            SHARES=shares, LAST=bias_relu, BLOCK_M=32, BLOCK_N=64,
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _compute(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _compute(a, b, bias, out, True)
