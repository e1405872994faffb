"""Write figures into READMEs from the records of graded runs, so that no measured number is typed by hand.

A region of a Markdown file between `<!-- BEGIN speed solutions/results/h200.json -->` and `<!-- END -->` is
rewritten from the record it names; the first word says how. What stands there is always what the record says.
`<!-- BEGIN policy -->` needs no record: it shows the names that the static screen permits.
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

from rich.console import Console

from grader import catalog
from grader.batch.cost import cost_table
from grader.bench.record import BenchRecord
from grader.kernel_log.profiles import profile_table
from grader.policy_names import as_markdown
from grader.questions import SPEED
from grader.report import show
from grader.results import Results
from grader.spec import lab_word
from grader.survey.table import survey_table
from grader.timing import median

PAGES = (
    "README.md",
    "solutions/README.md",
    "labs/README.md",
    ".github/SECURITY.md",
    "grader/batch/README.md",
)
REGION = re.compile(r"(<!-- BEGIN (\w+)(?: (\S+))? -->\n).*?(<!-- END -->)", re.DOTALL)


def rewrite(text: str, root: Path) -> str:
    """The text with every marked region rendered from its record; paths are relative to `root`."""
    return REGION.sub(lambda match: match[1] + RENDERERS[match[2]](root / (match[3] or "")) + match[4], text)


def load(path: Path) -> list[Results]:
    """The run of a record, or the runs of a record of several."""
    data = json.loads(path.read_text("utf-8"))
    return [Results.model_validate(one) for one in (data if isinstance(data, list) else [data])]


def bench_records(folder: Path) -> list[BenchRecord]:
    """All records of `make bench` in a folder, by name."""
    return [
        BenchRecord.model_validate_json(path.read_text("utf-8"))
        for path in sorted(folder.glob("*-bench-*.json"))
    ]


def _machine(run: Results) -> str:
    return f"{run.machine.words}, {run.date[:10]}, seed {run.seed}"


def _timed(run: Results):
    for lab in run.labs:
        for exercise in lab.exercises:
            for item in exercise.items:
                if item.kind == SPEED and "percent" in item.figures:
                    yield exercise, item


def _speed(path: Path) -> str:
    """One row a timed shape: times, percent with its interval, rate, and PyTorch's own operator beside it."""
    (run,) = load(path)
    lines = [
        "| function | shape | µs | baseline | µs | percent | interval | rate | rounds |",
        "|---|---|---:|---|---:|---:|---|---:|---:|",
    ]
    for exercise, item in _timed(run):
        f = item.figures
        rate = f"{f['teraflops']:.0f} TFLOP/s" if f["flops"] else f"{f['terabytes_per_s']:.2f} TB/s"
        low, high = f["interval"]
        peers = "".join(f"; {name} {us:.0f} µs" for name, us in f["peers_us"].items())
        lines.append(
            f"| {exercise.name} | {item.name.replace(',', ', ')} | {f['student_us']:.1f} "
            f"| {f['baseline']}{peers} | {f['reference_us']:.1f} | {f['percent']:.1f} "
            f"| {low:.1f} to {high:.1f} | {rate} | {len(f['rounds'])} |"
        )
    lines += ["", f"{_machine(run)}; {run.seconds:.0f} s from the command to the report.", ""]
    return "\n".join(lines)


def _points(path: Path) -> str:
    """Points of each lab, and what the machine could not grade."""
    (run,) = load(path)
    lines = ["| lab | points | graded | not graded here |", "|---|---:|---:|---:|"]
    for lab in run.labs:
        cells = f"{lab.points:.1f} | {lab.graded_points:.1f} | {lab.not_graded_points:.1f}"
        called = lab_word(lab.folder, lab.number).removeprefix("lab ")
        lines.append(f"| {called}, {lab.title} | {cells} |")
    lines += ["", f"{_machine(run)}; {run.seconds:.0f} s.", ""]
    return "\n".join(lines)


def _regrades(path: Path) -> str:
    """How far the percentages of several gradings of one file lie apart."""
    runs = load(path)
    percents: dict[str, list[float]] = {}
    for run in runs:
        for exercise, item in _timed(run):
            name = f"{exercise.name}, {item.name.replace(',', ', ')}"
            percents.setdefault(name, []).append(item.figures["percent"])
    lines = ["| shape | median | least | most | CV |", "|---|---:|---:|---:|---:|"]
    for name, values in percents.items():
        mean = sum(values) / len(values)
        deviation = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
        cells = (
            f"{median(values):.2f} | {min(values):.2f} | {max(values):.2f} | {100 * deviation / mean:.2f} %"
        )
        lines.append(f"| {name} | {cells} |")
    points = sorted({round(run.points, 3) for run in runs})
    verdicts = {item.verdict.value for run in runs for _, item in _timed(run)}
    words = f"{len(runs)} gradings of one file, {_machine(runs[0])}"
    lines += [
        "",
        f"{words}. Points: {', '.join(f'{p:g}' for p in points)}; verdicts: {', '.join(sorted(verdicts))}.",
        "",
    ]
    return "\n".join(lines)


