"""The rooms of the grader, their imports, and imports that break the contract in pyproject.toml.

The imports are those that import-linter finds; the extra `dev` installs it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grimp
from importlinter.api import read_configuration

from grader.course import catalog

PACKAGE = "grader"
TESTS = f"{PACKAGE}.tests"


@dataclass(frozen=True)
class Room:
    """One package below grader/: its purpose is the first line of its docstring."""

    name: str
    purpose: str
    files: int
    lines: int
    statements: int  # without docstrings
    longest: str  # the module with the most lines, below the room
    longest_lines: int


@dataclass(frozen=True)
class House:
    """All rooms and what they import from each other."""

    floors: tuple[tuple[str, ...], ...]  # from top to bottom; a room imports from the floors below its own
    rooms: dict[str, Room]
    imports: Counter[tuple[str, str]]  # (importing room, imported room): modules that import modules
    upward: tuple[str, ...]  # chains of imports that the contract forbids, in words
    cycles: tuple[str, ...]  # imports whose removal would break every cycle, in words

    @property
    def order(self) -> list[str]:
        """Names of the rooms, top floor first."""
        return [name for floor in self.floors for name in floor]

    def allows(self, importer: str, imported: str) -> bool:
        """Whether one room may import another: it is on a higher floor."""
        floor = {name: at for at, names in enumerate(self.floors) for name in names}
        return floor[importer] < floor[imported]


def floors_of(root: Path = catalog.ROOT) -> tuple[tuple[str, ...], ...]:
    """Return the layers of the contract in pyproject.toml, top first; ValueError unless there is one."""
    contracts = read_configuration(str(root / "pyproject.toml"))["contracts_options"]
    layers = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    if len(layers) != 1:
        raise ValueError(f"pyproject.toml has {len(layers)} contracts of type layers, not one")
    return tuple(tuple(name.strip() for name in floor.split("|")) for floor in layers[0])


def read(root: Path = catalog.ROOT) -> House:
    """Return the rooms of the files below `root`; Python must import grader from there."""
    floors = floors_of(root)
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    for test in [module for module in graph.modules if module.startswith(TESTS)]:
        graph.remove_module(test)
    imports = Counter(
        (room_of(module), room_of(imported))
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
        if room_of(module) and room_of(imported) and room_of(module) != room_of(imported)
    )
    files = sources(root)
    rooms = {name: _room(name, files) for floor in floors for name in floor}
    return House(floors, rooms, imports, _upward(graph, floors), _cycles(graph))


def sources(root: Path = catalog.ROOT) -> dict[str, Path]:
    """Return the file of each module of the grader, without tests and copies of skeletons."""
    found = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[1] != "tests" and "skeletons" not in parts:
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room_of(module: str) -> str:
    """Return the room of a module, `judge` for `grader.judge.run`; empty for a module at the root."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] != "__main__" else ""


def _room(name: str, files: Mapping[str, Path]) -> Room:
    texts = {module: path.read_text("utf-8") for module, path in files.items() if room_of(module) == name}
    lines = {module: text.count("\n") for module, text in texts.items()}
    longest = max(lines, key=lambda module: lines[module])
    return Room(
        name,
        (ast.get_docstring(ast.parse(texts[f"{PACKAGE}.{name}"])) or "").partition("\n")[0],
        len(texts),
        sum(lines.values()),
        sum(map(statements, texts.values())),
        longest.removeprefix(f"{PACKAGE}."),
        lines[longest],
    )


def statements(source: str) -> int:
    """Return the number of statements of Python code at any depth, without docstrings."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    return sum(not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in nodes)


def _upward(graph: grimp.ImportGraph, floors: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the import chains that break the contract, each as `grader.a.b -> grader.c.d`."""
    layers = [grimp.Layer(*floor, independent=True) for floor in floors]
    found = graph.find_illegal_dependencies_for_layers(layers=layers, containers={PACKAGE})
    return tuple(
        sorted(
            f"{min(route.heads)} -> {' -> '.join([*route.middle, min(route.tails)])}"
            for dependency in found
            for route in dependency.routes
        )
    )


def _cycles(graph: grimp.ImportGraph) -> tuple[str, ...]:
    """Return the imports to remove, so that the modules of no package import each other in a cycle."""
    parents = [module for module in graph.modules if graph.find_children(module)]
    breakers = {pair for parent in parents for pair in graph.nominate_cycle_breakers(parent)}
    return tuple(f"{importer} -> {imported}" for importer, imported in sorted(breakers))
