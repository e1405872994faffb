"""The command line, `python -m grader`; commands that only read files import neither torch nor pytest."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Collection
from pathlib import Path

import click
from rich.console import Console

from grader import __version__
from grader.cli import classroom
from grader.cli import development as cli_development
from grader.cli import export as cli_export
from grader.cli import figures as cli_figures
from grader.cli import gradebook as cli_gradebook
from grader.cli import measure as cli_measure
from grader.cli import notebooks as cli_notebooks
from grader.cli import release as cli_release
from grader.cli import report as cli_report
from grader.cli import student as cli_student
from grader.cli.options import Commands, run_option, run_options, typed
from grader.cli.shared import Ended, entries_of, writable
from grader.course import catalog
from grader.course.spec import lab_word
from grader.course.submission import Submission
from grader.course.todos import regions_in
from grader.grading.options import RunOptions, command_of
from grader.system import standby
from grader.system.exit_codes import BELOW, FAULT, USAGE

IDLE_S = 600.0  # a standby ends when nobody has used it for so long


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
@click.option(
    "--variable",
    "variables",
    multiple=True,
    hidden=True,
    metavar="NAME=TEXT",
    help="a variable of the Makefile",
)
def main(variables):
    """Grade Triton kernels on a CPU or a GPU."""


for command in (
    cli_measure.bench,
    cli_measure.profile,
    cli_measure.tuning,
    cli_measure.survey,
    cli_measure.log,
    cli_measure.check_log,
    cli_measure.sanitize,
    cli_report.report,
    cli_figures.figures,
    cli_figures.show,
    cli_development.architecture,
    cli_development.picture,
    cli_development.record_coverage,
    cli_development.toolchains,
    cli_development.student_loop,
    cli_release.release,
    cli_student.watch,
    cli_student.hint,
    cli_student.reset,
    cli_notebooks.notebook,
    cli_notebooks.notebooks,
    classroom.grade_class,
    classroom.verify,
    classroom.rescore,
    classroom.synthetic_class,
    classroom.class_cost,
    cli_gradebook.gradebook,
    cli_gradebook.erase,
    cli_export.export,
    cli_export.autograder,
):
    main.add_command(command)


@main.command()
@run_options
def grade(**asked):
    """Grade, show the report, and write results.json, summary.md and junit.xml."""
    options = RunOptions(**asked)
    if not standby.is_wanted() or options.tier == "gpu":
        raise Ended(_graded(options))
    code = standby.run(typed())
    try:
        raise Ended(_graded(options) if code is None else code)
    finally:
        standby.start([sys.executable, "-m", "grader", "ready", "--standby", "--tier", "cpu"])


@main.command(hidden=True)
@run_option("tier")
@click.option("--standby", "stands_by", is_flag=True)
def ready(tier, stands_by):
    """Prepare a run, and run the command that comes: a line of JSON on standard input, or one handed over."""
    from grader.grading.prepared import prepare
    from grader.worker.session import Session

    if stands_by:
        _stand_by(tier)
        return
    prepare(tier)
    try:
        if line := sys.stdin.readline():
            main(json.loads(line))
    finally:
        Session.close_prepared()


def _stand_by(tier: str) -> None:
    """Prepare a run, make the one that is handed over, and tell its exit code."""
    from grader.grading.prepared import prepare
    from grader.worker.session import Session

    waiting = standby.Standby()  # first: who asks meanwhile waits for less than a run without it takes
    prepare(tier)
    code = FAULT
    try:
        if wanted := waiting.take(IDLE_S):
            wanted.apply()
            threading.Thread(target=waiting.end_with_asker, daemon=True).start()
            main(wanted.arguments, prog_name="python -m grader")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else FAULT
        raise
    finally:
        Session.close_prepared()
        sys.stdout.flush()
        sys.stderr.flush()
        waiting.done(code)


def _graded(options: RunOptions) -> int:
    """Grade and report; return the exit code."""
    from grader.grading import prepared, stop

    console = Console(soft_wrap=True)
    began = time.monotonic()
    with stop.at_ctrl_c(console.is_terminal), prepared.early(options.tier):
        entries = entries_of(options.labs)
        words = ", ".join(dict.fromkeys(lab_word(entry.folder.name, entry.number) for entry in entries))
        console.print(f"grader {__version__}: {words} from {options.source}", highlight=False, markup=False)
        from grader.grading import collect, plugin, pytest_run, selection
        from grader.grading.progress import Follower, ProgressPlugin, Teller
        from grader.report import exports, terminal
        from grader.results import by_lab
        from grader.student import what_next

        folder, keyword = writable(options.results), options.keyword
        keeper = _Keeper(by_lab.failed(folder) if options.source == terminal.LABS else set())
        shown = Follower(console, announces=False) if options.tell is None else Teller(options.tell)
        follower = ProgressPlugin(shown)
        pytest_run.run(entries, options, [keeper, follower], ["--junitxml", str(folder / "junit.xml")])
    if keeper.config is None or plugin.ANSWERS not in keeper.config.stash:
        return USAGE
    answered, run = keeper.config.stash[plugin.ANSWERS], keeper.config.stash[plugin.RUN]
    for broken in follower.broken:
        click.echo(f"GRADER FAULT  {broken}", err=True)
    if not answered:
        why = selection.nothing_matches(keyword, keeper.names) if keyword else "nothing was graded"
        click.echo(why, err=True)
        return FAULT if follower.broken else USAGE
    graded = collect.collect(
        answered,
        run,
        command=command_of(typed()),
        seconds=time.monotonic() - began,
        gpu_missing=keeper.config.stash[plugin.GPU_MISSING],
    )
    terminal.show(graded, console)
    try:
        exports.write(graded, folder)
        exports.sign_junit(graded, folder / "junit.xml")
        console.print(
            f"written: {folder}/results.json, summary.md, junit.xml",
            style="dim",
            highlight=False,
            markup=False,
        )
        seen = f"for a page with error maps and timing rounds: {cli_report.how_to_see(folder)}"
        console.print(seen, style="dim", highlight=False, markup=False)
        if options.source == terminal.LABS and not keyword:
            by_lab.keep(graded, folder)
    except OSError as error:
        click.echo(f"{folder}: the reports could not be written: {error.strerror}", err=True)
        return FAULT
    for line in what_next.lines(graded, by_lab.read(folder), keyword):
        console.print(line, style="bold", highlight=False, markup=False, soft_wrap=True)
    if follower.broken or any(outcome.verdict.value == "GRADER_FAULT" for _, outcome, _ in answered):
        return FAULT
    if options.least is not None and graded.points < options.least:
        console.print(
            f"below the {options.least:g} points that --min requires", highlight=False, markup=False
        )
        return BELOW
    return 0


class _Keeper:
    """Keeps pytest's configuration, in which the plugin stores the answers, and what `failed` before."""

    def __init__(self, failed: Collection[str]):
        self.config, self._failed = None, failed
        self.names: list[str] = []  # of all items, before any is left out

    def pytest_grader_failed_before(self):
        """Return the ids of the items that failed in the last run."""
        return self._failed

    def pytest_configure(self, config):
        """Keep the configuration."""
        self.config = config

    def pytest_itemcollected(self, item):
        """Keep the name of an item."""
        self.names.append(item.name)


