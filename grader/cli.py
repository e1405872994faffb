"""The command line, `python -m grader`; what answers from files alone imports neither torch nor pytest."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
from rich.console import Console

from grader import (
    __version__,
    catalog,
    cli_class,
    cli_export,
    cli_figures,
    cli_gradebook,
    cli_measure,
    cli_notebooks,
    cli_release,
    cli_report,
    cli_student,
)
from grader.cli_shared import BELOW, FAULT, INTERRUPTED, TIERS, USAGE, command_of, entries_of, writable
from grader.spec import lab_word
from grader.todos import open_errors, open_todos


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main():
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
    cli_release.release,
    cli_student.watch,
    cli_student.hint,
    cli_student.reset,
    cli_notebooks.notebooks,
    cli_class.grade_class,
    cli_class.verify,
    cli_class.synthetic_class,
    cli_class.class_cost,
    cli_gradebook.gradebook,
    cli_export.export,
    cli_export.autograder,
):
    main.add_command(command)


@main.command()
@click.option("--lab", "labs", help="numbers of the labs, as in 2 or 1,3, or capstone; all labs by default")
@click.option(
    "--from",
    "source",
    default="labs",
    show_default=True,
    help="tree to grade: labs, solutions, any folder like them, or reference",
)
@click.option(
    "--tier", type=TIERS, default="auto", show_default=True, help="auto takes the GPU where there is one"
)
@click.option("--seed", type=int, help="seed of the inputs, for a replay")
@click.option("-k", "keyword", help="only items whose name matches, as in pytest")
@click.option(
    "--screen/--no-screen", default=True, help="read each file for what is not permitted before it is run"
)
@click.option("--confine/--no-confine", default=True, help="run each file with no rights it does not need")
@click.option("--min", "least", type=float, help="exit with 1 below this many points")
@click.option("--arch", default="sm_90", show_default=True, help="GPU to compile for where code is inspected")
@click.option("--hidden", type=click.Path(), help="TOML file with further cases, which no report gives away")
@click.option(
    "--results",
    "folder",
    default="results",
    show_default=True,
    type=click.Path(path_type=Path),
    help="where the reports go",
)
@click.option("--tell", type=int, hidden=True, help="descriptor to tell the progress to, in place of a bar")
def grade(labs, source, tier, seed, keyword, screen, confine, least, arch, hidden, folder, tell):
    """Grade, show the report, and write results.json, summary.md and junit.xml."""
    console = Console(soft_wrap=True)
    began = time.monotonic()
    entries = entries_of(labs)
    words = ", ".join(dict.fromkeys(lab_word(entry.folder.name, entry.number) for entry in entries))
    console.print(f"grader {__version__}: {words} from {source}", highlight=False, markup=False)
    import pytest

    from grader import exports, graded_pytest, plugin, report, results
    from grader.progress import Follower, ProgressPlugin, Teller

    folder = writable(folder)
    arguments = [
        "--junitxml",
        str(folder / "junit.xml"),
        "--from",
        source,
        "--tier",
        tier,
        "--arch",
        str(_arch(arch)),
    ]
    arguments += ["--seed", str(seed)] if seed is not None else []
    arguments += ["-k", keyword] if keyword else []
    arguments += ["--hidden", hidden] if hidden else []
    arguments += [] if screen else ["--no-screen"]
    arguments += [] if confine else ["--no-confine"]
    keeper = _Keeper()
    follower = ProgressPlugin(Follower(console) if tell is None else Teller(tell))
    code = graded_pytest.run(entries, arguments, [keeper, follower])
    if keeper.config is None or plugin.ANSWERS not in keeper.config.stash:
        sys.exit(USAGE)
    answered, run = keeper.config.stash[plugin.ANSWERS], keeper.config.stash[plugin.RUN]
    for broken in follower.broken:
        click.echo(f"GRADER FAULT  {broken}", err=True)
    if not answered:
        click.echo(f"nothing matches -k {keyword!r}" if keyword else "nothing was graded", err=True)
        sys.exit(FAULT if follower.broken else USAGE)
    graded = results.collect(
        answered,
        run,
        run.file,
        command=command_of(sys.argv[1:]),
        seconds=time.monotonic() - began,
        gpu_missing=keeper.config.stash[plugin.GPU_MISSING],
    )
    report.show(graded, console)
    try:
        exports.write(graded, folder)
        exports.sign_junit(graded, folder / "junit.xml")
        console.print(
            f"written: {folder}/results.json, summary.md, junit.xml",
            style="dim",
            highlight=False,
            markup=False,
        )
        seen = f"for a page with error maps, timing rounds and the next step: {cli_report.how_to_see(folder)}"
        console.print(seen, highlight=False, markup=False)
    except OSError as error:
        click.echo(f"{folder}: the reports could not be written: {error.strerror}", err=True)
        sys.exit(FAULT)
    if code == pytest.ExitCode.INTERRUPTED:
        sys.exit(INTERRUPTED)
    if follower.broken or any(outcome.verdict.value == "GRADER_FAULT" for _, outcome, _ in answered):
        sys.exit(FAULT)
    if least is not None and graded.points < least:
        console.print(f"below the {least:g} points asked for", highlight=False, markup=False)
        sys.exit(BELOW)


class _Keeper:
    """Holds on to pytest's configuration, where the plugin keeps the answers."""

    config = None

    def pytest_configure(self, config):
        """Remember it."""
        self.config = config


