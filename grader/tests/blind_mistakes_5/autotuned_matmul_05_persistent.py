# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | `acc` is set to zero once before the loop over tiles, not for each tile: the second and later tiles of a program contain the sums of its tiles before. Wrong only where there are more tiles than programs.
"""Persistent matrix product: a fixed number of programs walks over all tiles."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(64, 64, 64, 3, 4),
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
    in_group = tl.cdiv(N, BLOCK_N) * GROUP_M
    first = (tile // in_group) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    tile = tile % in_group
    return (first + tile % height) * BLOCK_M, (tile // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program p owns the tiles p, p + programs, p + 2 * programs, ... of c."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for tile in range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
        cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
        a_row = a_ptr + rows[:, None] * stride_am
        b_col = b_ptr + cols[None, :] * stride_bn
        for k in range(0, K, BLOCK_K):
            a = tl.load(a_row + (k + ks)[None, :] * stride_ak, (rows < M)[:, None] & (k + ks < K)[None, :], 0.0)
            b = tl.load(b_col + (k + ks)[:, None] * stride_bk, (k + ks < K)[:, None] & (cols < N)[None, :], 0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
        result = acc
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, cols < N, 0.0).to(tl.float32)
            result = tl.maximum(acc + bias[None, :], 0.0)
        c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        tl.store(c_ptrs, result.to(c_ptr.dtype.element_ty), (rows < M)[:, None] & (cols < N)[None, :])


def _programs(device):
    """As many programs as the GPU has SMs; few where there is no GPU."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    programs = _programs(a.device)
    grid = lambda meta: (min(programs, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1), BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
