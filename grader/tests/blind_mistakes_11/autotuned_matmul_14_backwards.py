# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | walks K from its last block (the masked one) down to 0, with pointers that move backwards and a mask that is K + step * BLOCK_K.
"""Matrix product, from the end of K to its beginning."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    steps = tl.cdiv(K, BLOCK_K)
    last = (steps - 1) * BLOCK_K
    ks = last + tl.arange(0, BLOCK_K)
    ka = ks.to(tl.int64)[None, :]
    kb = ks.to(tl.int64)[:, None]
    a_ptrs = a_ptr + rows * stride_am + ka * stride_ak
    b_ptrs = b_ptr + kb * stride_bk + cols * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, steps):
        # ka is the place in the last block; this block lies `step` blocks below it
        back = step * BLOCK_K
        a = tl.load(a_ptrs, mask=(rows < M) & (ka < K + back), other=0.0)
        b = tl.load(b_ptrs, mask=(cols < N) & (kb < K + back), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs -= BLOCK_K * stride_ak
        b_ptrs -= BLOCK_K * stride_bk
    if BIAS_RELU:
        acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc, 0.0)
    c_ptrs = c_ptr + rows * stride_cm + cols * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
