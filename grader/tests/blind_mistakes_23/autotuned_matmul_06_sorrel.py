# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | matmul_kernel handles the rest of K behind the full blocks in a single step of 16 (the "if full < K" part): where K % BLOCK_K is more than 16, the products from full + 16 on are missing. It should be a loop over range(full, K, 16).
"""Matrix product. The loop along K is split: full blocks need no mask along K, the rest gets a narrow block."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, num_stages=3, num_warps=8),
    _config(256, 128, 64, num_stages=3, num_warps=8),
    _config(128, 128, 64, num_stages=3, num_warps=8),
    _config(64, 128, 64, num_stages=4, num_warps=4),
    _config(64, 64, 64, num_stages=3, num_warps=4),
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
    start = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(GROUP_M, tiles_m - start)
    within = tile % (GROUP_M * tiles_n)
    return (start + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    a_row = a_ptr + rows * stride_am
    b_col = b_ptr + cols * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    full = K // BLOCK_K * BLOCK_K

    # Full blocks: only rows and columns can lie outside.
    wide = tl.arange(0, BLOCK_K).to(tl.int64)
    for k in range(0, full, BLOCK_K):
        ks = k + wide
        a = tl.load(a_row + ks[None, :] * stride_ak, mask=rows < M, other=0.0)
        b = tl.load(b_col + ks[:, None] * stride_bk, mask=cols < N, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    # The rest: 16 is the narrowest block that tl.dot takes, so few lanes are wasted on zeros.
    if full < K:
        ks = full + tl.arange(0, 16).to(tl.int64)
        a = tl.load(a_row + ks[None, :] * stride_ak, mask=(rows < M) & (ks < K)[None, :], other=0.0)
        b = tl.load(b_col + ks[:, None] * stride_bk, mask=(ks < K)[:, None] & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)

    tl.store(
        c_ptr + rows * stride_cm + cols * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N)
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[lambda meta: (tiles(meta),)](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
