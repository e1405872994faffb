"""Steps of a kernel log on a synthetic machine; no figure here was measured."""

import datetime
import hashlib
import json
import types

from grader.measure.bench.record import ArmRecord, BenchRecord, OpRecord, SizeRecord
from grader.measure.kernel_log import ncu
from grader.measure.kernel_log import step as kernel_log
from grader.measure.kernel_log.markdown import PLACEHOLDER
from grader.measure.kernel_log.record import Compiled, Figure, KernelCounters
from grader.measure.kernel_log.tools import Tools
from grader.results.machine import machine
from grader.system.gpu import Gpu

CARD = Gpu("synthetic GPU", "1.0", "0" * 16, 90, 2**30, 4e12, 1e15, 1000)
SIZE = {"m": 64, "n": 64, "k": 64}
NAIVE, TILED = "cuda-kernels/matmul/01_naive.cu", "cuda-kernels/matmul/02_coalesced_shared_tile.cu"
WORDS = "tiles in shared memory: a third of the time"
OP = types.SimpleNamespace(
    unit="TFLOP/s",
    quick=({"m": 8, "n": 8, "k": 8}, SIZE),
    flops=lambda s: 2 * s["m"] * s["n"] * s["k"],
    bytes_moved=lambda _: 0,
)


def counters(registers=64.0, conflicts=12.0, name="tile_kernel"):
    figures = {
        "duration": Figure(value=90.25, unit="us", metric="gpu__time_duration.sum"),
        "registers of a thread": Figure(
            value=registers, unit="registers", metric="launch__registers_per_thread"
        ),
        "bank conflicts of loads": Figure(value=conflicts, unit="conflicts", metric="l1tex__conflicts.sum"),
        "L2 hit rate": Figure(value=71.5, unit="%", metric="lts__t_sector_hit_rate.pct"),
    }
    stalls = {"barrier": Figure(value=1.5, unit="cycles/instruction", metric="smsp__stalled_barrier.ratio")}
    return KernelCounters(name=name, grid="(4, 1, 1)", block="(16, 16, 1)", figures=figures, stalls=stalls)


class Bench:
    """A synthetic machine: medians by the text of the file, the same noise in all arms of a round."""

    def __init__(self, tree):
        self.tree, self.called, self.counters = tree, [], ncu.Profile((counters(),))
        self.us, self.status, self.card, self.stop = {}, {}, CARD, None
        self.baseline_us, self.day = 50.0, 1

    def tools(self):
        return Tools(lambda _: OP, self.compile, self.bench, self.profile, self.now)

    def compile(self, file, _):
        self.called.append(("compile", file.name))
        return [Compiled(name="tile_kernel", registers=64, spill_bytes=0, shared_bytes=2112)]

    def now(self):
        return datetime.datetime(2030, 1, self.day, tzinfo=datetime.timezone.utc)

    def profile(self, _op, file, _size, _folder):
        self.called.append(("profile", file.name))
        return self.counters

    def arm(self, file):
        text = file.read_text()
        status, reason = self.status.get(text, ("ok", ""))
        return (
            self._arm(self.us.get(text, 100.0)) if status == "ok" else ArmRecord(status=status, reason=reason)
        )

    def _arm(self, us):
        return ArmRecord(status="ok", rounds_us=[[us * (1 + 0.001 * i) for i in (0, 3, 1, 4, 2, 6, 5)]])

    def bench(self, op, file, previous, size):
        self.called.append(("bench", file.name, previous and previous.read_text()))
        self.pending = json.loads((self.tree / "kernel-log" / "pending.json").read_text())
        if self.stop:
            raise self.stop
        arms = {"ours": self.arm(file)} | ({"previous": self.arm(previous)} if previous else {})
        arms["torch.mm NT"] = self._arm(self.baseline_us)
        one = SizeRecord(
            size=dict(size), bytes_moved=1, operations=1, method="graph", slots=2, working_set_bytes=2,
            rounds_dropped=0, baseline="torch.mm NT", arms=arms,
        )  # fmt: skip
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        ops = [OpRecord(name=op, dtype="bf16", unit="TFLOP/s", file="f", file_sha256=digest, sizes=[one])]
        return BenchRecord(
            date="", command="", processes=1, machine=machine(self.card, ""), cuda="13.0", liger=None, ops=ops
        )


def step(tree, bench, file=None, words=WORDS, **more):
    said = []
    record = kernel_log.log(tree, words, bench.tools(), file and tree / file, say=said.append, **more)
    return record, said


def learn(tree, number, words="The tiles pay."):
    """Write a student's words under a step."""
    path = tree / "KERNEL_LOG.md"
    head, mark, rest = path.read_text().partition(f"<!-- END STEP {number} -->")
    path.write_text(head + mark + rest.replace(PLACEHOLDER, words, 1))
