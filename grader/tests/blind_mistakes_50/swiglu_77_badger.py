# gpu-programming/triton-kernels/swiglu.py | contract | In swiglu `torch.empty_strided((n_rows, n_cols), gate.stride(), ...)` gives the new result the row stride of gate; it should be a contiguous tensor, `torch.empty((n_rows, n_cols), ...)`. Numbers are right; without `out` and with gaps between the rows of gate the returned matrix is not contiguous.
"""SwiGLU over blocks of columns, without masks where the blocks fill the rows exactly, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 4096}, num_warps=4),
    triton.Config({"BLOCK": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """Blocks that are no longer than the row; the shortest one for a row that is shorter than that."""
    n_cols = named_args["n_cols"]
    return [config for config in configs if config.kwargs["BLOCK"] <= n_cols] or configs[:1]


def whole_blocks(args):
    return args["n_cols"] % args["BLOCK"] == 0


@triton.jit
def activate(gate, up, dtype: tl.constexpr):
    """silu(gate) * up in fp32, rounded once to dtype."""
    gate = gate.to(tl.float32)
    return (tl.fdiv(gate, 1.0 + tl.exp(-gate)) * up.to(tl.float32)).to(dtype)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"WHOLE": whole_blocks})
@triton.jit
def swiglu_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    n_cols,
    stride_gate,
    stride_up,
    stride_out,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """A program owns BLOCK columns of one row; the blocks of a row are neighbours in the grid."""
    pid = tl.program_id(axis=0)
    blocks = tl.cdiv(n_cols, BLOCK)
    row = (pid // blocks).to(tl.int64)
    cols = pid % blocks * BLOCK + tl.arange(0, BLOCK)
    gates = gate_ptr + row * stride_gate + cols
    ups = up_ptr + row * stride_up + cols
    outs = out_ptr + row * stride_out + cols
    if WHOLE:
        gate = tl.load(gates, eviction_policy="evict_first")
        up = tl.load(ups, eviction_policy="evict_first")
        tl.store(outs, activate(gate, up, out_ptr.dtype.element_ty))
    else:
        inside = cols < n_cols
        gate = tl.load(gates, mask=inside, other=0.0)
        up = tl.load(ups, mask=inside, other=0.0)
        tl.store(outs, activate(gate, up, out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, columns contiguous, any row stride.

    The result goes to `out` where one is given, and otherwise to a new matrix.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty_strided((n_rows, n_cols), gate.stride(), device=gate.device, dtype=gate.dtype)
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)  # noqa: E731
    swiglu_kernel[grid](
        gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )  # fmt: skip
    return out
