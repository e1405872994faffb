"""Write figures into READMEs from the records of graded runs, so that no measured number is typed by hand.

A region of a Markdown file between `<!-- BEGIN speed solutions/results/h200.json -->` and `<!-- END -->` is
rewritten from the record that it names; the first word names the renderer.
`<!-- BEGIN policy -->` needs no record: it shows the names that the static screen permits.
`<!-- BEGIN calls -->` shows the CUDA calls that a host function may make.
"""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median, stdev

from rich.console import Console

from grader.classroom.grading.cost import cost_table
from grader.codegen import cuda_calls
from grader.course import catalog
from grader.course.items import SPEED
from grader.course.spec import lab_word
from grader.measure import toolchains
from grader.measure.bench.record import ArmRecord, BenchRecord, OpRecord, SizeRecord, size_text
from grader.measure.kernel_log.profiles import profile_table
from grader.measure.student_loop import StudentLoop
from grader.measure.survey.table import survey_table
from grader.report import markdown
from grader.report.terminal import show
from grader.results import points, reading
from grader.results.models import Results
from grader.screen.language import as_markdown
from grader.site import coverage
from grader.site.graded_run import typed

PAGES = (
    "README.md",
    "solutions/README.md",
    "labs/README.md",
    "labs/LANGUAGE.md",
    "gpu-programming/cuda-kernels/README.md",
    ".github/CONTRIBUTING.md",
    ".github/SECURITY.md",
    "grader/classroom/grading/README.md",
    "grader/classroom/INSTRUCTORS.md",
)
LABEL = r"\w+(?: \S+)?"  # of a region: the renderer, and the path of the record


def rewrite(text: str, root: Path) -> str:
    """Return the text with every marked region rendered from its record; paths are relative to `root`.

    ValueError if BEGIN and END marks do not form pairs.
    """
    found, problems = markdown.regions(text, LABEL)
    if problems:
        raise ValueError(problems[0])

    def render(region: markdown.Region) -> str:
        name, _, record = region.label.partition(" ")
        return RENDERERS[name](root / record)

    return markdown.rewrite(text, found, render)


def load(path: Path) -> list[Results]:
    """Return the run of a record, or all runs of a record of several."""
    return reading.parse_runs(path.read_bytes())


def bench_records(folder: Path) -> list[BenchRecord]:
    """Return all records of `make bench` in a folder, sorted by name."""
    return [BenchRecord.read(path) for path in sorted(folder.glob("*-bench-*.json"))]


def _machine(run: Results) -> str:
    return f"{run.machine.words}, {run.date[:10]}, seed {run.seed}"


def _timed(run: Results):
    for _, exercise, item in run.every_item():
        if item.kind == SPEED and item.timing:
            yield exercise, item, item.timing


def _shape(item) -> str:
    return item.name.replace(",", ", ")


def _speed(path: Path) -> str:
    """One row for each timed shape: times, percent with its interval, rate, and PyTorch's own operator."""
    (run,) = load(path)
    rows = []
    for exercise, item, timing in _timed(run):
        low, high = timing.interval_percent
        peers = "".join(f"; {name} {us:.0f} µs" for name, us in timing.peers_us.items())
        times = (f"{timing.student_us:.1f}", f"{timing.baseline}{peers}", f"{timing.reference_us:.1f}")
        percent = (f"{timing.percent_of_baseline:.1f}", f"{low:.1f} to {high:.1f}")
        rows.append((exercise.name, _shape(item), *times, *percent, timing.rate, len(timing.rounds)))
    heads = ("function", "shape", "µs", "baseline", "µs", "percent", "interval", "rate", "rounds")
    words = f"{_machine(run)}; {run.seconds:.0f} s from the command to the report."
    return markdown.page([markdown.table(heads, rows, "llrlrrlrr"), words])


def _points(path: Path) -> str:
    """Points of each lab, and the points that the machine could not grade."""
    (run,) = load(path)
    scores = points.split(points.score_of(run.items), [lab.items for lab in run.labs])
    rows = []
    for lab, score in zip(run.labs, scores, strict=True):
        called = lab_word(lab.folder, lab.number).removeprefix("lab ")
        rows.append((f"{called}, {lab.title}", score.earned, score.graded, score.not_graded))
    table = markdown.table(("lab", "points", "graded", "not graded here"), rows, "lr")
    return markdown.page([table, f"{_machine(run)}; {run.seconds:.0f} s."])