@main.command("list")
def list_labs():
    """List the labs with their exercises and points."""
    for entry in catalog.find():
        click.echo(
            f"lab {entry.number}  {entry.lab.title}, {entry.lab.points:g} points  ({entry.folder.name})"
        )
        for exercise in entry.lab.exercises:
            click.echo(f"       {exercise.name} in {exercise.file}, {len(exercise.cases)} cases")


@main.command()
@run_option("labs")
@run_option("source", help="tree to search")
def todo(labs, source):
    """List every open TODO with its line, and how many of each file are done."""
    count = 0
    for entry in entries_of(labs):
        for file in dict.fromkeys(
            entry.submission(Path(source), exercise) for exercise in entry.lab.exercises
        ):
            if not file.is_file():
                click.echo(f"{file}: missing")
            if not file.is_file() or file.suffix not in (".py", ".cu"):
                continue
            submission = Submission.read(file)
            left = submission.open_todos
            text = "" if submission.obstacle else submission.text
            every = regions_in(text) | {task.number for task in left}
            if every:
                click.echo(f"{file}: {len(every) - len(left)} of {len(every)} done")
            for task in left:
                count += 1
                click.echo(f"{file}:{task.line}  TODO {task.number}: {task.text}")
    click.echo(f"{count} open" if count else "none open")


