"""Kernels that a GPU takes give in the mended interpreter what they give on a GPU."""

import functools
from pathlib import Path

import pytest

from grader.tests.helpers.commands import python
from grader.tests.helpers.course import ROOT

KERNELS = Path(__file__).with_name("kernels.py")
# What Triton's own interpreter gives, too.
RIGHT_WITHOUT_MENDS = {"scans_begin_again_at_flags"}
NAMES = (
    "numbers_that_a_launch_passes", "variables_of_loops", "loops_of_wide_bounds", "constants_and_blocks",
    "words_of_python_on_blocks", "reductions_round_as_a_tree", "reductions_keep_order_and_shape",
    "scans_begin_again_at_flags", "functions_of_libdevice", "refused_configs",
    "refused_configs_where_each_runs", "configs_that_are_all_refused", "grids_of_plain_numbers",
    "kernels_that_are_warmed_up",
    "names_of_the_file_stay_out_of_kernels", "names_of_the_interpreter_stay_out_of_the_file",
    "masks_of_one_number", "warps_are_a_power_of_two", "numbers_of_bf16", "fused_operations_round_once",
    "helpers_are_not_called_by_host_code", "builtins_imported_by_name",
)  # fmt: skip


@functools.cache
def said(how):
    """What the program prints of each check, by name; `how` is mended or plain."""
    done = python(KERNELS, how, TRITON_INTERPRET="1", PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def test_every_check_is_run():
    assert sorted(said("mended")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_gives_what_a_gpu_gives(name):
    assert said("mended")[name] == "right"


@pytest.mark.slow
def test_without_mends_a_check_fails():
    """Otherwise the test above would find nothing to look at."""
    assert {name for name, words in said("plain").items() if words == "right"} == RIGHT_WITHOUT_MENDS
