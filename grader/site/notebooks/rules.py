"""Rules for notebook sources: no kernel definition, no typed-in measurement, no broken link."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import jupytext

from grader.measure.kernel_log.numbers import numbers
from grader.site.notebooks.build import Source

# Further units of measurements, beside those of a kernel log.
_CLAIM = re.compile(
    r"(?<![\w.,])\d[\d.,]*(?:e\d+)?[\s*_`~-]*"
    r"(?:fold|times|s|seconds?|minutes?|GHz|MHz|W|watts?|cycles?|[GT]FLOPs?|FLOPs?|FLOPS|[KMG]i?B)(?![\w/])"
)
_MEASURED = re.compile(
    r"_(ns|us|ms|s|percent|ratio|rate|speedup|gb|tb|tflops|bytes_per_s|flops)$|^(peak|speedup)"
)
_KERNEL = re.compile(r"@\s*(?:triton|gluon|tl)?\.?jit\b|\b(?:triton|gluon)\.jit\b")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_LAB = re.compile(r"^\.\./(?:labs/lab\d+_\w+|gpu-programming(?:/[\w-]+)?)/README\.md$")


def problems(source: Source) -> Iterator[str]:
    """Yield the violations in one source, with cell numbers of the built notebook."""
    cells = jupytext.read(source.path, fmt="py:percent").cells
    for number, cell in enumerate(cells, start=1):
        at = f"{source.path.name}, cell-{number + (number > 1):02}"  # the setup cell is the second one
        text = cell.cell_type == "markdown"
        found = _of_text(cell.source, source.path.parent) if text else _of_code(cell.source)
        yield from (f"{at}: {words}" for words in found)
    last = cells[-1]
    if last.cell_type != "markdown" or not any(_LAB.match(one) for one in _LINK.findall(last.source)):
        yield f"{source.path.name}: the last cell links to no lab, as in ../labs/lab1_NAME/README.md"


def _of_text(text: str, folder: Path) -> Iterator[str]:
    yield from _typed(text)
    for link in _LINK.findall(text):
        path = link.partition("#")[0]
        if path and "://" not in link and not (folder / path).exists():
            yield f"links to {link}, which does not exist"


def _of_code(code: str) -> Iterator[str]:
    if _KERNEL.search(code):
        yield "defines a kernel; notebooks import those of solutions/"
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield from _typed(token.string)
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _typed(node.value)
        elif isinstance(node, ast.Constant) and _precise(node.value):
            yield f"has {node.value} typed in: take it from a record, or compute it"
        elif isinstance(node, ast.Assign | ast.keyword):
            yield from _named_as_measured(node)


def _typed(text: str) -> Iterator[str]:
    """Yield numbers with a unit; a notebook takes them from a record or from the run."""
    for line in text.splitlines():
        written = [one for one, _ in numbers(line)] or [one[0] for one in _CLAIM.finditer(line)]
        yield from (f"says {one!r}: take it from a record, or compute it" for one in written)


def _precise(value: object) -> bool:
    """Whether a number is more precise than an order of magnitude or a size: 4.8e12, 989.5, 4800000."""
    if isinstance(value, float):
        return len(f"{value:e}".partition("e")[0].replace(".", "").strip("0")) > 1
    if isinstance(value, int) and not isinstance(value, bool) and value > 10**5:
        return value & (value - 1) != 0 and str(value).rstrip("0") != "1"
    return False


def _named_as_measured(node: ast.Assign | ast.keyword) -> Iterator[str]:
    """Yield plain numbers under a name of a measurement: time_us = 762."""
    targets = node.targets if isinstance(node, ast.Assign) else [node]
    names = [getattr(one, "id", None) or getattr(one, "arg", None) for one in targets]
    number = isinstance(node.value, ast.Constant) and isinstance(node.value.value, int | float)
    for name in names:
        if number and name and _MEASURED.search(name):
            yield f"{name} = {node.value.value} is typed in: take it from a record"
