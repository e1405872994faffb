"""`make bench`: order of rounds, figures from raw rounds, the operations, processes, record, table, plots."""

import hashlib
import inspect
import io
import json
import random
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from grader.grading.progress import Follower
from grader.measure.bench import capstone as bench_capstone
from grader.measure.bench import ladder as bench_ladder
from grader.measure.bench import ops as bench_ops
from grader.measure.bench import plots as bench_plots
from grader.measure.bench import rounds as bench_rounds
from grader.measure.bench import run as bench
from grader.measure.bench.ops import bytes_needed, fit, label, slots_of
from grader.measure.bench.record import AGAIN, BenchRecord, OpRecord, summarise
from grader.measure.bench.rounds import Lane, Plan, differs, in_order, measure, take_rounds
from grader.measure.bench.run import OPS, Request, size_of
from grader.results.machine import machine
from grader.site.tables import rewrite
from grader.system.gpu import Gpu
from grader.tests.helpers.commands import python
from grader.tests.helpers.course import ROOT
from grader.tests.measure.host_clock import HostClock
from grader.worker.worker import picked

ALL = (*bench_ops.OPS, *bench_capstone.ALL)  # also those whose lab is not there
BY_NAME = {op.name: op for op in ALL}
ADD, SOFTMAX, MATMUL = BY_NAME["elementwise_add"], BY_NAME["fused_softmax_forward"], BY_NAME["matmul"]
CARD = Gpu("Test GPU", "1.0", "0" * 16, 90, 140 * 2**30, 4.8e12, 1.07e15, 1980)
PEAKS = (CARD.bandwidth, CARD.peak_flops)
SMALL = {"n": 1000}
QUIET = {"sm_mhz": [1900], "watts": [400.0], "celsius": [50], "reasons": [], "unread": ""}


class Clocks:
    """Says that the GPU was throttled in the blocks whose numbers are given."""

    samples, missing = type("Nothing", (), {"sm_mhz": [], "watts": [], "celsius": [], "reasons": set()}), ""

    def __init__(self, throttled=()):
        self.throttled, self.blocks = throttled, 0

    def sample(self):
        self.blocks += 1
        return ["hw thermal"] if self.blocks in self.throttled else []


class FakeClock:
    """The work is done, and takes as many microseconds as its lane's call says."""

    graph = None

    def __init__(self):
        self.order = []

    def time_us(self, work):
        before = len(self.order)
        work()
        return sum(us for _, us in self.order[before:])


def lane(clock, name, call_us, throttled=()):
    made = Lane(name, kept=[(torch.zeros(1),)], expected=[()], call_us=call_us, clocks=Clocks(throttled))
    made.calls = [lambda: (clock.order.append((name, call_us)), (torch.zeros(1),))[1]]
    made.play = made.once
    return made


def names_by_block(clock):
    """The lanes in the order of their blocks."""
    return [name for i, (name, _) in enumerate(clock.order) if not i or clock.order[i - 1][0] != name]


def test_every_other_round_is_in_reverse():
    assert [in_order("abc", number) for number in range(3)] == [list("abc"), list("cba"), list("abc")]


def test_rounds_take_every_arm_in_turn_and_report_microseconds_of_a_call():
    clock = FakeClock()
    lanes = [lane(clock, "a", 10.0), lane(clock, "b", 20.0), lane(clock, "c", 40.0)]
    taken, dropped = take_rounds(lanes, 4, clock, 80.0)
    assert taken == [{"a": 10.0, "b": 20.0, "c": 40.0}] * 4
    assert list(taken[1]) == ["c", "b", "a"]
    assert names_by_block(clock) == list("abcbabcba")  # the last arm of a round is the first of the next
    assert [clock.order.count(one) for one in (("a", 10.0), ("b", 20.0), ("c", 40.0))] == [32, 16, 8]
    assert dropped == 0


def test_a_throttled_round_is_taken_again():
    clock = FakeClock()
    lanes = [lane(clock, "a", 10.0, throttled={2}), lane(clock, "b", 10.0)]
    taken, dropped = take_rounds(lanes, 3, clock, 10.0)
    assert (len(taken), dropped, lanes[0].clocks.blocks) == (3, 1, 4)


