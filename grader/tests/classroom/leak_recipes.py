"""Carry out the recipes of leaks.json: texts with an answer in many disguises, and honest texts."""

import html
import json
import keyword
import re
from pathlib import Path

from grader.tests.helpers.course import ROOT

CASES = json.loads(Path(__file__).with_name("leaks.json").read_text("utf-8"))
TASK = re.compile(r"^ *# BEGIN TODO (\d+):.*\n((?:.*\n)*?) *# END TODO \1$", re.MULTILINE)
KEPT = set(keyword.kwlist) | set(dir(__builtins__)) | {"tl", "triton", "torch"}


def solution_of(lab):
    (path,) = (ROOT / "solutions" / lab).glob("[!_]*.py")
    return path.read_text("utf-8")


def written(case):
    """The texts that a case puts into a release."""
    first, *steps = re.split(r" \| (?=[a-z])", case["recipe"]) if case["is_leak"] else [case["recipe"]]
    texts = [begun(first, case)]
    for step in steps:
        texts = [one for text in texts for one in changed(text, step)]
    return texts


def begun(recipe, case):
    if recipe.startswith("honest: "):
        return recipe.removeprefix("honest: ")
    tasks = dict(TASK.findall(solution_of(case["lab"])))
    if recipe == "verbatim all lines of every TODO":
        return "".join(tasks.values())
    if recipe == "verbatim the configuration list of TODO 1":
        return tasks["1"]
    lines = re.fullmatch(r"verbatim (\d+) lines of TODO (\d+)", recipe)
    if lines:
        return "".join(tasks[lines[2]].splitlines(keepends=True)[: int(lines[1])])
    return of_numbers(recipe, [re.findall(r"\d+", row) for row in re.findall(r"_config\((.+)\)", tasks["1"])])


def of_numbers(recipe, rows):
    assert len(rows) > 3
    return {
        "numbers only as a table row by row": "".join(f"| {' | '.join(row)} |\n" for row in rows),
        "numbers in other order of columns": "".join(f"| {' | '.join(reversed(row))} |\n" for row in rows),
        "numbers only as JSON lists, one per configuration": json.dumps(
            [list(map(int, row)) for row in rows]
        ),
        "numbers only as lines 'BLOCK_M: a, BLOCK_N: b, BLOCK_K: c, num_warps: w, num_stages: s'": "".join(
            f"BLOCK_M: {m}, BLOCK_N: {n}, BLOCK_K: {k}, num_warps: {w}, num_stages: {s}\n"
            for m, n, k, s, w in rows
        ),
    }[recipe]


def changed(text, step):
    lines = text.splitlines()
    if step.startswith("identifiers renamed: "):
        return [renamed(text, json.loads(step.removeprefix("identifiers renamed: ")))]
    if step == "split into two files in the middle":
        return ["\n".join(lines[: len(lines) // 2]), "\n".join(lines[len(lines) // 2 :])]
    cell = {"cell_type": "code", "source": ["x"], "outputs": []}
    stream = {"output_type": "stream", "name": "stdout"}
    listed = text.splitlines(keepends=True)
    return [
        {
            "comments removed": lambda: "\n".join(re.sub(r"\s*#.*", "", line) for line in lines),
            "reindented": lambda: "\n".join(line.replace("    ", "  ") for line in lines),
            "as a patch": lambda: (
                "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n" + "\n".join(f"+{one}" for one in lines)
            ),
            "as comments with # before each line": lambda: "\n".join(f"# {line}" for line in lines),
            "as a docstring": lambda: f'def f():\n    """As follows.\n\n{text}    """\n',
            "as a quoted Python string": lambda: f"TEXT = {text!r}\n",
            "as JSON string in a notebook's output": lambda: json.dumps(
                {"cells": [{**cell, "outputs": [{**stream, "text": text}]}]}
            ),
            "as a list of JSON strings in a notebook's output": lambda: json.dumps(
                {"cells": [{**cell, "outputs": [{**stream, "text": listed}]}]}, indent=1
            ),
            "as a list of JSON strings in a notebook's source": lambda: json.dumps(
                {"cells": [{**cell, "source": listed}]}, indent=1
            ),
            "as a JSON string": lambda: json.dumps({"text": text}),
            "as HTML with < > & escaped in <pre>": lambda: f"<html><pre>{html.escape(text)}</pre></html>",
            "whitespace runs as one blank": lambda: " ".join(text.split()),
            "a blank line after each line": lambda: "\n\n".join(lines),
            "with line numbers and a bar before each line": lambda: "\n".join(
                f"{at:4} | {line}" for at, line in enumerate(lines, start=1)
            ),
            "with '> ' before each line": lambda: "\n".join(f"> {line}" for line in lines),
            "with a measured number added at the end of each row": lambda: "\n".join(
                f"{line} {200 + 7 * at}.{at} |" for at, line in enumerate(lines)
            ),
        }[step]()
    ]


def renamed(text, names):
    """With other names; without a list, every name that is neither the language's nor an attribute."""
    bare = re.sub(r"#.*", "", text)
    free = dict.fromkeys(one for one in re.findall(r"(?<![.\w])[A-Za-z_]\w*", bare) if one not in KEPT)
    names = names or {name: f"v{at}" for at, name in enumerate(free, start=1)}
    return re.sub(r"(?<![.\w])[A-Za-z_]\w*", lambda match: names.get(match[0], match[0]), text)
