"""Nsight Compute: its raw CSV, what keeps it from counting, and the call that it looks at.

All numbers are synthetic: no kernel was measured for them.
"""

import itertools
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from grader.codegen import nvcc
from grader.codegen.ptxas import Kernel
from grader.measure.bench import ops as bench_ops
from grader.measure.kernel_log import ncu, profiled
from grader.measure.kernel_log.ncu_csv import kernels_in, number, plain_name, scaled
from grader.tests.measure.ncu_pages import COLUMNS, as_csv

SAID = f"""==PROF== Connected to process 4242 (/opt/python)
a line that the program printed
==PROF== Profiling "tile_kernel" - 0: 0%....50%....100% - 41 passes
{as_csv(COLUMNS)}==PROF== Disconnected from process 4242
"""


def read():
    return list(kernels_in(SAID))


def test_each_kernel_of_the_raw_page_is_read_under_its_plain_name():
    first, second = read()
    assert (first.name, first.grid, first.block) == ("ns::tile_kernel", "(16384, 1, 1)", "(256, 1, 1)")
    assert (second.name, second.figures["duration"].value) == ("join_kernel", pytest.approx(2.048))


def test_figures_come_in_one_unit_whatever_ncu_shows_and_with_its_name():
    figures = read()[0].figures
    expected = {
        "duration": (1234.5, "us", "gpu__time_duration.sum"),
        "DRAM bytes read": (1.5e9, "bytes", "dram__bytes_read.sum"),
        "DRAM bytes written": (32000.0, "bytes", "dram__sectors_write.sum"),
        "DRAM throughput": (81.25, "%", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"),
        "dynamic shared memory": (49152.0, "bytes", "launch__shared_mem_per_block_dynamic"),
        "static shared memory": (1024.0, "bytes", "launch__shared_mem_per_block_static"),
        "registers of a thread": (128.0, "registers", "launch__registers_per_thread"),
        "grid": (16384.0, "blocks", "launch__grid_size"),
        "local loads": (7.0, "instructions", "sass__inst_executed_local_loads"),
        "tensor pipe": (42.5, "%", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"),
    }
    found = {key: (figures[key].value, figures[key].unit, figures[key].metric) for key in expected}
    assert found == {key: (pytest.approx(value), unit, name) for key, (value, unit, name) in expected.items()}


def test_what_ncu_does_not_report_is_absent():
    first, second = read()
    assert "L2 hit rate" not in first.figures
    assert "bank conflicts of loads" in first.figures
    assert "bank conflicts of loads" not in second.figures  # n/a


def test_stalls_come_with_the_most_first_and_without_what_is_none():
    first, second = read()
    assert [(name, one.value) for name, one in first.stalls.items()] == [
        ("long_scoreboard", 7.5),
        ("barrier", 1.25),
    ]
    assert list(second.stalls) == ["barrier", "long_scoreboard"]


@pytest.mark.parametrize(
    ("text", "value"),
    [("1,234.5", 1234.5), ("0", 0.0), ("n/a", None), ("", None), ("nan", None), ("inf", None)],
)
def test_a_number_may_have_thousands_separators(text, value):
    assert number(text) == value


@pytest.mark.parametrize(
    ("shown", "unit", "factor"),
    [
        ("nsecond", "us", 1e-3), ("us", "us", 1), ("ms", "us", 1e3), ("second", "us", 1e6), ("s", "us", 1e6),
        ("byte", "bytes", 1), ("Kbyte/block", "bytes", 1e3), ("Mbyte", "bytes", 1e6), ("KB", "bytes", 1e3),
        ("%", "%", 1), ("cycle", "us", None), ("", "bytes", None),
    ],
)  # fmt: skip
def test_a_unit_is_scaled_and_one_of_another_kind_is_refused(shown, unit, factor):
    assert scaled(3.0, shown, unit) == (None if factor is None else pytest.approx(3 * factor))


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        ("void ns::tile_kernel<(int)128>(float *)", "ns::tile_kernel"),
        ("_ZN2ns11tile_kernelILi128EEEvPf", "ns::tile_kernel"),
        ("(anonymous namespace)::k(int)", "k"),
        ("swiglu_kernel", "swiglu_kernel"),
        ("a|b`c", "a_b_c"),
        ("", "unnamed"),
    ],
)
def test_a_kernel_name_has_no_arguments_and_nothing_that_markdown_reads(shown, name):
    assert plain_name(shown) == name


@pytest.mark.parametrize(
    "text", ["", "no csv", '"ID","Process ID"\n', as_csv({"ID": ("", "0"), "x": ("", "1")})]
)
def test_text_without_a_table_of_kernels_gives_none(text):
    assert list(kernels_in(text)) == []


def profiled_as(said="", code=0, printed=""):
    """A profile whose ncu says this; also the command that it was called with."""
    commands = []

    def run(command, environment):
        commands.append((command, environment))
        with open(command[command.index("--log-file") + 1], "w") as log:
            log.write(said)
        return code, printed

    return ncu.profile(["--op", "vector_add"], "ncu", run), commands[0]