def _regrades(path: Path) -> str:
    """Spread of the percentages over several gradings of one file."""
    runs = load(path)
    percents: dict[str, list[float]] = {}
    for run in runs:
        for exercise, item, timing in _timed(run):
            name = f"{exercise.name}, {_shape(item)}"
            percents.setdefault(name, []).append(timing.percent_of_baseline)
    rows = []
    for name, values in percents.items():
        cells = (f"{one:.2f}" for one in (median(values), min(values), max(values)))
        rows.append((name, *cells, f"{100 * stdev(values) / mean(values):.2f} %"))
    earned = ", ".join(points.text(value) for value in sorted({points.rounded(run.points) for run in runs}))
    verdicts = {item.verdict.value for run in runs for _, item, _ in _timed(run)}
    words = f"{len(runs)} gradings of one file, {_machine(runs[0])}"
    table = markdown.table(("shape", "median", "least", "most", "CV"), rows, "lr")
    return markdown.page([table, f"{words}. Points: {earned}; verdicts: {', '.join(sorted(verdicts))}."])


def _labs(page: Path) -> str:
    """One row for each lab: a link from the page, the student's files, what it teaches, and its points."""
    lines = ["| lab | you write | you learn | points |", "|---|---|---|---:|"]
    for entry in catalog.find(page.parent if page.parent.name == "labs" else page.parent / "labs"):
        link = os.path.relpath(entry.folder / "README.md", page.parent)
        files = ", ".join(f"`{name}`" for name in dict.fromkeys(one.file for one in entry.lab.exercises))
        named = f"{entry.number}, [{entry.lab.title}]({link})"
        lines.append(f"| {named} | {files} | {entry.lab.teaches} | {points.text(entry.lab.points)} |")
    return "\n".join([*lines, ""])


def _reached(path: Path) -> str:
    """One sentence on a run of the course's own kernels: all points, and the matrix product beside cuBLAS."""
    (run,) = load(path)
    products = [timing for exercise, _, timing in _timed(run) if exercise.name == "matmul"]
    percents = [timing.percent_of_baseline for timing in products]
    return (
        f"On an {run.machine.gpu.name} the course's own kernels get {points.text(run.points)} of "
        f"{points.text(run.max_points)} points; their matrix product runs at {min(percents):.1f} to "
        f"{max(percents):.1f} % of cuBLAS.\n"
    )


def _report(path: Path) -> str:
    """The report of a run, as in the terminal."""
    (run,) = load(path)
    text = io.StringIO()
    show(run, Console(file=text, width=200, no_color=True))
    body = "\n".join(line.rstrip() for line in text.getvalue().strip("\n").splitlines())
    return f"```\n$ {typed(run)}\n{body}\n```\n"


def _policy(root: Path) -> str:
    """The names that a lab file may use, with those that single labs add."""
    return as_markdown(
        {
            entry.folder.name: (
                *entry.lab.also_allowed,
                *(f"{module}.{name}" for module, own in entry.lab.given.items() for name in own),
                *sorted({f"torch.{name}" for one in entry.lab.exercises for name in one.may_call}),
            )
            for entry in catalog.find(root / "labs")
        }
    )


def _corpora(path: Path) -> str:
    """Number of specimens of each corpus that got the verdict in their first line."""
    record = json.loads(path.read_text("utf-8"))
    rows = [
        (name, one["held"], one["of"], f"{one['slowest_s']:.1f}") for name, one in record["corpora"].items()
    ]
    table = markdown.table(("corpus", "as expected", "of", "slowest, s"), rows, "lr")
    return markdown.page([table, f"{record['machine']}."])


def _blind(path: Path) -> str:
    """How well messages named the causes of mistakes that no rule had been written for, set by set."""
    record = json.loads(path.read_text("utf-8"))
    heads = ("set", "mistakes", "A", "A or B", "C", "D", "E", "right answers flagged", "graded at")
    rows = []
    for one in record["sets"]:
        counts = Counter(one["grades"].values())
        of = sum(counts[grade] for grade in "ABCDE")
        shares = (counts["A"], counts["A"] + counts["B"], counts["C"], counts["D"], counts["E"])
        flagged = f"{sum(one['right'].values())} of {len(one['right'])}"
        percents = (f"{100 * part / of:.0f} %" for part in shares)
        rows.append((one["set"], of, *percents, flagged, one["commit"]))
    others = [f"set {one['set']}: {one['machine']}" for one in record["sets"] if "machine" in one]
    return markdown.page([markdown.table(heads, rows, "lr"), f"{'; '.join([record['machine'], *others])}."])


