"""A synthetic GPU whose clock is made up, and surveys of it; no figure here was measured."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace

from rich.console import Console

from grader.grading.progress import Follower
from grader.measure.bench.record import ArmRecord, BenchRecord, OpRecord, SizeRecord
from grader.measure.survey.measure import Work, measure
from grader.measure.survey.products import Product
from grader.measure.survey.record import Attributes, SurveyRecord
from grader.measure.survey.rounds import Plan
from grader.measure.survey.theory import theory
from grader.results.machine import machine
from grader.system.gpu import Gpu

CARD = Gpu("synthetic GPU", "0.0", "0" * 16, 90, 16 * 2**30, 2.0e12, 4.096e14, 1000)
ATTRIBUTES = Attributes(
    capability=90, multiprocessors=100, l2_bytes=2**23, memory_bus_bits=8000, memory_mhz=1000, sm_mhz=1000,
    warp_size=32, ecc=True,
)  # fmt: skip
L2, DRAM = 4.0e12, 1.5e12  # bytes/s
RATES = {"fp64": 2e13, "fp32": 2e13, "tf32": 1e14, "fp16": 3e14, "bf16": 3e14, "fp8": 6e14, "int8": 6e14}
LAUNCH_US, NODE_US, WAIT_US = 5.0, 1.0, 20.0
BRIEF = Plan(rounds=3, block_us=1_000.0, warm_us=1_000.0, matmul_block_us=1_000.0, matmul_warm_us=1_000.0)


class Clocks:
    """Says that the GPU was throttled in the samples whose numbers are given, counted over all readers."""

    missing = ""

    def __init__(self, device):
        self._device = device
        self.samples = SimpleNamespace(sm_mhz=[900], watts=[300.0], celsius=[50], reasons={"idle"})

    def sample(self):
        self._device.samples += 1
        return ["hw thermal"] if self._device.samples in self._device.throttled else []


class FakeDevice:
    """Does no work; its clock goes on by what the work would take."""

    capability, l2_bytes = 90, 2**23

    def __init__(self, free=2**30, throttled=(), broken=()):
        self.us, self.samples, self.throttled, self.broken = 0.0, 0, set(throttled), set(broken)
        self._free, self.held = free, []

    def free_bytes(self):
        return self._free

    def clock_reader(self):
        return Clocks(self)

    def time_us(self, work):
        before = self.us
        work()
        return self.us - before

    host_us = time_us

    def hold(self, largest):
        self.held.append(largest)

    def give_back(self):
        self.held.append(0)

    def synchronize(self):
        self.us += WAIT_US

    def reader(self, size):
        rate = L2 if size <= self.l2_bytes else DRAM

        def launch(passes):
            self.us += 1e6 * passes * size / rate

        return Work(launch, lambda _: "not every number was read" if "reads" in self.broken else "")

    def copier(self, size):
        return self.reader(size)

    library_copier = copier

    def product(self, dtype, side):
        if dtype in self.broken:
            raise RuntimeError(f"no kernel for {dtype}\nand a second line")

        def call():
            self.us += 2e6 * side**3 / RATES[dtype]

        return Product(side, call, lambda: "off" if f"{dtype} result" in self.broken else "", 4 * side * side)

    def empty(self):
        def launch():
            self.us += LAUNCH_US

        return launch

    def graph(self, work):
        launches = self.time_us(work) / LAUNCH_US

        def replay():
            self.us += NODE_US * launches

        return replay


def follower():
    return Follower(Console(file=io.StringIO()))


def survey_of(device=None, attributes=ATTRIBUTES, card=CARD):
    """A survey of the synthetic GPU."""
    return SurveyRecord(
        date="2026-01-02T03:04:05+00:00",
        command="python -m grader survey",
        quick=False,
        machine=machine(card, ""),
        cuda="13.0",
        attributes=attributes,
        measured=measure(device or FakeDevice(), BRIEF, follower()),
        theory=theory(attributes),
    )


def bench_of(name="synthetic_op", gpu=CARD.name):
    """A bench record of one operation on a synthetic GPU: 2 FLOP per byte, half of what DRAM gives."""
    arm = ArmRecord(status="ok", median_us=2e6 * 1e9 / DRAM)
    other = ArmRecord(status="ok", median_us=1.0)
    size = SizeRecord(
        size={"n": 10}, bytes_moved=10**9, operations=2 * 10**9, method="eager", slots=1,
        working_set_bytes=10**9, rounds_dropped=0, arms={"ours": arm, "torch": other},
    )  # fmt: skip
    op = OpRecord(name=name, dtype="float32", unit="TB/s", file="a.cu", file_sha256="0" * 64, sizes=[size])
    return BenchRecord(
        date="2026-01-02T03:04:05+00:00", command="python -m grader bench", processes=1,
        machine=machine(replace(CARD, name=gpu), ""), cuda="13.0", liger=None, ops=[op],
    )  # fmt: skip
