# gpu-programming/triton-kernels/swiglu.py | two mistakes | (1) `LOG2E = tl.constexpr(1.4426)` should be 1.4426950408889634: in `silu` the exponent is off by 7e-5 of itself, too much for fp32 (nearly all fp32 cases), and hidden by the rounding of fp16 and bf16. (2) In `swiglu`, `if gate.is_contiguous() and up.is_contiguous():` should also ask for `out.is_contiguous()`: where gate and up have no gaps between rows and the given `out` has them ((3, 130) fp16 with out far), rows after the first go to wrong places, between the rows of `out`.
"""SwiGLU, silu(gate) * up: matrices without gaps between rows are one long row, autotuned."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426)

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(gate):
    """gate * sigmoid(gate) in fp32; of a large negative gate exp2 is inf, and gate / inf is 0."""
    return gate / (1.0 + tl.exp2(gate * -LOG2E))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    up_ptr,  # (n_rows, n_cols) like gate
    out_ptr,  # (n_rows, n_cols) like gate
    n_cols,
    stride_gate,  # elements from one row of gate to the next
    stride_up,
    stride_out,
    BLOCK: tl.constexpr,
):
    """out = silu(gate) * up; a program owns BLOCK columns of one row. Rows and columns are int64."""
    pid = tl.program_id(axis=0)
    blocks = (n_cols - 1) // BLOCK + 1
    row = (pid // blocks).to(tl.int64)
    cols = (pid % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = cols < n_cols

    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=exists, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + cols, mask=exists, other=0.0).to(tl.float32)
    result = silu(gate) * up
    tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=exists)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)
    stride_gate, stride_up, stride_out = gate.stride(0), up.stride(0), out.stride(0)

    # Without gaps the rows follow each other, and only the last block of all is a partial one.
    if gate.is_contiguous() and up.is_contiguous():
        n_rows, n_cols = 1, n_rows * n_cols

    swiglu_kernel[lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)](
        gate, up, out, n_cols, stride_gate, stride_up, stride_out
    )
    return out
