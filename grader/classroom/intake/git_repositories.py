"""Read a submitted git repository: the files of its HEAD commit, from git objects only.

Git runs in an empty repository that borrows the submission's objects. No hook, filter, attribute,
replacement or configuration of the submission is read, and nothing is fetched.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grader.classroom.intake.contents import MOST_MEMBERS, Kind, Member, RefusedError, UnreadableError, most
from grader.system.files import read_bytes
from grader.system.processes import DEVNULL, PIPE, Child, LimitError, run_tool

OBJECT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
REF = re.compile(r"refs/[A-Za-z0-9][\w./+@-]*")
LIMIT_S = 60.0
HISTORY_S = 10.0  # time limit for the history of one file
HISTORY_BYTES = 2 << 30  # address space limit: old commits can have any size
MOST_LINE = 8192  # bytes of one entry of a tree
SETTINGS = (
    "core.hooksPath=/dev/null",
    "protocol.allow=never",
    "core.fsmonitor=false",
    "core.packedGitLimit=256m",
    "core.bigFileThreshold=1m",
)


@dataclass(frozen=True)
class Commit:
    """The HEAD commit of a repository."""

    name: str
    committed: int  # seconds since 1970, as set by the committer


def is_repository(folder: Path) -> bool:
    """Whether a folder is a git repository, bare or with a work tree."""
    inner = folder / ".git"
    return inner.exists() or inner.is_symlink() or all((folder / n).exists() for n in ("HEAD", "objects"))


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[tuple[Commit, Iterator[Member]]]:
    """Yield HEAD and its files. Raises RefusedError if the repository points outside itself or is damaged."""
    if not shutil.which("git"):
        raise RefusedError("git is not installed on this machine")
    inner = folder / ".git" if not (folder / "objects").exists() or (folder / ".git").exists() else folder
    _check(inner)
    name = _head(inner)
    own = Path(tempfile.mkdtemp(prefix="grader-git-"))
    try:
        (own / "refs").mkdir()
        (own / "objects").mkdir()
        (own / "HEAD").write_text("ref: refs/heads/none\n")
        if len(name) == 64:
            (own / "config").write_text(
                "[core]\n repositoryformatversion = 1\n[extensions]\n objectformat = sha256\n"
            )
        git = _Git(own, inner / "objects")
        yield Commit(name, git.committed(name)), git.members(name)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _check(inner: Path) -> None:
    """Raise RefusedError for anything that makes git read outside this folder."""
    for path in (inner, inner / "objects"):
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            raise RefusedError(f"{path.name} of the repository is missing") from None
        if not stat.S_ISDIR(mode):
            raise RefusedError(f"{path.name} of the repository is a link or a file, not a folder")
    for name in ("objects/info/alternates", "objects/info/http-alternates", "commondir"):
        if os.path.lexists(inner / name):
            raise RefusedError(f"the repository borrows from another one ({name}): hand in a full clone")
    count = 0
    for where, folders, files in os.walk(inner / "objects"):
        count += len(files)
        if count > MOST_MEMBERS:
            raise RefusedError(f"the repository has more than {MOST_MEMBERS:,} loose objects and packs")
        for one in (*folders, *files):
            if os.path.islink(os.path.join(where, one)):
                raise RefusedError("the repository has a link among its objects")


def _head(inner: Path) -> str:
    """Return the hash of the HEAD commit without running git. Raises RefusedError if there is none."""
    try:
        text = read_bytes(inner / "HEAD", 1024).decode("ascii").strip()
        if text.startswith("ref: "):
            text = _resolved(inner, text.removeprefix("ref: ").strip())
    except (OSError, ValueError) as error:
        raise RefusedError(f"the repository's HEAD cannot be read: {error}") from None
    if not OBJECT.fullmatch(text):
        raise RefusedError("the repository's HEAD names no commit: nothing was committed")
    return text


def _resolved(inner: Path, ref: str) -> str:
    if not REF.fullmatch(ref) or ".." in ref or "//" in ref:
        raise ValueError("it names a branch with an invalid name")
    loose = inner / ref
    for parent in loose.relative_to(inner).parents:
        if (inner / parent).is_symlink():
            raise ValueError("a link among its branches")
    if loose.exists() or loose.is_symlink():
        return read_bytes(loose, 1024).decode("ascii").strip()
    packed = inner / "packed-refs"
    lines = read_bytes(packed).decode("utf-8", "replace").splitlines() if packed.exists() else []
    return next((line.split()[0] for line in lines if line.split()[1:] == [ref]), "")


class _Git:
    """Runs git on the objects of a submission."""

    def __init__(self, own: Path, objects: Path):
        self._command = ["git", "--git-dir", str(own), "--no-replace-objects", "--literal-pathspecs"]
        self._has_history = True
        for setting in SETTINGS:
            self._command += ["-c", setting]
        self._environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(own),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
            # Quoted, because a colon in the path would separate two folders.
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(str(objects.resolve())),
        }

    def _run(self, *arguments: str) -> bytes:
        try:
            done = run_tool([*self._command, *arguments], LIMIT_S, env=self._environment)
        except LimitError:
            raise RefusedError("git did not end in time on this repository") from None
        if done.code:
            words = done.complaint.splitlines()
            raise RefusedError(f"the repository is damaged: {words[-1][:200] if words else 'git failed'}")
        return done.output

    def committed(self, name: str) -> int:
        """Return the committer's date, in seconds since 1970."""
        if self._run("cat-file", "-t", name).strip() != b"commit":
            raise RefusedError("the repository's HEAD names no commit")
        if int(self._run("cat-file", "-s", name)) > 1 << 20:
            raise RefusedError("the message of the repository's last commit is too long")
        header = self._run("cat-file", "commit", name).partition(b"\n\n")[0]
        date = re.search(rb"^committer .*> (\d{1,12}) [+-]\d{4}$", header, re.MULTILINE)
        if not date:
            raise RefusedError("the repository's last commit has no date")
        return int(date[1])

    def members(self, name: str) -> Iterator[Member]:
        """Yield the files of a commit; RefusedError as soon as there are more than MOST_MEMBERS."""
        command = [*self._command, "ls-tree", "-r", "-z", "-l", "--full-tree", name]
        with Child(command, env=self._environment, stdout=PIPE, stderr=DEVNULL) as git:
            for count, line in enumerate(_records(git.stdout)):
                if count >= MOST_MEMBERS:
                    raise RefusedError(f"the repository holds more than {MOST_MEMBERS:,} files")
                yield self._member(name, line)
            if git.wait(LIMIT_S) != 0:
                raise RefusedError("the repository is damaged: its files cannot be listed")

    def _member(self, commit: str, line: bytes) -> Member:
        facts, _, path = line.partition(b"\t")
        mode, kind, name, size = facts.decode("ascii").split()
        shown = path.decode("utf-8", "replace")
        if mode == "120000" or kind != "blob":
            return Member(shown, Kind.LINK if kind == "blob" else Kind.OTHER, 0, lambda: b"")
        # git reports "BAD" as the size of a missing object.
        return Member(
            shown, Kind.FILE, int(size) if size.isdigit() else 0, lambda: self._blob(name),
            dated=lambda: self._changed(commit, path),
        )  # fmt: skip

    def _changed(self, commit: str, path: bytes) -> int | None:
        """Return the date of the last commit that changed a file; None without a history or on timeout."""
        if not self._has_history:
            return None
        try:
            done = run_tool(
                [*self._command, "log", "-1", "--format=%ct", commit, "--", path], HISTORY_S,
                env=self._environment,
                prepare=lambda: resource.setrlimit(resource.RLIMIT_AS, (HISTORY_BYTES, HISTORY_BYTES)),
            )  # fmt: skip
            if not done.code:
                return int(done.output)
        except (LimitError, OSError, ValueError):
            pass
        self._has_history = False  # do not wait for the timeout once per file
        return None

    def _blob(self, name: str) -> bytes:
        try:
            most(int(self._run("cat-file", "-s", name)))
            return self._run("cat-file", "blob", name)
        except RefusedError as error:
            raise UnreadableError(str(error)) from None


def _quoted(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _records(stream) -> Iterator[bytes]:
    """Split a stream at zero bytes. Raises RefusedError for a record that is too long."""
    rest = b""
    while True:
        block = stream.read1(1 << 16)
        if not block:
            return
        *whole, rest = (rest + block).split(b"\0")
        yield from whole
        if len(rest) > MOST_LINE:
            raise RefusedError("the repository has a file name that is too long")
