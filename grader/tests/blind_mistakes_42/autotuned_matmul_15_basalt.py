# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) In `matmul_kernel` the tail of K is `acc = tl.dot(a, b, input_precision="ieee", out_dtype=tl.float32)` without `acc` as third argument, so the whole steps before it are lost: both functions are wrong where K is larger than BLOCK_K and no multiple of it, such as 257 or 129. (2) The bias is loaded with `mask=cols < M`; it should be `cols < N`: `matmul_bias_relu` has no bias in columns from M on where M < N, such as 48 x 160 x 96, and reads past the bias where M > N and N is no multiple of the tile.
"""Autotuned matrix product: whole steps along K without a mask for K, what is left of it in one step more."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    """One candidate for the autotuner."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, a small one for fp32."""
    if named_args["bias_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of tile number `tile`."""
    wide = tl.cdiv(N, BLOCK_N)
    tall = tl.cdiv(M, BLOCK_M)
    first = tile // (GROUP_M * wide) * GROUP_M
    height = tl.minimum(tall - first, GROUP_M)
    within = tile - first * wide
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias), tile by tile."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    whole = K // BLOCK_K
    for _step in range(whole):
        a = tl.load(a_ptrs, mask=rows < M, other=0.0)
        b = tl.load(b_ptrs, mask=cols < N, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    rest = K - whole * BLOCK_K
    if rest > 0:
        a = tl.load(a_ptrs, mask=(rows < M) & (ks[None, :] < rest), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < rest) & (cols < N), other=0.0)
        acc = tl.dot(a, b, input_precision="ieee", out_dtype=tl.float32)

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < M, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    tl.store(
        c_ptr + rows * stride_cm + cols * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(rows < M) & (cols < N),
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N), any strides; `out`, where given, takes the result."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
