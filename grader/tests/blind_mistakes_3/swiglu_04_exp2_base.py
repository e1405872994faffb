# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | swiglu_kernel, helper sigmoid: exp2(-g) without the factor log2(e), so the sigmoid is that of base 2. It must be exp2(-g * 1.4426950408889634).
import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def sigmoid(g):
    # exp2 is one instruction
    return 1.0 / (1.0 + tl.exp2(-g))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n_rows, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    start = tl.program_id(0) * BLOCK
    cols = start + tl.arange(0, BLOCK)
    while row < n_rows:
        g = tl.load(gate_ptr + row * stride_gate + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        u = tl.load(up_ptr + row * stride_up + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = g * sigmoid(g) * u
        tl.store(out_ptr + row * stride_out + cols, y.to(out_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(1)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(gate)
    n_rows, n_cols = gate.shape
    swiglu_kernel[lambda meta: (triton.cdiv(n_cols, meta["BLOCK"]), min(n_rows, 65535))](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out
