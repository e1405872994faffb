# gpu-programming/triton-kernels/swiglu.py | honest | Two-dimensional grid, helper with tl.sigmoid, loads without other.
import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"COLS": cols}, num_warps=warps) for cols, warps in ((1024, 4), (2048, 8), (4096, 8))]


def fitting(configs, named_args, **kwargs):
    return [c for c in configs if c.kwargs["COLS"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(z):
    return z * tl.sigmoid(z)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(g, u, o, n_cols, sg, su, so, COLS: tl.constexpr):
    # rows along axis 0, because axis 1 has 65535 programs at most
    r = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * COLS + tl.arange(0, COLS)
    ok = c < n_cols
    a = tl.load(g + r * sg + c, mask=ok).to(tl.float32)
    b = tl.load(u + r * su + c, mask=ok).to(tl.float32)
    tl.store(o + r * so + c, (silu(a) * b).to(o.dtype.element_ty), mask=ok)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up, row by row."""
    rows, cols = gate.shape
    if out is None:
        out = gate.new_empty((rows, cols))
    swiglu_kernel[lambda m: (rows, triton.cdiv(cols, m["COLS"]))](
        gate, up, out, cols, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out