def test_a_gpu_that_is_always_throttled_does_not_keep_us_for_ever():
    clock = FakeClock()
    taken, dropped = take_rounds([lane(clock, "a", 10.0, throttled=range(99))], 3, clock, 10.0)
    assert (len(taken), dropped) == (3, 3)


def test_results_are_looked_at_in_the_last_round_as_they_were_timed():
    clock, seen = FakeClock(), []
    take_rounds(
        [lane(clock, "a", 10.0)], 3, clock, 10.0, lambda one: seen.append((one.name, len(clock.order)))
    )
    assert seen == [("a", 3)]


@pytest.mark.parametrize(
    ("got", "is_wrong"),
    [
        ([1.0, 2.0], False),
        ([1.0, 2.01], False),
        ([1.0, 2.5], True),
        ([1.0, float("nan")], True),
        ([0, 0], True),
    ],
)
def test_results_may_differ_by_roundings_only(got, is_wrong):
    found = differs([torch.tensor(got)], [torch.tensor([1.0, 2.0], dtype=torch.float64)], torch.bfloat16)
    assert bool(found) is is_wrong


def ours(function, op=ADD, size=SMALL):
    return op.arms("ours", function, size)


def toy(arms, plan=None):
    peers = tuple(peer for peer in ADD.peers if peer.name == "torch")  # the compiler would take seconds
    op = replace(ADD, peers=peers)
    return measure(op, SMALL, arms, HostClock(), plan or Plan(3, 200.0, 30_000), "cpu", 1)


@pytest.fixture
def brief(monkeypatch):
    monkeypatch.setattr(bench_rounds, "WARM_US", 500.0)


@pytest.mark.usefixtures("brief")
def test_an_operation_is_measured_on_a_cpu_from_end_to_end():
    found = toy(ours(lambda x, y, *, out: torch.add(x, y, out=out)))
    assert list(found["arms"]) == ["ours", "torch", f"torch{AGAIN}", "copy"]
    assert {arm["status"] for arm in found["arms"].values()} == {"ok"}
    assert {len(arm["rounds_us"]) for arm in found["arms"].values()} == {3}
    assert all(us > 0.0 for arm in found["arms"].values() for us in arm["rounds_us"])
    assert (found["slots"], found["working_set_bytes"], found["method"]) == (3, 36_000, "eager")
    one = summarise(ADD, [found | {"configs": {}}] * 2, (0.0, 0.0))
    assert one.baseline == "torch"
    assert one.arms["torch"].ratio == 1.0
    assert len(one.arms["ours"].rounds_us) == 2


def forgets_the_last_element(x, y, *, out):
    torch.add(x[:-1], y[:-1], out=out[:-1])


def answers_twice_only(x, y, *, out, seen=[]):  # noqa: B006  the list is its memory
    seen.append(out)
    if len(seen) < 10:
        torch.add(x, y, out=out)


def raises(x, y, *, out):
    raise NotImplementedError("TODO 3: launch in /home/someone/labs/add.py")


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize(
    ("function", "status", "reason"),
    [
        (forgets_the_last_element, "wrong", "1 of 1000 elements"),
        (answers_twice_only, "wrong", "1000 of 1000 elements"),
        (raises, "failed", "NotImplementedError: TODO 3: launch in add.py"),
    ],
)
def test_an_arm_that_is_not_right_has_no_figure_and_leaves_the_others_alone(function, status, reason):
    arms = toy(ours(function))["arms"]
    assert arms["ours"]["status"] == status
    assert reason in arms["ours"]["reason"]
    assert arms["ours"]["rounds_us"] == []
    assert arms["torch"]["status"] == "ok"


@pytest.mark.usefixtures("brief")
def test_a_library_that_is_not_there_is_said():
    peers = (*(peer for peer in SOFTMAX.peers if peer.name == "torch"), bench_rounds.Peer("absent", absent))
    op = replace(SOFTMAX, peers=peers)
    found = measure(op, {"rows": 4, "cols": 16}, [], HostClock(), Plan(1, 10.0, 1), "cpu")
    assert found["arms"]["absent"]["status"] == "not installed"


def absent(_tensors):
    import no_such_library  # noqa: F401


RUNGS = tuple(bench_ladder.RUNGS)
LADDERS = {op.name: op for op in OPS if any(peer.name in RUNGS for peer in op.peers)}


