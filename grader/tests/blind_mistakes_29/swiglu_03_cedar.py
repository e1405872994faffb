# gpu-programming/triton-kernels/swiglu.py | corner | swiglu: the matrix is treated as one long row where `gate.is_contiguous() and up.is_contiguous()`, without a look at out; where gate and up are contiguous and a given out has a larger row stride (two rows or more), the result is written densely from the start of out: rows after the first are in the wrong place, the space between rows is written to, and the end of out is not; the condition also needs out.is_contiguous()
"""silu(gate) * up. Where the memory has no gaps, rows do not matter, and the matrix is one long vector."""

import torch
import triton
import triton.language as tl


def _candidates():
    found = []
    for block in (1024, 2048, 4096):
        for warps in (4, 8):
            # At least 8 numbers for each thread.
            if block // (32 * warps) >= 8:
                found.append(triton.Config({"BLOCK": block}, num_warps=warps))
    return found


CONFIGS = _candidates()


def fitting(configs, named_args, **kwargs):
    short = [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]]
    return short if short else configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_cols,
    stride_gate, stride_up, stride_out,
    BLOCK: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    per_row = tl.cdiv(n_cols, BLOCK)
    row = (pid // per_row).to(tl.int64)
    offs = (pid - pid // per_row * per_row).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = offs < n_cols
    a = tl.load(gate_ptr + row * stride_gate + offs, mask=ok, other=0.0).to(tl.float32)
    b = tl.load(up_ptr + row * stride_up + offs, mask=ok, other=0.0).to(tl.float32)
    # exp(-a) is inf for a very negative a, and a / inf is 0.
    result = a / (1.0 + tl.exp(-a)) * b
    tl.store(out_ptr + row * stride_out + offs, result.to(out_ptr.dtype.element_ty), mask=ok)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up; the result goes to `out` where one is given."""
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device) if out is None else out
    n_rows, n_cols = gate.shape
    if gate.is_contiguous() and up.is_contiguous():
        # One row of all elements: only its very last block is partly empty.
        n_rows, n_cols = 1, n_rows * n_cols
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
