"""`make survey`: the measuring loops on a made-up clock, what they record, and the command."""

import io
import re
from pathlib import Path

import pytest
import torch
import triton
from rich.console import Console
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from grader.measure.survey import attributes as survey_attributes
from grader.measure.survey import command as survey
from grader.measure.survey import kernels as survey_kernels
from grader.measure.survey import products as survey_products
from grader.measure.survey.curve import largest_set, size_words, working_sets
from grader.measure.survey.measure import matmul, measure, sized
from grader.measure.survey.record import DTYPES, RECORD, read
from grader.measure.survey.rounds import QUICK, Plan, take
from grader.measure.survey.theory import ROWS, theory
from grader.system.gpu import FLOP_PER_CLOCK
from grader.tests.helpers.commands import python
from grader.tests.measure.survey_fakes import (
    ATTRIBUTES,
    BRIEF,
    CARD,
    DRAM,
    L2,
    LAUNCH_US,
    NODE_US,
    RATES,
    WAIT_US,
    FakeDevice,
    follower,
    survey_of,
)

KERNELS = """
import torch
from grader.measure.survey.kernels import copy_kernel, read_kernel
x = torch.randint(2**20, (5 * 64,), dtype=torch.int32)
y, out = torch.zeros_like(x), torch.zeros(3, dtype=torch.int32)
read_kernel[(3,)](x, out, 5, 3 * 5, BLOCK=64)
copy_kernel[(3,)](x, y, 5, 2 * 5, BLOCK=64)
assert (int(out.sum()) - 3 * int(x.sum())) % 2**32 == 0, out
assert int(out.sum()) % 2**32 != 0
assert torch.equal(x, y)
print("both are right")
"""


def test_plateaus_rates_and_launches_come_back_as_the_device_has_them():
    found = survey_of().measured
    assert [found.l2_read, found.l2_copy] == pytest.approx([L2, L2])
    dram = [found.dram_read, found.dram_copy, found.library_copy.bytes_per_s]
    assert dram == pytest.approx([DRAM] * 3)
    assert {one.dtype: one.flops_per_s for one in found.matmul} == pytest.approx(RATES)
    assert found.ridges == pytest.approx({dtype: rate / DRAM for dtype, rate in RATES.items()})
    assert found.launch.back_to_back.median_us == pytest.approx(LAUNCH_US)
    assert found.launch.graph_node.median_us == pytest.approx(NODE_US)
    assert found.launch.round_trip.median_us == pytest.approx(LAUNCH_US + WAIT_US)


def test_working_sets_ascend_from_64_kb_by_whole_blocks():
    sets = list(working_sets(2**33, halves=True))
    assert sets == sorted(set(sets))
    assert (sets[0], sets[-1]) == (2**16, 2**33)
    # A block of the kernels is 16 KiB, and a copy uses one half for its source.
    assert all(size % (2 * 4 * 4096) == 0 for size in sets)
    assert list(working_sets(2**18, halves=False)) == [2**16, 2**17, 2**18]


def test_the_largest_working_set_shrinks_with_the_memory_and_says_where_it_is_too_little():
    assert largest_set(100 * 2**30, 2**26) == 2**33
    assert largest_set(3 * 2**30, 2**22) == 2**30
    with pytest.raises(RuntimeError, match="only 512 MiB of GPU memory are free"):
        largest_set(2**29, 2**26)


def test_sizes_are_written_as_a_person_writes_them():
    written = [size_words(size) for size in (100, 98304, 2**20, 3 * 2**29)]
    assert written == ["100 B", "96 KiB", "1 MiB", "1.5 GiB"]


def test_buffers_are_given_back_before_matrices_are_made():
    device = FakeDevice()
    measure(device, BRIEF, follower())
    assert device.held == [2**28, 0]


def test_a_throttled_round_is_taken_again_and_one_that_stays_so_is_said():
    def once(throttled):
        device = FakeDevice(throttled=throttled)
        return take(device, 3, device.empty(), 100.0, 100.0)

    assert (once([]).rounds_dropped, once([]).throttled) == (0, False)
    assert (once([2]).rounds_dropped, once([2]).throttled) == (1, False)
    always = once(range(100))
    assert (always.rounds_dropped, always.throttled, len(always.rounds_us)) == (3, True, 3)
    assert always.spread_us == pytest.approx([LAUNCH_US] * 3)
    assert always.clocks.sm_mhz == [900, 900, 900]


