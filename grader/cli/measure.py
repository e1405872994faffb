"""The commands that measure on a GPU."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from grader.cli.options import option, run_option, typed
from grader.cli.shared import writable
from grader.codegen import nvcc as native
from grader.course import catalog
from grader.grading.options import command_of
from grader.measure import sanitize as sanitizing
from grader.system.exit_codes import BELOW, FAULT, INTERRUPTED
from grader.system.gpu import find
from grader.system.gpu_lock import GpuLock


def tree(words: str):
    """The option for a tree laid out like labs/."""
    return run_option("source", type=click.Path(path_type=Path), help=words)


def _typed() -> str:
    """Return the command as typed, without the folders of this machine."""
    return command_of([re.sub(r"(?<![^=])/.*/", "", word) for word in typed()])


@contextlib.contextmanager
def _wrong_usage():
    """Turn an unknown operation or contradicting options into a usage error."""
    from grader.measure.bench.run import OPS

    try:
        yield
    except KeyError as unknown:
        known = ", ".join(op.name for op in OPS)
        raise click.UsageError(f"--op {unknown.args[0]}: the operations are {known}") from None
    except ValueError as wrong:
        raise click.UsageError(str(wrong)) from None


def _gpu_for(who: str):
    """Return the GPU to measure on; exit if there is none."""
    found, missing = find()
    if not found:
        click.echo(f"{who} needs an NVIDIA GPU with its driver: {missing}", err=True)
        sys.exit(FAULT)
    return found


@contextlib.contextmanager
def _measuring(found, *columns):
    """Show progress while this command holds the lock of the GPU; Ctrl-C ends the command."""
    from grader.grading.progress import Follower

    follower = Follower(Console(soft_wrap=True), *columns)
    try:
        with GpuLock(found.uuid_hash):
            yield follower
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        follower.end()


@click.command()
@option("--op", "names", multiple=True, make="OP", help="an operation; by default those of all labs")
@run_option("labs", help="the operations of labs, as in 1,3, or of the capstone")
@option("--quick", is_flag=True, make="QUICK", help="two sizes for each operation, one process, fewer rounds")
@tree("tree with the kernels: labs, solutions, or any folder like them")
@click.option(
    "--variants",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="another file with the same functions, measured as one more arm",
)
@click.option(
    "--file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="measure this file as ours; needs one --op",
)
@click.option("--size", help="measure only this size, as in m=4096,n=4096,k=4096")
@click.option(
    "--processes",
    type=click.IntRange(1),
    help="processes for each operation; by default 3, or 1 with --quick",
)
@run_option("results")
@click.option("--child", type=int, hidden=True, help="measure in this process, which has this number")
def bench(names, labs, quick, source, variants, file, size, processes, results, child):
    """Time kernels beside PyTorch, torch.compile and Liger-Kernel; write bench.json and figures."""
    found = _gpu_for("bench")
    from grader.measure.bench import run as runs

    processes = processes or (1 if quick else 3)
    with _wrong_usage():
        only = runs.size_of(size) if size else None
        request = runs.Request(
            source, names, quick, variants, processes, _typed(), lab=labs, file=file, size=only
        )
        request.ops()
    if child is not None:
        runs.child(request, child)
        return
    from rich.progress import TimeRemainingColumn

    from grader.measure.bench import plots as bench_plots
    from grader.site.tables import RENDERERS

    path = writable(results) / "bench.json"
    with _measuring(found, TimeRemainingColumn()) as follower:
        record = runs.run(request, found, path, follower)
    if not record.ops:
        click.echo("nothing was measured", err=True)
        sys.exit(FAULT)
    bench_plots.write([record], results / "bench")
    click.echo(RENDERERS["bench"](path))
    click.echo(f"written: {path}, figures in {results / 'bench'}")
    if labs == "capstone":
        from grader.measure.bench import hand_in

        for handed in hand_in.write(record, catalog.capstone_in(source)):
            click.echo(f"written: {handed}, figures beside it")
    if not any(one.sizes for one in record.ops):
        sys.exit(FAULT)


@click.command()
@option("--op", "names", multiple=True, make="OP", required=True, help="an operation of the bench")
@tree("tree with the kernels: labs, solutions, or any folder like them")
@option(
    "--file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    make="FILE",
    help="profile this file as ours; needs one --op",
)
@option(
    "--size",
    "sizes",
    multiple=True,
    make="SIZE",
    help="as in m=4096,n=4096,k=4096; by default those of bench --quick",
)
@run_option("results")
def profile(names, source, file, sizes, results):
    """Profile the kernels of a call with Nsight Compute; write profile.json and show its table."""
    found = _gpu_for("profile")
    from grader.measure.kernel_log import profiles

    with _wrong_usage():
        calls = profiles.calls(source, names, file, sizes)
    path = writable(results) / "profile.json"
    with _measuring(found) as follower:
        record = profiles.run(calls, found, _typed(), path, follower)
    click.echo(profiles.render(record))
    click.echo(f"written: {path}")
    if not any(one.kernels for one in record.calls):
        click.echo("nothing was counted", err=True)
        sys.exit(FAULT)


@click.command()
@option("--op", "names", multiple=True, make="OP", required=True, help="a matrix product of the bench")
@tree("tree with the kernels: labs, solutions, or any folder like them")
@option(
    "--file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    make="FILE",
    help="measure this file as ours; needs one --op",
)
@option(
    "--size", "sizes", multiple=True, make="SIZE", help="as in m=4096,n=4096,k=4096; 1024 to 8192 by default"
)
@option("--wide", is_flag=True, make="WIDE", help="also measure configs that the file does not list")
@run_option("results")
@click.option("--child", is_flag=True, hidden=True, help="measure in this process")
def tuning(names, source, file, sizes, wide, results, child):
    """Time every config of an autotuned kernel beside the config its autotuner chose; write tuning.json."""
    found = _gpu_for("tuning")
    from grader.measure.bench import run as runs
    from grader.measure.bench import tuning as tunings

    with _wrong_usage():
        only = [runs.size_of(text) for text in sizes]
        checked = [
            runs.Request(source, names, False, (), 1, _typed(), file=file, size=one) for one in only or [None]
        ]
        ops, *_ = [one.ops() for one in checked]  # the same for each size, but any size may be wrong
        wanted = tunings.asked(checked[0], only, wide)
    if child:
        from grader.measure.bench import tuning_child

        tuning_child.child(ops[0], file, only, wide)
        return
    path = writable(results) / "tuning.json"
    with _measuring(found) as follower:
        record = tunings.run(wanted, found, _typed(), path, follower)
    click.echo(tunings.render(record))
    click.echo(f"written: {path}")
    if not any(one.sizes for one in record.kernels):
        click.echo("nothing was measured", err=True)
        sys.exit(FAULT)


@click.command()
@tree("tree to write to")
@option("--quick", is_flag=True, make="QUICK", help="fewer sizes and rounds")
@option(
    "--redraw",
    is_flag=True,
    make="REDRAW",
    help="write tables and plots again from the records, without a GPU",
)
def survey(source, quick, redraw):
    """Query and measure the GPU: bandwidth, matmul rates, latencies, roofline of the capstone's kernels."""
    from grader.measure.survey.command import survey as run

    sys.exit(run(source, quick, redraw, _typed(), Console(soft_wrap=True)))


