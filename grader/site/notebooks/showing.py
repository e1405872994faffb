"""Show sentences, tables, sources and plots in a notebook: the same bytes for the same content."""

from __future__ import annotations

import ast
import inspect
import io
import itertools
from collections.abc import Iterable, Sequence

from grader.report import markdown

# Okabe and Ito's colours: distinct for every kind of colour vision, and in greyscale.
BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#f0e442", "#56b4e9"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY)
SETTINGS = {"svg.hashsalt": "notebooks", "svg.fonttype": "none", "font.size": 9}


def say(text: str) -> None:
    """Display a Markdown sentence with figures of this run or of a record."""
    from IPython.display import Markdown, display

    display(Markdown(text))


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Display a table of str(cell); the first column is left-aligned, the others are right-aligned."""
    say(markdown.table(heads, ([str(cell).replace("|", "\\|") for cell in row] for row in rows), "lr"))


def folded(question: str, answer: str) -> None:
    """Display a question with a folded answer."""
    say(f"**{question}**\n\n<details><summary>Answer</summary>\n\n{answer}\n\n</details>")


def listing(*functions) -> None:
    """Display the source of functions and kernels."""
    for function in functions:
        say(f"```python\n{inspect.getsource(_written(function)).rstrip()}\n```")


def _written(function):
    """Return the Python function inside an autotuner, a compiled or an interpreted kernel."""
    return _written(function.fn) if hasattr(function, "fn") else function


def excerpt(module, *names: str) -> None:
    """Display definitions of a module by name, also those that `listing` cannot: operators, config lists."""
    lines = inspect.getsource(module).splitlines()
    found = {name: node for node in ast.parse("\n".join(lines)).body for name in _defined(node)}
    for name in names:
        node = found[name]
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
        # A comment at the end of a body belongs to it, but is not in the syntax tree.
        after = itertools.takewhile(lambda line: line.startswith(" "), lines[node.end_lineno :])
        text = "\n".join([*lines[first - 1 : node.end_lineno], *after])
        say(f"```python\n{text}\n```")


def _defined(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    return [one.id for one in getattr(node, "targets", []) if isinstance(one, ast.Name)]


def canvas(width: float = 7, height: float = 3, columns: int = 1, **options):
    """Return a new figure, sizes in inches, and its axes, one or several; end with `shown(figure, words)`."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update(SETTINGS)
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(ncols=columns, **options)


def shown(figure, words: str) -> None:
    """Display a figure as SVG; `words` are its description for readers who cannot see it."""
    from IPython.display import display

    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    display({"image/svg+xml": buffer.getvalue(), "text/plain": words}, raw=True)


def interactive(name: str) -> None:
    """Display one of the course's interactive figures; RuntimeError if the checkout has no figures."""
    from IPython.display import display

    try:
        from grader.site.figures.show import show
    except ModuleNotFoundError:
        raise RuntimeError(
            f"the figure {name} is missing: this checkout has no grader/site/figures"
        ) from None
    display(show(name))