def _recovery(path: Path) -> str:
    """Cost of a worker that fails in the middle of its rounds, and of the file that is graded after it."""
    record = json.loads(path.read_text("utf-8"))
    heads = (
        "trouble", "verdict", "after, s", "next file, s", "before, s", "its percent", "GPU memory kept",
    )  # fmt: skip
    rows = [
        (
            one["trouble"],
            one["verdict"],
            *(f"{one[key]:.1f}" for key in ("verdict_s", "next_s", "usual_s")),
            f"{100 * one['moved']:+.2f} %",
            f"{one['left_bytes'] / 2**20:.0f} MiB",
        )
        for one in record["recovery"]
    ]
    return markdown.page([markdown.table(heads, rows, "llr"), f"{record['machine']}."])


def _cost(path: Path) -> str:
    """Cost of confinement: the same files graded without it and then with it, on one warm machine."""
    runs = load(path)
    rows = [(run.assurance, f"{run.seconds:.1f}", points.text(run.points)) for run in runs]
    more = 100 * (runs[-1].seconds / runs[0].seconds - 1)
    table = markdown.table(("workers", "s", "points"), rows, "lr")
    return markdown.page([table, f"{more:+.1f} %; {_machine(runs[-1])}."])


def _bench(path: Path) -> str:
    """One table for each operation: a row for each size, a column for each arm with rate and (ratio)."""
    record = BenchRecord.read(path)
    parts = []
    for op in record.ops:
        parts += [f"**{op.name}**, {op.dtype}, {op.unit} (ratio to the baseline, in bold)", _of_sizes(op)]
        parts += [f"{op.name}: {trouble}." for trouble in op.troubles]
    parts += [f"Not measured: {words}." for words in record.skipped]
    words = f"{record.machine.words}, Liger-Kernel {record.liger or 'not installed'}"
    processes = f"processes of each operation: {record.processes}"
    return markdown.page([*parts, f"{words}, {record.date[:10]}; {processes}."])


def _of_sizes(op: OpRecord) -> str:
    names = list(dict.fromkeys(name for one in op.sizes for name in one.arms))
    heads = ("size", *names, "our best, interval", "% of copy", "% of peak")
    return markdown.table(heads, (_bench_row(one, names) for one in op.sizes), "lr")


def _bench_row(one: SizeRecord, names: list[str]) -> Iterator[str]:
    yield f"{size_text(one.size)}{', graph' if one.method == 'graph' else ''}"
    yield from (_bench_cell(one.arms.get(name), name == one.baseline) for name in names)
    rated = [arm for arm in one.ours.values() if arm.rate]
    mine = max(rated, key=lambda arm: arm.rate, default=None)
    yield f"{mine.interval[0]:.3f} to {mine.interval[1]:.3f}" if mine and mine.interval else "-"
    shares = [mine.percent_of_copy, mine.percent_of_limit] if mine else [None, None]
    yield from ("-" if share is None else f"{share:.1f}" for share in shares)


def _bench_cell(arm: ArmRecord | None, is_baseline: bool) -> str:
    """Rate and ratio of one arm, or the reason why it has none."""
    if arm is None:
        return "-"
    if arm.rate is None:
        return arm.status
    ratio = "" if arm.ratio is None else f" ({arm.ratio:.2f})"
    rate = f"{arm.rate:.0f}" if arm.rate >= 100 else f"{arm.rate:.2f}"
    return f"**{rate}**" if is_baseline else f"{rate}{ratio}"


LADDER = ("naive", "ours", "tuned")  # arms of lab 4's bench
LADDER_COLUMNS = (4096, 16384, 65536)  # of the row kernels, enough to see where a row leaves the registers