def _arch(text: str) -> int:
    digits = text.lower().removeprefix("sm_").rstrip("af")
    if not digits.isdigit():
        raise click.UsageError(f"--arch {text}: write it as sm_90")
    return int(digits)


@main.command("list")
def list_labs():
    """The labs with their exercises and points."""
    for entry in catalog.find():
        click.echo(
            f"lab {entry.number}  {entry.lab.title}, {entry.lab.points:g} points  ({entry.folder.name})"
        )
        for exercise in entry.lab.exercises:
            click.echo(f"       {exercise.name} in {exercise.file}, {len(exercise.cases)} cases")


@main.command()
@click.option("--lab", "labs", help="numbers of the labs; all by default")
@click.option("--from", "source", default="labs", show_default=True, help="tree to look at")
def todo(labs, source):
    """Every TODO that is still open, with its line."""
    count = 0
    for entry in entries_of(labs):
        for file in dict.fromkeys(
            entry.submission(Path(source), exercise) for exercise in entry.lab.exercises
        ):
            if not file.is_file():
                click.echo(f"{file}: missing")
            if not file.is_file() or file.suffix not in (".py", ".cu"):
                continue
            find = open_errors if file.suffix == ".cu" else open_todos
            for task in find(file.read_text("utf-8", errors="replace")):
                count += 1
                click.echo(f"{file}:{task.line}  TODO {task.number}: {task.text}")
    click.echo(f"{count} open" if count else "none open")


@main.command()
def skeletons():
    """Write labs/ from the marked solutions; refuses to run over uncommitted work."""
    from grader.skeleton import UncommittedWork, write_skeletons

    try:
        written = write_skeletons(catalog.ROOT)
    except (UncommittedWork, ValueError) as error:
        raise click.ClickException(str(error)) from None
    for path in written:
        click.echo(f"wrote {path.relative_to(catalog.ROOT)}")


@main.command()
@click.option("--lab", "labs", required=True, help="numbers of the labs")
@click.option("--from", "source", default="labs", show_default=True, help="tree to grade")
@click.option("-k", "keyword", help="only items whose name matches, as in pytest")
@click.option("--times", default=10, show_default=True, help="how often, those of a record begun counted in")
@click.option("--results", "folder", default="results", show_default=True, type=click.Path(path_type=Path))
def regrade(labs, source, keyword, times, folder):
    """Grade the same files again and again, and say how far the percentages lie apart.

    A record of the same files in the folder for the results is gone on with.
    """
    from grader import regrades
    from grader.tables import RENDERERS

    record = writable(folder) / "regrades.json"
    asked = ["grade", "--lab", labs, "--from", source, *(["-k", keyword] if keyword else [])]
    try:
        for number in regrades.grade_again(asked, command_of(asked), Path(source), record, times):
            click.echo(f"{number} of {times}")
    except regrades.RegradeError as error:
        raise click.ClickException(str(error)) from None
    click.echo(RENDERERS["regrades"](record))


@main.command()
def tables():
    """Write figures in READMEs, and plots, again from the records, and the names that a lab permits."""
    from grader.bench.plots import write
    from grader.tables import PAGES, bench_records, rewrite

    for name in PAGES:
        path = catalog.ROOT / name
        before = path.read_text("utf-8")
        after = rewrite(before, catalog.ROOT)
        path.write_text(after, "utf-8")
        click.echo(f"{name}: {'rewritten' if after != before else 'already says what the records say'}")
    folder = catalog.ROOT / "solutions" / "results"
    drawn = write(bench_records(folder), folder / "plots", kinds=(".svg",))
    click.echo(f"{len(drawn)} plots in {(folder / 'plots').relative_to(catalog.ROOT)}")


@main.command()
def schema():
    """The JSON Schema of results.json."""
    import json

    from grader.results import schema as model_schema

    click.echo(json.dumps(model_schema(), indent=1))


@main.command()
@click.option("--lab", "labs", help="numbers of the labs; all by default")
@click.option("--from", "source", default="labs", show_default=True, help="tree with the file")
@click.option("--arch", default="sm_90", show_default=True, help="GPU to compile for; it need not be there")
@click.option(
    "--out",
    "folder",
    default="results/inspect",
    show_default=True,
    type=click.Path(path_type=Path),
    help="where PTX and SASS go",
)
def inspect(labs, source, arch, folder):
    """Compile the launches of a lab for a GPU and show what became of them."""
    from grader.inspection import inspect_lab

    for entry in entries_of(labs):
        inspect_lab(entry, Path(source), _arch(arch), folder, Console(soft_wrap=True))


@main.command()
def doctor():
    """Run a known kernel on each tier, and say what this machine can grade and why not more."""
    from grader.doctor import examine

    sys.exit(0 if examine(Console(soft_wrap=True)) else FAULT)
