# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | The K loop of matmul_kernel multiplies the blocks just fetched for the next step, `tl.dot(a_next, b_next, acc, ...)`, so the first block of K is never used and the last product is of zeros. It should be `tl.dot(a, b, acc, ...)`.
"""Persistent matrix product: as many programs as SMs walk over the tiles, and fetch one block of K ahead."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8},
        num_stages=num_stages,
        num_warps=num_warps,
    )


CONFIGS = [
    _config(128, 128, 64, 2, 8),
    _config(128, 128, 32, 3, 8),
    _config(128, 64, 32, 3, 4),
    _config(64, 64, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile, in groups of GROUP_M tile rows."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = (tile // in_group) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def fetch_a(a_ptr, rows, ks, M, K, stride_am, stride_ak):
    ok = (rows[:, None] < M) & (ks[None, :] < K)
    return tl.load(a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak, mask=ok, other=0.0)


@triton.jit
def fetch_b(b_ptr, ks, cols, K, N, stride_bk, stride_bn):
    ok = (ks[:, None] < K) & (cols[None, :] < N)
    return tl.load(b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn, mask=ok, other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program p owns the tiles p, p + programs, p + 2 programs, ..."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
        cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
        ks = tl.arange(0, BLOCK_K).to(tl.int64)

        a = fetch_a(a_ptr, rows, ks, M, K, stride_am, stride_ak)
        b = fetch_b(b_ptr, ks, cols, K, N, stride_bk, stride_bn)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for _ in range(0, K, BLOCK_K):
            # The next blocks are under way while these are multiplied; past K they are 0.
            ks += BLOCK_K
            a_next = fetch_a(a_ptr, rows, ks, M, K, stride_am, stride_ak)
            b_next = fetch_b(b_ptr, ks, cols, K, N, stride_bk, stride_bn)
            acc = tl.dot(a_next, b_next, acc, input_precision="ieee")
            a = a_next
            b = b_next

        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            acc = tl.maximum(acc + bias[None, :], 0.0)
        tl.store(
            c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
            acc.to(c_ptr.dtype.element_ty),
            mask=(rows[:, None] < M) & (cols[None, :] < N),
        )


def _programs(x):
    """How many programs run at the same time; without a GPU any small number will do."""
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 8


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    most = _programs(a)
    grid = lambda meta: (min(most, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