def test_ncu_gets_its_log_apart_and_the_words_for_the_call():
    profile, (command, environment) = profiled_as(SAID)
    assert [kernel.name for kernel in profile.kernels] == ["ns::tile_kernel", "join_kernel"]
    assert command[-5:] == [sys.executable, "-m", "grader.measure.kernel_log.profiled", "--op", "vector_add"]
    assert {("--clock-control", "none"), ("--set", "full"), ("--profile-from-start", "off")} <= set(
        itertools.pairwise(command)
    )
    assert environment["LC_ALL"] == "C.UTF-8"


def test_a_refusal_says_how_to_allow_counters():
    profile, _ = profiled_as("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to ...\n", 1)
    assert profile.kernels is None
    for words in ("NVreg_RestrictProfilingToAdminUsers=0", "--cap-add=SYS_ADMIN", "as root"):
        assert words in profile.missing


@pytest.mark.parametrize(
    ("said", "code", "printed", "words"),
    [
        ("==WARNING== No kernels were profiled.\n", 0, "", "ncu saw no kernel in the call"),
        (
            "==ERROR== The application returned an error code (1).\n", 1,
            "Traceback\nRuntimeError: out of memory\n", "ncu exited with code 1: RuntimeError: out of memory",
        ),
        (
            "==ERROR== Cannot open the driver\n", 9, "hello\n",
            "ncu exited with code 9: Cannot open the driver",
        ),
        ("", 124, "ncu did not end within 900 s", "ncu exited with code 124: ncu did not end within 900 s"),
        ("", 1, "", "ncu exited with code 1: no output"),
    ],
)  # fmt: skip
def test_without_counters_the_reason_is_one_line(said, code, printed, words):
    assert profiled_as(said, code, printed)[0] == ncu.Profile(None, words)


def test_without_ncu_the_profile_says_what_to_install():
    profile = ncu.profile([], None)
    assert profile.kernels is None
    assert "Nsight Compute" in profile.missing


def test_what_ncu_started_ends_when_its_time_is_over(monkeypatch, tmp_path):
    monkeypatch.setattr(ncu, "LIMIT_S", 0.8)
    told = tmp_path / "pid"
    program = "import subprocess, sys; p = subprocess.Popen(['sleep', '60'])\n"
    program += "open(sys.argv[1], 'w').write(str(p.pid)); p.wait()"
    code, said = ncu._run([sys.executable, "-c", program, str(told)], dict(os.environ))
    assert (code, said) == (124, "ncu did not end within 1 s")
    child = Path("/proc", told.read_text(), "cmdline")
    until = time.monotonic() + 5  # it ends soon after the signal, not at once
    while child.exists() and child.read_bytes() and time.monotonic() < until:
        time.sleep(0.01)
    assert not child.exists() or not child.read_bytes()  # ended, whether or not anyone has waited for it


def test_only_the_last_call_is_profiled():
    said = []
    profiled.profile(*(lambda word=word: said.append(word) for word in ("call", "wait", "start", "stop")))
    assert said == ["call"] * profiled.WARM_CALLS + ["wait", "start", "call", "wait", "stop"]


def test_a_call_gets_inputs_and_results_of_the_size_asked_for():
    op = next(op for op in bench_ops.OPS if op.name == "elementwise_add")
    seen = []

    def add(x, y, *, out):
        seen.append((len(x), len(y)))
        torch.add(x, y, out=out)

    profiled.call_of(op, add, {"n": 1000}, "cpu")()
    assert seen == [(1000, 1000)]


def test_the_profiled_file_needs_a_function_of_its_operation(tmp_path):
    op = next(op for op in bench_ops.OPS if op.name == "elementwise_add")
    file = tmp_path / "kernels.py"
    file.write_text("def elementwise_add(x, y, *, out=None): return 'ours'\n")
    assert profiled.function_of(op, file, tmp_path, "sm_90a")(1, 2) == "ours"
    file.write_text("def other(): pass\n")
    with pytest.raises(AttributeError, match="elementwise_add"):
        profiled.function_of(op, file, tmp_path, "sm_90a")


def test_the_profiled_process_says_what_it_takes(capsys):
    with pytest.raises(SystemExit):
        profiled.main(["--op", "vector_add"])
    assert "--file, --size, --folder" in capsys.readouterr().err


def test_the_libraries_that_are_profiled_are_those_that_were_compiled(tmp_path, monkeypatch):
    file, kernel = tmp_path / "k.cu", Kernel("k", "sm_90a", 0)
    target = nvcc.library(file, tmp_path, "sm_90a")
    target.write_bytes(b"synthetic")
    target.with_suffix(".json").write_text(json.dumps([asdict(kernel)]))
    monkeypatch.setattr(nvcc, "compiler", lambda: "nvcc")
    loaded = []
    monkeypatch.setattr(nvcc.ctypes, "CDLL", loaded.append)
    assert nvcc.load(file, tmp_path, "sm_90a", runs=False).kernels == ["k"]
    assert loaded == [str(target)]
