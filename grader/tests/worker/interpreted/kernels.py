"""Kernels that a GPU takes, each in a check of what it gives: run with TRITON_INTERPRET=1 as a program.

The first argument is `mended` or `plain`. Prints a line for each check: its name, and what went wrong.
"""

import sys

import pytest
import torch
import triton
import triton.language as tl
from triton.language import load
from triton.language.math import rsqrt as inverse_root
from triton.runtime.interpreter import InterpreterError

if sys.argv[1:2] == ["mended"]:
    from grader.codegen import absent_gpu
    from grader.worker.interpreted import every_mend

    every_mend.apply()
    absent_gpu.install(90)
else:
    absent_gpu = None
from triton.language.extra import libdevice

LOWEST: tl.constexpr = tl.constexpr(float("-inf"))


def lanes(n=16):
    return torch.arange(float(n))


@triton.jit
def scalar_casts(out_ptr, n, eps, flag, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    half = (at * 0).to(tl.float16)
    tl.static_assert((half + eps).dtype == tl.float32)  # an argument is a value, which decides with its dtype
    wide = n.to(tl.int64) + eps.to(tl.float32) + tl.exp(eps - eps) + flag.to(tl.int32)
    tl.store(out_ptr + at, at + wide)


def numbers_that_a_launch_passes():
    out = torch.zeros(16)
    scalar_casts[(1,)](out, 7, 0.5, True, BLOCK=16)
    assert torch.equal(out, lanes() + 9.5), out


@triton.jit
def loops(out_ptr, rows, BLOCK: tl.constexpr):
    at, total = tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32)
    for row in range(tl.program_id(0), rows):
        total += (row * 2).to(tl.float32)
    for row in tl.range(0, rows, 2, num_stages=2):
        total += row.to(tl.int64)
    for row in tl.static_range(4):
        total += tl.sum(tl.zeros((2**row,), tl.float32) + 1.0, axis=0)
    first, second = 1.0, 2
    tl.store(out_ptr + at, total + first.to(tl.float32) + second.to(tl.float32))


def variables_of_loops():
    out = torch.zeros(16)
    loops[(1,)](out, 5, BLOCK=16)
    assert torch.equal(out, torch.full((16,), 20.0 + 6.0 + 15.0 + 3.0)), out


@triton.jit
def wide_loop(out_ptr, first, last):
    for row in range(first, last):
        tl.static_assert(row.dtype == tl.int64)
        tl.store(out_ptr + row - first, row * 4)


def loops_of_wide_bounds():
    out = torch.zeros(2, dtype=torch.int64)
    wide_loop[(1,)](out, 2**33, 2**33 + 2)
    assert out.tolist() == [2**35, 2**35 + 4], out


