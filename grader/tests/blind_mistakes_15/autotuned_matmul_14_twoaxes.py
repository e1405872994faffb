# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | The epilogue of matmul_bias_relu applies ReLU to the product and adds the bias afterwards: relu(a @ b) + bias. It should add the bias first, relu(a @ b + bias); matmul is right.
"""Matrix product, a grid of two axes."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BM": 128, "BN": 256, "BK": 64}, num_stages=3, num_warps=8),
    triton.Config({"BM": 256, "BN": 128, "BK": 64}, num_stages=3, num_warps=8),
    triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_stages=4, num_warps=8),
    triton.Config({"BM": 128, "BN": 64, "BK": 64}, num_stages=4, num_warps=4),
    triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_stages=4, num_warps=4),
]


def early(configs, named_args, **kwargs):
    small = min(named_args["M"], named_args["N"])
    if named_args["x_ptr"].dtype == torch.float32:
        small = min(small, 64)
    return [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= small] or configs[-1:]


@triton.jit
def _accumulate(x_ptr, y_ptr, rows, cols, M, N, K, sxm, sxk, syk, syn,
                BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    total = tl.zeros((BM, BN), dtype=tl.float32)
    inner = tl.arange(0, BK).to(tl.int64)
    for _ in range(tl.cdiv(K, BK)):
        x = tl.load(
            x_ptr + rows[:, None] * sxm + inner[None, :] * sxk,
            mask=(rows[:, None] < M) & (inner[None, :] < K),
            other=0.0,
        )
        y = tl.load(
            y_ptr + inner[:, None] * syk + cols[None, :] * syn,
            mask=(inner[:, None] < K) & (cols[None, :] < N),
            other=0.0,
        )
        total = tl.dot(x, y, acc=total, input_precision="ieee")
        inner += BK
    return total


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": early})
@triton.jit
def product_kernel(x_ptr, y_ptr, z_ptr, bias_ptr, M, N, K, sxm, sxk, syk, syn, szm, szn, WITH_BIAS: tl.constexpr,
                   BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    cols = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
    total = _accumulate(x_ptr, y_ptr, rows, cols, M, N, K, sxm, sxk, syk, syn, BM, BN, BK)
    if WITH_BIAS:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0) + bias[None, :]
    tl.store(
        z_ptr + rows[:, None] * szm + cols[None, :] * szn,
        total.to(z_ptr.dtype.element_ty),
        mask=(rows[:, None] < M) & (cols[None, :] < N),
    )


def _run(x, y, bias, z, with_bias):
    assert x.shape[1] == y.shape[0], f"{x.shape} @ {y.shape}"
    M, K = x.shape
    N = y.shape[1]
    if z is None:
        z = torch.empty((M, N), device=x.device, dtype=x.dtype)

    def grid(meta):
        return triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"])

    product_kernel[grid](
        x, y, z, bias, M, N, K,
        x.stride(0), x.stride(1), y.stride(0), y.stride(1), z.stride(0), z.stride(1), WITH_BIAS=with_bias,
    )  # fmt: skip
    return z


def matmul(a, b, *, out=None):
    return _run(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out=None):
    return _run(a, b, bias, out, True)
