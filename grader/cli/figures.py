"""The command that writes the course's interactive figures."""

from __future__ import annotations

import sys

import click

from grader.cli.options import option
from grader.system.exit_codes import FAULT


@click.command()
@option(
    "--screenshots",
    is_flag=True,
    make="SCREENSHOTS",
    help="also take screenshots, light and dark, with Chromium",
)
def figures(screenshots):
    """Write notebooks/figures/: a page and a static picture of each figure, from its data (course staff)."""
    from grader.site.figures import page
    from grader.site.figures.figure import FOLDER, names

    changed = page.write()
    known = names()
    click.echo(f"{len(known)} figures, {', '.join(known)}: {len(changed)} files changed")
    if screenshots:
        from grader.site.figures import screenshots as camera

        try:
            taken = camera.take(known, FOLDER)
        except camera.NoBrowserError as error:
            click.echo(str(error), err=True)
            sys.exit(FAULT)
        click.echo(f"{len(taken)} screenshots in {camera.PICTURES.relative_to(FOLDER)}/")
