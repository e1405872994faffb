"""The command that shows a graded run as a page; it grades nothing and imports neither torch nor jinja2
before it must.
"""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path

import click

from grader.cli.options import option, run_option
from grader.grading.options import DECLARED
from grader.system.exit_codes import FAULT, USAGE

RESULTS = DECLARED["results"].default


@click.command()
@run_option(
    "results",
    make="RESULTS",
    help="the folder that grade wrote to, or a results.json under any name",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="where the page goes; report.html in the folder of the results by default",
)
@option("--open", "shown", is_flag=True, make="OPEN", help="open the page in a browser")
def report(results, out, shown):
    """Write one HTML page on a graded run, from its results.json: error maps, timing rounds, next step."""
    from grader.report.page.command import PAGE, ReportError, read, write

    # A record under another name may lie in a folder that is not for what a run writes.
    out = out or (RESULTS if results.suffix == ".json" else results) / PAGE
    try:
        graded = read(results)
    except ReportError as error:
        click.echo(str(error), err=True)
        sys.exit(USAGE)
    try:
        write(graded, out)
    except OSError as error:
        click.echo(f"{out}: cannot be written ({error.strerror}); --out names another file", err=True)
        sys.exit(FAULT)
    click.echo(f"wrote {out}")
    if shown and not webbrowser.open(out.resolve().as_uri()):
        click.echo("no browser was found here: open the file yourself", err=True)


def how_to_see(folder: Path) -> str:
    """The command that makes the page of a run whose results lie in `folder`."""
    return "make report" if folder == RESULTS else f"python -m grader report --results {folder}"