def test_every_operation_of_lab_4_and_no_other_has_a_ladder():
    assert list(LADDERS) == [op.name for op in OPS if op.lab == "4"]
    assert len(LADDERS) == 8
    assert all(tuple(peer.name for peer in op.peers)[: len(RUNGS)] == RUNGS for op in LADDERS.values())


def softmax_by(rung):
    op = replace(SOFTMAX, peers=tuple(peer for peer in SOFTMAX.peers if peer.name in ("torch", rung)))
    return measure(op, {"rows": 4, "cols": 16}, [], HostClock(), Plan(1, 10.0, 1), "cpu")["arms"][rung]


@pytest.fixture
def variants(tmp_path, monkeypatch):
    """An empty folder in the place of the variants of lab 4."""
    (tmp_path / "variants").mkdir()
    monkeypatch.setattr(bench_ladder, "FOLDER", tmp_path / "variants")
    monkeypatch.setattr(sys, "path", [*sys.path])
    bench_ladder.module_of.cache_clear()
    yield tmp_path / "variants"
    bench_ladder.module_of.cache_clear()


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize(("rung", "name"), [("tuned", "b_tuned.py"), ("naive", "naive.py")])
def test_a_file_of_a_rung_is_an_arm(variants, rung, name):
    (variants / "a_tuned.py").write_text("def fused_softmax(x):\n    return x\n")
    text = "from given_beside import f\ndef fused_softmax_forward(x, *, out=None):\n    f(x, -1, out=out)\n"
    (variants / name).write_text(text)
    (variants.parent / "given_beside.py").write_text("from torch import softmax as f\n")
    assert bench_ladder.file_of(rung, "fused_softmax_forward") == variants / name
    assert softmax_by(rung)["status"] == "ok"


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("rung", RUNGS)
def test_a_file_of_a_rung_that_is_not_there_is_said(variants, rung):
    (variants / "softmax.py").write_text("def fused_softmax_forward(x, *, out=None):\n    pass\n")
    assert bench_ladder.file_of(rung, "fused_softmax_forward") is None
    arm = softmax_by(rung)
    assert arm["status"] == "missing"
    assert f"no {bench_ladder.RUNGS[rung]} among the" in arm["reason"]
    assert arm["reason"].endswith("of lab 4 defines fused_softmax_forward")


