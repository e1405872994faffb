"""Which files of a checkout students get, and what is taken out of those that speak to staff as well."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# The first that fits says why a file stays here; what fits none goes out.
STAYS = (
    (r"solutions/", "solutions, wrong answers, variants, and records of their runs"),
    (r"notebooks/.*\.py", "sources from which the notebooks are built"),
    (r"grader/tests/(?!{tests})", "tests with answers, cheats or faults in them, and of staff's commands"),
    (r"\.ci/", "checks before a commit to the course"),
    (r"\.github/(?!workflows/grade-cpu\.yml)", "what runs on the course's own runners"),
    (r"\.dockerignore", "what the course's image does without"),
    (r"grader/ci/(?!grade\.sbatch)", "templates for course staff's runners and clusters"),
    (r"grader/(INSTRUCTORS|(?:batch|gradebook|platforms)/.*)\.(md|png)", "pages for instructors"),
    (r"notebooks/figures/(src|screenshots)/", "what the figures' pages are made from, and their pictures"),
)  # fmt: skip
# Those that tell whether the grader works on a machine, and hold no answer.
TESTS = (
    "conftest", "test_compare", "test_inputs", "test_interpreted", "test_lending",
    "test_protocol", "test_scoring", "test_spec", "test_timing",
)  # fmt: skip
_STAYS = [(re.compile(rule.replace("{tests}", rf"(?:{'|'.join(TESTS)})\.py$")), why) for rule, why in STAYS]

_BLOCK = re.compile(r"^<!-- STAFF -->\n.*?^<!-- /STAFF -->\n", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^.*<!-- STAFF -->\n", re.MULTILINE)  # a row of a table cannot stand between two comments
_REGION = re.compile(r"^<!-- (?:BEGIN \w+(?: \S+)?|END) -->\n", re.MULTILINE)
_PICTURE = re.compile(r"^<picture>\n.*?^</picture>\n\n?", re.MULTILINE | re.DOTALL)
# A target of the Makefile up to the next empty line, where its help says whose it is.
_TARGET = re.compile(r"^([a-z-]+):.*\(course staff\).*\n(?:.+\n)*\n?", re.MULTILINE)
_FROM = re.compile(r",? FROM=solutions\b")


@dataclass(frozen=True)
class File:
    """A file of a tree; the bytes of a link are its target."""

    data: bytes
    program: bool = False
    link: bool = False


def choose(files: Mapping[str, File]) -> tuple[dict[str, File], dict[str, list[str]]]:
    """The files that go out, by path, as students get them; and those that stay, by the reason."""
    out, left = {}, {}
    for path, file in sorted(files.items()):
        why = next((why for rule, why in _STAYS if rule.match(path)), None)
        if why:
            left.setdefault(why, []).append(path)
        else:
            out[path] = file if file.link else File(for_students(path, file.data), file.program)
    return out, left


def for_students(path: str, data: bytes) -> bytes:
    """A page or the Makefile without what is for course staff; any other file as it is."""
    if path == "Makefile":
        return _makefile(data.decode()).encode()
    if not path.endswith(".md"):
        return data
    text = _LINE.sub("", _BLOCK.sub("", data.decode()))
    if path == "notebooks/figures/README.md":
        text = _PICTURE.sub("", text)
    # The marks name the record that a table comes from; the record stays, the table goes.
    return (text if "hardware-survey" in path else _REGION.sub("", text)).encode()


def _makefile(text: str) -> str:
    gone = {match[1] for match in _TARGET.finditer(text)}
    text = _FROM.sub("", _TARGET.sub("", text))
    phony = re.search(r"^\.PHONY:(.*)$", text, re.MULTILINE)
    kept = " ".join(name for name in phony[1].split() if name not in gone)
    return f"{text[: phony.start()]}.PHONY: {kept}{text[phony.end() :]}"
