"""`make profile`: its record, its table, and what it says where nothing is counted.

All numbers are synthetic: no kernel was measured for them.
"""

import hashlib
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from grader.cli import measure as cli_measure
from grader.cli.main import main
from grader.measure.bench.run import op_named
from grader.measure.kernel_log import ncu, profiles
from grader.site.tables import rewrite
from grader.system.gpu import Gpu
from grader.tests.helpers.course import ROOT
from grader.tests.helpers.make_words import handed_on
from grader.tests.measure.ncu_pages import COLUMNS, as_csv

CARD = Gpu("synthetic GPU", "1.0", "profile-test", 90, 2**30, 4e12, 1e15, 1000)
MORE = {
    "lts__t_sector_hit_rate.pct": ("%", "71.3", "n/a"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "88.8", "n/a"),
}
SAID = as_csv(COLUMNS | MORE)
UNSTALLED = as_csv({key: column for key, column in COLUMNS.items() if "stalled" not in key})
REFUSED = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to ...\n"
TWO_SIZES = ("--op", "elementwise_add", "--size", "n=1000", "--size", "n=3001")


class Ncu:
    """Stands in for Nsight Compute: what it says, call by call, and what it was asked."""

    def __init__(self):
        self.says, self.asked = [], []

    def run(self, command, _):
        words = command[command.index("grader.measure.kernel_log.profiled") + 1 :]
        self.asked.append(dict(zip(words[::2], words[1::2], strict=True)))
        said = self.says.pop(0)
        if isinstance(said, BaseException):
            raise said
        Path(command[command.index("--log-file") + 1]).write_text(said)
        return int("==ERROR==" in said), ""


@pytest.fixture
def tool(monkeypatch):
    made = Ncu()
    monkeypatch.setattr(cli_measure, "find", lambda: (CARD, ""))
    monkeypatch.setattr(ncu, "profiler", lambda: Path("ncu"))
    monkeypatch.setattr(ncu, "_run", made.run)
    return made


@pytest.fixture
def profile(monkeypatch, tmp_path):
    """Runs the command on the solutions; what came of it and, where it wrote one, its record."""

    def run(*words, source=ROOT / "solutions"):
        folder = tmp_path / "results"
        arguments = ["profile", *map(str, words), "--from", str(source), "--results", str(folder)]
        monkeypatch.setattr(sys, "argv", ["grader", *arguments])
        done = CliRunner().invoke(main, arguments)
        path = folder / "profile.json"
        return done, path.is_file() and profiles.ProfileRecord.model_validate_json(path.read_text("utf-8"))

    return run


def test_a_record_says_what_was_counted_in_which_file_and_where(tool, profile):
    tool.says = [SAID, UNSTALLED]
    done, record = profile(*TWO_SIZES)
    assert done.exit_code == 0, done.output
    first, second = record.calls
    file = ROOT / "solutions" / "lab1_elementwise_add" / "elementwise_add.py"
    assert (first.op, first.file, first.size) == (
        "elementwise_add", "lab1_elementwise_add/elementwise_add.py", {"n": 1000},
    )  # fmt: skip
    assert first.file_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert [kernel.name for kernel in first.kernels] == ["ns::tile_kernel", "join_kernel"]
    assert first.kernels[0].figures["L2 hit rate"].value == 71.3
    assert (second.size, second.kernels[0].stalls) == ({"n": 3001}, {})
    assert record.machine.gpu.name == "synthetic GPU"
    assert record.command == "python -m grader profile " + " ".join((*TWO_SIZES, "--from", "solutions"))


def test_ncu_is_asked_for_each_call_in_a_folder_of_its_own(tool, profile):
    tool.says = [SAID, SAID]
    profile(*TWO_SIZES)
    assert [one["--size"] for one in tool.asked] == ["n=1000", "n=3001"]
    assert {one["--op"] for one in tool.asked} == {"elementwise_add"}
    assert len({one["--folder"] for one in tool.asked}) == 2