@pytest.mark.parametrize("op", LADDERS.values(), ids=lambda op: op.name)
def test_every_rung_is_called_as_ours_is(op):
    """By the tensors and options that the peer hands to a function that keeps them."""
    seen = []
    size = OF_ONE[op.name][0]
    tensors = dict.fromkeys((*op.takes, *op.gives(size)), torch.zeros(1))
    (ours,) = op.arms("ours", lambda *places, **names: seen.append((len(places), set(names))), size)
    ours.make(tensors)()
    module = type("Module", (), {op.name: staticmethod(lambda *p, **n: seen.append((len(p), set(n))))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_ladder, "module_of", lambda *_: module)
        for peer in op.peers[: len(RUNGS)]:
            peer.make(tensors)()
    assert len(seen) == 1 + len(RUNGS)
    assert all(one == seen[0] for one in seen)


OF_ONE = {  # bytes and FLOPs counted by hand
    "elementwise_add": ({"n": 10}, 120, 10),
    "softmax_forward": ({"rows": 3, "cols": 5}, 60, 75),
    "softmax_backward": ({"rows": 3, "cols": 5}, 90, 60),
    "fused_softmax_forward": ({"rows": 3, "cols": 5}, 60, 75),
    "fused_softmax_backward": ({"rows": 3, "cols": 5}, 90, 60),
    "layer_norm_forward": ({"rows": 3, "cols": 5}, 80, 105),
    "layer_norm_backward": ({"rows": 3, "cols": 5}, 120, 240),
    "rms_norm_forward": ({"rows": 3, "cols": 5}, 70, 60),
    "rms_norm_backward": ({"rows": 3, "cols": 5}, 110, 165),
    "dropout_forward": ({"n": 10}, 40, 10),
    "layer_norm_linear_forward": ({"m": 2, "n": 3, "k": 5}, 88, 60),
    "matmul": ({"m": 2, "n": 3, "k": 5}, 62, 60),
    "matmul_bias_relu": ({"m": 2, "n": 3, "k": 5}, 62, 60),
    "vector_add": ({"n": 10}, 120, 10),
    "reduce_sum": ({"n": 10}, 44, 10),
    "cuda_matmul": ({"m": 2, "n": 3, "k": 5}, 62, 60),
    "swiglu": ({"rows": 3, "cols": 5}, 90, 75),
    "add_rms_norm": ({"rows": 3, "cols": 5}, 130, 75),
    "attention": ({"batch": 2, "heads": 3, "dim": 5, "length": 7}, 1680, 2940),
}


@pytest.mark.parametrize("op", ALL, ids=lambda op: op.name)
def test_bytes_and_flops_are_what_a_hand_counts(op):
    size, bytes_moved, operations = OF_ONE[op.name]
    assert (op.bytes_moved(size), op.operations(size)) == (bytes_moved, operations)
    assert op.flops(size) == (operations if op.unit == "TFLOP/s" else 0)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_an_operation_fits_the_signature_of_our_function(op):
    path = op.path(ROOT / "solutions")
    if not path.is_file():
        pytest.skip(f"there is no {op.file} yet")
    if op.native:
        found = re.search(rf'extern "C" int {op.symbol}\(([^)]*)\)', path.read_text("utf-8"))
        pointers, size = found[1].count("*"), dict.fromkeys(op.sizes[0], 8)
        assert pointers == len(op.takes) + len(op.gives(size))
        return
    parameters = inspect.signature(getattr(bench.load(path), op.name)).parameters
    by_place = [name for name, one in parameters.items() if one.kind is not one.KEYWORD_ONLY]
    assert tuple(by_place) == op.takes
    assert {*op.gives(op.sizes[0]), *dict(op.options)} <= parameters.keys() - set(by_place)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_an_operation_is_what_its_lab_asks_for(op):
    _, exercise = op.asked
    assert tuple(op.gives(op.sizes[0])) == exercise.outputs
    for tree in ("labs", "solutions"):
        home = ROOT if tree == "labs" and op.lab == "capstone" else ROOT / tree
        assert op.path(ROOT / tree) == home / op.file


@pytest.mark.parametrize("op", ALL, ids=lambda op: op.name)
def test_baselines_are_peers_and_quick_sizes_are_sizes(op):
    assert {*op.baselines} <= {peer.name for peer in op.peers}
    assert len(op.quick) == 2
    assert all(size in op.sizes for size in op.quick)


@pytest.mark.parametrize("op", ALL, ids=lambda op: op.name)
def test_sizes_shrink_with_the_memory_and_a_large_one_takes_them_as_they_are(op):
    assert fit(op, op.sizes, 130 * 10**9, 2**28) == list(op.sizes)
    free = 6 * 10**9
    shrunk = fit(op, op.sizes, free, 2**28)
    assert shrunk
    assert shrunk != list(op.sizes)
    assert len({label(size) for size in shrunk}) == len(shrunk)
    assert all(bytes_needed(op, size, slots_of(op, size, 2**28)) <= free for size in shrunk)
    assert fit(op, op.sizes, 1000, 2**28) == []


def test_rotating_buffers_pass_the_working_set():
    for op in ALL:
        assert all(slots_of(op, size, 2**28) * op.bytes_moved(size) > 2**28 for size in op.sizes)


def told(size, process=0, **arms):
    """What one process tells; times wander from round to round, alike for all arms."""
    rng = random.Random(process)
    wander = [1.0 + 0.2 * rng.random() for _ in range(15)]
    return {
        "size": size, "slots": 2, "working_set_bytes": 2**30, "method": "eager", "rounds_dropped": 1,
        "configs": {"ours": {"kernel": "BLOCK: 64"}},
        "arms": {
            name: {
                "status": us if isinstance(us, str) else "ok", "reason": "", "eager_us": None,
                "clocks": QUIET,
                "rounds_us": [] if isinstance(us, str) else [us * factor for factor in wander],
            }
            for name, us in arms.items()
        },
    }  # fmt: skip


ROWS = {"rows": 32768, "cols": 4096}
ARMS = {"ours": 150.0, "torch": 300.0, f"torch{AGAIN}": 303.0, "copy": 135.0, "Liger": "not installed"}


def test_ratios_are_taken_within_rounds_and_pooled_over_processes():
    one = summarise(SOFTMAX, [told(ROWS, process, **ARMS) for process in range(3)], PEAKS)
    mine = one.arms["ours"]
    assert mine.ratio == pytest.approx(2.0)
    assert mine.interval == pytest.approx((2.0, 2.0))  # what wanders is common to both
    assert mine.rate == pytest.approx(4 * 2**27 / mine.median_us / 1e6)
    assert mine.percent_of_copy == pytest.approx(90.0)
    assert mine.percent_of_limit == pytest.approx(100 * 4 * 2**27 / 4.8e6 / mine.median_us)
    assert one.arms[f"torch{AGAIN}"].ratio == pytest.approx(300 / 303)
    assert one.arms["Liger"].rate is None
    assert (one.rounds_dropped, one.baseline, len(mine.rounds_us)) == (3, "torch", 3)


def test_an_arm_that_is_wrong_in_one_process_has_no_figure():
    one = summarise(SOFTMAX, [told(ROWS, **ARMS), told(ROWS, **ARMS | {"ours": "wrong"})], PEAKS)
    assert (one.arms["ours"].status, one.arms["ours"].median_us) == ("wrong", None)


def test_what_physics_forbids_gets_no_figure():
    one = summarise(SOFTMAX, [told(ROWS, **ARMS | {"ours": 80.0})], PEAKS)
    assert (one.arms["ours"].status, one.arms["ours"].rate) == ("impossible", None)


def test_the_better_layout_of_cublas_is_the_baseline():
    side = {"m": 4096, "n": 4096, "k": 4096}
    arms = {"ours NN": 190.0, "torch.mm NN": 180.0, "torch.mm NT": 171.0, f"torch.mm NN{AGAIN}": 180.0}
    one = summarise(MATMUL, [told(side, **arms)], PEAKS)
    assert one.baseline == "torch.mm NT"
    assert one.arms["ours NN"].ratio == pytest.approx(0.9)
    assert one.arms[f"torch.mm NN{AGAIN}"].ratio == pytest.approx(1.0)


@pytest.fixture
def record():
    sizes = [
        summarise(SOFTMAX, [told(ROWS, p, **ARMS) for p in range(3)], PEAKS),
        summarise(SOFTMAX, [told({"rows": 1024, "cols": 131072}, **ARMS | {"ours": 330.0})], PEAKS),
    ]
    one = OpRecord(
        name="fused_softmax_forward", dtype="bfloat16", unit="TB/s", file=SOFTMAX.file, file_sha256="0" * 64,
        sizes=sizes, troubles=["process 2 exited with code -9"],
    )  # fmt: skip
    return BenchRecord(
        date="2026-01-01T00:00:00+00:00", command="python -m grader bench", processes=3,
        machine=machine(CARD, ""), cuda="13.0", liger=None, ops=[one],
        skipped=["dropout_forward: there is no file"],
    )  # fmt: skip


def test_a_record_comes_back_as_it_was_written(record, tmp_path):
    record.save(tmp_path / "bench.json")
    assert BenchRecord.model_validate_json((tmp_path / "bench.json").read_text("utf-8")) == record
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]
    assert str(tmp_path) not in json.dumps(record.model_dump())


