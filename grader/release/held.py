"""What shows an answer and has a place in a release all the same: cells of notebooks, pages of figures.

Notebooks run on the student's own kernels there. An output that shows the course's is replaced by a line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from grader.release.answers import Answers
from grader.release.contents import File
from grader.release.readings import readings

NOTE = "Held back: this shows an answer to a lab. Run the cell to see your own kernel here."
PAGE = (
    '<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Held back</title>\n'
    "<p>This figure shows an answer to a lab. The course publishes it when the lab is over.</p></html>\n"
)
PICTURE = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 360 40" width="360" height="40">'
    '<text x="8" y="26" font-family="sans-serif" font-size="14">held back</text></svg>\n'
)


def answer_in(data: bytes, answers: Answers) -> str | None:
    """The file whose answer the bytes hold, in any reading; None where there is none."""
    return next(filter(None, map(answers.found_in, readings(data))), None)


def hold_back(files: Mapping[str, File], answers: Answers) -> tuple[dict[str, File], list[str]]:
    """The files with answers in notebooks' outputs and in figures replaced, and what that were, in words."""
    out, words = dict(files), []
    for path, file in files.items():
        if path.endswith(".ipynb"):
            data, cells = _notebook(file.data, answers)
            out[path] = File(data, file.program)
            words += [f"{path}: outputs of {len(cells)} cells"] if cells else []
        elif path.startswith("notebooks/figures/") and path.endswith(".html"):
            drawn = path.removesuffix(".html") + ".svg"
            if answer_in(file.data, answers):
                out[path] = File(PAGE.encode())
                if drawn in files:
                    out[drawn] = File(PICTURE.encode())
                words.append(f"{path}: the figure")
    return out, words


def _notebook(data: bytes, answers: Answers) -> tuple[bytes, list[int]]:
    """A notebook without outputs that hold an answer, and the numbers of the cells that they are of."""
    book, held = json.loads(data), []
    for number, cell in enumerate(book["cells"]):
        outputs = cell.get("outputs", [])
        if outputs and answer_in(json.dumps(outputs, ensure_ascii=False).encode(), answers):
            held.append(number)
            cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": [f"{NOTE}\n"]}]
    if not held:
        return data, held
    return (json.dumps(book, indent=1, ensure_ascii=False) + "\n").encode(), held
