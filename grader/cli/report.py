"""The command that writes a page about a graded run.

It grades nothing, never imports torch, and imports jinja2 only when it writes.
"""

from __future__ import annotations

import shlex
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
    help="folder that grade wrote to, or a results.json under any name",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="file to write; by default report.html in the folder of the results",
)
@option("--open", "shown", is_flag=True, make="OPEN", help="open the page in a browser")
def report(results, out, shown):
    """Write an HTML page about a graded run from its results.json: error maps, timing rounds, next step."""
    from grader.report.page.command import PAGE, ReportError, read, write

    # A record under another name may be in a folder that is not meant for reports.
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
        click.echo("no browser was found; open the file yourself", err=True)


def how_to_see(folder: Path) -> str:
    """Return the command that writes the page of a run with results in `folder`."""
    return "make report" if folder == RESULTS else f"make report RESULTS={shlex.quote(str(folder))}"