def test_without_a_size_the_calls_are_those_of_a_quick_bench():
    found = profiles.calls(ROOT / "labs", ["matmul", "elementwise_add"], None, [])
    expected = [(name, size) for name in ("matmul", "elementwise_add") for size in op_named(name).quick]
    assert [(one.op, one.size) for one in found] == expected


def test_another_file_is_profiled_and_recorded_without_its_folder(tool, profile, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def elementwise_add(x, y, *, out=None): ...\n")
    tool.says = [SAID]
    _, record = profile("--op", "elementwise_add", "--size", "n=1000", "--file", file)
    assert tool.asked[0]["--file"] == str(file)
    assert record.calls[0].file == "mine.py"
    assert record.calls[0].file_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert str(tmp_path) not in record.model_dump_json()


def test_what_was_counted_before_an_interrupt_is_kept(tool, profile):
    tool.says = [SAID, KeyboardInterrupt()]
    done, record = profile(*TWO_SIZES)
    assert (done.exit_code, len(tool.asked)) == (130, 2)
    assert [one.size for one in record.calls] == [{"n": 1000}]


def test_each_call_gets_a_line_with_its_kernels(tool, profile):
    tool.says = [SAID, REFUSED]
    done, _ = profile(*TWO_SIZES)
    lines = [line.strip() for line in done.output.splitlines()]
    assert "elementwise_add  n=1000  ns::tile_kernel, join_kernel" in lines
    assert f"elementwise_add  n=3001  {ncu.PERMISSION}" in lines


def test_the_table_has_a_row_for_each_kernel_with_the_recorded_numbers(tool, profile, tmp_path):
    tool.says = [SAID, UNSTALLED]
    done, record = profile(*TWO_SIZES)
    head, _, *rows = [line for line in done.output.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in head.strip("|").split("|")] == [
        "operation", "size", "kernel", "duration, µs", "DRAM throughput, %", "L2 hit rate, %",
        "SM throughput, %", "tensor pipe, %", "achieved occupancy, %", "registers", "stalls, most first",
    ]  # fmt: skip
    assert rows == [
        "| elementwise_add | n=1000 | `ns::tile_kernel` | 1,234.50 | 81.2 | 71.3 | 60.5 | 42.5 | 88.8 | 128 "
        "| `long_scoreboard` 7.50, `barrier` 1.25 cycles/instruction |",
        "| elementwise_add | n=1000 | `join_kernel` | 2.05 | 0.5 | - | 1.5 | 0.0 | - | 32 "
        "| `barrier` 3.00, `long_scoreboard` 0.50 cycles/instruction |",
        "| elementwise_add | n=3001 | `ns::tile_kernel` | 1,234.50 | 81.2 | - | 60.5 | 42.5 | - | 128 | - |",
        "| elementwise_add | n=3001 | `join_kernel` | 2.05 | 0.5 | - | 1.5 | 0.0 | - | 32 | - |",
    ]
    page = rewrite("<!-- BEGIN profile results/profile.json -->\nold\n<!-- END -->", tmp_path)
    assert page.splitlines()[1:-1] == profiles.render(record).splitlines()
    assert all(row in page for row in rows)


def test_only_the_first_two_reasons_of_a_stall_are_shown(tool, profile):
    third = {"smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": ("", "1.1", "0.1")}
    tool.says = [as_csv(COLUMNS | third)]
    done, record = profile(*TWO_SIZES[:4])
    assert list(record.calls[0].kernels[0].stalls) == ["long_scoreboard", "barrier", "wait"]
    assert "barrier" in done.output
    assert "wait`" not in done.output


def test_under_the_table_stand_the_machine_and_how_it_was_counted(tool, profile):
    tool.says = [SAID]
    done, record = profile(*TWO_SIZES[:4])
    (line,) = [line for line in done.output.splitlines() if line.startswith("synthetic GPU, driver 1.0, ")]
    for words in (
        f"torch {record.machine.torch}, triton {record.machine.triton}", record.date[:10],
        "durations are not those of the bench", "clock control none", "caches are flushed",
    ):  # fmt: skip
        assert words in line


def test_a_call_that_is_not_counted_leaves_the_others_alone(tool, profile):
    failed = "==ERROR== The application returned an error code (1).\n"
    tool.says = [failed, SAID, failed]
    done, record = profile(*TWO_SIZES, "--size", "n=7")
    assert done.exit_code == 0, done.output
    assert [bool(one.kernels) for one in record.calls] == [False, True, False]
    reason = "ncu exited with code 1: The application returned an error code (1)."
    assert [one.missing for one in record.calls] == [reason, "", reason]
    told = f"Not counted: elementwise_add, n=1000; elementwise_add, n=7: {reason}"
    assert told in done.output.splitlines()


def test_a_refusal_is_told_stored_and_not_asked_for_again(tool, profile):
    tool.says = [REFUSED]
    done, record = profile(*TWO_SIZES)
    assert (done.exit_code, len(tool.asked)) == (3, 1)
    assert ncu.PERMISSION in done.output
    assert "nothing was counted" in done.output
    assert [(one.size, one.kernels, one.missing) for one in record.calls] == [
        ({"n": 1000}, None, ncu.PERMISSION),
        ({"n": 3001}, None, ncu.PERMISSION),
    ]
    assert "| operation |" not in done.output


def test_without_ncu_the_command_says_what_to_install(tool, profile, monkeypatch):
    monkeypatch.setattr(ncu, "profiler", lambda: None)
    done, record = profile(*TWO_SIZES)
    assert (done.exit_code, tool.asked) == (3, [])
    assert "Nsight Compute" in done.output
    assert ["ncu was not found" in one.missing for one in record.calls] == [True, True]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Missing option '--op'"),
        (("--op", "no_such"), "--op no_such: the operations are elementwise_add, "),
        (("--op", "matmul", "--size", "n=64"), "--size n=64: matmul takes m, n, k"),
        (("--op", "matmul", "--size", "large"), "write a size like m=4096,n=4096,k=4096"),
        (("--op", "elementwise_add", "--size", "n=64", "--size", "n=0"), "--size n=0"),
        (("--op", "matmul", "--op", "elementwise_add", "--file", __file__), "needs one --op"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(tool, profile, words, said):
    done, record = profile(*words)
    assert (done.exit_code, record, tool.asked) == (2, False, [])
    assert said in done.output


def test_a_tree_without_the_file_is_wrong_usage(tool, profile, tmp_path):
    done, record = profile(*TWO_SIZES, source=tmp_path)
    assert (done.exit_code, record, tool.asked) == (2, False, [])
    assert "--op elementwise_add: its file is missing: " in done.output


def test_without_a_gpu_the_command_says_so_and_writes_nothing(tool, profile, monkeypatch, tmp_path):
    monkeypatch.setattr(cli_measure, "find", lambda: (None, "no driver here"))
    done, _ = profile(*TWO_SIZES)
    assert (done.exit_code, tool.asked) == (3, [])
    assert "profile needs an NVIDIA GPU with its driver: no driver here" in done.output
    assert list(tmp_path.iterdir()) == []


def test_a_record_of_another_form_is_refused(tool, profile, tmp_path):
    tool.says = [SAID]
    profile(*TWO_SIZES[:4])
    path = tmp_path / "results" / "profile.json"
    record = json.loads(path.read_text("utf-8"))
    record["calls"][0]["kernels"][0]["name"] = "a | b"
    path.write_text(json.dumps(record), "utf-8")
    with pytest.raises(ValueError, match="name"):
        profiles.profile_table(path)


def test_make_hands_operations_and_sizes_on():
    given = {"OP": "matmul softmax_forward", "SIZE": "n=1 n=2", "FILE": "a.py", "FROM": "solutions"}
    words, _ = handed_on(ROOT, "profile", given)
    assert " ".join(words) == (
        "grader profile --op matmul --op softmax_forward --size n=1 --size n=2 --file a.py --from solutions"
    )
