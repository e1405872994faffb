"""The interfaces of rooms: public functions and classes that another room uses, with their signatures.

They are read from the sources, without importing them; a signature is shown as written.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from grader.course import catalog
from grader.site.architecture.rooms import PACKAGE, room_of, sources

# The type of such a dict does not say what the dict contains.
UNTYPED = re.compile(r"\bdict\b(?!\[)|\b(?:dict|Mapping|MutableMapping)\[str, Any\]")

Definition = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Offer:
    """A function or class of `module` that modules of other rooms use."""

    module: str
    name: str
    signatures: tuple[str, ...]  # the function's own, or those of the class and of its public methods
    used_by: tuple[str, ...]  # rooms

    @property
    def room(self) -> str:
        """The room of the module."""
        return room_of(self.module)

    @property
    def untyped(self) -> tuple[str, ...]:
        """The signatures with a dict of unknown keys or values."""
        return tuple(one for one in self.signatures if UNTYPED.search(one))


def offers(root: Path = catalog.ROOT) -> list[Offer]:
    """Return all functions and classes used across rooms, by module and name; constants are left out."""
    trees = {module: ast.parse(path.read_text("utf-8")) for module, path in sources(root).items()}
    users: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    found: dict[tuple[str, str], Definition] = {}
    for module, tree in trees.items():
        for owner, name in _names_of_others(tree, trees):
            home, node = _definition(owner, name, trees)
            if node is not None and room_of(home) != room_of(module):
                found[home, node.name] = node
                users[home, node.name].add(room_of(module) or module)
    return [
        Offer(*key, tuple(_signatures(node)), tuple(sorted(users[key])))
        for key, node in sorted(found.items())
    ]


def _names_of_others(tree: ast.Module, trees: Mapping[str, ast.Module]) -> Iterator[tuple[str, str]]:
    """Yield module and name of all that a module uses of the grader, by `from` or as module.name."""
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in trees:
                    modules[alias.asname or alias.name] = full
                else:
                    yield node.module, alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield modules[node.value.id], node.attr


def _definition(module: str, name: str, trees: Mapping[str, ast.Module]) -> tuple[str, Definition | None]:
    """Return where a name is defined, following re-exports; None in place of the node for a constant."""
    for node in trees[module].body:
        if isinstance(node, Definition) and node.name == name:
            return module, node
        if isinstance(node, ast.ImportFrom) and node.module in trees:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _definition(node.module, alias.name, trees)
    return module, None


def _signatures(node: Definition) -> Iterator[str]:
    """Yield `name(a: int) -> str` of a function, or of a class, its public methods and its properties."""
    if isinstance(node, ast.FunctionDef):
        yield _signature(node.name, node)
        return
    methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
    fields = [_field(one) for one in node.body if isinstance(one, ast.AnnAssign)]
    if "__init__" in methods:
        yield _signature(node.name, methods["__init__"]).removesuffix(" -> None")
    else:
        yield f"{node.name}({', '.join(fields)})" if fields else node.name
    for name, method in methods.items():
        if name.startswith("_"):
            continue
        decorators = {ast.unparse(one) for one in method.decorator_list}
        if decorators & {"property", "cached_property"}:
            yield f"{name}: {ast.unparse(method.returns) if method.returns else '?'}"
        else:
            yield _signature(name, method)


def _field(node: ast.AnnAssign) -> str:
    """Return `name: type`, with ` = ...` if the field has a default."""
    return f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}" + (" = ..." if node.value else "")


def _signature(name: str, node: ast.FunctionDef) -> str:
    arguments = re.sub(r"^(?:self|cls)\b(?:, )?", "", ast.unparse(node.args))
    return f"{name}({arguments})" + (f" -> {ast.unparse(node.returns)}" if node.returns else "")
