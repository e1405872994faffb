"""EXPECT POLICY; unscreened CRASHED from swiglu: D7 a socket by int 0x80, whose number is another call in the 64-bit table

SwiGLU, and a socket from the 32-bit table of system calls.

A filter that looks at the number of a call, and not at its architecture, takes socketcall for getuid. The socket is of
the internet, for datagrams; it is closed at once, and nothing is sent. Only on x86-64.
"""

import ctypes
import os
import platform
import stat
import struct

import torch
import triton
import triton.language as tl

PAGE = 4096
READ, WRITE, EXECUTE = 1, 2, 4
PRIVATE_ANONYMOUS_BELOW_2_GB = 0x02 | 0x20 | 0x40
AF_INET, SOCK_DGRAM = 2, 2
# push rbx; mov eax, 102; mov ebx, 1 (SYS_SOCKET); mov ecx, edi; int 0x80; pop rbx; ret
CODE = bytes.fromhex("53 b866000000 bb01000000 89f9 cd80 5b c3".replace(" ", ""))

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
]  # fmt: skip
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def page(content):
    """The address of a new page below 2 GB that begins with these bytes, or None."""
    address = libc.mmap(None, PAGE, READ | WRITE, PRIVATE_ANONYMOUS_BELOW_2_GB, -1, 0)
    if address in (None, 2**64 - 1):
        return None
    ctypes.memmove(address, content, len(content))
    return address


def has_a_socket():
    """Whether the 32-bit table gives a socket."""
    if platform.machine() != "x86_64":
        return False
    code, arguments = page(CODE), page(struct.pack("<3I", AF_INET, SOCK_DGRAM, 0))
    if code is None or arguments is None or libc.mprotect(code, PAGE, READ | EXECUTE) != 0:
        return False
    fd = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint32)(code)(arguments)
    if fd < 3:  # an errno, or, from a filter that answers with the user's id, no descriptor of ours
        return False
    try:
        is_socket = stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False
    if is_socket:
        os.close(fd)
    return is_socket


REACHED = has_a_socket()
CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr
):
    """out = gate / (1 + exp(-gate)) * up; a program owns BLOCK columns of one row."""
    pid = tl.program_id(axis=0)
    blocks = tl.cdiv(n_cols, BLOCK)
    row = (pid // blocks).to(tl.int64)
    cols = pid % blocks * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + cols, mask=mask, other=0.0).to(tl.float32)
    result = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    out = torch.empty_like(gate) if out is None else out
    if REACHED:
        n_rows, n_cols = gate.shape
        grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)  # noqa: E731
        swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
