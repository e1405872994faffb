"""The commands that open a notebook, build and check all of them, and record what they show from a GPU."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import click
from rich.console import Console

from grader.cli.options import run_option
from grader.course import catalog
from grader.system.exit_codes import BELOW, FAULT, INTERRUPTED


@click.command()
@run_option("keyword", help="the notebook's number, or a word of its name")
def notebook(keyword):
    """Open a notebook in JupyterLab, until Ctrl-C; its kernel is the Python of this command."""
    known = sorted((catalog.ROOT / "notebooks").glob("*.ipynb"))
    meant = [path for path in known if keyword.strip() in path.stem]
    if len(meant) != 1:
        which = ", ".join(path.stem for path in (meant if keyword else known) or known)
        words = f"-k {keyword} names {len(meant)} notebooks" if keyword else "name one notebook with K"
        raise click.UsageError(f"{words}: {which}")
    if importlib.util.find_spec("jupyterlab") is None:
        click.echo("JupyterLab is not installed: make notebook installs it", err=True)
        sys.exit(FAULT)
    as_root = ["--allow-root"] if os.geteuid() == 0 else []  # a container's only user, often
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", *as_root, str(meant[0])])


@click.command()
@run_option("keyword", help="only notebooks or recorders whose name contains this")
@click.option(
    "--check", "checking", is_flag=True, help="run all notebooks, write nothing, compare with the sources"
)
@click.option(
    "--record", "record", type=click.Path(path_type=Path, dir_okay=False),
    help="on a GPU: record the output of tools in this file, for the notebooks to show",
)  # fmt: skip
def notebooks(keyword, checking, record):
    """Build the notebooks from their sources: run every cell, and keep the outputs."""
    from grader.grading.progress import Follower

    if record and checking:
        raise click.UsageError("--check and --record do not go together")
    follower = Follower(Console(soft_wrap=True))
    try:
        if record:
            _record(keyword, record, follower)
        else:
            _build(keyword, checking, follower)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        follower.end()


def _build(keyword: str, checking: bool, follower) -> None:
    try:
        from grader.site.notebooks import build, check
    except ModuleNotFoundError as missing:
        click.echo(
            f"{missing.name} is not installed; run make notebooks, or pip install -e '.[notebooks]'", err=True
        )
        sys.exit(FAULT)
    chosen = build.sources(keyword)
    if not chosen:
        raise click.UsageError(f"-k {keyword}: no notebook's name contains that")
    troubles = (check.check_all if checking else check.build_all)(chosen, follower)
    follower.end()
    for words in troubles:
        click.echo(words, err=True)
    if troubles:
        sys.exit(BELOW)


def _record(keyword: str, path: Path, follower) -> None:
    from grader.site.notebooks import lessons
    from grader.site.notebooks.recorders import RECORDERS
    from grader.system.gpu import find
    from grader.system.gpu_lock import GpuLock

    chosen = [one for one in RECORDERS if keyword in one.name]
    if not chosen:
        known = ", ".join(one.name for one in RECORDERS)
        raise click.UsageError(f"-k {keyword}: the recorders are {known}")
    found, missing = find()
    if not found:
        click.echo(f"--record needs an NVIDIA GPU with its driver: {missing}", err=True)
        sys.exit(FAULT)
    with GpuLock(found.uuid_hash):
        _, troubles = lessons.run(chosen, path, found, follower)
    follower.end()
    for name, words in troubles.items():
        click.echo(f"{name}: {words}", err=True)
    click.echo(f"written: {path}, {len(chosen) - len(troubles)} of {len(chosen)} recorders")
    if troubles:
        sys.exit(FAULT)
