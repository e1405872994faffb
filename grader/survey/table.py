"""The region of the survey's README that is written from its record: tables of the GPU and its rates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from grader.outcome import one_line
from grader.survey.curve import beyond_l2, size_words, within, within_l2
from grader.survey.record import RECORD, SurveyRecord, Timed, read
from grader.timing import median

BEGIN, END = f"<!-- BEGIN survey {RECORD} -->", "<!-- END -->"
REGION = re.compile(rf"({re.escape(BEGIN)}\n)(.*?)({re.escape(END)})", re.DOTALL)


def survey_table(path: Path) -> str:
    """What stands in the README for the record at `path`; ValueError where that is none."""
    return render(read(path.parent))


def rewrite(text: str, record: SurveyRecord) -> str:
    """A README with its region rendered again, everything else as it was; one without a region gets one."""
    if not REGION.search(text):
        text = f"{text.rstrip()}\n\n{BEGIN}\n{END}\n".lstrip()
    return REGION.sub(lambda match: match[1] + render(record) + match[3], text)


def render(record: SurveyRecord) -> str:
    """The tables, ready to stand between the marks."""
    return "\n".join([*_gpu(record), *_memory(record), *_matmul(record), *_launches(record), *_words(record)])


def _gpu(record: SurveyRecord) -> Iterator[str]:
    a = record.attributes

    def kib(value):
        return None if value is None else size_words(value)

    ecc = None if a.ecc is None else "on" if a.ecc else "off"
    yield from ("| the GPU | |", "|---|---:|")
    rows = {
        "compute capability": f"{a.capability // 10}.{a.capability % 10}",
        "multiprocessors": a.multiprocessors,
        "highest SM clock": f"{a.sm_mhz} MHz",
        "L2 cache": size_words(a.l2_bytes),
        "memory": size_words(record.machine.gpu["memory_bytes"]),
        "memory bus": f"{a.memory_bus_bits} bits",
        "memory clock": f"{a.memory_mhz} MHz",
        "ECC": ecc,
        "shared memory of a multiprocessor": kib(a.shared_bytes_per_multiprocessor),
        "shared memory of a block, at most": kib(a.shared_bytes_per_block),
        "32-bit registers of a multiprocessor": a.registers_per_multiprocessor,
        "threads of a multiprocessor": a.threads_per_multiprocessor,
        "threads of a warp": a.warp_size,
        "blocks of a multiprocessor": a.blocks_per_multiprocessor,
        "copy engines": a.async_engines,
        "power limit": None if a.power_limit_watts is None else f"{a.power_limit_watts:.0f} W",
        "PCIe": None
        if a.pcie_generation is None
        else f"generation {a.pcie_generation}, x{a.pcie_width or '?'}",
    }
    yield from (f"| {name} | {'not told' if value is None else value} |" for name, value in rows.items())
    yield ""


def _memory(record: SurveyRecord) -> Iterator[str]:
    m, l2_bytes, bound = record.measured, record.attributes.l2_bytes, record.theory.dram_bytes_per_s
    yield "| bandwidth | measured, TB/s | least to most | theory | share | SM MHz | W | °C |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    library = f"DRAM, copy_ of torch, {size_words(m.library_copy.working_set_bytes)}"
    rows = (
        ("DRAM, reads", m.dram_read, within(m.reads, beyond_l2(m.reads, l2_bytes)), bound),
        ("DRAM, copies", m.dram_copy, within(m.copies, beyond_l2(m.copies, l2_bytes)), bound),
        (library, m.library_copy.bytes_per_s, [m.library_copy], bound),
        ("L2, reads", m.l2_read, within(m.reads, within_l2(l2_bytes)), None),
        ("L2, copies", m.l2_copy, within(m.copies, within_l2(l2_bytes)), None),
    )
    for name, rate, curve, limit in rows:
        rounds = [one.bytes_moved / us / 1e6 for one in curve for us in one.timed.rounds_us]
        ends = f"{min(rounds):.3f} to {max(rounds):.3f}" if rounds else "-"
        cells = f"{_rate(rate, 3)} | {ends} | {_rate(limit, 3)} | {_share(rate, limit)}"
        yield f"| {name} | {cells} | {_clocks([one.timed for one in curve])} |"
    yield ""
    words = "DRAM is the median over the largest working sets, L2 over those of 1/16 to 1/4 of the L2 cache"
    yield from (f"{words}; least and most are single rounds.", "")


def _matmul(record: SurveyRecord) -> Iterator[str]:
    theory = record.theory
    yield (
        "| matmul | side | measured, TFLOP/s | least to most | theory | share | ridge, FLOP/B | SM MHz "
        "| W | °C |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for one in record.measured.matmul:
        bound = theory.flops_per_s.get(one.dtype)
        if one.timed is None or one.flops_per_s is None or one.side is None:
            yield f"| {one.dtype} | - | {one.status} | - | {_rate(bound, 1)} | - | - | - | - | - |"
            continue
        least, _, most = (2e-6 * one.side**3 / us for us in reversed(one.timed.spread_us))
        yield (
            f"| {one.dtype} | {one.side} | {one.flops_per_s / 1e12:.1f} | {least:.1f} to {most:.1f} "
            f"| {_rate(bound, 1)} | {_share(one.flops_per_s, bound)} "
            f"| {record.measured.ridges.get(one.dtype, 0.0):.0f} | {_clocks([one.timed])} |"
        )
    yield ""
    for one in record.measured.matmul:
        if one.reason:
            yield from (f"{one.dtype}: {plain(one.reason)}.", "")
    if theory.source:
        words = (
            "dense rates at the highest SM clock, an upper bound: under full load few GPUs hold that clock"
        )
        yield from (
            f"Theory: {words}; FLOP per clock from {plain(theory.source)}. int8 counts operations.",
            "",
        )
    else:
        yield from ("No matrix rate in theory is known here for this compute capability.", "")


def _launches(record: SurveyRecord) -> Iterator[str]:
    one = record.measured.launch
    yield from ("| an empty kernel of Triton | µs | least to most |", "|---|---:|---:|")
    rows = {
        "launched back to back, each": one.back_to_back,
        "as a node of a CUDA graph": one.graph_node,
        "launched and waited for": one.round_trip,
    }
    for name, timed in rows.items():
        least, middle, most = timed.spread_us
        yield f"| {name} | {middle:.2f} | {least:.2f} to {most:.2f} |"
    yield ""


def _words(record: SurveyRecord) -> Iterator[str]:
    gpu, machine = record.machine.gpu, record.machine
    rounds = timings(record)
    slowed = sum(one.throttled for one in rounds)
    reasons = sorted({plain(reason) for one in rounds for reason in one.clocks.reasons} - {"idle"})
    again = sum(one.rounds_dropped for one in rounds)
    yield (
        f"Throttled during {slowed} of {len(rounds)} measurements; {again} rounds were taken again; "
        f"clock reasons seen: {', '.join(reasons) or 'none'}."
    )
    yield ""
    yield (
        f"{plain(gpu['name'])}, driver {plain(gpu['driver'])}, CUDA {plain(record.cuda or 'none')}, torch "
        f"{plain(machine.torch)}, triton {plain(machine.triton)}, {plain(record.date)[:10]}"
        f"{', quick' if record.quick else ''}."
    )
    yield ""


def timings(record: SurveyRecord) -> list[Timed]:
    """Every timing of a record, in the order in which it was made."""
    m = record.measured
    return [
        *(one.timed for one in (*m.reads, *m.copies, m.library_copy)),
        *(one.timed for one in m.matmul if one.timed),
        *(m.launch.back_to_back, m.launch.graph_node, m.launch.round_trip),
    ]


def plain(text: object) -> str:
    """Text of a record as one harmless line of a Markdown table."""
    return re.sub(r"[|<>`*_\[\]]", " ", one_line(str(text)))


def _rate(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value / 1e12:.{digits}f}"


def _share(rate: float | None, bound: float | None) -> str:
    return "-" if rate is None or bound is None else f"{100 * rate / bound:.1f} %"


def _clocks(timings: Sequence[Timed]) -> str:
    """Median clock, power and temperature, of the medians of several timings."""
    cells = []
    for name in ("sm_mhz", "watts", "celsius"):
        middles = [getattr(one.clocks, name)[1] for one in timings if len(getattr(one.clocks, name)) == 3]
        cells.append(f"{median(middles):.0f}" if middles else "-")
    return " | ".join(cells)
