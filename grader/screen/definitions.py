"""Whether the text of a file defines exactly what its tree does; executes nothing.

Triton reads a kernel by its text, not by Python's tree: the interpreter begins at the last line that starts
with `def `, the compiler at the first that looks like `def name(`. Such a line in a docstring would be the
kernel that runs, and to the tree it is a text.
"""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Iterator

LIKE_A_DEFINITION = re.compile(r"\s*(?:async\s+)?def\b")
PLAIN = re.compile(r"[ \t\f]*def \w+\(")
DECORATOR = re.compile(r"[ \t\f]*@")


def looks_like_another(tree: ast.Module, text: str) -> Iterator[tuple[int, str, str]]:
    """Line, words and function of each place where a search of the text may find another kernel."""
    lines = io.StringIO(text, newline=None).readlines()  # the lines that Python counts
    functions = {node.lineno: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for number, line in enumerate(lines, 1):
        node = functions.get(number)
        if node is None and LIKE_A_DEFINITION.match(line):
            words = "a text with a line that begins with `def` is not permitted, since Triton may take it"
            yield number, f"{words} for the kernel; begin that line with another word", "<module>"
        if node and not PLAIN.match(line):
            yield number, f"{node.name} is to begin on one line with `def name(`; write it so", node.name
    for node in functions.values():
        for decorator in node.decorator_list:
            if not DECORATOR.match(lines[decorator.lineno - 1]):
                words = "a decorator is to begin on the line of its @; write them together"
                yield decorator.lineno, words, node.name
