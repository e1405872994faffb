# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `tile_kernel`, `tl.dot(x, tl.reshape(w, (BK, BN)), acc, ...)`: `w` was loaded as a (BN, BK) block and must be transposed, `tl.trans(w)`; `tl.reshape` keeps the order of the elements and mixes rows and columns of b (with BN = BK it multiplies by the block itself). Wrong in matmul and matmul_bias_relu in all cases but 1 x 1 x 1.
"""A tuned matrix product on block pointers, with bias and ReLU while the sums are still in registers."""

import torch
import triton
import triton.language as tl


def _tile(rows, cols, depth, stages, warps):
    return triton.Config({"BM": rows, "BN": cols, "BK": depth}, num_stages=stages, num_warps=warps)


TILES = [
    _tile(128, 128, 64, 3, 8),
    _tile(128, 64, 64, 4, 4),
    _tile(64, 128, 64, 4, 4),
    _tile(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; for fp32, which runs without tensor cores, 64 x 64 at most."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    limit = min(named_args["M"], named_args["N"], widest)
    return [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= limit] or configs[-1:]


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def tile_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """One BM x BN tile of c. b is seen as an (N, K) matrix of weights, one row for each column of c."""
    pid = tl.program_id(axis=0)
    across = tl.cdiv(N, BN)
    # Eight rows of tiles at a time, so that the tiles in flight share their strips of a and b in L2.
    i, j = tl.swizzle2d(pid // across, pid % across, tl.cdiv(M, BM), across, 8)
    x_block = tl.make_block_ptr(
        a_ptr, shape=(M, K), strides=(stride_am, stride_ak), offsets=(i * BM, 0),
        block_shape=(BM, BK), order=(1, 0),
    )  # fmt: skip
    w_block = tl.make_block_ptr(
        b_ptr, shape=(N, K), strides=(stride_bn, stride_bk), offsets=(j * BN, 0),
        block_shape=(BN, BK), order=(1, 0),
    )  # fmt: skip
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        x = tl.load(x_block, boundary_check=(0, 1), padding_option="zero")
        w = tl.load(w_block, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(x, tl.reshape(w, (BK, BN)), acc, input_precision="ieee")
        x_block = tl.advance(x_block, (0, BK))
        w_block = tl.advance(w_block, (0, BK))
    if BIAS_RELU:
        cols = j * BN + tl.arange(0, BN)
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_block = tl.make_block_ptr(
        c_ptr, shape=(M, N), strides=(stride_cm, stride_cn), offsets=(i * BM, j * BN),
        block_shape=(BM, BN), order=(1, 0),
    )  # fmt: skip
    tl.store(c_block, acc.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


def _product(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    tile_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, summed in fp32 and rounded once, into `out` where one is given."""
    return _product(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,)."""
    return _product(a, b, bias, out, bias_relu=True)