@click.command()
@click.option("--step", "prediction", required=True, help="what you expect from this step, and why")
@tree("tree of the capstone")
@option(
    "--file",
    type=click.Path(path_type=Path),
    make="FILE",
    help="file of the kernel; by default the file changed last",
)
@option("--size", make="SIZE", help="measure this size, as in m=4096,n=4096,k=4096")
def log(prediction, source, file, size):
    """Measure a step of a kernel and add it to KERNEL_LOG.md: prediction, change, figures, verdict."""
    found = _gpu_for("log")
    from grader.measure.bench.run import size_of
    from grader.measure.kernel_log import step
    from grader.measure.kernel_log.store import LogError
    from grader.measure.kernel_log.tools import tools

    try:
        asked = size_of(size) if size else None
    except ValueError as wrong:
        raise click.UsageError(str(wrong)) from None
    with _measuring(found) as follower:
        try:
            real = tools(source, found, follower, _typed())
            step.log(catalog.capstone_in(source), prediction, real, file, asked, click.echo)
        except LogError as error:
            raise click.ClickException(str(error)) from None


@click.command("check-log")
@tree("tree to check")
def check_log(source):
    """Show what in KERNEL_LOG.md differs from the records: numbers, steps, files."""
    from grader.measure.kernel_log.check import check, summary

    capstone = catalog.capstone_in(source)
    found = check(capstone)
    for words in found:
        click.echo(words)
    if found:
        sys.exit(BELOW)
    steps = ", ".join(f"{op} {one.steps}" for op, one in summary(capstone).items())
    click.echo(f"every number is as recorded; steps: {steps}")


@click.command()
@run_option("keyword", help="only files whose path contains this, as in reduction/05")
@tree("tree with the files")
@click.option(
    "--tool", "tools", multiple=True, type=click.Choice(list(sanitizing.TOOLS)), help="all by default"
)
def sanitize(keyword, source, tools):
    """Run the capstone's CUDA files under compute-sanitizer: memory, races, initialisation, barriers."""
    found, missing = find()
    nvcc, tool_path = native.compiler(), sanitizing.sanitizer()
    for name, there in (("an NVIDIA GPU", found), ("nvcc", nvcc), ("compute-sanitizer", tool_path)):
        if not there:
            click.echo(
                f"sanitize needs {name}{f': {missing}' if not found else ', of a CUDA toolkit'}", err=True
            )
            sys.exit(FAULT)
    files = [path for path in sanitizing.files(catalog.capstone_in(source)) if keyword in str(path)]
    if not files:
        raise click.UsageError(f"no finished .cu file below {source} whose path contains {keyword!r}")
    arch = native.arch_name(*divmod(found.capability, 10))
    console, states = Console(soft_wrap=True), set()
    with GpuLock(found.uuid_hash):
        for one in sanitizing.examine(files, arch, nvcc, tool_path, tools or tuple(sanitizing.TOOLS)):
            style = {"clean": "green", "found": "red"}.get(one.state, "yellow")
            name = f"{one.file.parent.name}/{one.file.name}"
            console.print(Text(f"{name:<44}{one.tool:<11}{one.state:<9}{one.words}", style=style))
            states.add(one.state)
    sys.exit(BELOW if "found" in states else FAULT if "not run" in states else 0)
