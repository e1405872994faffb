"""What a student reads on the terminal; text only, no arithmetic on points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from grader.catalog import CAPSTONE
from grader.outcome import Outcome
from grader.questions import CODEGEN, CORRECTNESS, DOCUMENT, SPEED, Question
from grader.results import ExerciseResult, ItemResult, LabResult, Results, item_of
from grader.spec import Verdict, lab_word

WIDTH = 100
KINDS = {CORRECTNESS: "correctness", CODEGEN: "generated code", SPEED: "speed", DOCUMENT: "document"}
FAULT_ADVICE = (
    "This is a problem in the grader or the machine, not in your file. No points were taken off.",
    "Run it again; if it repeats, send results/results.json to the course staff.",
)
STYLES = {
    "PASS": "green",
    "NOT_GRADED": "dim",
    "NOT_STARTED": "cyan",
    "SLOW": "yellow",
    "INCONCLUSIVE": "yellow",
}
LABS = "labs"  # the tree that is graded by default
WAITS = "not looked at until"  # how the words for code and speed of a function with a wrong case begin
SHOWN_FRAMES = 3
SHOWN_NAMES = 6  # of cases that failed like the first
SHOWN_LINES = 12  # of an error's text
SHOWN_PRINTED = 12  # lines of what a failing file printed


def explain(question: Question, outcome: Outcome) -> list[str]:
    """The message for one item, as a test explorer shows it."""
    item = item_of(question, outcome)
    details = details_of(item, question.entry.folder.name, question.exercise.file)
    return [f"{word(item)}  {item.name}", *details]


def word(item: ItemResult) -> str:
    """`WRONG/MISMATCH`, as a person reads it."""
    return (item.verdict.value + (f"/{item.reason}" if item.reason else "")).replace("_", " ")


def details_of(item: ItemResult, folder: str, file: str, source: str = LABS) -> Iterator[str]:
    """The lines under an item's verdict: where, which pattern, why, and what to read. `source` is the graded
    tree, as `--from` names it.
    """
    path = path_of(folder, file, source)
    for todo in item.figures.get("todos", ()):
        yield f"    {path}:{todo['line']}  TODO {todo['number']}: {todo['text']}"
    label = label_of(item)
    if item.where:
        first, *rest = item.where.splitlines()
        yield f"    {label:<13} {first}"
        # Triton quotes the kernel first and gives its reason last.
        yield from (f"    {'':<13} {line}" for line in rest[-SHOWN_LINES:])
    if item.pattern:
        yield f"    {'pattern':<13} {item.pattern}"
    for frame in item.frames[:SHOWN_FRAMES]:
        yield f"    {'at':<13} {path}:{frame.get('line', '?')}  {frame.get('code', '')}"
    if item.cause:
        yield f"    {'likely cause':<13} {item.cause}"
    if item.hint:
        yield f"    {'read':<13} {readme_of(folder)}, hint {item.hint}"
    if item.printed.strip():
        lines = item.printed.strip().splitlines()
        yield f"    {'printed':<13} {lines[0]}"
        yield from (f"    {'':<13} {line}" for line in lines[1:SHOWN_PRINTED])
    if item.verdict is Verdict.GRADER_FAULT:
        yield from (f"    {line}" for line in FAULT_ADVICE)


def label_of(item: ItemResult) -> str:
    """What an item's `where` is called beside its text."""
    return {Verdict.WRONG: "first wrong" if item.kind == CORRECTNESS else "found"}.get(item.verdict, "what")


def alike(items: Sequence[ItemResult], folder: str, file: str) -> list[list[ItemResult]]:
    """Items with one verdict and one cause, or with the same message where no cause is known."""
    groups: dict[tuple, list[ItemResult]] = {}
    for item in items:
        same = (item.cause,) if item.cause else tuple(details_of(item, folder, file))
        groups.setdefault((item.verdict, *same), []).append(item)
    return list(groups.values())


def readme_of(folder: str) -> str:
    """Where a lab's hints are."""
    return path_of(folder, "README.md")