def _report(path: Path) -> str:
    """The report of a run as the terminal shows it."""
    (run,) = load(path)
    text = io.StringIO()
    show(run, Console(file=text, width=200, no_color=True))
    body = "\n".join(line.rstrip() for line in text.getvalue().strip("\n").splitlines())
    command = run.command.replace("python -m grader grade", "make grade")
    for option in ("from", "tier", "lab"):
        command = command.replace(f"--{option} ", f"{option.upper()}=")
    return f"```\n$ {command}\n{body}\n```\n"


def _policy(root: Path) -> str:
    """The names that a lab file may use, with what single labs add."""
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
    """How many specimens of each corpus got the verdict of their first line."""
    record = json.loads(path.read_text("utf-8"))
    lines = ["| corpus | as expected | of | slowest, s |", "|---|---:|---:|---:|"]
    for name, one in record["corpora"].items():
        lines.append(f"| {name} | {one['held']} | {one['of']} | {one['slowest_s']:.1f} |")
    return "\n".join([*lines, "", f"{record['machine']}.", ""])


def _recovery(path: Path) -> str:
    """What a worker in trouble in the middle of its rounds cost, and the file that was graded after it."""
    record = json.loads(path.read_text("utf-8"))
    lines = [
        "| trouble | verdict | after, s | next file, s | before, s | its percent | GPU memory kept |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {one['trouble']} | {one['verdict']} | {one['verdict_s']:.1f} | {one['next_s']:.1f} "
        f"| {one['usual_s']:.1f} | {100 * one['moved']:+.2f} % | {one['left_bytes'] / 2**20:.0f} MiB |"
        for one in record["recovery"]
    ]
    return "\n".join([*lines, "", f"{record['machine']}.", ""])


def _cost(path: Path) -> str:
    """What confinement costs: the same files graded without it and then with it, on one warm machine."""
    runs = load(path)
    lines = ["| workers | s | points |", "|---|---:|---:|"]
    lines += [f"| {run.assurance} | {run.seconds:.1f} | {run.points:.1f} |" for run in runs]
    more = 100 * (runs[-1].seconds / runs[0].seconds - 1)
    return "\n".join([*lines, "", f"{more:+.1f} %; {_machine(runs[-1])}.", ""])


def _bench(path: Path) -> str:
    """One table an operation: a row a size, a column an arm, its rate and, in brackets, the ratio."""
    record = BenchRecord.model_validate_json(path.read_text("utf-8"))
    lines = []
    for op in record.ops:
        names = list(dict.fromkeys(name for one in op.sizes for name in one.arms))
        lines += [
            f"**{op.name}**, {op.dtype}, {op.unit} (ratio to the baseline, in bold)",
            "",
            f"| size | {' | '.join(names)} | our best, interval | % of copy | % of peak |",
            "|---|" + "---:|" * (len(names) + 3),
        ]
        for one in op.sizes:
            cells = [_bench_cell(one.arms.get(name), name == one.baseline) for name in names]
            rated = [arm for name, arm in one.arms.items() if name.split()[0] == "ours" and arm.rate]
            mine = max(rated, key=lambda arm: arm.rate, default=None)
            low_high = f"{mine.interval[0]:.3f} to {mine.interval[1]:.3f}" if mine and mine.interval else "-"
            shares = [mine.percent_of_copy, mine.percent_of_limit] if mine else [None, None]
            cells += [low_high, *("-" if share is None else f"{share:.1f}" for share in shares)]
            size = ", ".join(f"{key}={value}" for key, value in one.size.items())
            lines.append(f"| {size}{', graph' if one.method == 'graph' else ''} | {' | '.join(cells)} |")
        lines += ["", *(line for trouble in op.troubles for line in (f"{op.name}: {trouble}.", ""))]
    lines += [line for words in record.skipped for line in (f"Not measured: {words}.", "")]
    words = f"{record.machine.words}, Liger-Kernel {record.liger or 'not installed'}"
    lines += [
        f"{words}, {record.date[:10]}; processes of each operation: {record.processes}.",
        "",
    ]
    return "\n".join(lines)


def _bench_cell(arm, is_baseline: bool) -> str:
    """Rate and ratio of one arm, or why it has none."""
    if arm is None:
        return "-"
    if arm.rate is None:
        return arm.status
    ratio = "" if arm.ratio is None else f" ({arm.ratio:.2f})"
    rate = f"{arm.rate:.0f}" if arm.rate >= 100 else f"{arm.rate:.2f}"
    return f"**{rate}**" if is_baseline else f"{rate}{ratio}"


RENDERERS = {
    "bench": _bench,
    "profile": profile_table,
    "survey": survey_table,
    "cost": _cost,
    "class": cost_table,
    "recovery": _recovery,
    "corpora": _corpora,
    "speed": _speed,
    "points": _points,
    "regrades": _regrades,
    "report": _report,
    "policy": _policy,
}
