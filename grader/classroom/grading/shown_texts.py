"""Empties the sentences in modules that are only shown, so that a hash of what is left ignores them.

A text is a string, or the literal parts of an f-string, that is a sentence, goes only where it is shown (see
text_flow), and has nothing that a module looks for (see looked_for). The values in an f-string are code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from grader.classroom.grading import looked_for
from grader.classroom.grading.text_flow import Flow

LEAST_WORDS = 3  # of a sentence; most names of cases and regions have fewer
PLAIN = re.compile(r"[(\"`]?[A-Za-z]+(?:['-][a-z]+)?[)\"`]?[.,;:?!]?")
INSTEAD = "some words that are shown"  # itself a sentence: no code can take its place unseen


def without_texts(modules: Mapping[str, str]) -> dict[str, ast.Module]:
    """Return the syntax trees of modules that import each other, without their texts. Raises SyntaxError."""
    trees = {name: ast.parse(text) for name, text in modules.items()}
    found = texts(trees)
    return {name: _Emptied(found).visit(tree) for name, tree in trees.items()}


def texts(trees: Mapping[str, ast.Module]) -> set[ast.AST]:
    """Return the nodes of the texts of modules, by full name."""
    flow, sought = Flow(trees), looked_for.everywhere(trees.values())
    found = set()
    for tree in trees.values():
        inner = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if node in inner or not is_sentence(node) or not flow.only_shown(node):
                continue
            said = looked_for.parts(node)
            if not flow.met.has(said) and not (flow.raised and sought.has(said)):
                found.add(node)
    return found


def is_sentence(node: ast.AST) -> bool:
    """Return whether a string or an f-string has three plain words, and no more of other kinds."""
    words = "".join(looked_for.parts(node)).split()
    plain = sum(bool(PLAIN.fullmatch(word)) for word in words)
    return plain >= LEAST_WORDS and 2 * plain >= len(words)


class _Emptied(ast.NodeTransformer):
    def __init__(self, found: set[ast.AST]):
        self._texts = found

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return _instead(node) if node in self._texts else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        if node not in self._texts:
            return self.generic_visit(node)
        values = [self.visit(one) for one in node.values if isinstance(one, ast.FormattedValue)]
        return ast.JoinedStr([_instead(node), *values]) if values else _instead(node)


def _instead(node: ast.AST) -> ast.Constant:
    # Its lines count, because a text may be cut into them.
    return ast.Constant(INSTEAD + "\n" * "".join(looked_for.parts(node)).count("\n"))