def path_of(folder: str, file: str, source: str = LABS) -> str:
    """Where a file of a lab lies, as an editor finds it; a tree outside of the checkout is not told."""
    tree = Path(source)
    tree = Path(LABS) if tree.is_absolute() or ".." in tree.parts else tree
    if folder.startswith("lab"):
        return (tree / folder / file).as_posix()
    above = CAPSTONE if tree == Path(LABS) else tree / CAPSTONE
    return (above / ("" if folder == CAPSTONE.name else folder) / file).as_posix()


def lab_lines(lab: LabResult, source: str = LABS) -> Iterator[tuple[str, str]]:
    """A lab's report, line by line, each with the style a terminal may give it, on files of `source`."""
    for exercise in lab.exercises:
        yield "", ""
        yield f"{lab_word(lab.folder, lab.number)}  {exercise.name}", "bold"
        for kind, title in KINDS.items():
            items = [item for item in exercise.items if item.kind == kind]
            if items:
                yield from _group(lab, exercise, title, items, source)
    yield "", ""
    total = f"{lab.points:.1f} / {lab.graded_points:.1f}"
    yield f"{f'{lab_word(lab.folder, lab.number)}  {lab.title}, total':<{WIDTH - 16}}{total:>14}", "bold"
    if lab.not_graded_points:
        yield f"{'not graded':<{WIDTH - 16}}{f'{lab.not_graded_points:.1f}':>14}", "dim"


def _group(lab: LabResult, exercise: ExerciseResult, title: str, items: Sequence[ItemResult], source: str):
    graded = [item for item in items if item.verdict not in (Verdict.NOT_GRADED, Verdict.GRADER_FAULT)]
    passed = [item for item in graded if item.verdict is Verdict.PASS]
    points, most = sum(item.points for item in graded), sum(item.max_points for item in graded)
    states = {item.verdict for item in graded}
    style = ""
    if states == {Verdict.NOT_STARTED}:
        word, count = "not started", ""
    elif title == "speed":
        word, count, style = "", "", "green" if len(passed) == len(graded) else "yellow"
    else:
        word = "ok" if len(passed) == len(graded) else "FAIL"
        style = "green" if word == "ok" else "red"
        count = f"{len(passed)} of {len(graded)}"
    if graded:
        score = f"{points:.1f} / {most:.1f}" if most else ""
        yield f"{f'  {title:<16}{word:<5}{count}':<{WIDTH - 16}}{score:>14}", style
    if title == "speed" and any("percent" in item.figures for item in graded):
        yield from _speed_table(graded)
        for line in next((item.printed.strip().splitlines() for item in graded if item.printed), []):
            yield f"    {line}", "dim"
    if title == "generated code":
        yield from _codegen_lines(graded)
    failed = [item for item in graded if item.verdict is not Verdict.PASS]
    yield from _failures(lab, exercise, failed, title, source)
    faults = [item for item in items if item.verdict is Verdict.GRADER_FAULT]
    yield from _failures(lab, exercise, faults, title, source)
    open_items = [item for item in items if item.verdict is Verdict.NOT_GRADED]
    for why in dict.fromkeys(item.where for item in open_items):
        same = [item for item in open_items if item.where == why]
        most = sum(item.max_points for item in same)
        shown = f"{most:.1f} points" if most else "no points"
        yield f"  NOT GRADED  {title}, {len(same)} of {len(items)}, {shown}: {why}", "dim"


def _failures(lab, exercise, items, title, source):
    """Each failure once: the first of those with one verdict and one cause in full, the others by name."""
    if not items or _said_above(lab, exercise, items):
        return
    for first, *others in alike(items, lab.folder, exercise.file):
        if first.verdict is Verdict.NOT_STARTED and title != "correctness":
            continue  # said once, under correctness
        if first.where.startswith(WAITS):
            yield f"  {first.where}", "dim"
            continue
        heading = word(first) if first.verdict is Verdict.NOT_STARTED else f"{word(first)}  {first.name}"
        yield f"  {heading}", STYLES.get(first.verdict.value, "red")
        details = (
            _slow(first, lab.folder)
            if first.verdict is Verdict.SLOW
            else details_of(first, lab.folder, exercise.file, source)
        )
        for line in details:
            yield line, ""
        if others and first.verdict is not Verdict.NOT_STARTED:
            names = ";  ".join(item.name for item in others[:SHOWN_NAMES])
            more = f";  and {len(others) - SHOWN_NAMES} more" if len(others) > SHOWN_NAMES else ""
            yield f"    {'the same':<13} {names}{more}", ""


