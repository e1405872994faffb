"""Build notebooks from their sources: jupytext reads a source, nbclient runs it, metadata is removed."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from grader.course import catalog
from grader.site.notebooks import header
from grader.system.files import replace

FOLDER = catalog.ROOT / "notebooks"
SOURCE = re.compile(r"\d\d_[a-z0-9_]+\.py")
CELL_LIMIT_S, NOTEBOOK_LIMIT_S = 120, 240  # each takes some seconds on an idle machine
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class BuildError(Exception):
    """A notebook failed; the message names the notebook and the cell."""


@dataclass(frozen=True)
class Source:
    """The source of a notebook, and the path of the built notebook."""

    path: Path

    @property
    def name(self) -> str:
        """The file's stem, such as 01_three_costs."""
        return self.path.stem

    @property
    def built(self) -> Path:
        """The notebook beside the source."""
        return self.path.with_suffix(".ipynb")


def sources(keyword: str = "", folder: Path = FOLDER) -> list[Source]:
    """Return all sources whose name contains the keyword, in order."""
    paths = (path for path in sorted(folder.glob("*.py")) if SOURCE.fullmatch(path.name))
    return [Source(path) for path in paths if keyword in path.stem]


def unbuilt(source: Source):
    """Return the notebook without outputs: its cells, with the common beginning after the title."""
    read = jupytext.read(source.path, fmt="py:percent")
    title, *rest = read.cells
    if title.cell_type != "markdown" or not title.source.startswith("# "):
        raise BuildError(f"{source.path.name}: the first cell must be a title, as in `# # Title`")
    title.source += f"\n\n{header.ways_to_open(source.built.name)}"
    cells = [title, nbformat.v4.new_code_cell(header.setup()), *rest]
    for number, cell in enumerate(cells, start=1):
        cell.id, cell.metadata = f"cell-{number:02}", {}
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=kernel | {"language_info": {"name": "python"}})


def executed(source: Source):
    """Run the notebook in the folder of its source and return it with outputs; BuildError if a cell fails.

    A kernel that something outside of the notebook has ended, as a machine short of memory does, is started
    once more. One that dies twice is a failure.
    """
    for last in (False, True):
        notebook = unbuilt(source)
        begun = [notebook.cells[0].id]
        try:
            _run(source, notebook, begun)
        except (
            CellExecutionError,
            CellTimeoutError,
            DeadKernelError,
            RuntimeError,  # the kernel does not answer
            TimeoutError,
            asyncio.TimeoutError,
        ) as error:
            if isinstance(error, DeadKernelError) and not last:
                print(f"{source.path.name}, {begun[-1]}: the kernel died and is started again", flush=True)
                continue
            words = _ESCAPES.sub("", str(error)).strip() or f"took longer than {NOTEBOOK_LIMIT_S} s"
            raise BuildError(f"{source.path.name}, {begun[-1]}: {words}") from None
        break
    for cell in notebook.cells:
        cell.metadata = {}
    _refuse_noise(source, notebook)
    return notebook


def _run(source: Source, notebook, begun: list[str]) -> None:
    """Run the cells of a notebook, and put the id of each into `begun` when it begins."""
    client = NotebookClient(
        notebook, timeout=CELL_LIMIT_S, kernel_name="python3", record_timing=False, coalesce_streams=True,
        resources={"metadata": {"path": str(source.path.parent)}},
        on_cell_execute=lambda cell, **_: begun.append(cell.id),
        extra_arguments=["--log-level=ERROR"],  # it would warn about its TCP connection to this process
    )  # fmt: skip
    asyncio.run(asyncio.wait_for(client.async_execute(env=_environment()), NOTEBOOK_LIMIT_S))


def write(source: Source) -> bool:
    """Run a notebook and write it; return whether the file changed."""
    text = nbformat.writes(executed(source)) + "\n"
    before = source.built.read_text("utf-8") if source.built.exists() else ""
    if text != before:
        replace(source.built, text)
    return text != before


def _environment() -> dict[str, str]:
    """Return the environment of the kernel, without variables of the shell that the course sets itself."""
    own = {
        key: value
        for key, value in os.environ.items()
        if key not in ("TRITON_INTERPRET", "COURSE_REPOSITORY")
    }
    return own | {"MPLBACKEND": "agg", "PYDEVD_DISABLE_FILE_VALIDATION": "1", "NO_COLOR": "1"}


def _refuse_noise(source: Source, notebook) -> None:
    """Raise BuildError if an output has a warning or a path of this machine."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and output.name == "stderr":
                raise BuildError(
                    f"{source.path.name}, {cell.id}: wrote to stderr: {output.text.strip()[:500]}"
                )
            for place in (catalog.ROOT, Path.home()):
                if len(str(place)) > 1 and str(place) in str(output):
                    raise BuildError(f"{source.path.name}, {cell.id}: shows a path of this machine, {place}")