@main.command()
@click.option("--check", is_flag=True, help="write nothing; exit with 1 if a skeleton is out of date")
def skeletons(check):
    """Write labs/ from the marked solutions; refuses to overwrite uncommitted work."""
    from grader.course.skeleton import UncommittedWork, outdated, write_skeletons

    try:
        if check:
            found = outdated(catalog.ROOT)
            for path in found:
                click.echo(
                    f"{path.relative_to(catalog.ROOT)} differs from its solution: run `make skeletons`"
                )
            sys.exit(BELOW if found else 0)
        written = write_skeletons(catalog.ROOT)
    except (UncommittedWork, ValueError) as error:
        raise click.ClickException(str(error)) from None
    for path in written:
        click.echo(f"wrote {path.relative_to(catalog.ROOT)}")


@main.command()
@run_option("labs", required=True, help="numbers of the labs")
@run_option("source")
@run_option("keyword")
@click.option(
    "--times", default=10, show_default=True, help="how many gradings, including those already in the record"
)
@run_option("results")
def regrade(labs, source, keyword, times, results):
    """Grade the same files several times, and show how much the percentages vary.

    If the results folder has a record of the same files, the command continues it.
    """
    from grader.grading import regrade as regrades
    from grader.site.tables import RENDERERS

    record = writable(results) / "regrades.json"
    try:
        for number in regrades.grade_again(RunOptions(labs, source, keyword=keyword), record, times):
            click.echo(f"{number} of {times}")
    except regrades.RegradeError as error:
        raise click.ClickException(str(error)) from None
    click.echo(RENDERERS["regrades"](record))


@main.command()
def tables():
    """Write the tables in READMEs and the plots again from the records and the permitted names."""
    from grader.measure.bench.plots import write
    from grader.site import graded_run
    from grader.site.tables import PAGES, bench_records, rewrite

    for name in PAGES:
        path = catalog.ROOT / name
        before = path.read_text("utf-8")
        after = rewrite(before, catalog.ROOT)
        path.write_text(after, "utf-8")
        click.echo(f"{name}: {'rewritten' if after != before else 'already up to date'}")
    folder = catalog.ROOT / "solutions" / "results"
    drawn = write(bench_records(folder), folder / "plots", kinds=(".svg",))
    click.echo(f"{len(drawn)} plots in {(folder / 'plots').relative_to(catalog.ROOT)}")
    click.echo(f"drew {graded_run.write().relative_to(catalog.ROOT)}")


@main.command()
def schema():
    """Print the JSON Schema of results.json."""
    from grader.results.models import schema as model_schema

    click.echo(model_schema())


@main.command()
@run_option("labs")
@run_option("source", help="tree that has the file")
@run_option("arch", help="GPU to compile for; this machine need not have it", make="ARCH")
@click.option(
    "--out",
    "folder",
    default="results/inspect",
    show_default=True,
    type=click.Path(path_type=Path),
    help="folder for PTX and SASS",
)
def inspect(labs, source, arch, folder):
    """Compile the launches of a lab for a GPU and show the generated code."""
    from grader.student.inspect import inspect_lab

    for entry in entries_of(labs):
        inspect_lab(entry, Path(source), arch, folder, Console(soft_wrap=True))


@main.command()
def doctor():
    """Run a known kernel on each tier, and say what this machine can grade, and why not the rest."""
    from grader.student.doctor import examine

    sys.exit(0 if examine(Console(soft_wrap=True)) else FAULT)
