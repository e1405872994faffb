# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""C = A B, computed as the mirrored product of B^T and A^T: a tile of sums has the columns of C as its first axis."""

import torch
import triton
import triton.language as tl

TILES = (
    # columns of C, rows of C, step along K, stages, warps
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 3, 8),
    (64, 128, 64, 3, 4),
    (64, 64, 32, 3, 4),
)


def _configs():
    made = []
    for columns, rows, step, stages, warps in TILES:
        tile = {"BLOCK_N": columns, "BLOCK_M": rows, "BLOCK_K": step, "GROUP": 8}
        made.append(triton.Config(tile, num_stages=stages, num_warps=warps))
    return made


def _small_enough(configs, named_args, **kwargs):
    bound = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        bound = min(bound, 64)
    return [c for c in configs if c.kwargs["BLOCK_M"] <= bound and c.kwargs["BLOCK_N"] <= bound] or configs[-1:]


@triton.jit
def _position(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """First row and column of a tile; GROUP columns of tiles are walked row by row."""
    down = tl.cdiv(M, BLOCK_M)
    across = tl.cdiv(N, BLOCK_N)
    per_group = GROUP * down
    first = tile // per_group * GROUP
    width = tl.minimum(across - first, GROUP)
    rest = tile % per_group
    return rest // width * BLOCK_M, (first + rest % width) * BLOCK_N


@triton.autotune(configs=_configs(), key=["M", "N", "K"], prune_configs_by={"early_config_prune": _small_enough})
@triton.jit
def mirrored_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    m, n = _position(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP)
    columns = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    inner = tl.arange(0, BLOCK_K).to(tl.int64)
    is_column = (columns < N)[:, None]
    is_row = (rows < M)[None, :]
    b_start = b_ptr + columns[:, None] * stride_bn
    a_start = a_ptr + rows[None, :] * stride_am

    sums = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        bt = tl.load(b_start + inner[None, :] * stride_bk, mask=is_column & (inner < K)[None, :], other=0.0)
        at = tl.load(a_start + inner[:, None] * stride_ak, mask=is_row & (inner < K)[:, None], other=0.0)
        sums = tl.dot(bt, at, sums, input_precision="ieee")
        inner += BLOCK_K

    if BIAS_RELU:
        bias = tl.load(bias_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)
        sums = tl.maximum(sums + bias[:, None], 0.0)
    where = c_ptr + columns[:, None] * stride_cn + rows[None, :] * stride_cm
    tl.store(where, sums.to(c_ptr.dtype.element_ty), mask=is_column & is_row)


def _product(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    mirrored_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1), BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _product(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _product(a, b, bias, out, bias_relu=True)