@triton.jit
def constants(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    lowest = tl.where(LOWEST < x, x, 0.0)  # noqa: SIM300 - the constant is on the left
    lowest += tl.where(x == LOWEST, 1.0, 0.0)
    one: tl.constexpr = tl.constexpr(1.0)
    tl.store(out_ptr + at, lowest + (one - x) + one * x + one / (x + 1.0))


def constants_and_blocks():
    out = torch.zeros(16)
    constants[(1,)](lanes(), out, BLOCK=16)
    assert torch.allclose(out, lanes() + 1.0 + 1.0 / (lanes() + 1.0)), out


@triton.jit
def python_words(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    inside = (at < n and at > 1) or at == 0
    tl.store(out_ptr + at, tl.where(inside, max(x, 5.0), min(x, 3.0)) + tl.where(not inside, 0.5, 0.0))


def words_of_python_on_blocks():
    out, x = torch.zeros(16), lanes()
    python_words[(1,)](x, out, 8, BLOCK=16)
    inside = ((x < 8) & (x > 1)) | (x == 0)
    assert torch.equal(out, torch.where(inside, x.clamp(min=5.0), x.clamp(max=3.0) + 0.5)), out


@triton.jit
def merge(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    n = n_a + n_b
    share = tl.where(n > 0, n_b / tl.maximum(n, 1.0), 0.0)
    delta = mean_b - mean_a
    return mean_a + delta * share, m2_a + m2_b + delta * delta * n_a * share, n


@triton.jit
def welford(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    zero = tl.zeros((BLOCK,), tl.float32)
    mean, m2, count = tl.reduce((x, zero, zero + 1.0), 0, merge)
    tl.store(out_ptr, mean)
    tl.store(out_ptr + 1, m2 / count)


def reductions_round_as_a_tree():
    out, x = torch.zeros(2), 1e4 + torch.randn(4096, generator=torch.Generator().manual_seed(0))
    welford[(1,)](x, out, BLOCK=4096)
    variance = x.double().var(correction=0)
    assert abs(out[0] - x.double().mean()) < 1e-3, out
    assert abs(out[1] - variance) < 1e-4 * variance, (out, variance)


@triton.jit
def later(a, b):
    return tl.where(a == a, b, b)


@triton.jit
def decides(a, b):
    return a if a > b else b


@triton.jit
def reduces(x_ptr, out_ptr, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows, cols = tl.arange(0, ROWS), tl.arange(0, COLS)
    x = tl.load(x_ptr + rows[:, None] * COLS + cols[None, :])
    last = tl.reduce(x, -1, later)
    kept = tl.reduce(x, 0, later, keep_dims=True)
    tl.store(out_ptr + rows, last)
    tl.store(out_ptr + ROWS + cols[None, :], kept)
    tl.store(out_ptr + ROWS + COLS, tl.reduce(x, None, later))
    tl.store(out_ptr + ROWS + COLS + 1, tl.max(tl.reduce(x, 1, decides), axis=0))


def reductions_keep_order_and_shape():
    x, out = lanes(32).view(4, 8), torch.zeros(14)
    x[1, 3] = 99.0
    reduces[(1,)](x, out, ROWS=4, COLS=8)
    assert out.tolist() == [*x[:, -1].tolist(), *x[-1].tolist(), 31.0, 99.0], out


@triton.jit
def fresh(value_a, begins_a, value_b, begins_b):
    return tl.where(begins_b > 0, value_b, value_a + value_b), begins_a | begins_b


@triton.jit
def scans(x_ptr, f_ptr, out_ptr, BLOCK: tl.constexpr, REVERSE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    found, _ = tl.associative_scan((tl.load(x_ptr + at), tl.load(f_ptr + at)), 0, fresh, reverse=REVERSE)
    tl.store(out_ptr + at, found)


def scans_begin_again_at_flags():
    x, flags, out = lanes() + 1.0, torch.zeros(16, dtype=torch.int32), torch.zeros(16)
    flags[[5, 9]] = 1
    scans[(1,)](x, flags, out, BLOCK=16, REVERSE=False)
    parts = [part.cumsum(0) for part in (x[:5], x[5:9], x[9:])]
    assert torch.equal(out, torch.cat(parts)), out


@triton.jit
def functions(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    y = libdevice.tanh(x) + libdevice.log1p(x) + libdevice.erf(x) + libdevice.rsqrt(x + 1.0)
    y += libdevice.pow(x, 1.5) + libdevice.fast_expf(-x) + libdevice.atan2(x, 2.0) + libdevice.expm1(-x)
    y += libdevice.rint(x + 0.5) + libdevice.isnan(x).to(tl.float32) + libdevice.float2int_rz(x + 0.7)
    tl.store(out_ptr + at, y)


def functions_of_libdevice():
    out, x = torch.zeros(16), lanes()
    functions[(1,)](x, out, BLOCK=16)
    d = x.double()
    wanted = d.tanh() + d.log1p() + d.erf() + (d + 1).rsqrt() + d.pow(1.5) + (-d).exp()
    wanted += d.atan2(torch.tensor(2.0)) + (-d).expm1() + (d + 0.5).round() + d
    assert torch.allclose(out, wanted.float(), rtol=1e-6), out - wanted


def _config(block):
    return triton.Config({"BLOCK": block})


@triton.autotune([_config(32), _config(64), _config(16)], key=["n"])
@triton.jit
def tuned(out_ptr, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK <= 16, "too wide")
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, at, mask=at < n)


def refused_configs():
    if absent_gpu:  # Triton's own driver is missing without a GPU
        triton.runtime.driver.active.get_benchmarker = lambda: lambda *_, **__: [1.0] * 3
    for n in (20, 40):
        out = torch.zeros(n)
        tuned[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](out, n)
        assert torch.equal(out, lanes(n)), out
    assert tuned.best_config.kwargs["BLOCK"] == 16


def refused_configs_where_each_runs():
    def timed(call, **_):
        call()
        return [1.0] * 3

    tuned.do_bench = timed
    out = torch.zeros(70)
    tuned[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](out, 70)
    assert torch.equal(out, lanes(70)), out
    assert tuned.best_config.kwargs["BLOCK"] == 16


@triton.autotune([_config(32), _config(64)], key=["n"])
@triton.jit
def never(out_ptr, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK <= 16, "too wide")
    tl.store(out_ptr, n)


def configs_that_are_all_refused():
    if absent_gpu:
        triton.runtime.driver.active.get_benchmarker = lambda: lambda *_, **__: [1.0] * 3
    with pytest.raises(InterpreterError, match=r"StaticAssertError.*too wide"):
        never[(1,)](torch.zeros(1), 1)


@triton.jit
def filled(out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, at, mask=at < n)


def grids_of_plain_numbers():
    def grid(meta):
        assert type(meta["n"]) is int, type(meta["n"])
        assert isinstance(meta["out_ptr"], torch.Tensor)
        return (triton.cdiv(meta["n"], meta["BLOCK"]),)

    out = torch.zeros(20)
    filled[grid](out, 20, BLOCK=16)
    assert torch.equal(out, lanes(20)), out


def kernels_that_are_warmed_up():
    device = triton.runtime.driver.active.get_active_torch_device()
    sizes = triton.runtime.driver.active.utils.get_device_properties(device.index)
    out = torch.zeros(20, device=device)
    kernel = filled.warmup(out, 20, BLOCK=16, num_warps=8, grid=(1,))
    kernel._init_handles()
    by_registers = sizes["max_num_regs"] // (kernel.n_regs * sizes["warpSize"] * kernel.metadata.num_warps)
    resident = min(by_registers, sizes["max_shared_mem"] // kernel.metadata.shared)
    assert resident * sizes["multiprocessor_count"] > 1
    with torch.cuda.device(out.device):
        kernel[(2, 1, 1)](out, 20, 16)
    assert torch.equal(out, lanes(20)), out
    assert torch.cuda.get_device_properties(device).multi_processor_count == sizes["multiprocessor_count"]
    assert torch.cuda.get_device_capability() == (9, 0)


@triton.jit
def helper(x):
    return x + 1.0


def helpers_are_not_called_by_host_code():
    with pytest.raises(RuntimeError, match="outside of the scope of a kernel"):
        helper(1.0)


@triton.jit
def imported(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, inverse_root(load(x_ptr + at) + 1.0))


def builtins_imported_by_name():
    with pytest.raises(ValueError, match="_semantic"):
        load(1)
    out = torch.zeros(16)
    imported[(1,)](lanes(), out, BLOCK=16)
    assert torch.allclose(out, (lanes() + 1.0).rsqrt()), out
    with pytest.raises(ValueError, match="_semantic"):
        load(1)


@triton.jit
def in_bf16(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at).to(tl.bfloat16)
    tl.store(out_ptr + at, x.to(tl.float32))
    tl.store(out_ptr + BLOCK + at, (x * x + 0.5).to(tl.float32))
    tl.store(out_ptr + 2 * BLOCK + at, tl.maximum(-x, 0.0).to(tl.float32) + tl.where(x > 0.0, x, 1.0))
    square = tl.reshape(x, (16, 16))
    product = tl.dot(square, square, out_dtype=tl.float32)
    tl.store(out_ptr + 3 * BLOCK + at, tl.reshape(product, (BLOCK,)))
    tl.store(out_ptr + 4 * BLOCK + at, x.to(tl.int32) + (at.to(tl.bfloat16) + tl.sum(x, axis=0)))


def numbers_of_bf16():
    x, out = 9.0 * torch.randn(256, generator=torch.Generator().manual_seed(1)), torch.zeros(5 * 256)
    x[0] = 1.00390625  # half way between two numbers of bf16
    in_bf16[(1,)](x, out, BLOCK=256)
    b = x.to(torch.bfloat16)
    parts = out.view(5, 256)
    assert torch.equal(parts[0], b.float())
    assert torch.equal(parts[1], (b * b + 0.5).float())
    assert torch.equal(parts[2], (-b).clamp(min=0.0).float() + torch.where(b > 0, b, 1.0))
    square = b.float().view(16, 16)
    assert torch.allclose(parts[3], (square @ square).view(-1), rtol=1e-5, atol=1e-3)
    whole = torch.arange(256).to(torch.bfloat16) + b.float().sum().to(torch.bfloat16)
    assert torch.allclose(parts[4], b.int() + whole.float(), rtol=1e-2, atol=1.0)


@triton.jit
def fused(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(out_ptr + at, tl.fma(x, y, -(x * y)))


def fused_operations_round_once():
    x, y = (torch.rand(16, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    out = torch.zeros(16)
    fused[(1,)](x, y, out, BLOCK=16)
    wanted = x.double() * y.double() - (x * y).double()
    assert out.any()
    assert torch.equal(out, wanted.float()), out


@triton.jit
def assigned(out_ptr):
    value = 1.0
    tl.store(out_ptr, value)


def names_of_the_file_stay_out_of_kernels():
    names, out = globals(), torch.zeros(1)
    own = {"interpreter_semantic": names.pop("interpreter_semantic", None)}
    names["interpreter_semantic"] = None
    try:
        assigned[(1,)](out)
    finally:
        del names["interpreter_semantic"]
        names.update({name: value for name, value in own.items() if value})
    assert out.item() == 1.0


@triton.jit
def asks_for_numpy(out_ptr):
    tl.store(out_ptr, np.float32(1.0))  # noqa: F821 - this file has no such name, and must get none


def names_of_the_interpreter_stay_out_of_the_file():
    before = set(globals())
    with pytest.raises(InterpreterError, match="name 'np' is not defined"):
        asks_for_numpy[(1,)](torch.zeros(1))
    assert {name for name in globals() if name not in before and not name.startswith("__kernel_")} == set()
    assert not {"np", "interpreter", "InterpretedFunction"} & set(globals())


@triton.jit
def stores_where_one_number_differs(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = (at < n) & (tl.load(x_ptr) != 0.0)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=inside, other=2.0) + 1.0, mask=inside)


def masks_of_one_number():
    for first, wanted in ((1.0, [2.0] * 5 + [0.0] * 3), (0.0, [0.0] * 8)):
        out = torch.zeros(8)
        stores_where_one_number_differs[(1,)](torch.full((8,), first), out, 5, 8)
        assert out.tolist() == wanted, out


@triton.jit
def stores_one(out_ptr):
    tl.store(out_ptr, 1.0)


def warps_are_a_power_of_two():
    out = torch.zeros(1)
    stores_one[(1,)](out, num_warps=8)
    assert out.item() == 1.0
    for warps in (0, 3, 6):
        with pytest.raises(AssertionError, match="num_warps must be a power of 2"):
            stores_one[(1,)](out, num_warps=warps)


CHECKS = (
    masks_of_one_number,
    warps_are_a_power_of_two,
    names_of_the_file_stay_out_of_kernels,
    names_of_the_interpreter_stay_out_of_the_file,
    numbers_of_bf16, fused_operations_round_once,
    builtins_imported_by_name,
    scans_begin_again_at_flags,
    numbers_that_a_launch_passes, variables_of_loops, loops_of_wide_bounds, constants_and_blocks,
    words_of_python_on_blocks, reductions_round_as_a_tree, reductions_keep_order_and_shape,
    functions_of_libdevice, refused_configs, refused_configs_where_each_runs, configs_that_are_all_refused,
    grids_of_plain_numbers,
    kernels_that_are_warmed_up, helpers_are_not_called_by_host_code,
)  # fmt: skip

if __name__ == "__main__":
    for check in CHECKS:
        try:
            check()
            print(check.__name__, "right")
        except (Exception, pytest.fail.Exception) as error:
            said = " ".join(f"{type(error).__name__}: {error}".split())
            print(check.__name__, said[:300])
