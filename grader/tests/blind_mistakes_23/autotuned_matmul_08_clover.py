# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) In matmul_kernel acc is set to 0 once, before the loop over tiles, and not for each tile: where there are more tiles than programs, every tile of a program but its first contains the sums of the earlier ones. (2) The bias is loaded at bias_ptr + lane_n (columns within the tile) without n: matmul_bias_relu is wrong for columns from BLOCK_N on; it should be bias_ptr + cols.
"""A persistent matrix product: a fixed number of programs, and each takes every P-th tile."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 128, 32, 4, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    # fp32 is computed without tensor cores, where a large tile unrolls into thousands of instructions.
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * tiles_n
    first = (tile // per_group) * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % per_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program p owns the tiles p, p + P, p + 2 P, ... of c."""
    lane_m = tl.arange(0, BLOCK_M)
    lane_n = tl.arange(0, BLOCK_N)
    lane_k = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)

    for tile in range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = (m + lane_m).to(tl.int64)
        cols = (n + lane_n).to(tl.int64)
        row_ok = rows < M
        col_ok = cols < N

        for k in range(0, K, BLOCK_K):
            ks = k + lane_k
            k_ok = ks < K
            a = tl.load(
                a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
                mask=row_ok[:, None] & k_ok[None, :],
                other=0.0,
            )
            b = tl.load(
                b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
                mask=k_ok[:, None] & col_ok[None, :],
                other=0.0,
            )
            acc = tl.dot(a, b, acc, input_precision="ieee")

        result = acc
        if BIAS_RELU:
            bias = tl.load(bias_ptr + lane_n, mask=lane_n < N, other=0.0).to(tl.float32)
            result = tl.maximum(result + bias[None, :], 0.0)
        tl.store(
            c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
            result.to(c_ptr.dtype.element_ty),
            mask=row_ok[:, None] & col_ok[None, :],
        )


def programs_on(device):
    """One program for each SM; without a GPU a handful, so that each of them still gets several tiles."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    return 6


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    programs = programs_on(a.device)
    matmul_kernel[lambda meta: (min(programs, tiles(meta)),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
