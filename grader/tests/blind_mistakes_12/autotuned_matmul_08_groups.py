# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | the first tile row of a group is group * height instead of group * GROUP_M, so a last group of fewer than GROUP_M tile rows begins too high and tile rows at the bottom stay unwritten; shows where there are more than GROUP_M tile rows and their number is no multiple of GROUP_M
"""Matrix product with grouped tiles, after the figure in the README."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, group_m, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": group_m}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 8, 3, 8),
    _config(128, 128, 64, 8, 3, 8),
    _config(128, 64, 64, 8, 3, 4),
    _config(64, 64, 32, 4, 3, 4),
    _config(32, 32, 32, 4, 3, 4),
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
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    group = tile // in_group
    # the last group may be shorter than the others
    height = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    within = tile - group * in_group
    tile_m = group * height + within % height
    tile_n = within // height
    return tile_m * BLOCK_M, tile_n * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias)."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    ms = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    ns = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    m_in = (ms < M)[:, None]
    n_in = (ns < N)[None, :]

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K).to(tl.int64)
        k_in = ks < K
        a = tl.load(a_ptr + ms[:, None] * stride_am + ks[None, :] * stride_ak, mask=m_in & k_in[None, :], other=0)
        b = tl.load(b_ptr + ks[:, None] * stride_bk + ns[None, :] * stride_bn, mask=k_in[:, None] & n_in, other=0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + ns, mask=ns < N, other=0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0)
    tl.store(c_ptr + ms[:, None] * stride_cm + ns[None, :] * stride_cn, acc.to(c_ptr.dtype.element_ty), m_in & n_in)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
