# labs/lab3_autotuned_matmul/autotuned_matmul.py | honest | No mistake. Persistent programs on tensor descriptors where the strides allow it, walking over groups of columns of tiles; a kernel with pointers for all other operands and for fp32.
"""Matrix product: as many programs as multiprocessors walk over the tiles, with descriptors where they are possible."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def set_blocks(args):
    """The tile of each descriptor, as the config has it."""
    args["a_desc"].block_shape = [args["BLOCK_M"], args["BLOCK_K"]]
    if args["B_ROWS"]:
        args["b_desc"].block_shape = [args["BLOCK_K"], args["BLOCK_N"]]
    else:
        args["b_desc"].block_shape = [args["BLOCK_N"], args["BLOCK_K"]]
    args["c_desc"].block_shape = [args["BLOCK_M"], args["BLOCK_N"]]


def candidate(block_m, block_n, block_k, stages, warps, hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "BAND": 8}
    return triton.Config(tile, num_stages=stages, num_warps=warps, pre_hook=hook)


WALKERS = [
    candidate(128, 256, 64, 3, 8, set_blocks),
    candidate(256, 128, 64, 3, 8, set_blocks),
    candidate(128, 128, 64, 4, 8, set_blocks),
    candidate(64, 128, 64, 4, 4, set_blocks),
    candidate(64, 64, 64, 4, 4, set_blocks),
]
PLAIN = [
    candidate(128, 256, 64, 3, 8),
    candidate(128, 128, 64, 3, 8),
    candidate(64, 128, 32, 4, 4),
    candidate(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no larger than the result, the last one for fp32."""
    longest = 0 if named_args["bias_ptr"].dtype == torch.float32 else min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= longest]
    return kept or configs[-1:]


@triton.jit
def corner_of(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BAND: tl.constexpr):
    """First row and column of a tile: bands of BAND columns of tiles, row by row inside a band."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    band = tile // (BAND * tiles_m)
    width = min(BAND, tiles_n - band * BAND)
    within = tile - band * BAND * tiles_m
    return within // width * BLOCK_M, (band * BAND + within % width) * BLOCK_N


@triton.jit
def bias_relu(acc, bias_ptr, cols, N):
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(configs=WALKERS, key=["M", "N", "K", "B_ROWS"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def walking_kernel(
    a_desc, b_desc, c_desc, bias_ptr, M, N, K, B_ROWS: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    """c = a @ b; b_desc describes b, or b.T where not B_ROWS; lanes outside are loaded as 0 and not stored."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        m, n = corner_of(tile, M, N, BLOCK_M, BLOCK_N, BAND)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = a_desc.load([m, k])
            if B_ROWS:
                b = b_desc.load([k, n])
            else:
                b = b_desc.load([n, k]).T
            acc = tl.dot(a, b, acc, input_precision="ieee")
        if BIAS_RELU:
            acc = bias_relu(acc, bias_ptr, n + tl.arange(0, BLOCK_N), N)
        c_desc.store([m, n], acc.to(c_desc.dtype))


@triton.autotune(configs=PLAIN, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def plain_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    """The same with pointers, for any strides; one tile for each program."""
    m, n = corner_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, BAND)
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + (rows[:, None] * stride_am + ks[None, :] * stride_ak)
    b_ptrs = b_ptr + (ks[:, None] * stride_bk + cols[None, :] * stride_bn)
    row_ok, col_ok = (rows < M)[:, None], (cols < N)[None, :]
    step = tl.full((), BLOCK_K, dtype=tl.int64)
    step_a, step_b = step * stride_ak, step * stride_bk
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        k_ok = ks < K - k
        a = tl.load(a_ptrs, mask=row_ok & k_ok[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=k_ok[:, None] & col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += step_a
        b_ptrs += step_b
    if BIAS_RELU:
        acc = bias_relu(acc, bias_ptr, cols, N)
    c_ptrs = c_ptr + (rows[:, None] * stride_cm + cols[None, :] * stride_cn)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def by_rows(matrix):
    """Whether a descriptor can describe the matrix: neighbouring columns, and 16 bytes as the unit of the rest."""
    step = matrix.stride(0) * matrix.element_size()
    return matrix.stride(1) == 1 and step > 0 and step % 16 == 0 and matrix.data_ptr() % 16 == 0


def _launch(a, b, bias, out, relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    # Older cards have no engine that copies tiles.
    engine = not a.is_cuda or torch.cuda.get_device_capability(a.device)[0] >= 9
    if engine and a.dtype != torch.float32 and by_rows(a) and by_rows(out) and (by_rows(b) or by_rows(b.T)):
        b_rows = by_rows(b)
        # The config sets the blocks; these only have the right rank.
        a_desc = TensorDescriptor.from_tensor(a, [1, 1])
        b_desc = TensorDescriptor.from_tensor(b if b_rows else b.T, [1, 1])
        c_desc = TensorDescriptor.from_tensor(out, [1, 1])
        most = torch.cuda.get_device_properties(a.device).multi_processor_count if a.is_cuda else 132

        def walkers(meta):
            return (min(most, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),)

        walking_kernel[walkers](a_desc, b_desc, c_desc, bias, M, N, K, B_ROWS=b_rows, BIAS_RELU=relu)
    else:

        def programs(meta):
            return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

        plain_kernel[programs](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, True)
