# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | The tile of b.T, (BLOCK_N, BLOCK_K), is turned into (BLOCK_K, BLOCK_N) by tl.reshape, which keeps the order of the elements and so mixes them up; it must be tl.trans.
"""a @ b with a grid of two axes, reordered by tl.swizzle2d; tiles of b are loaded as rows of b.T."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 256, 64, 3, 8), _config(128, 128, 64, 3, 8), _config(64, 64, 32, 4, 4), _config(16, 32, 32, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """The small tile for fp32 and for results with a short side."""
    small = named_args["a_ptr"].dtype == torch.float32 or min(named_args["M"], named_args["N"]) < 64
    return configs[-1:] if small else configs[:-1]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    i, j = tl.swizzle2d(tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), 4)
    rm = (i * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    rn = (j * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    rk = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + rm[:, None] * stride_am + rk[None, :] * stride_ak
    bt_ptrs = b_ptr + rn[:, None] * stride_bn + rk[None, :] * stride_bk
    left = K
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    while left > 0:
        a = tl.load(a_ptrs, mask=(rm[:, None] < M) & (rk[None, :] < left), other=0.0)
        bt = tl.load(bt_ptrs, mask=(rn[:, None] < N) & (rk[None, :] < left), other=0.0)
        acc = tl.dot(a, tl.reshape(bt, (BLOCK_K, BLOCK_N)), acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        bt_ptrs += BLOCK_K * stride_bk
        left -= BLOCK_K
    if BIAS_RELU:
        acc += tl.load(bias_ptr + rn, mask=rn < N, other=0.0).to(tl.float32)[None, :]
        acc = tl.where(acc < 0, 0.0, acc)
    c_ptrs = c_ptr + rm[:, None] * stride_cm + rn[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))  # noqa: E731
    matmul_kernel[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides, sums in fp32."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
