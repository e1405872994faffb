"""Render the students' skeletons from the solutions, which are written by hand; imports no torch.

A second copy of each skeleton is in grader/course/skeletons/. `reset` restores it: students have no
solutions, and git may have only their own changes.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from grader.course.todos import Todo, bound_names, lines_of, parse, placeholders_in
from grader.system.processes import run_tool

COPIES = Path("grader") / "course" / "skeletons"
_MARK = re.compile(r"#\s*(BEGIN|END)\s*TODO\b", re.IGNORECASE)  # in any spelling, to find misspelt marks
_BEGIN = re.compile(r"(\s*)# BEGIN TODO (\d+): (.+) \(about \d+ lines?\)\s*")
# Code beyond the task: the skeleton has only its first comment, and nothing to fill in.
_BONUS = re.compile(r"^(( *)# BONUS (\d+): .+\n)(?:.*\n)*?\2# END BONUS \3\n", re.MULTILINE)
_GIVEN = re.compile(r"^# GIVEN: ", re.MULTILINE)  # a file that students get unchanged
# In CUDA C++: the two marks of a task, its leading comments and the code.
_NATIVE_TASK = re.compile(
    r"^(?P<begin>(?P<indent> *)// BEGIN TODO (?P<number>\d+): (?P<text>.+) \(about \d+ lines?\)\n)"
    r"(?P<kept>(?: *//.*\n)*)(?! *//)(?:.*\n)+?(?P<end>(?P=indent)// END TODO (?P=number)\n)",
    re.MULTILINE,
)
_END = re.compile(r"(\s*)# END TODO (\d+)\s*")


class UncommittedWork(RuntimeError):  # noqa: N818, because the name already says what is wrong
    """A file that would be overwritten has changes that git cannot restore."""


def render(source: str) -> str:
    """Return the skeleton of a solution: marked regions keep their leading comments and get a placeholder.

    A file with the mark GIVEN, which may have no other mark, is returned unchanged. A BONUS region keeps only
    its task, as a comment. ValueError, naming the line, unless the marks are BEGIN 1, END 1, BEGIN 2 and so
    on, with code in each region; also for a file without a mark. SyntaxError if the solution has one.
    """
    source, bonuses = _BONUS.subn(r"\1", source)
    if bonuses != len(re.findall(r"^ *# (?:BONUS|END BONUS)\b", source, re.MULTILINE)):
        raise ValueError("a BONUS without its END, or an END without its BONUS")
    if _GIVEN.search(source):
        if _MARK.search(source):
            raise ValueError("GIVEN and TODO in one file: hand out either the whole file or a skeleton")
        return source
    lines, tree, marks = source.split("\n"), ast.parse(source), _marks(source)
    out, copied = [], 0
    for (begin, match), (end, _) in zip(marks[::2], marks[1::2], strict=True):
        kept = begin
        while lines[kept].lstrip().startswith("#") and kept < end - 1:
            kept += 1
        if not "".join(lines[kept : end - 1]).strip():
            raise ValueError(f"line {begin}: TODO {match[2]} contains no code")
        todo = Todo(int(match[2]), match[3], begin)
        out += lines[copied:kept] + [match[1] + line for line in _placeholders(todo, kept + 1, end, tree)]
        copied = end - 1
    return "\n".join(out + lines[copied:])


def without_bonuses(source: str) -> str:
    """Return the solution without its BONUS regions, as from a student who did only the TODOs."""
    return _BONUS.sub(r"\1", source)


def _marks(source: str) -> list[tuple[int, re.Match[str]]]:
    """Return line and match of each mark; ValueError for gaps, repeats, nesting or a misspelt mark."""
    marks: list[tuple[int, re.Match[str]]] = []
    for at, line in enumerate(source.split("\n"), start=1):
        if _MARK.search(line):
            number, ends = len(marks) // 2 + 1, len(marks) % 2
            match = (_END if ends else _BEGIN).fullmatch(line)
            if not match or int(match[2]) != number or (ends and match[1] != marks[-1][1][1]):
                due = f"END TODO {number}" if ends else f"BEGIN TODO {number}: task (about 3 lines)"
                raise ValueError(f"line {at}: expected '# {due}', found '{line.strip()}'")
            marks.append((at, match))
    if not marks:
        raise ValueError("no TODO mark in the file; without one the skeleton hands out the whole solution")
    if len(marks) % 2:
        raise ValueError(f"line {marks[-1][0]}: TODO {marks[-1][1][2]} has no END")
    return marks


def _placeholders(todo: Todo, first: int, end: int, tree: ast.Module) -> list[str]:
    """Return the unindented placeholder lines for the code in lines `first` to `end` - 1."""
    task = f"TODO {todo.number}: {todo.text}"
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    around = [node for node in functions if node.lineno < todo.line and first in lines_of(node)]
    if around:
        text = json.dumps(task, ensure_ascii=False)
        decorators = map(ast.unparse, max(around, key=lambda node: node.lineno).decorator_list)
        kernel = any(re.fullmatch(r"([\w.]+\.)?jit(\(.*\))?", decorator) for decorator in decorators)
        return [f"tl.static_assert(False, {text})" if kernel else f"raise NotImplementedError({text})"]
    # A raise at module level would make the import fail, also for exercises that do not need this region.
    statements = [statement for statement in tree.body if todo.line < statement.lineno < end]
    if not (statements and all(map(bound_names, statements))):
        raise ValueError(f"line {todo.line}: outside a function, TODO {todo.number} may only define names")
    names = dict.fromkeys(name for statement in statements for name in bound_names(statement))
    return [f"{name} = None  # {task}" for name in names]


def only_adds_lines(skeleton: str, solution: str) -> list[str]:
    """Return lines of the skeleton, except placeholders, that the solution lacks or has in another order."""
    placeholders = {todo.line for todo in placeholders_in(skeleton, parse(skeleton))}
    rest, strange = solution.split("\n"), []
    for at, line in enumerate(skeleton.split("\n"), start=1):
        if at not in placeholders and line not in rest:
            strange.append(line)
        elif at not in placeholders:
            rest = rest[rest.index(line) + 1 :]
    return strange


def render_native(source: str) -> str | None:
    """Return the skeleton of a CUDA C++ file, with `//` in the marks and an #error as placeholder.

    None for a file with neither a TODO nor the mark GIVEN, which is not handed out. ValueError if the marks
    do not pair, or are not numbered from 1.
    """
    if re.search(r"^// GIVEN: ", source, re.MULTILINE):
        return source
    placeholder = r'\g<begin>\g<kept>\g<indent>#error "TODO \g<number>: \g<text>"\n\g<end>'
    rendered, tasks = _NATIVE_TASK.subn(placeholder, source)
    if len(re.findall(r"//\s*(?:BEGIN|END)\s*TODO\b", source)) != 2 * tasks:
        raise ValueError("a BEGIN TODO without its END, or an END without its BEGIN")
    numbers = [int(number) for number in re.findall(r'#error "TODO (\d+):', rendered)]
    if numbers != list(range(1, tasks + 1)):
        raise ValueError(f"TODOs are numbered {numbers}; number them from 1 without gaps")
    return rendered if tasks else None


def write_skeletons(root: Path) -> list[Path]:
    """Write the student files of labs/ and the capstone from the solutions below `root`; return their paths.

    UncommittedWork, before anything is written, if git could not restore a file.
    """
    texts = _rendered(root)
    lost = [str(path.relative_to(root)) for path, text in texts.items() if _would_lose(path, text)]
    if lost:
        raise UncommittedWork(f"nothing written: git has no copy of {', '.join(lost)}; commit it first")
    for path, text in {**texts, **_copies(root, texts)}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    return sorted(texts)


def outdated(root: Path) -> list[Path]:
    """Return the student files, and their copies, that differ from what their solutions give."""
    texts = _rendered(root)
    wanted = {**texts, **_copies(root, texts)}
    return sorted(path for path, text in wanted.items() if not path.is_file() or path.read_bytes() != text)


def _rendered(root: Path) -> dict[Path, bytes]:
    """Return each student file with its skeleton; ValueError names a solution that is not valid."""
    texts: dict[Path, bytes] = {}
    capstone = root / "solutions" / "gpu-programming"
    # This leaves out the files that the kernel log stores: students do not fill them in.
    kept = [*capstone.glob("*-kernels/[!_]*.py"), *capstone.glob("*-kernels/**/*.cu*")]
    for path in [*root.glob("solutions/lab*/[!_]*.py"), *kept]:
        native = path.suffix != ".py"
        target = (root if path in kept else root / "labs") / path.relative_to(root / "solutions")
        try:
            text = (render_native if native else render)(path.read_text("utf-8"))
        except (ValueError, SyntaxError) as error:
            raise ValueError(f"{path.relative_to(root)}: {error}") from error
        if text is not None:
            texts[target] = text.encode()
    if not texts:
        raise FileNotFoundError(f"no solutions/lab*/*.py below {root}, so there is no skeleton to write")
    return texts


def _copies(root: Path, texts: dict[Path, bytes]) -> dict[Path, bytes]:
    """Return the second copy of each skeleton; given files without a TODO need none."""
    tasks = {path: text for path, text in texts.items() if b"TODO " in text}
    return {root / COPIES / path.relative_to(root): text for path, text in tasks.items()}


def _would_lose(path: Path, text: bytes) -> bool:
    if not path.exists() or path.read_bytes() == text:
        return False
    # Git has no copy of ignored files either.
    command = ["git", "status", "--porcelain", "--ignored", "--", path.name]
    status = run_tool(command, None, cwd=path.parent)
    return status.code != 0 or bool(status.output)
