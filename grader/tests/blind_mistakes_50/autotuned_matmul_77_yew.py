# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | The configs carry UNIT_AXIS, and `fitting` picks those that hold for the strides of B, but `key=["M", "N", "K"]` lacks them: a second call with the same sizes and dtypes and another layout of B runs the config chosen for the first layout, in which `ks[:, None]` or `cols[None, :]` stands without its stride. Wrong in `matmul_kernel` for e.g. an NT product after an NN one of the same sizes in one process (or NN, or every second column, after NT); the first layout is always right. The key must contain `stride_bk` and `stride_bn`, or the pointers must use both strides always.
"""Autotuned matrix product with its own list of configs for each way in which B can lie in memory."""

import torch
import triton
import triton.language as tl

# Along which axis the elements of B are neighbours: K (the transposed view of a weight), N, or neither.
ALONG_K, ALONG_N, NEITHER = 0, 1, 2


def _config(unit_axis, block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8, "UNIT_AXIS": unit_axis}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


# A unit stride that is a constant lets the loads of B be 16 bytes wide. Deep tiles suit B along K, wide ones along N.
CONFIGS = [
    _config(ALONG_K, 128, 256, 64, 3, 8),
    _config(ALONG_K, 256, 128, 64, 3, 8),
    _config(ALONG_K, 128, 128, 64, 3, 8),
    _config(ALONG_K, 64, 64, 64, 2, 4),
    _config(ALONG_N, 128, 256, 64, 3, 8),
    _config(ALONG_N, 128, 256, 64, 4, 8),
    _config(ALONG_N, 64, 128, 64, 4, 4),
    _config(ALONG_N, 64, 64, 32, 3, 4),
    _config(NEITHER, 64, 128, 32, 3, 4),
    _config(NEITHER, 64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Configs for the layout of B, with tiles no larger than the result, and small ones for fp32."""
    if named_args["stride_bk"] == 1:
        axis = ALONG_K
    elif named_args["stride_bn"] == 1:
        axis = ALONG_N
    else:
        axis = NEITHER
    of_layout = [c for c in configs if c.kwargs["UNIT_AXIS"] == axis]
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in of_layout if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or of_layout[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    UNIT_AXIS: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)

    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    if UNIT_AXIS == 0:
        b_ptrs = b_ptr + ks[:, None] + cols[None, :] * stride_bn
        step_b = BLOCK_K
    elif UNIT_AXIS == 1:
        b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :]
        step_b = BLOCK_K * stride_bk
    else:
        b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
        step_b = BLOCK_K * stride_bk

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (ks[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K - k) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += step_b

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)

    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
