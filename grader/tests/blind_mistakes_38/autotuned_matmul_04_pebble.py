# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | in matmul_kernel the mask of the load of b, (cols[:, None] < N) & (depth[None, :] < left), has the shape BLOCK_N x BLOCK_K, while the pointers are BLOCK_K x BLOCK_N: the kernel does not compile (shapes do not broadcast; BLOCK_K differs from BLOCK_N in every config), in every case of both functions. It should be (depth[:, None] < left) & (cols[None, :] < N).
"""c = a @ b by tiles, with an optional bias and ReLU."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    meta = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(meta, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    fp32 = named_args["bias_ptr"].dtype == torch.float32
    bound = min(64 if fp32 else 256, named_args["M"], named_args["N"])
    fits = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= bound]
    return fits if fits else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Row and column at which a tile begins."""
    down = tl.cdiv(M, BLOCK_M)
    across = tl.cdiv(N, BLOCK_N)
    group = tile // (across * GROUP_M)
    first = group * GROUP_M
    height = tl.minimum(down - first, GROUP_M)
    index = tile % (across * GROUP_M)
    return (first + index % height) * BLOCK_M, index // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    wide_rows = rows.to(tl.int64)
    wide_cols = cols.to(tl.int64)

    a_block = a_ptr + wide_rows[:, None] * stride_am + depth[None, :] * stride_ak
    b_block = b_ptr + depth[:, None] * stride_bk + wide_cols[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        left = K - k
        x = tl.load(a_block, mask=(rows[:, None] < M) & (depth[None, :] < left), other=0.0)
        y = tl.load(b_block, mask=(cols[:, None] < N) & (depth[None, :] < left), other=0.0)
        total = tl.dot(x, y, total, input_precision="ieee")
        a_block += BLOCK_K * stride_ak
        b_block += BLOCK_K * stride_bk

    if BIAS_RELU:
        shift = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total = tl.maximum(total + shift[None, :], 0.0)
    c_block = c_ptr + wide_rows[:, None] * stride_cm + wide_cols[None, :] * stride_cn
    tl.store(c_block, total.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    matmul_kernel[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1),
        b.stride(0), b.stride(1),
        out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
