# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product that reads b by its columns: each step multiplies a tile of a by a transposed tile of b.T."""

import itertools

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [_config(bm, bn, 64, 3, 8) for bm, bn in itertools.product((128, 256), repeat=2) if bm + bn < 512]
CONFIGS += [_config(128, 256, 64, 4, 8), _config(64, 64, 64, 3, 4), _config(16, 64, 64, 3, 4)]


def fitting(configs, named_args, **kwargs):
    """Tiles inside the result, at most 64 wide for fp32; else the last config."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    kept = []
    for config in configs:
        if config.kwargs["BLOCK_M"] <= limit and config.kwargs["BLOCK_N"] <= limit:
            kept.append(config)
    return kept if kept else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    row, col = tl.swizzle2d(tile // tiles_n, tile % tiles_n, tiles_m, tiles_n, GROUP_M)
    return row * BLOCK_M, col * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    k = tl.arange(0, BLOCK_K).to(tl.int64)

    # Both operands as rows of BLOCK_K numbers: a row of a, and a column of b.
    steps = tl.cdiv(K, BLOCK_K)
    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(steps):
        at = k + step * BLOCK_K
        exists = (at < K)[None, :]
        x = tl.load(
            a_ptr + i[:, None] * stride_am + at[None, :] * stride_ak,
            mask=exists & (i < M)[:, None],
            other=0.0,
        )
        y = tl.load(
            b_ptr + j[:, None] * stride_bn + at[None, :] * stride_bk,
            mask=exists & (j < N)[:, None],
            other=0.0,
        )
        acc = tl.dot(x, tl.trans(y), acc, input_precision="ieee")

    if BIAS_RELU:
        acc += tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)[None, :]
        acc = tl.where(acc > 0.0, acc, 0.0)

    spot = c_ptr + i[:, None] * stride_cm + j[None, :] * stride_cn
    tl.store(spot, acc.to(c_ptr.dtype.element_ty), mask=(i < M)[:, None] & (j < N)[None, :])


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    matmul_kernel[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), 1, 1)](
        a, b, out, bias, M, N, K,
        stride_am=a.stride(0), stride_ak=a.stride(1),
        stride_bk=b.stride(0), stride_bn=b.stride(1),
        stride_cm=out.stride(0), stride_cn=out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
