"""Decide which files go out with which labs, and take links to the others out of pages."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping

from grader.classroom.release.contents import File
from grader.classroom.release.source import ReleaseError

CAPSTONE = "capstone"
FIGURES = "notebooks/figures/"
# Notebooks, figures and tests go out with the last of the labs whose kernels they load or show.
NEEDS = {
    "notebooks/01_": {"1", "3"},
    "notebooks/02_": {"1"},
    "notebooks/03_": {"2"},
    "notebooks/04_": {"3"},
    "notebooks/05_": {"3"},
    "notebooks/06_": {"2", "4"},
    "notebooks/07_": {"2", "3", "4"},
    "notebooks/08_": {"1", "2"},
    "notebooks/09_": {"1", "3"},
    "notebooks/10_": {"2", "3", CAPSTONE},
    "notebooks/11_": {"4"},
    f"{FIGURES}autotuner.": {"3"},
    f"{FIGURES}choose_your_stack.": {"1", "2", "3", "4", CAPSTONE},
    f"{FIGURES}program_life.": {"1", "2"},
    f"{FIGURES}roofline.": {"1", "2", "3", "4", CAPSTONE},
    f"{FIGURES}softmax_traffic.": {"2"},
    f"{FIGURES}tile_order.": {"3"},
    # These tests of the grader take their cases from the labs.
    "grader/tests/course/test_spec.": {"1", "2", "3", "4"},
    "grader/tests/judge/test_comparison.": {"1", "2", "3", "4"},
}
_LAB = re.compile(r"(?:grader/course/skeletons/)?labs/lab(\d+)_")
_CAPSTONE = re.compile(r"(?:grader/course/skeletons/)?gpu-programming/")
_LINK = re.compile(r"\[([^\[\]]*)\]\(([^)\s#:]+)(?:#[^)\s]*)?\)")
_ROW = re.compile(r"^\|.*\n", re.MULTILINE)
LATER = "not released yet"


def needs(path: str) -> set[str]:
    """Return the labs that must be out before a file is. Raises ReleaseError for an unlisted notebook."""
    lab = _LAB.match(path)
    if lab:
        return {lab[1]}
    if _CAPSTONE.match(path):
        return {CAPSTONE}
    listed = next((labs for start, labs in NEEDS.items() if path.startswith(start)), None)
    if listed is None and re.match(r"notebooks/(figures/)?[^/]+\.(ipynb|html|svg)$", path):
        raise ReleaseError(f"{path}: name the labs that it shows, in grader/classroom/release/stages.py")
    return set(listed or ())


def labs_of(files: Iterable[str]) -> list[str]:
    """Return the labs of a tree in their order, with the capstone at the end."""
    return in_order({lab for path in files for lab in needs(path)})


def chosen_labs(words: str, known: list[str]) -> list[str]:
    """Return the labs that `words` names, "1,2" or "1,capstone". Raises ReleaseError for an unknown one."""
    named = set(words.replace(",", " ").split())
    if not named or named - set(known):
        raise ReleaseError(f"LAB={words}: the labs are {', '.join(known)}")
    return [lab for lab in known if lab in named]


def of_labs(files: Mapping[str, File], labs: Iterable[str]) -> tuple[dict[str, File], dict[str, list[str]]]:
    """Return the files of these labs, and the held paths by missing lab; no page links to a held file."""
    out, held = {}, {}
    for path, file in files.items():
        missing = needs(path) - set(labs)
        if missing:
            held.setdefault(in_order(missing)[-1], []).append(path)
        else:
            out[path] = file
    gone = {path for paths in held.values() for path in paths}
    folders = {posixpath.dirname(path).rsplit("/", 1)[-1] for path in gone if _LAB.match(path)}
    for path, file in out.items():
        if gone and path.endswith((".md", ".ipynb")):
            text = _without_links(path, file.data.decode(), gone, folders)
            out[path] = File(text.encode(), file.program)
    return out, held


def in_order(labs: Iterable[str]) -> list[str]:
    """Return labs by number, the capstone last."""
    return sorted(labs, key=lambda lab: (lab == CAPSTONE, int(lab) if lab.isdigit() else 0))


def lab_word(lab: str) -> str:
    """Return `lab 3`, or `the capstone`."""
    return f"the {lab}" if lab == CAPSTONE else f"lab {lab}"


def _without_links(path: str, text: str, gone: set[str], folders: set[str]) -> str:
    """Remove rows of tables about held files; say `not released yet` after other links' words."""

    def held(target: str) -> bool:
        return posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) in gone

    def row(match: re.Match[str]) -> str:
        named = any(f"`{folder}`" in match[0] for folder in folders)
        return "" if named or any(held(target) for _, target in _LINK.findall(match[0])) else match[0]

    def link(match: re.Match[str]) -> str:
        return f"{match[1]} ({LATER})" if held(match[2]) else match[0]

    return _LINK.sub(link, _ROW.sub(row, text) if path.endswith(".md") else text)