def test_the_table_shows_wins_and_losses(record, tmp_path):
    record.save(tmp_path / "bench.json")
    text = rewrite("<!-- BEGIN bench bench.json -->\nold\n<!-- END -->", tmp_path)
    mine = record.ops[0].sizes[0].arms["ours"]
    assert f"| rows=32768, cols=4096 | {mine.rate:.2f} (2.00) |" in text
    assert "(0.91)" in text
    assert "not installed" in text
    assert "exited with code -9" in text
    assert "dropout_forward: there is no file" in text
    columns = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert len(columns) == 1


def test_plots_are_written_for_each_operation_and_the_roofline(record, tmp_path):
    paths = bench_plots.write([record], tmp_path)
    assert [path.name for path in paths] == [
        "fused_softmax_forward.png", "fused_softmax_forward.svg", "roofline.png", "roofline.svg",
    ]  # fmt: skip
    assert all(path.stat().st_size > 1000 for path in paths)
    assert "131072" in (tmp_path / "fused_softmax_forward.svg").read_text("utf-8")
    first = (tmp_path / "roofline.svg").read_bytes()
    bench_plots.write([record], tmp_path)
    assert (tmp_path / "roofline.svg").read_bytes() == first


def test_a_record_without_figures_has_no_plots(record, tmp_path):
    record.ops[0].sizes = []
    assert bench_plots.write([record], tmp_path) == []