def test_reads_that_did_not_happen_end_the_survey():
    with pytest.raises(RuntimeError, match="working set of 64 KiB: not every number was read"):
        measure(FakeDevice(broken=["reads"]), BRIEF, follower())


def test_a_dtype_that_cannot_be_has_a_reason_and_no_rate():
    device = FakeDevice(broken=["fp8", "int8 result"])
    device.capability = 75
    found = {dtype: matmul(device, BRIEF, dtype) for dtype in ("bf16", "fp8", "int8", "fp16")}
    assert found["bf16"].status == "not on this GPU"
    assert found["bf16"].reason == "bf16 needs compute capability 8.0, this GPU has 7.5"
    device.capability = 90
    found["fp8"] = matmul(device, BRIEF, "fp8")
    assert (found["fp8"].status, found["fp8"].reason) == (
        "failed",
        "RuntimeError: no kernel for fp8 and a second line",
    )
    assert (found["int8"].status, found["int8"].reason) == ("failed", "off")
    assert all(found[dtype].flops_per_s is None for dtype in ("bf16", "fp8", "int8"))
    assert found["fp16"].flops_per_s


def test_a_slow_dtype_gets_a_small_matrix(monkeypatch):
    assert sized(FakeDevice(), Plan(), "fp16").side == 8192
    assert sized(FakeDevice(), QUICK, "fp16").side == 4096
    assert sized(FakeDevice(free=2**26), Plan(), "fp16").side == 2048
    monkeypatch.setitem(RATES, "fp64", 2e11)  # 11 ms for a side of 1024
    assert sized(FakeDevice(), Plan(), "fp64").side == 1024


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "bf16", "int8"])
def test_a_product_is_right_on_a_cpu_and_a_wrong_one_is_noticed(dtype):
    product = survey_products.product(dtype, 32, "cpu")
    product.call()
    assert product.mistake() == ""
    a, b = torch.randn(32, 64), torch.randn(32, 64)
    assert "has the error" in survey_products.difference(dtype, a @ b.T + 1, a, b)
    assert "has the error" in survey_products.difference(dtype, torch.full((32, 32), float("nan")), a, b)


def test_inputs_cut_to_ten_bits_are_no_fp32_product():
    def cut(x):
        return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)

    a, b = (torch.randn(64, 512, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    assert survey_products.difference("fp32", a @ b.T, a, b) == ""
    assert "has the error" in survey_products.difference("fp32", cut(a) @ cut(b).T, a, b)
    assert survey_products.difference("tf32", cut(a) @ cut(b).T, a, b) == ""


def test_kernels_read_and_copy_every_block_in_the_interpreter():
    done = python("-c", KERNELS, TRITON_INTERPRET="1")
    assert done.stdout == "both are right\n", done.stderr


def compiled(kernel):
    """The accesses to global memory in the kernel's PTX for sm_90."""
    names = kernel.arg_names
    signature = {n: "*i32" if n.endswith("ptr") else "constexpr" if n == "BLOCK" else "i32" for n in names}
    constants = {(i,): survey_kernels.BLOCK for i, n in enumerate(names) if n == "BLOCK"}
    aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if n.endswith("ptr")}
    source = ASTSource(kernel, signature, constants, aligned)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8, "num_stages": 1})
    return re.findall(r"(?:ld|st)\.global[.\w]*", made.asm["ptx"])


def test_kernels_compile_for_hopper_with_loads_of_16_bytes_past_l1():
    loads, stores = ["ld.global.cg.v4.b32"] * 4, ["st.global.v4.b32"] * 4
    assert compiled(survey_kernels.read_kernel) == [*loads, "st.global.b32"]
    assert compiled(survey_kernels.copy_kernel) == [*loads, *stores]
    assert compiled(survey_kernels.empty_kernel) == []


