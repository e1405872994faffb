"""Edits of the grader's modules, each with whether it must regrade a class: read, and applied in memory."""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from grader.tests.helpers.course import ROOT

FILE = Path(__file__).with_name("fingerprint_edits.json")
IN_DOUBT = "in doubt"  # no verdict depends on it, but the rule cannot know that, and regrades


@dataclass(frozen=True)
class Edit:
    """A definition of a module (`text`), and an edit of it: `new` in place of the first `old`.

    `regrades` is IN_DOUBT where a mended text regrades. The definition is kept, because the module changes.
    """

    file: str
    name: str  # of the definition, `Class.method` for a method
    text: str
    old: str
    new: str
    regrades: bool | str
    why: str

    def before(self, module: str) -> str:
        """Return a module with `text` in place of its own definition. LookupError if it has none."""
        return self._with(module, self.text)

    def after(self, module: str) -> str:
        """Return the same with the edit."""
        assert self.old in self.text, (self.file, self.name)
        return self._with(module, self.text.replace(self.old, self.new, 1))

    def _with(self, module: str, text: str) -> str:
        found = next((node for node in _definitions(ast.parse(module)) if node[0] == self.name), None)
        if found is None:
            raise LookupError(f"{self.file} has no {self.name} any more: move this case to where it went")
        lines = module.split("\n")
        lines[found[1] - 1 : found[2]] = text.split("\n")
        return "\n".join(lines)


def read() -> list[Edit]:
    """Return all edits."""
    return [Edit(**one) for one in json.loads(FILE.read_text("utf-8"))]


def layers() -> list[list[Edit]]:
    """Return the edits in groups that have at most one of each module."""
    by_file: dict[str, list[Edit]] = defaultdict(list)
    for one in read():
        by_file[one.file].append(one)
    most = max(map(len, by_file.values()))
    return [[edits[k] for edits in by_file.values() if k < len(edits)] for k in range(most)]


def source(file: str) -> str:
    """Return the text of a module of the repository."""
    return (ROOT / file).read_text("utf-8")


def _definitions(tree: ast.Module) -> list[tuple[str, int, int]]:
    """Return name, first and last line of each definition and assignment, from the inside of classes too."""
    found = []
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else []
        for one, prefix in ((node, ""), *((part, f"{getattr(node, 'name', '')}.") for part in inner)):
            first = min([one.lineno, *(each.lineno for each in getattr(one, "decorator_list", []))])
            targets = getattr(one, "targets", [getattr(one, "target", one)])
            names = [getattr(target, "id", getattr(target, "name", "")) for target in targets]
            found += [(prefix + name, first, one.end_lineno or first) for name in names if name]
    return found
