"""Write a release into an empty folder, or update an earlier release without changing students' files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from grader.classroom.release.answers import Answers
from grader.classroom.release.contents import File, choose
from grader.classroom.release.exemptions import exemptions, without_exempted, without_lines
from grader.classroom.release.source import ReleaseError, blobs
from grader.classroom.release.stages import in_order, lab_word, labs_of, of_labs
from grader.classroom.release.token_search import Fingerprints
from grader.classroom.release.withheld import answer_in, hold_back
from grader.course import catalog
from grader.course.skeleton import COPIES
from grader.system import files

MANIFEST = ".release.json"
_ANSWERED = b"_your words_"  # marks a page with questions that students answer


@dataclass(frozen=True)
class Made:
    """Files written, files removed, and students' files that were kept although their skeleton changed."""

    written: int
    removed: tuple[str, ...]
    kept: tuple[str, ...]


def plan(
    tree: Mapping[str, File],
    answers: Answers,
    labs: Collection[str] | None = None,
    again: Fingerprints | None = None,
) -> tuple[dict[str, File], dict[str, list[str]], list[str]]:
    """Return released files, excluded paths by reason, and replaced parts; `labs` are those that are out.

    Raises ReleaseError for a link and for an answer that `answers`, or the second search `again`, finds.
    """
    chosen, left = choose(tree)
    if labs is not None:
        chosen, later = of_labs(chosen, labs)
        left |= {f"held back until {lab_word(lab)} is out": later[lab] for lab in in_order(later)}
    links = [path for path, file in chosen.items() if file.link]
    if links:
        raise ReleaseError(f"a symbolic link, which a release must not contain: {', '.join(links)}")
    chosen, held = hold_back(chosen, answers)
    check(chosen, answers, again)
    return chosen, left, held


def check(chosen: Mapping[str, File], answers: Answers, again: Fingerprints | None = None) -> None:
    """Raise ReleaseError with every file that holds an answer, and the source of the answer.

    Exempted lines are skipped. `again` is the second search; where it is missing, only the first one looks.
    """
    searched = without_exempted(chosen, exemptions())
    found = {path: answer_in(file.data, answers) for path, file in searched.items()}
    for path, file in searched.items() if again else ():
        found[path] = found[path] or again.found_in(file.data)
    lines = [f"{path} holds an answer: {source}" for path, source in found.items() if source]
    if lines:
        raise ReleaseError("\n".join([*lines, "nothing was written"]))


def students_files(chosen: Mapping[str, File], root: Path = catalog.ROOT) -> set[str]:
    """Return the paths that students write: skeletons, capstone documents, pages with questions."""
    asked = set()
    for entry in [*catalog.find(root / "labs"), *catalog.capstone(root)]:
        for exercise in entry.lab.exercises:
            asked.add(str(entry.submission(root / "labs", exercise).relative_to(root)))
    pages = {path for path, file in chosen.items() if path.endswith(".md") and _ANSWERED in file.data}
    return asked & set(chosen) | pages


def write(
    chosen: Mapping[str, File],
    out: Path,
    commit: str,
    answers: Answers,
    theirs: set[str],
) -> Made:
    """Write or update the tree. Raises ReleaseError before writing if a change or a lab would be lost."""
    before = earlier(out)
    recalled = [lab for lab in labs_of(before) if lab not in labs_of(chosen)]
    if recalled:
        raise ReleaseError(f"already released in {out}: {', '.join(recalled)}; name all released labs again")
    if (out / ".git").exists():
        check_history(out, answers)
    kept = [path for path in sorted(theirs) if path in before and (out / path).is_file()]
    new = {path: file for path, file in chosen.items() if path not in kept}
    lost = [
        path
        for path in sorted({*new, *before} - set(kept))
        if _changed(out / path, before.get(path), new.get(path))
    ]
    if lost:
        raise ReleaseError(f"changed in {out} by hand, and would be lost: {', '.join(lost[:8])}")
    gone = [path for path in before if path not in chosen and (out / path).is_file()]
    written = 0
    for path, file in new.items():
        written += _put(out / path, file)
    for path in gone:
        (out / path).unlink()
    hashes = {path: _hash((out / path).read_bytes()) for path in sorted(chosen)}
    files.replace(out / MANIFEST, json.dumps({"commit": commit, "files": hashes}, indent=1) + "\n")
    other = tuple(
        path
        for path in kept
        if (out / path).read_bytes() != chosen[path].data and str(COPIES / path) in chosen
    )
    return Made(written, tuple(gone), other)


def earlier(out: Path) -> dict[str, str]:
    """Return hashes by path of an earlier release, {} for a new folder. Raises ReleaseError otherwise."""
    if not out.exists() or (out.is_dir() and not [one for one in out.iterdir() if one.name != ".git"]):
        return {}
    try:
        return dict(json.loads((out / MANIFEST).read_text("utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ReleaseError(f"{out} is neither empty nor an earlier release; name another folder") from None


def check_history(out: Path, answers: Answers) -> None:
    """Raise ReleaseError if any commit of the repository in `out` holds an answer."""
    listed = exemptions()
    for name, data in blobs(out).items():
        source = answer_in(without_lines(data, listed), answers)
        if source:
            raise ReleaseError(
                f"the history of {out} holds an answer ({source}, object {name[:12]}): every clone has it. "
                "Start a new repository; nothing was written"
            )


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _changed(path: Path, handed: str | None, new: File | None) -> bool:
    """Whether the file at `path` was written by neither the earlier release nor this one."""
    if not path.exists() and not path.is_symlink():
        return False
    if path.is_symlink() or not path.is_file():
        return True
    found = _hash(path.read_bytes())
    return found != handed and (new is None or found != _hash(new.data))


def _put(path: Path, file: File) -> bool:
    """Write a file if its bytes or mode differ; return whether it was written."""
    mode = 0o755 if file.program else 0o644
    if path.is_file() and path.read_bytes() == file.data and path.stat().st_mode & 0o777 == mode:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    files.replace(path, file.data)
    path.chmod(mode)
    return True
