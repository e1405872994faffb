# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | _launch: `if bias is None: bias = a` comes before `BIAS_RELU=bias is not None`, which is therefore always True. So matmul runs the epilogue, too: it adds the first N numbers behind a's pointer as a bias and clamps at 0. Every case of matmul is wrong (where a has fewer than N elements, or gaps between them, it also reads outside of a); matmul_bias_relu is right. Should note whether a bias was passed before a stands in for it, e.g. `fused = bias is not None` first, and pass BIAS_RELU=fused.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 64, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    # fp32 is computed without tensor cores, where a large tile unrolls into thousands of instructions.
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    n_tiles = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * n_tiles)
    within = tile % (GROUP_M * n_tiles)
    height = tl.minimum(GROUP_M, tl.cdiv(M, BLOCK_M) - group * GROUP_M)
    tile_m = group * GROUP_M + within % height
    tile_n = within // height
    return tile_m * BLOCK_M, tile_n * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Whole blocks of K first, without a mask along K, then what is left."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    has_row = rows[:, None] < M
    has_col = cols[None, :] < N
    a_tile = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_tile = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    width = tl.full((), BLOCK_K, tl.int64)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    whole = K // BLOCK_K
    for step in range(0, whole):
        a = tl.load(a_tile, mask=has_row, other=0.0)
        b = tl.load(b_tile, mask=has_col, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_tile += width * stride_ak
        b_tile += width * stride_bk
    rest = K - whole * BLOCK_K
    if rest > 0:
        a = tl.load(a_tile, mask=has_row & (ks[None, :] < rest), other=0.0)
        b = tl.load(b_tile, mask=has_col & (ks[:, None] < rest), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_tile = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=has_row & has_col)


def _launch(a, b, bias, out):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    if bias is None:
        bias = a  # `fitting` asks bias_ptr for its dtype

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        *a.stride(), *b.stride(), *out.stride(),
        BIAS_RELU=bias is not None,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype; fp32 sums, rounded once."""
    return _launch(a, b, None, out)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out)
