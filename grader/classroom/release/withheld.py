"""Replace parts of a release that show an answer: outputs of notebook cells, and pages of figures.

Students run the notebooks with their own kernels. An output that shows the course's solution is replaced by a
note.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import svg

from grader.classroom.release.answers import Answers
from grader.classroom.release.contents import File
from grader.classroom.release.decodings import decodings
from grader.report.page.drawing import Drawing

NOTE = "Not shown: this output contains an answer to a lab. Run the cell to see your own kernel here."
PAGE = (
    '<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Not shown yet</title>\n'
    "<p>This figure shows an answer to a lab. The course publishes it when the lab is over.</p></html>\n"
)


def answer_in(data: bytes, answers: Answers) -> str | None:
    """Return the file whose answer the bytes contain in any decoding, or None."""
    return next(filter(None, (answers.found_in(text) for text in decodings(data))), None)


def hold_back(files: Mapping[str, File], answers: Answers) -> tuple[dict[str, File], list[str]]:
    """Replace notebook outputs and figures that hold answers; return the files and a list of replacements."""
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
                    out[drawn] = File(_picture().encode())
                words.append(f"{path}: the figure")
    return out, words


def _picture() -> str:
    """Return the placeholder for a figure's static picture."""
    style = "width: 360px; font: 14px sans-serif"
    picture = Drawing(360, 40, "not shown yet", kinds="", xmlns=svg.SVG.xmlns, style=style)
    picture.text(8, 26, "held back")
    return f"{picture.__html__()}\n"


def _notebook(data: bytes, answers: Answers) -> tuple[bytes, list[int]]:
    """Return a notebook without outputs that hold an answer, and the numbers of the changed cells."""
    book, held = json.loads(data), []
    for number, cell in enumerate(book["cells"]):
        outputs = cell.get("outputs", [])
        if outputs and answer_in(json.dumps(outputs, ensure_ascii=False).encode(), answers):
            held.append(number)
            cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": [f"{NOTE}\n"]}]
    if not held:
        return data, held
    return (json.dumps(book, indent=1, ensure_ascii=False) + "\n").encode(), held