def test_the_config_an_autotuner_chose_is_told():
    tuned = type("Tuned", (), {"best_config": "BLOCK: 64"})()
    module = type(torch)("file")
    module.kernel, module.other = tuned, 1
    assert picked(module) == {"kernel": "BLOCK: 64"}


def test_a_process_is_started_for_one_operation(tmp_path):
    request = Request(tmp_path, ("matmul",), True, (tmp_path / "v.py",), 1, "")
    assert request.ops() == [MATMUL]
    words = request.arguments(MATMUL, 2)
    assert words[:3] == ["bench", "--op", "matmul"]
    assert "--quick" in words
    assert words[words.index("--child") + 1] == "2"


def test_a_file_and_a_size_travel_to_the_process(tmp_path):
    file, size = tmp_path / "mine.cu", {"k": 7, "m": 5, "n": 3}
    request = Request(tmp_path, ("cuda_matmul",), False, (), 1, "", file=file, size=size)
    (op,) = request.ops()
    words = request.arguments(op, 0)
    assert words[words.index("--file") + 1] == str(file)
    assert size_of(words[words.index("--size") + 1]) == size
    assert [list(one.items()) for one in request.sizes(op)] == [[("m", 5), ("n", 3), ("k", 7)]]
    assert request.ours(op) == file


WRONG = {
    "an unknown name": ({"names": ("mat",)}, KeyError, "mat"),
    "an unknown lab": ({"lab": "capstone,9"}, ValueError, "--lab capstone,9: choose from 1, "),
    "a lab and a name": ({"names": ("matmul",), "lab": "3"}, ValueError, "--op and --lab"),
    "a side too few": ({"names": ("matmul",), "size": {"m": 1, "n": 1}}, ValueError, "matmul takes m, n, k"),
    "a side too many": ({"names": ("vector_add",), "size": {"n": 1, "m": 1}}, ValueError, "takes n"),
    "an empty side": ({"names": ("vector_add",), "size": {"n": 0}}, ValueError, "n=0"),
    "a file without a name": ({"file": Path("a.py")}, ValueError, "--file a.py"),
    "a file of another kind": ({"names": ("vector_add",), "file": Path("a.py")}, ValueError, "--file a.py"),
}


@pytest.mark.parametrize(("more", "error", "words"), WRONG.values(), ids=WRONG)
def test_what_does_not_go_together_is_refused(tmp_path, more, error, words):
    given = {"names": ()} | more
    with pytest.raises(error) as raised:
        Request(tmp_path, quick=False, variants=(), processes=1, command="", **given).ops()
    assert words in str(raised.value.args[0])


@pytest.mark.parametrize("text", ["", "4096", "n=", "n=-1", "n=1.5", "n=1,", "=3"])
def test_a_size_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="write a size like m=4096"):
        size_of(text)


def test_the_capstone_runs_where_it_is_asked_for_and_not_by_default(tmp_path):
    def names(lab):
        return [op.name for op in Request(tmp_path, (), False, (), 1, "", lab=lab).ops()]

    assert names(None) == [op.name for op in bench_ops.OPS]
    assert names("capstone") == [op.name for op in bench_capstone.OPS]
    assert names("capstone")[:3] == ["vector_add", "reduce_sum", "cuda_matmul"]
    assert names("1,3") == ["elementwise_add", "matmul", "matmul_bias_relu"]


