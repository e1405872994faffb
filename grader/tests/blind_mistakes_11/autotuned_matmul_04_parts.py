# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | the two programs of a tile deal out the blocks of K in turn (block split, split + 2, ...), but the pointers of a and b advance by one BLOCK_K a step; must be BLOCK_K * SPLIT, as the loop does. Shows in matmul wherever K is larger than SPLIT * BLOCK_K = 64 (blocks are counted twice, others never); matmul_bias_relu has SPLIT = 1 and is right.
"""Matrix product with K split among programs; a second kernel adds up the parts of matmul."""

import torch
import triton
import triton.language as tl

SPLIT = 2


def _config(block_m, block_n, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": 32, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 4, 8),
    _config(256, 128, 4, 8),
    _config(128, 128, 4, 8),
    _config(64, 64, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * tiles_n
    first = (tile // per_group) * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    inside = tile % per_group
    return (first + inside % height) * BLOCK_M, (inside // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def parts_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (tile, split) stores its part of the sum over K to matrix `split` of c."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    split = tl.program_id(1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    ks = split * BLOCK_K + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows * stride_am + ks[None, :].to(tl.int64) * stride_ak
    b_ptrs = b_ptr + ks[:, None].to(tl.int64) * stride_bk + cols * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K * SPLIT):
        a = tl.load(a_ptrs, mask=(rows < M) & (ks[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(cols < N) & (ks[:, None] < K - k), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    c_ptrs = c_ptr + split.to(tl.int64) * stride_cs + rows * stride_cm + cols * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def add_kernel(parts_ptr, c_ptr, N, stride_p, stride_cm, stride_cn, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """c = sum of the PARTS matrices, fp32 and contiguous, stride_p elements apart; one row a program."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    part_ptrs = parts_ptr + row * N + cols
    for _ in range(PARTS):
        total += tl.load(part_ptrs, mask=cols < N, other=0.0)
        part_ptrs += stride_p
    tl.store(c_ptr + row * stride_cm + cols * stride_cn, total.to(c_ptr.dtype.element_ty), mask=cols < N)


def _grid(M, N, splits):
    return lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), splits)


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; SPLIT programs share the sum of a tile."""
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    parts = torch.empty((SPLIT, M, N), device=a.device, dtype=torch.float32)
    parts_kernel[_grid(M, N, SPLIT)](
        a, b, parts, a, M, N, K, *a.stride(), *b.stride(), *parts.stride(), BIAS_RELU=False, SPLIT=SPLIT
    )
    add_kernel[(M, triton.cdiv(N, 512))](parts, out, N, parts.stride(0), *out.stride(), PARTS=SPLIT, BLOCK=512)
    return out


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel, with K in one piece."""
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    parts_kernel[_grid(M, N, 1)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), 0, *out.stride(), BIAS_RELU=True, SPLIT=1
    )
    return out
