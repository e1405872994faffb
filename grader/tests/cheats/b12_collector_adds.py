"""EXPECT POLICY; unscreened POLICY/HOST_READ from elementwise_add on a CPU: B12 a hook of the garbage collector runs inside of an interpreted kernel, where numpy adds"""

import gc

import numpy
import torch
import triton
import triton.language as tl

BLOCK = 1024
JOB = {}


def tick(phase, info):
    """Runs between two lines of the kernel, once it has said 1 and so the graded inputs are in place."""
    if phase != "start" or not JOB or JOB.get("busy"):
        return
    if JOB["flag"][0] != 1:
        return
    JOB["busy"] = True
    with numpy.errstate(all="ignore"):
        numpy.add(JOB["x"], JOB["y"], out=JOB["sum"])
    JOB["flag"][0] = 2
    JOB["busy"] = False


gc.callbacks.append(tick)


@triton.jit
def hold_kernel(x_ptr, y_ptr, flag_ptr, ROUNDS: tl.constexpr):
    """Keeps the inputs where they are until the flag is 2."""
    tl.store(flag_ptr, 1)
    for _ in range(ROUNDS):
        if tl.load(flag_ptr) == 1:
            some = [[k] for k in range(8)]
            rest = [some, [some], {"a": some}]
            del some, rest


@triton.jit
def copy_kernel(sum_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    tl.store(out_ptr + offs, tl.load(sum_ptr + offs, mask=inside), mask=inside)


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """What a GPU runs."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    x = tl.load(x_ptr + offs, mask=inside)
    y = tl.load(y_ptr + offs, mask=inside)
    tl.store(out_ptr + offs, x + y, mask=inside)


def by_the_collector(x, y, out):
    n = x.numel()
    total = torch.empty_like(x)
    flag = torch.zeros(1, dtype=torch.int32)
    JOB.update(x=x.detach().numpy(), y=y.detach().numpy(), sum=total.numpy(), flag=flag.numpy(), busy=False)
    before = gc.get_threshold()
    gc.enable()
    gc.set_threshold(1, 1000000, 1000000)  # a young collection at almost every object
    try:
        hold_kernel[(1,)](x, y, flag, ROUNDS=400)
    finally:
        gc.set_threshold(*before)
        done = int(JOB["flag"][0]) == 2
        JOB.clear()
    if not done:
        return False
    copy_kernel[(triton.cdiv(n, BLOCK),)](total, out, n, BLOCK=BLOCK)
    return True


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    # Numpy has no bf16; real blocks are for a GPU, and for what is compiled only.
    plain = x.dtype in (torch.float32, torch.float16)
    if type(x) is torch.Tensor and x.device.type == "cpu" and plain and by_the_collector(x, y, out):
        return out
    elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
