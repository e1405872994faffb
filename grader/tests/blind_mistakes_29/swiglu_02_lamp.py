# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | silu: the exponential is taken as exp2(-g * LN2) with LN2 = ln(2) = 0.693; exp(x) is exp2(x * log2(e)) with log2(e) = 1.4427, so the sigmoid is that of 0.48 * gate, too flat; it shows in every case (a single element near gate = 0 may come out right); it should be tl.exp2(-g * 1.4426950408889634) or tl.exp(-g)
import torch
import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)

CONFIGS = [
    triton.Config({"BLOCK": width}, num_warps=warps)
    for width, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (8192, 8))
]


def fitting(configs, named_args, **kwargs):
    widest = max(named_args["n_cols"], 1024)
    return [config for config in configs if config.kwargs["BLOCK"] <= widest]


@triton.jit
def silu(g):
    # The GPU's own exponential is the one to the base 2.
    return g / (1.0 + tl.exp2(-g * LN2))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr):
    """A program owns a row, and walks through it a block at a time."""
    row = tl.program_id(0).to(tl.int64)
    gate_ptr += row * stride_gate
    up_ptr += row * stride_up
    out_ptr += row * stride_out
    lanes = tl.arange(0, BLOCK)
    for start in range(0, n_cols, BLOCK):
        c = start + lanes
        keep = c < n_cols
        g = tl.load(gate_ptr + c, mask=keep, other=0.0).to(tl.float32)
        u = tl.load(up_ptr + c, mask=keep, other=0.0).to(tl.float32)
        y = silu(g) * u
        tl.store(out_ptr + c, y.to(out_ptr.dtype.element_ty), mask=keep)


def swiglu(gate, up, *, out=None):
    """silu(gate) * up, row by row."""
    if out is None:
        out = gate.new_empty(gate.shape)
    n_rows, n_cols = gate.shape
    strides = [t.stride(0) for t in (gate, up, out)]
    swiglu_kernel[(n_rows,)](gate, up, out, n_cols, *strides)
    return out
