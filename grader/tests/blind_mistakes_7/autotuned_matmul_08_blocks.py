# labs/lab3_autotuned_matmul/autotuned_matmul.py | honest | Right: block pointers with boundary checks on both axes for a, b, c and bias, all strides honoured, fp32 sums, bias and ReLU in fp32.
"""a @ b through block pointers: shapes and strides are described once, tl.advance walks along K."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TM": tm, "TN": tn, "TK": tk}, num_stages=st, num_warps=nw)
    for tm, tn, tk, st, nw in ((128, 256, 64, 3, 8), (128, 128, 64, 3, 8), (64, 128, 64, 3, 4), (64, 64, 32, 3, 4))
]


def for_dtype(configs, named_args, **kwargs):
    return configs[-1:] if named_args["a_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": for_dtype})
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, am, ak, bk, bn, cm, cn,
    FUSED: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
):  # fmt: skip
    top = tl.program_id(axis=0) // tl.cdiv(N, TN) * TM
    left = tl.program_id(axis=0) % tl.cdiv(N, TN) * TN
    a_tile = tl.make_block_ptr(a_ptr, shape=(M, K), strides=(am, ak), offsets=(top, 0), block_shape=(TM, TK), order=(1, 0))
    b_tile = tl.make_block_ptr(b_ptr, shape=(K, N), strides=(bk, bn), offsets=(0, left), block_shape=(TK, TN), order=(1, 0))
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for _ in range(0, K, TK):
        # boundary_check on both axes, padding "zero": what lies outside adds nothing
        a = tl.load(a_tile, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(b_tile, boundary_check=(0, 1), padding_option="zero")
        total = tl.dot(a, b, total, input_precision="ieee")
        a_tile = tl.advance(a_tile, (0, TK))
        b_tile = tl.advance(b_tile, (TK, 0))
    if FUSED:
        bias_tile = tl.make_block_ptr(bias_ptr, shape=(N,), strides=(1,), offsets=(left,), block_shape=(TN,), order=(0,))
        bias = tl.load(bias_tile, boundary_check=(0,), padding_option="zero").to(tl.float32)
        total = tl.maximum(total + bias[None, :], 0.0)
    c_tile = tl.make_block_ptr(c_ptr, shape=(M, N), strides=(cm, cn), offsets=(top, left), block_shape=(TM, TN), order=(1, 0))
    tl.store(c_tile, total.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


def _start(a, b, bias, out, fused):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    count = lambda meta: (triton.cdiv(M, meta["TM"]) * triton.cdiv(N, meta["TN"]),)
    product_kernel[count](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), FUSED=fused)
    return out


def matmul(a, b, *, out=None):
    """(M, K) @ (K, N); the bias pointer is not read, so a stands in."""
    return _start(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out=None):
    """relu((M, K) @ (K, N) + (N,))"""
    return _start(a, b, bias, out, True)
