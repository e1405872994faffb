"""Show sentences, tables, sources and plots in a notebook: the same bytes for the same content."""

from __future__ import annotations

import inspect
import io
from collections.abc import Iterable, Sequence

# Okabe and Ito's colours: apart for every kind of colour vision, and apart in grey.
BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#f0e442", "#56b4e9"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY)
SETTINGS = {"svg.hashsalt": "notebooks", "svg.fonttype": "none", "font.size": 9}


def say(text: str) -> None:
    """A sentence with figures of this run or of a record, as Markdown."""
    from IPython.display import Markdown, display

    display(Markdown(text))


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table; cells are shown as str() has them, the first column to the left, the others to the right."""
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    lines += [f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    say("\n".join(lines))


def listing(*functions) -> None:
    """The source of functions, kernels among them, with the file each is in."""
    for function in functions:
        say(f"```python\n{inspect.getsource(_written(function)).rstrip()}\n```")


def _written(function):
    """The function as it was written: inside what tunes, compiles, interprets or registers it."""
    inside = getattr(function, "fn", None) or getattr(function, "_init_fn", None)
    return _written(inside) if inside else function


def canvas(width: float = 7, height: float = 3, columns: int = 1, **options):
    """A new figure of so many inches, and its axes, one or an array; end with `shown(figure, words)`."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update(SETTINGS)
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(ncols=columns, **options)


def shown(figure, words: str) -> None:
    """Display a figure as SVG; `words` say what is to be seen, for whoever cannot see it."""
    from IPython.display import display

    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    display({"image/svg+xml": buffer.getvalue(), "text/plain": words}, raw=True)


def interactive(name: str) -> None:
    """One of the course's interactive figures; RuntimeError where it is not there."""
    from IPython.display import display

    try:
        from grader.figures.show import show
    except ModuleNotFoundError:
        raise RuntimeError(f"the figure {name} is not there: this checkout has no grader/figures") from None
    display(show(name))
