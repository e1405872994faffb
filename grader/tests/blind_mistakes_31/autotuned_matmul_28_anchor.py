# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) persistent_kernel gives each program `run = tiles // tl.num_programs(axis=0)` tiles, rounded down, so the last tiles % programs tiles belong to no program and stay unwritten: in both functions wherever there are more tiles than programs (8 without a GPU, the number of multiprocessors with one) and their number is no multiple of it; it should be tl.cdiv, with the end of a run at most `tiles`. (2) `strip(bias_ptr, N - n, BLOCK_N)` in persistent_kernel reads the bias from its first number on for every tile: matmul_bias_relu is wrong in all columns from BLOCK_N on; it should be `strip(bias_ptr + n, N - n, BLOCK_N)`
"""A persistent matrix product: each program has a run of tiles that lie next to each other."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    inside = tile - group * GROUP_M * tiles_n
    first = group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    return (first + inside % height) * BLOCK_M, (inside // height) * BLOCK_N


@triton.jit
def strip(ptr, left, WIDTH: tl.constexpr):
    """WIDTH numbers from ptr on as fp32, and 0 where fewer are left."""
    lanes = tl.arange(0, WIDTH)
    return tl.load(ptr + lanes, mask=lanes < left, other=0.0).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def persistent_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); a program owns a run of tiles, one after the other."""
    lanes_m = tl.arange(0, BLOCK_M)
    lanes_n = tl.arange(0, BLOCK_N)
    lanes_k = tl.arange(0, BLOCK_K)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    run = tiles // tl.num_programs(axis=0)
    start = tl.program_id(axis=0) * run
    for tile in range(start, start + run):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = (m + lanes_m).to(tl.int64)
        cols = (n + lanes_n).to(tl.int64)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            ks = (k + lanes_k).to(tl.int64)
            a_inside = (rows[:, None] < M) & (ks[None, :] < K)
            b_inside = (ks[:, None] < K) & (cols[None, :] < N)
            a = tl.load(a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak, mask=a_inside, other=0.0)
            b = tl.load(b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn, mask=b_inside, other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
        if BIAS_RELU:
            bias = strip(bias_ptr, N - n, BLOCK_N)
            acc = tl.maximum(acc + bias[None, :], 0.0)
        c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        c_inside = (rows[:, None] < M) & (cols[None, :] < N)
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=c_inside)


def _programs(device):
    """How many programs share the tiles."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    return 8


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    most = _programs(a.device)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    persistent_kernel[lambda meta: (min(most, tiles(meta)),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