def _said_above(lab, exercise, items) -> bool:
    """Whether an exercise of the same file, higher up, has listed the very same open TODOs."""
    todos = items[0].figures.get("todos")
    above = lab.exercises[: lab.exercises.index(exercise)]
    return todos is not None and any(
        e.file == exercise.file and e.items[0].figures.get("todos") == todos for e in above
    )


def _slow(item: ItemResult, folder: str):
    yield f"    {'likely cause':<13} {item.cause}"
    yield f"    {'read':<13} {readme_of(folder)}, hint {item.hint}"


def _speed_table(items: Sequence[ItemResult]):
    timed = [item for item in items if "percent" in item.figures]
    slowest = min(timed, key=lambda item: item.figures["percent"])
    baseline = timed[0].figures["baseline"]
    yield f"    {'shape':<30} {'yours':>12} {baseline[:14]:>14} {'percent':>9} {'interval':>15}  rate", "dim"
    for item in timed:
        f = item.figures
        low, high = f["interval"]
        rate = f"{f['teraflops']:.0f} TFLOP/s" if f["flops"] else f"{f['terabytes_per_s']:.2f} TB/s"
        peers = "".join(f", {name} {us:.0f} us" for name, us in f["peers_us"].items())
        mark = "  <- slowest" if item is slowest and len(timed) > 1 else ""
        flag = "  TIMING MISMATCH: the worker's own clock disagrees" if f["timing_mismatch"] else ""
        times = f"{f['student_us']:>9.1f} us {f['reference_us']:>11.1f} us"
        band = f"{low:.1f}-{high:.1f}"
        yield f"    {item.name:<30} {times} {f['percent']:>8.1f}% {band:>15}  {rate}{peers}{mark}{flag}", ""
        for kernel, config in f.get("configs", {}).items():
            yield f"      {kernel} ran with {config}", "dim"


def _codegen_lines(items: Sequence[ItemResult]):
    for item in items:
        if item.verdict is Verdict.PASS and item.where:
            yield f"    {item.name:<16}{item.where}", ""
    kernels = next((item.figures["kernels"] for item in items if item.figures.get("kernels")), [])
    for kernel in kernels:
        widest = (
            f"loads {kernel['load_widths'][0]} bytes wide"
            if kernel["load_widths"]
            else "no plain global loads"
        )
        tensor = kernel["tensor_core"] or "no tensor cores"
        shared = f"{kernel['shared_bytes'] // 1024} of {kernel['shared_limit'] // 1024} KB shared"
        registers = f"{kernel['registers']} registers"
        spills = f"{kernel['spill_bytes']} bytes spilled" if kernel["spill_bytes"] else "no spills"
        copies = f"{kernel['async_copies']} async copies"
        config = f": {kernel['config']}" if kernel["config"] else ""
        yield f"    {kernel['name']}{config}", "dim"
        yield (
            f"      {tensor}, {widest}, {copies}, {registers}, {spills}, {shared}",
            "dim",
        )


def show(results: Results, console: Console) -> None:
    """The whole report on a console; plain where it is piped."""
    for lab in results.labs:
        for line, style in lab_lines(lab, results.source):
            console.print(Text(line, style=style), soft_wrap=True)
    console.print()
    total = f"{results.points:.1f} / {results.graded_points:.1f}"
    console.print(Text(f"{'total':<{WIDTH - 16}}{total:>14}", style="bold"), soft_wrap=True)
    if results.not_graded_points:
        where = "a GPU" if results.tier != "gpu" else "another run"
        console.print(
            Text(
                f"{results.not_graded_points:.1f} of {results.max_points:.1f} points need {where}",
                style="dim",
            ),
            soft_wrap=True,
        )
    machine = results.machine
    name = machine.gpu["name"] if machine.gpu else "no GPU"
    console.print(
        f"{name}, torch {machine.torch}, triton {machine.triton}, tier {results.tier}, seed {results.seed}, "
        f"{results.seconds:.0f} s",
        style="dim",
        soft_wrap=True,
        highlight=False,
    )
    console.print(
        f"assurance {results.assurance}", style="dim", soft_wrap=True, highlight=False, markup=False
    )
