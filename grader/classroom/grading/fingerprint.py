"""Hashes of everything that affects a result; a unit is graded again only when one changes.

Covered are the rooms that judge and measure, and every module that the grading of an item imports. Of each
module the code counts. Docstrings, comments, the strings of TEXTS and the sentences that are only shown (see
shown_texts) do not, so that a mended message regrades nobody. Also left out, because nothing in them decides
a verdict, a time or a point:

* `report`, which the plugin imports to print an item's message, and `judge.error_causes`, whose words the
  judge adds to an error; `student`, `cli`, `site`, `classroom`, and the hints, which grading does not import;
* `grading.ini`, the settings of pytest, which name no item;
* the title and the causes of a lab;
* points and thresholds of a lab: `make rescore` computes points again from the stored measurements.

Every other string in a covered module counts, because a name of a dtype or a case is a string too. In doubt a
string counts: a message of few words, one that goes through what text_flow does not know, one that has a word
that some module looks for, and every string of the modules that only a lab.py imports.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from grader.classroom.grading import code_hash, shown_texts
from grader.classroom.records import Intake, Receipt
from grader.course import catalog

ENTRY = ("grader.grading.plugin", "grader.grading.pytest_run", "grader.grading.collect")
ROOMS = ("judge", "worker", "sandbox", "screen", "codegen")  # some of their modules start as processes
TELLS = ("grader.report", "grader.judge.error_causes")  # imported for messages alone
TEXTS = {"grader.judge.diagnosis": ("GENERAL",)}  # names of texts in modules that judge


def of_hashes(hashes: Mapping[str, str]) -> str:
    """Return one hash of several, by name."""
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()


@lru_cache
def grader() -> str:
    """Return the hash of the modules that affect a result, of the capstone's documents excepted."""
    root = catalog.ROOT / "grader"
    stubs = [path for room in ROOMS for path in (root / room).rglob("*.c")]
    hashes = modules({name: path.read_text("utf-8") for name, path in covered().items()})
    return of_hashes(hashes | {path.name: _sha256(path) for path in stubs})


def modules(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the hash of each module, given the text of all: where a string goes decides if it counts."""
    trees = shown_texts.without_texts(texts)
    return {name: code_hash.of_tree(tree, TEXTS.get(name, ())) for name, tree in trees.items()}


@lru_cache
def covered() -> dict[str, Path]:
    """Return the modules that affect a result of any unit, by name."""
    root = catalog.ROOT / "grader"
    files = [path for room in ROOMS for path in (root / room).rglob("*.py")]
    names = [".".join(path.relative_to(catalog.ROOT).with_suffix("").parts) for path in files]
    return _reached([*ENTRY, *(name.removesuffix(".__init__") for name in names)], TELLS)


def of_lab_file(path: Path) -> dict[str, Path]:
    """Return the grader's modules that a lab.py imports, directly or not, and that are not covered anyway.

    A check of a document may render a table to compare it, so `report` counts here.
    """
    everywhere = covered()
    found = _reached(_imports(path), ())
    return {name: file for name, file in found.items() if name not in everywhere}


@lru_cache
def lab(unit: str) -> str:
    """Return the hash of a unit's labs with their points, and of files that a student's files may include."""
    return _of_labs(unit, code_hash.scores)


@lru_cache
def measures(unit: str) -> str:
    """Return the same hash without points and thresholds: what `make rescore` cannot make up for."""
    return _of_labs(unit, code_hash.measures)


def same_lab(receipt: Receipt) -> bool:
    """Whether a unit's labs, with their points, are those that a receipt names.

    A receipt of an older version has the hash of their bytes.
    """
    unit = receipt.unit.name
    return receipt.lab_sha256 == (lab(unit) if receipt.measures_sha256 else _bytes_of_labs(unit))


def _bytes_of_labs(unit: str) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for entry in _entries(unit) for path in (entry.lab_file, *entry.given)):
        digest.update(f"{path.relative_to(catalog.ROOT).as_posix()}\0".encode())
        digest.update(bytes.fromhex(_sha256(path)))
    return digest.hexdigest()


def _entries(unit: str) -> list[catalog.Entry]:
    entries = catalog.capstone() if unit == catalog.CAPSTONE.name else catalog.find()
    return [entry for entry in entries if unit in (entry.folder.name, catalog.CAPSTONE.name)]


def _of_labs(unit: str, hashed: Callable[[str], str]) -> str:
    hashes = {}
    for entry in _entries(unit):
        hashes[str(entry.lab_file)] = hashed(entry.lab_file.read_text("utf-8"))
        hashes |= {str(path): _of_given(path) for path in entry.given}
        for name, path in of_lab_file(entry.lab_file).items():
            hashes[name] = code_hash.code(path.read_text("utf-8"))
    root = f"{catalog.ROOT}/"
    return of_hashes({name.removeprefix(root): digest for name, digest in hashes.items()})


def _of_given(path: Path) -> str:
    is_python = path.suffix == ".py"
    return code_hash.code(path.read_text("utf-8")) if is_python else _sha256(path)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files_of(intake: Intake, unit: str) -> dict[str, str]:
    """Return the hashes of a student's files of a unit, by path relative to files/."""
    return {one.path: one.sha256 for one in intake.files if one.path.startswith(f"{unit}/")}


def of_attempt(
    files: Mapping[str, str],
    modules: str,
    lab: str,
    tier: str,
    keyword: str | None,
    hidden: str | None,
    attempt: int,
) -> str:
    """Return the hash of everything that affects the result of one grading."""
    parts = {"files": dict(files), "modules": modules, "lab": lab, "tier": tier, "keyword": keyword}
    whole = {**parts, "hidden": hidden, "attempt": attempt}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def _reached(names: Iterable[str], without: tuple[str, ...]) -> dict[str, Path]:
    """Follow imports from some modules of the grader, also those inside functions, except into `without`."""
    found: dict[str, Path] = {}
    waiting = {name for name in names if not name.startswith(without)}
    while waiting:
        name = waiting.pop()
        path = _path(name)
        if path is None or name in found:
            continue
        found[name] = path
        waiting |= {one for one in _imports(path) if one not in found and not one.startswith(without)}
    return found


@lru_cache
def _imports(path: Path) -> frozenset[str]:
    """Return the grader's modules that a file imports anywhere in it, with the packages they are in."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    return frozenset(one for one in found if one.split(".")[0] == "grader" and _path(one))


def _path(name: str) -> Path | None:
    """Return the file of a module of the grader, None if it is none."""
    path = catalog.ROOT.joinpath(*name.split("."))
    choices = (path.with_suffix(".py"), path / "__init__.py")
    return next((one for one in choices if one.is_file()), None)
