# gpu-programming/triton-kernels/swiglu.py | error | tl.sigmoid is called on the gate as loaded, in fp16 or bf16, but it (its tl.exp) accepts fp32 and fp64 only: the kernel does not compile, ValueError on the dtype; the conversion .to(tl.float32) is missing | "The dtype is fp32, fp16 or bf16", "gate and up as fp32"; only fp16 and bf16 inputs, fp32 is right
import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((512, 2), (1024, 4), (2048, 8), (4096, 8))]


def fitting(configs, named_args, **kwargs):
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = col < n_cols
    gate = tl.load(gate_ptr + row * stride_gate + col, ok, 0.0)
    up = tl.load(up_ptr + row * stride_up + col, ok, 0.0)
    tl.store(out_ptr + row * stride_out + col, silu(gate).to(tl.float32) * up.to(tl.float32), ok)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(gate)
    n_rows, n_cols = gate.shape
    swiglu_kernel[lambda meta: (n_rows, triton.cdiv(n_cols, meta["BLOCK"]))](
        gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out