def _ladder(path: Path) -> str:
    """Lab 4's three versions of each operation: TB/s or TFLOP/s, and percent of a copy of equal bytes."""
    record = BenchRecord.read(path)
    rows = []
    for op in record.ops:
        for one in op.sizes:
            if one.size.get("cols", LADDER_COLUMNS[0]) in LADDER_COLUMNS:
                cells = (_rung(one.arms.get(name)) for name in LADDER)
                rows.append((f"`{op.name}`", size_text(one.size), op.unit, *cells))
    heads = ("operation", "size", "unit", "naive: PyTorch calls", "fused: the solution", "tuned")
    words = "In parentheses: percent of the rate of a copy of equal bytes."
    where = f"{record.machine.words}, {record.date[:10]}"
    return markdown.page([markdown.table(heads, rows, "lllr"), f"{words} {where}."])


def _rung(arm: ArmRecord | None) -> str:
    if arm is None or arm.rate is None:
        return arm.status if arm else "-"
    rate = f"{arm.rate:.0f}" if arm.rate >= 100 else f"{arm.rate:.2f}"
    return rate if arm.percent_of_copy is None else f"{rate} ({arm.percent_of_copy:.0f} %)"


CLASS = 180  # students


def _hours(path: Path) -> str:
    """How long one solution of each lab takes to grade, and a class of such solutions on one GPU."""
    results = reading.read(path)
    seconds = {
        lab_word(lab.folder, lab.number): sum(item.seconds for item in lab.items) for lab in results.labs
    }
    seconds["all"] = sum(seconds.values())
    rows = [(name, f"{one:.0f}", f"{CLASS * one / 3600:.1f}") for name, one in seconds.items()]
    heads = ("lab", "seconds for one solution", f"hours for {CLASS} students")
    words = "Without starting the grader, which takes some seconds for each lab of a student."
    return markdown.page(
        [markdown.table(heads, rows, "lr"), f"{words} {results.machine.words}, {results.date[:10]}."]
    )


def _toolchains(path: Path) -> str:
    """What passed with each version of Triton; a check that was not run has no number."""
    record = toolchains.load(path)
    if record is None:
        raise FileNotFoundError(path)
    names = [*toolchains.CHECKS]
    rows = []
    for one in record.toolchains:
        cells = {check.name: check.cell for check in one.checks}
        rows.append((one.triton, *(cells.get(name, "not run") for name in names)))
    ran_on: dict[str, dict[str, None]] = {}  # names of checks, by the machine
    for check in [check for one in record.toolchains for check in one.checks]:
        where = check.machine
        words = f"Python {where.python}, torch {where.torch}, numpy {where.numpy}, {check.date[:10]}"
        ran_on.setdefault(words, {})[check.name] = None
    machines = [f"* {', '.join(checks)}: no GPU, {words}" for words, checks in ran_on.items()]
    return markdown.page([markdown.table(("Triton", *names), rows, "lr"), "\n".join(machines)])


def _waits(path: Path) -> str:
    """The median and the range of what a student waits for, with and without a prepared process."""
    record = StudentLoop.model_validate_json(path.read_bytes())
    shown: dict[tuple[int, str], dict[bool, str]] = {}
    for step in record.steps:
        low, high = min(step.seconds), max(step.seconds)
        cells = shown.setdefault((step.lab, step.name), {})
        cells[step.prepared] = f"{median(step.seconds):.1f} ({low:.1f} to {high:.1f})"
    rows = [
        (f"lab {lab}", name, cells.get(False, ""), cells.get(True, ""))
        for (lab, name), cells in shown.items()
    ]
    table = markdown.table(("lab", "wait", "cold, s", "prepared, s"), rows, "llrr")
    return markdown.page([table, f"{record.machine.words}, {record.date[:10]}."])


RENDERERS = {
    "toolchains": _toolchains,
    "waits": _waits,
    "hours": _hours,
    "bench": _bench,
    "ladder": _ladder,
    "profile": profile_table,
    "survey": survey_table,
    "cost": _cost,
    "class": cost_table,
    "recovery": _recovery,
    "corpora": _corpora,
    "blind": _blind,
    "speed": _speed,
    "points": _points,
    "regrades": _regrades,
    "report": _report,
    "labs": _labs,
    "reached": _reached,
    "coverage": coverage.table,
    "policy": _policy,
    "calls": lambda _: cuda_calls.as_markdown(),
}
