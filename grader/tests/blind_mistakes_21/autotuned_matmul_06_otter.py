# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In matmul_kernel the running sum has the dtype of c (total = tl.zeros(..., c_ptr.dtype.element_ty), and each product is rounded with .to(total.dtype)), so fp16 and bf16 lose digits once K takes several steps, and whole-number sums above 2048 (fp16) or 256 (bf16) are off; fp32 is right. It should be summed in tl.float32 and rounded at the store.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, group=8):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": group}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 32, 4, 8),
    _config(128, 64, 32, 4, 4),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 32, 4, 4),
    _config(32, 32, 16, 2, 2, group=4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    n_tiles = tl.cdiv(N, BLOCK_N)
    m_tiles = tl.cdiv(M, BLOCK_M)
    in_group = GROUP_M * n_tiles
    first = tile // in_group * GROUP_M
    height = tl.minimum(GROUP_M, m_tiles - first)
    within = tile % in_group
    row = first + within % height
    column = within // height
    return row * BLOCK_M, column * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    rn = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    rk = tl.arange(0, BLOCK_K).to(tl.int64)
    m_mask = (rm < M)[:, None]
    n_mask = (rn < N)[None, :]
    a_tile = a_ptr + (rm[:, None] * stride_am + rk[None, :] * stride_ak)
    b_tile = b_ptr + (rk[:, None] * stride_bk + rn[None, :] * stride_bn)

    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=c_ptr.dtype.element_ty)
    left = K
    for _ in range(tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_tile, mask=m_mask & (rk[None, :] < left), other=0.0)
        b = tl.load(b_tile, mask=n_mask & (rk[:, None] < left), other=0.0)
        # the product of two tiles is summed in fp32 by the tensor cores
        product = tl.dot(a, b, input_precision="ieee")
        total += product.to(total.dtype)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
        left -= BLOCK_K

    result = total.to(tl.float32)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + rn, mask=rn < N, other=0.0).to(tl.float32)
        result = tl.maximum(result + bias[None, :], 0.0)
    c_tile = c_ptr + (rm[:, None] * stride_cm + rn[None, :] * stride_cn)
    tl.store(c_tile, result.to(c_ptr.dtype.element_ty), mask=m_mask & n_mask)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b"""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)"""
    return _launch(a, b, bias, out, bias_relu=True)
