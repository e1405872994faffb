# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product: large results in one kernel, small ones with a long K in two, with K split among programs."""

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
    _config(128, 64, 64, 3, 4),
    _config(64, 64, 32, 4, 4),
    _config(32, 32, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    in_group = tl.cdiv(N, BLOCK_N) * GROUP_M
    first = tile // in_group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    return (first + tile % in_group % height) * BLOCK_M, tile % in_group // height * BLOCK_N


@triton.jit
def finish(total, bias_ptr, cols, N, BIAS_RELU: tl.constexpr):
    """The epilogue, in fp32; cols is a row of column numbers."""
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        total = tl.maximum(total + bias.to(tl.float32), 0.0)
    return total


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of c, or with SPLITS > 1 of slice s of the partial sums, over every program's own steps along K."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    s = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    lanes = tl.arange(0, BLOCK_K).to(tl.int64)

    # Whole steps for each program. The last program may have fewer, even none: then it stores zeros.
    steps = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS)
    begin = s * steps * BLOCK_K
    end = tl.minimum(begin + steps * BLOCK_K, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ks = k + lanes
        k_right = ks[None, :]
        k_down = ks[:, None]
        a = tl.load(a_ptr + rows * stride_am + k_right * stride_ak, mask=(rows < M) & (k_right < K), other=0.0)
        b = tl.load(b_ptr + k_down * stride_bk + cols * stride_bn, mask=(k_down < K) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    acc = finish(acc, bias_ptr, cols, N, BIAS_RELU)
    c_ptrs = c_ptr + s.to(tl.int64) * stride_cs + rows * stride_cm + cols * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def gather_kernel(
    part_ptr, c_ptr, bias_ptr, M, N, stride_ps, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SPLITS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Row by row: the sum of the slices, always in the same order."""
    strips = tl.cdiv(N, WIDTH)
    row = (tl.program_id(0) // strips).to(tl.int64)
    cols = (tl.program_id(0) % strips * WIDTH + tl.arange(0, WIDTH)).to(tl.int64)
    total = tl.zeros((WIDTH,), dtype=tl.float32)
    for s in tl.static_range(SPLITS):
        total += tl.load(part_ptr + s * stride_ps + row * N + cols, mask=cols < N, other=0.0)
    total = finish(total, bias_ptr, cols, N, BIAS_RELU)
    tl.store(c_ptr + row * stride_cm + cols * stride_cn, total.to(c_ptr.dtype.element_ty), mask=cols < N)


def _splits(M, N, K):
    """Few tiles and many steps: four programs for each tile. The partial sums then take 4 MB at most."""
    return 4 if K >= 256 and M * N <= 512 * 512 else 1


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    splits = _splits(M, N, K)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), splits)  # noqa: E731
    operands = (*a.stride(), *b.stride())
    if splits == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, *operands, 0, *out.stride(), BIAS_RELU=bias_relu, SPLITS=1
        )
        return out
    part = torch.empty((splits, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](a, b, part, bias, M, N, K, *operands, *part.stride(), BIAS_RELU=False, SPLITS=splits)
    width = 128
    gather_kernel[(M * triton.cdiv(N, width),)](
        part, out, bias, M, N, part.stride(0), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu, SPLITS=splits, WIDTH=width,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