def test_theory_is_arithmetic_on_clocks_and_units():
    found = theory(ATTRIBUTES)
    assert found.dram_bytes_per_s == CARD.bandwidth == 2 * 1e9 * 8000 / 8
    assert found.flops_per_s["bf16"] == 4096 * 100 * 1e9 == CARD.peak_flops
    assert found.ridges["bf16"] == found.flops_per_s["bf16"] / 2e12
    unknown = theory(ATTRIBUTES.model_copy(update={"capability": 999}))
    assert (unknown.flops_per_s, unknown.source, unknown.dram_bytes_per_s) == ({}, "", 2e12)


@pytest.mark.parametrize("capability", ROWS)
def test_a_row_of_theory_has_a_source_and_doubles_with_each_halving_of_the_dtype(capability):
    row = ROWS[capability]
    assert "NVIDIA" in row.source
    assert set(row.per_clock) <= set(DTYPES)
    # What paired rounds refuse as impossible is never stricter than what the survey calls possible.
    assert row.per_clock["fp16"] == FLOP_PER_CLOCK[capability]
    assert row.per_clock["int8"] == 2 * row.per_clock["fp16"]
    assert row.per_clock.get("fp8", row.per_clock["int8"]) == row.per_clock["int8"]
    assert ("tf32" in row.per_clock) == ("bf16" in row.per_clock) == (capability >= 80)
    assert ("fp8" in row.per_clock) == (capability >= 89)


def test_numbers_of_attributes_are_those_of_the_header():
    header = Path(triton.__file__).parent / "backends" / "nvidia" / "include" / "cuda.h"
    text = header.read_text("utf-8", errors="replace")
    assert survey_attributes.CUDA_ATTRIBUTES
    for name, number in survey_attributes.CUDA_ATTRIBUTES.items():
        assert f" CU_DEVICE_ATTRIBUTE_{name} = {number}," in text


def test_what_nvml_does_not_tell_is_taken_from_cuda():
    cuda = dict.fromkeys(survey_attributes.CUDA_ATTRIBUTES, 7) | {"MEMORY_CLOCK_RATE": 2_000_000}
    told = {"memory_bus_bits": 4096, "memory_mhz": 3000, "ecc": False, "power_limit_watts": 700.0}
    both = survey_attributes.join(CARD, cuda, told).model_dump()
    assert {name: both[name] for name in told} == told
    assert (both["capability"], both["sm_mhz"]) == (77, CARD.max_sm_mhz)
    alone = survey_attributes.join(CARD, cuda, dict.fromkeys(told)).model_dump()
    assert [alone[name] for name in told] == [7, 2000, True, None]


def run_command(monkeypatch, tree, found, redraw_only=False):
    monkeypatch.setattr(survey.nvml, "find", lambda: found)
    monkeypatch.setattr(survey, "run", lambda *_: survey_of())
    said = Console(file=io.StringIO(), width=300)
    code = survey.survey(tree, False, redraw_only, "python -m grader survey", said)
    return code, said.file.getvalue()


def test_without_a_gpu_survey_says_what_it_needs_and_writes_nothing(monkeypatch, tmp_path):
    code, said = run_command(monkeypatch, tmp_path, (None, "no NVIDIA driver on this machine"))
    assert code == 3
    assert said == "`make survey` needs an NVIDIA GPU with its driver: no NVIDIA driver on this machine\n"
    assert list(tmp_path.iterdir()) == []


def test_a_survey_leaves_record_readme_and_plots_below_its_tree(monkeypatch, tmp_path):
    code, said = run_command(monkeypatch, tmp_path / "solutions", (CARD, ""))
    folder = tmp_path / "solutions" / "gpu-programming" / "hardware-survey"
    assert code == 0, said
    names = {RECORD, "README.md", "bandwidth.svg", "matmul.svg", "roofline.svg"}
    assert {path.name for path in folder.iterdir()} == names
    assert read(folder) == survey_of()
    assert "synthetic GPU" in said
    assert survey.folder_of(tmp_path / "labs") == tmp_path / "gpu-programming" / "hardware-survey"


def test_nothing_can_be_drawn_again_where_nothing_was_measured(monkeypatch, tmp_path):
    code, said = run_command(monkeypatch, tmp_path, (None, "no NVIDIA driver"), redraw_only=True)
    assert code == 3
    assert said == "survey: there is no survey.json: run `make survey` on a machine with a GPU\n"
    assert list(tmp_path.iterdir()) == []
