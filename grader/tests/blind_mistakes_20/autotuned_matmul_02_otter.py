# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | pack_kernel stores a panel column by column (element k, n at k + n * BLOCK_K), but matmul_kernel reads it row by row: inside = lanes_k * BLOCK_N + lanes_n. The elements of each tile of b are shuffled; inside should be lanes_k[:, None] + lanes_n[None, :] * BLOCK_K.
"""Matrix product in two steps, as in BLIS: pack b into panels, then multiply. Bias and ReLU in the second step."""

import torch
import triton
import triton.language as tl

# A panel of b is 32 x 64 and lies in one piece, whatever the strides of b are. Only BLOCK_M is tuned.
PANEL_K = 32
PANEL_N = 64


def _config(block_m, group_m, num_stages, num_warps):
    return triton.Config({"BLOCK_M": block_m, "GROUP_M": group_m}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(256, 4, 4, 8),
    _config(128, 8, 4, 8),
    _config(128, 8, 4, 4),
    _config(64, 8, 4, 4),
    _config(32, 8, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """No more rows than the result has, and few for fp32."""
    most = min(named_args["M"], 64 if named_args["bias_ptr"].dtype == torch.float32 else 256)
    return [c for c in configs if c.kwargs["BLOCK_M"] <= most] or configs[-1:]


@triton.jit
def pack_kernel(
    b_ptr, panel_ptr, K, N, stride_bk, stride_bn, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Copies one tile of b to its panel, with zeros past the end of b.

    Panels of the same columns follow each other. In a panel the numbers of a column lie side by side, because
    they are multiplied together.
    """
    number = tl.program_id(0)
    tiles_k = tl.cdiv(K, BLOCK_K)
    lanes_k = tl.arange(0, BLOCK_K)
    lanes_n = tl.arange(0, BLOCK_N)
    ks = ((number % tiles_k) * BLOCK_K + lanes_k).to(tl.int64)
    cols = ((number // tiles_k) * BLOCK_N + lanes_n).to(tl.int64)
    tile = tl.load(
        b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
        mask=(ks[:, None] < K) & (cols[None, :] < N),
        other=0.0,
    )
    base = panel_ptr + number.to(tl.int64) * (BLOCK_K * BLOCK_N)
    tl.store(base + lanes_k[:, None] + lanes_n[None, :] * BLOCK_K, tile)


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    group_size = tl.cdiv(N, BLOCK_N) * GROUP_M
    top = (tile // group_size) * GROUP_M
    height = tl.minimum(GROUP_M, tiles_m - top)
    rest = tile % group_size
    return (top + rest % height) * BLOCK_M, rest // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, panel_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_M: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    lanes_k = tl.arange(0, BLOCK_K)
    lanes_n = tl.arange(0, BLOCK_N)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + lanes_n).to(tl.int64)
    row_ok = rows[:, None] < M

    steps = tl.cdiv(K, BLOCK_K)
    inside = lanes_k[:, None] * BLOCK_N + lanes_n[None, :]
    panel = panel_ptr + (n // BLOCK_N).to(tl.int64) * steps * (BLOCK_K * BLOCK_N)
    a_rows = a_ptr + rows[:, None] * stride_am

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, steps):
        ks = step * BLOCK_K + lanes_k.to(tl.int64)
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_ok & (ks[None, :] < K), other=0.0)
        b = tl.load(panel + inside)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        panel += BLOCK_K * BLOCK_N

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        acc += bias.to(tl.float32)[None, :]
        acc = tl.maximum(acc, 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & (cols[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    panels = triton.cdiv(K, PANEL_K) * triton.cdiv(N, PANEL_N)
    packed = torch.empty((panels * PANEL_K * PANEL_N,), device=b.device, dtype=b.dtype)
    pack_kernel[(panels,)](b, packed, K, N, b.stride(0), b.stride(1), BLOCK_K=PANEL_K, BLOCK_N=PANEL_N)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, PANEL_N),)  # noqa: E731
    matmul_kernel[grid](
        a, packed, out, bias, M, N, K, a.stride(0), a.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu, BLOCK_N=PANEL_N, BLOCK_K=PANEL_K,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
