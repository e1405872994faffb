# gpu-programming/triton-kernels/swiglu.py | right | Unusual: a grid of two axes, rows along axis 0 and blocks of columns along axis 1, with pointers moved to the row first and silu in a function of its own.
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl


def make_configs():
    found = []
    for warps in (4, 8):
        for per_thread in (8, 16):
            found.append(triton.Config({"BLOCK": 32 * warps * per_thread}, num_warps=warps))
    return found


CONFIGS = make_configs()


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(z):
    # exp(-z) overflows to inf for very negative z: z / inf = 0
    return z / (1.0 + tl.exp(-z))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr):
    """Program (i, j) owns columns j * BLOCK and following of row i."""
    i = tl.program_id(axis=0).to(tl.int64)
    gate_ptr += i * stride_gate
    up_ptr += i * stride_up
    out_ptr += i * stride_out

    col = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    ok = col < n_cols
    g = tl.load(gate_ptr + col, mask=ok, other=0.0).to(tl.float32)
    u = tl.load(up_ptr + col, mask=ok, other=0.0).to(tl.float32)
    tl.store(out_ptr + col, (silu(g) * u).to(out_ptr.dtype.element_ty), mask=ok)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    out = torch.empty_like(gate) if out is None else out
    n_rows = gate.size(0)
    n_cols = gate.size(1)
    swiglu_kernel[lambda meta: (n_rows, triton.cdiv(n_cols, meta["BLOCK"]))](
        gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out
