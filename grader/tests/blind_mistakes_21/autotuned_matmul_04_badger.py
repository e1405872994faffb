# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In the persistent matmul_kernel `acc = tl.zeros(...)` stands before the while loop over tiles, so from its second tile on a program adds to the sums of its earlier tiles; results with more tiles than programs are wrong. It should be reset inside the loop, for each tile.
"""Persistent matmul: a fixed number of programs walks over all tiles."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 64, 3, 4),
    _config(32, 32, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group_size = GROUP_M * tiles_n
    first = (tile // group_size) * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    rest = tile % group_size
    return (first + rest % height) * BLOCK_M, (rest // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    tl.assume(K > 0)
    total = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    k_lane = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tile = tl.program_id(axis=0)
    while tile < total:
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
        cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
        row_ok = rows < M
        col_ok = cols < N
        pa = a_ptr + rows[:, None] * stride_am + k_lane[None, :] * stride_ak
        pb = b_ptr + k_lane[:, None] * stride_bk + cols[None, :] * stride_bn

        for k in range(0, K, BLOCK_K):
            k_ok = k_lane < K - k
            x = tl.load(pa, mask=row_ok[:, None] & k_ok[None, :], other=0.0)
            y = tl.load(pb, mask=k_ok[:, None] & col_ok[None, :], other=0.0)
            acc = tl.dot(x, y, acc, input_precision="ieee")
            pa += BLOCK_K * stride_ak
            pb += BLOCK_K * stride_bk

        result = acc
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=col_ok, other=0.0).to(tl.float32)
            result = tl.maximum(result + bias[None, :], 0.0)
        pc = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        tl.store(pc, result.to(c_ptr.dtype.element_ty), mask=row_ok[:, None] & col_ok[None, :])
        tile += tl.num_programs(axis=0)


def _programs(device):
    """One for each SM. In the interpreter they run one after another, so a few are enough."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    return 8


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    most = _programs(a.device)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (min(most, tiles(meta)),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
