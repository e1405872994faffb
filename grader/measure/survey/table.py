"""The region of the survey's README that is rendered from its record: tables of the GPU and its rates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from grader.measure.survey.curve import beyond_l2, size_words, within, within_l2
from grader.measure.survey.record import RECORD, Matmul, SurveyRecord, Timed, read
from grader.measure.survey.sources import AGAIN
from grader.report import markdown
from grader.system.text import one_line

LABEL = f"survey {RECORD}"  # in the BEGIN mark of the region
CLOCKS = {"SM MHz": "sm_mhz", "W": "watts", "°C": "celsius"}  # columns of both tables of rates


def survey_table(path: Path) -> str:
    """Render the record at `path` for the README; ValueError if there is no valid record."""
    return render(read(path.parent))


def rewrite(text: str, record: SurveyRecord) -> str:
    """Return a README with its region rendered again and all other text unchanged.

    A README without a region gets one at its end. Raises ValueError if a mark lacks its partner, because the
    text after it may be the student's own.
    """
    found, problems = markdown.regions(text, re.escape(LABEL))
    if problems:
        raise ValueError(f"README.md {problems[0]}: correct the marks; the file was not written")
    if not found:
        return f"{text.rstrip()}\n\n{markdown.marked(LABEL, render(record))}\n".lstrip()
    return markdown.rewrite(text, found, lambda _: render(record))


def problem(text: str, record: SurveyRecord) -> str:
    """Say in one line why a README does not show the record; empty if it does."""
    found, problems = markdown.regions(text, re.escape(LABEL))
    if problems:
        return f"README.md {problems[0]}"
    if len(found) != 1:
        return f"README.md has {len(found)} regions for the survey; it needs exactly one"
    if text[found[0].inside] != render(record):
        return f"README.md does not agree with {RECORD}: {AGAIN}"
    return ""


def render(record: SurveyRecord) -> str:
    """Render the tables that are written between the marks."""
    return markdown.page(
        [_gpu(record), *_memory(record), *_matmul(record), _launches(record), *_words(record)]
    )


def _gpu(record: SurveyRecord) -> str:
    a = record.attributes

    def kib(value):
        return None if value is None else size_words(value)

    ecc = None if a.ecc is None else "on" if a.ecc else "off"
    rows = {
        "compute capability": f"{a.capability // 10}.{a.capability % 10}",
        "multiprocessors": a.multiprocessors,
        "highest SM clock": f"{a.sm_mhz} MHz",
        "L2 cache": size_words(a.l2_bytes),
        "memory": size_words(record.machine.gpu.memory_bytes),
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
    shown = ((name, "not reported" if value is None else value) for name, value in rows.items())
    return markdown.table(("the GPU", ""), shown, "lr")


def _memory(record: SurveyRecord) -> Iterator[str]:
    m, l2_bytes, bound = record.measured, record.attributes.l2_bytes, record.theory.dram_bytes_per_s
    library = f"DRAM, copy_ of torch, {size_words(m.library_copy.working_set_bytes)}"
    wanted = (
        ("DRAM, reads", m.dram_read, within(m.reads, beyond_l2(m.reads, l2_bytes)), bound),
        ("DRAM, copies", m.dram_copy, within(m.copies, beyond_l2(m.copies, l2_bytes)), bound),
        (library, m.library_copy.bytes_per_s, [m.library_copy], bound),
        ("L2, reads", m.l2_read, within(m.reads, within_l2(l2_bytes)), None),
        ("L2, copies", m.l2_copy, within(m.copies, within_l2(l2_bytes)), None),
    )
    rows = []
    for name, rate, curve, limit in wanted:
        rounds = [one.bytes_moved / us / 1e6 for one in curve for us in one.timed.rounds_us]
        ends = f"{min(rounds):.3f} to {max(rounds):.3f}" if rounds else "-"
        cells = (name, _rate(rate, 3), ends, _rate(limit, 3), _share(rate, limit))
        rows.append((*cells, *_clocks([one.timed for one in curve])))
    heads = ("bandwidth", "measured, TB/s", "least to most", "theory", "share", *CLOCKS)
    yield markdown.table(heads, rows, "lr")
    words = "DRAM is the median over the largest working sets, L2 over those of 1/16 to 1/4 of the L2 cache"
    yield f"{words}; least and most are single rounds."


def _matmul(record: SurveyRecord) -> Iterator[str]:
    theory = record.theory
    heads = ("matmul", "side", "measured, TFLOP/s", "least to most", "theory", "share", "ridge, FLOP/B")
    rows = [_matmul_row(record, one) for one in record.measured.matmul]
    yield markdown.table((*heads, *CLOCKS), rows, "lr")
    yield from (f"{one.dtype}: {plain(one.reason)}." for one in record.measured.matmul if one.reason)
    if theory.source:
        words = (
            "dense rates at the highest SM clock, an upper bound: under full load few GPUs hold that clock"
        )
        yield f"Theory: {words}; FLOP per clock from {plain(theory.source)}. int8 counts operations."
    else:
        yield "No matrix rate in theory is known here for this compute capability."


def _matmul_row(record: SurveyRecord, one: Matmul) -> tuple:
    bound = record.theory.flops_per_s.get(one.dtype)
    if one.timed is None or one.flops_per_s is None or one.side is None:
        return (one.dtype, "-", one.status, "-", _rate(bound, 1), *("-" * 5))
    least, _, most = (2e-6 * one.side**3 / us for us in reversed(one.timed.spread_us))
    rates = (f"{one.flops_per_s / 1e12:.1f}", f"{least:.1f} to {most:.1f}", _rate(bound, 1))
    ridge = f"{record.measured.ridges.get(one.dtype, 0.0):.0f}"
    return (one.dtype, one.side, *rates, _share(one.flops_per_s, bound), ridge, *_clocks([one.timed]))


def _launches(record: SurveyRecord) -> str:
    one = record.measured.launch
    timed = {
        "launched back to back, each": one.back_to_back,
        "as a node of a CUDA graph": one.graph_node,
        "launched and waited for": one.round_trip,
    }
    rows = [
        (name, f"{middle:.2f}", f"{least:.2f} to {most:.2f}")
        for name, (least, middle, most) in ((name, one.spread_us) for name, one in timed.items())
    ]
    return markdown.table(("an empty kernel of Triton", "µs", "least to most"), rows, "lr")


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
    yield (
        f"{plain(gpu.name)}, driver {plain(gpu.driver)}, CUDA {plain(record.cuda or 'none')}, torch "
        f"{plain(machine.torch)}, triton {plain(machine.triton)}, {plain(record.date)[:10]}"
        f"{', quick' if record.quick else ''}."
    )


def timings(record: SurveyRecord) -> list[Timed]:
    """List every timing of a record, in the order of measurement."""
    m = record.measured
    return [
        *(one.timed for one in (*m.reads, *m.copies, m.library_copy)),
        *(one.timed for one in m.matmul if one.timed),
        *(m.launch.back_to_back, m.launch.graph_node, m.launch.round_trip),
    ]


def plain(text: object) -> str:
    """Return text of a record as one line without Markdown syntax."""
    return re.sub(r"[|<>`*_\[\]]", " ", one_line(str(text)))


def _rate(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value / 1e12:.{digits}f}"


def _share(rate: float | None, bound: float | None) -> str:
    return "-" if rate is None or bound is None else f"{100 * rate / bound:.1f} %"


def _clocks(timings: Sequence[Timed]) -> Iterator[str]:
    """Yield clock, power and temperature: for each the median of the medians of several timings."""
    for name in CLOCKS.values():
        middles = [getattr(one.clocks, name)[1] for one in timings if len(getattr(one.clocks, name)) == 3]
        yield f"{median(middles):.0f}" if middles else "-"