def test_the_record_names_the_file_that_was_measured_and_no_folder_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "messages", lambda _: iter([told(SMALL, **ARMS)]))
    source = tmp_path / "work" / "labs"
    below, beside = source / "mine" / "below.cu", tmp_path / "beside.cu"
    below.parent.mkdir(parents=True)
    follower = Follower(Console(file=io.StringIO()))
    for file, name in ((below, "mine/below.cu"), (beside, "beside.cu")):
        file.write_text(f"// {file.name}")
        request = Request(source, ("vector_add",), False, (), 1, "", file=file, size=SMALL)
        (one,) = bench.run(request, CARD, tmp_path / "bench.json", follower).ops
        assert one.file == name
        assert one.file_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert str(tmp_path) not in (tmp_path / "bench.json").read_text("utf-8")


def test_a_process_that_dies_loses_what_it_had_not_told_and_the_record_keeps_the_rest(tmp_path, monkeypatch):
    def child(arguments):
        name, number = arguments[2], arguments[arguments.index("--child") + 1]
        yield {"running": label(ROWS)}
        yield told(ROWS, **ARMS)
        if (name, number) == ("fused_softmax_forward", "1"):
            yield {"trouble": "exited with code -9: no output"}

    monkeypatch.setattr(bench, "messages", child)
    source = tmp_path / "labs"
    for op in (ADD, SOFTMAX):
        (source / op.file).parent.mkdir(parents=True)
        (source / op.file).write_text("")
    shown = io.StringIO()
    request = Request(source, ("fused_softmax_forward", "matmul"), False, (), 2, "python -m grader bench")
    bench.run(request, CARD, tmp_path / "bench.json", Follower(Console(file=shown, width=200)))
    record = BenchRecord.model_validate_json((tmp_path / "bench.json").read_text("utf-8"))
    (one,) = record.ops
    assert one.troubles == ["process 2 exited with code -9: no output"]
    assert len(one.sizes[0].arms["ours"].rounds_us) == 2
    assert record.skipped == ["matmul: lab3_autotuned_matmul/autotuned_matmul.py is missing"]
    assert shown.getvalue().splitlines() == [
        "  skipped  matmul: lab3_autotuned_matmul/autotuned_matmul.py is missing",
        "  fused_softmax_forward  process 1 of 2  0 more operations",
        "  fused_softmax_forward  process 2 of 2  0 more operations",
        "  fused_softmax_forward: process 2 exited with code -9: no output",
    ]


def asked_of(program, tmp_path, monkeypatch, *arguments):
    """The messages of a process that runs this program in the place of the grader."""
    (tmp_path / "program.py").write_text(program)
    run = f'#!/bin/sh\nshift 2\nexec {sys.executable} {tmp_path}/program.py "$@"\n'
    (tmp_path / "python").write_text(run)
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(bench.sys, "executable", str(tmp_path / "python"))
    return bench.messages(list(arguments))


def test_messages_come_between_what_kernels_and_compilers_print(tmp_path, monkeypatch):
    program = """
import sys
print("Autotuning kernel {x}", flush=True)
print('{"running": "one"}\\n{"running":', end="", flush=True)
print(' "two"}')
sys.stderr.write("a warning\\nout of memory\\n")
sys.exit(5)
"""
    *told, last = asked_of(program, tmp_path, monkeypatch, "bench")
    assert told == [{"running": "one"}, {"running": "two"}]
    assert last == {"trouble": "exited with code 5: out of memory"}


def test_a_process_that_hangs_is_ended_with_all_that_it_started(tmp_path, monkeypatch):
    program = """
import subprocess
print('{"running": "one"}', flush=True)
subprocess.run(["sleep", "60"])
"""
    monkeypatch.setattr(bench, "CHILD_LIMIT_S", 2.0)
    began = time.monotonic()
    told = list(asked_of(program, tmp_path, monkeypatch))
    assert told == [{"running": "one"}, {"trouble": "exited with code -9: no output"}]
    assert time.monotonic() - began < 20  # its child holds the pipe for longer


def test_what_ended_a_process_is_told():
    (last,) = bench.messages(["bench", "--no-such-option"])
    assert "exited with code 2" in last["trouble"]
    assert "--no-such-option" in last["trouble"]


def test_without_a_gpu_bench_says_what_it_needs_and_writes_nothing(tmp_path):
    done = python(
        "-m", "grader", "bench", "--quick", "--results", tmp_path / "results", CUDA_VISIBLE_DEVICES="none"
    )
    assert done.returncode == 3
    assert "bench needs an NVIDIA GPU" in done.stderr
    assert not (tmp_path / "results").exists()
