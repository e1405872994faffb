# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | K is split among up to 4 programs that add their parts atomically, and matmul_kernel clamps each part at 0 (`acc = tl.maximum(acc, 0.0)` under BIAS_RELU) before the atomic addition: the result is the sum of the clamped parts instead of the clamped sum. matmul_bias_relu is wrong in nearly every case (all K > 32, where K is split); matmul is right. ReLU belongs into finish_kernel, after all parts are added.
"""Matrix product with K split among programs: partial sums are added in fp32, then converted."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = (tile // in_group) * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(
    configs=CONFIGS,
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": fitting},
    reset_to_zero=["sum_ptr"],
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, sum_ptr, bias_ptr, M, N, K, parts,
    stride_am, stride_ak, stride_bk, stride_bn, stride_sm, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (tile, part) adds every parts-th block of K to its tile of the sums."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(part * BLOCK_K, K, parts * BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a_mask = (rows < M)[:, None] & (ks < K)[None, :]
        b_mask = (ks < K)[:, None] & (cols < N)[None, :]
        a = tl.load(a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        # The bias must be added once, so it comes with the first part.
        if part == 0:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            acc += bias[None, :]
        acc = tl.maximum(acc, 0.0)
    exists = (rows < M)[:, None] & (cols < N)[None, :]
    tl.atomic_add(sum_ptr + rows[:, None] * stride_sm + cols[None, :], acc, mask=exists)


@triton.jit
def finish_kernel(
    sum_ptr, c_ptr, M, N, stride_sm, stride_cm, stride_cn, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """c = the sums, in the dtype of c."""
    block = tl.program_id(axis=0)
    across = tl.cdiv(N, COLS)
    rows = (block // across * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = (block % across * COLS + tl.arange(0, COLS)).to(tl.int64)
    exists = (rows < M)[:, None] & (cols < N)[None, :]
    sums = tl.load(sum_ptr + rows[:, None] * stride_sm + cols[None, :], mask=exists, other=0.0)
    c_at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_at, sums.to(c_ptr.dtype.element_ty), mask=exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    parts = min(triton.cdiv(K, 32), 4)
    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), parts)

    matmul_kernel[grid](
        a, b, sums, bias, M, N, K, parts, *a.stride(), *b.stride(), sums.stride(0), BIAS_RELU=bias_relu
    )
    finish_kernel[(triton.cdiv(M, 32) * triton.cdiv(N, 64),)](
        sums, out, M, N, sums.stride(0), out.stride(0), out.stride(1), ROWS=32, COLS=64
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
