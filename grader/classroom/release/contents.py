"""Choose the files of a release, and remove the parts of pages that are for course staff."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# Excluded paths with the reason; the first match counts, and files without a match are released.
PAGE = r"(page\.html|(figure|program_life)\.(js|css))"  # what `make show` draws a page with
STAYS = (
    (r"solutions/", "solutions, wrong answers, variants, and records of their runs"),
    (r"notebooks/.*\.py", "sources from which the notebooks are built"),
    (r"grader/tests/(?!{tests})", "tests that contain answers, cheats or faults, or test staff commands"),
    (r"\.ci/|\.pre-commit-config\.yaml", "checks before a commit to the course"),
    (r"\.github/(?!workflows/grade-cpu\.yml)", "workflows for the course's own runners"),
    (r"\.dockerignore", "build settings of the course's image"),
    (r"grader/classroom/release/.*\.toml", "the list of lines that are exempt from the search for answers"),
    (r"grader/classroom/ci/(?!grade\.sbatch)", "templates for course staff's runners and clusters"),
    (r"grader/classroom/.*\.(md|png)", "pages for instructors"),
    (r"grader/[A-Z]+\.md|grader/site/architecture/.*\.(md|svg)", "pages for developers of the grader"),
    (r"notebooks/figures/screenshots/", "screenshots of the figures"),
    (rf"notebooks/figures/src/(?!{PAGE}$)", "sources of the figures, but for the page of one's own kernel"),
)  # fmt: skip
# Tests that show whether the grader works on a machine, and hold no answer.
TESTS = (
    "conftest", "course/test_spec", "judge/test_comparison", "judge/test_inputs", "results/test_scoring",
    "judge/test_statistics", "worker/interpreted/test_known_and_left_out", "worker/test_protocol",
    "worker/test_shared_memory", "helpers/commands", "helpers/corpus_counts", "helpers/course",
    "helpers/result_fakes", "helpers/submissions",
)  # fmt: skip
_STAYS = [(re.compile(rule.replace("{tests}", rf"(?:{'|'.join(TESTS)})\.py$")), why) for rule, why in STAYS]

_BLOCK = re.compile(r"^<!-- STAFF -->\n.*?^<!-- /STAFF -->\n", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^.*<!-- STAFF -->\n", re.MULTILINE)  # comment lines cannot enclose a row of a table
_REGION = re.compile(r"^<!-- (?:BEGIN \w+(?: \S+)?|END) -->\n", re.MULTILINE)
_PICTURE = re.compile(r"^<picture>\n.*?^</picture>\n\n?", re.MULTILINE | re.DOTALL)
# A Makefile target, up to the next empty line, whose help marks it as for course staff.
_TARGET = re.compile(r"^([a-z-]+):.*\(course staff\).*\n(?:.+\n)*\n?", re.MULTILINE)
_FROM = re.compile(r",? FROM=solutions\b")


@dataclass(frozen=True)
class File:
    """A file of a tree; for a link, `data` is its target."""

    data: bytes
    program: bool = False
    link: bool = False


def choose(files: Mapping[str, File]) -> tuple[dict[str, File], dict[str, list[str]]]:
    """Return the released files by path, as students get them, and the excluded paths by reason."""
    out, left = {}, {}
    for path, file in sorted(files.items()):
        why = next((why for rule, why in _STAYS if rule.match(path)), None)
        if why:
            left.setdefault(why, []).append(path)
        else:
            out[path] = file if file.link else File(for_students(path, file.data), file.program)
    return out, left


def for_students(path: str, data: bytes) -> bytes:
    """Return a page or the Makefile without the parts for course staff; other files unchanged."""
    if path == "Makefile":
        return _makefile(data.decode()).encode()
    if not path.endswith(".md"):
        return data
    text = _LINE.sub("", _BLOCK.sub("", data.decode()))
    if path == "notebooks/figures/README.md":
        text = _PICTURE.sub("", text)
    # The marks name the record of a table; the record is not released, but the table is.
    return (text if "hardware-survey" in path else _REGION.sub("", text)).encode()


def _makefile(text: str) -> str:
    removed = {match[1] for match in _TARGET.finditer(text)}
    text = _FROM.sub("", _TARGET.sub("", text))
    phony = re.search(r"^\.PHONY:(.*)$", text, re.MULTILINE)
    kept = " ".join(name for name in phony[1].split() if name not in removed)
    return f"{text[: phony.start()]}.PHONY: {kept}{text[phony.end() :]}"
