"""Skeletons rendered from solutions, the only hand-written side; imports no torch.

A second copy of each lies in grader/course/skeletons/: what `reset` brings back where there are no solutions,
whatever git has of the student's file by then.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from grader.course.todos import Todo, bound_names, lines_of, parse, placeholders_in
from grader.system.processes import run_tool

COPIES = Path("grader") / "course" / "skeletons"
_MARK = re.compile(r"#\s*(BEGIN|END)\s*TODO\b", re.IGNORECASE)  # any spelling, so that none is overlooked
_BEGIN = re.compile(r"(\s*)# BEGIN TODO (\d+): (.+) \(about \d+ lines?\)\s*")
# Code beyond the task: a skeleton has one comment in its place, and nothing to fill in.
_BONUS = re.compile(r"^(( *)# BONUS (\d+): .+\n)(?:.*\n)*?\2# END BONUS \3\n", re.MULTILINE)
_GIVEN = re.compile(r"^# GIVEN: ", re.MULTILINE)  # a file of which students get every line
# The two marks of a task with its leading comments and the code between, in CUDA C++.
_NATIVE_TASK = re.compile(
    r"^(?P<begin>(?P<indent> *)// BEGIN TODO (?P<number>\d+): (?P<text>.+) \(about \d+ lines?\)\n)"
    r"(?P<kept>(?: *//.*\n)*)(?! *//)(?:.*\n)+?(?P<end>(?P=indent)// END TODO (?P=number)\n)",
    re.MULTILINE,
)
_END = re.compile(r"(\s*)# END TODO (\d+)\s*")


class UncommittedWork(RuntimeError):  # noqa: N818, because the name already says what is wrong
    """A file that would be overwritten holds work that git cannot bring back."""


def render(source: str) -> str:
    """Skeleton of a solution: marked regions keep their leading comments, a placeholder stands for the code.

    ValueError, naming the line, unless the marks read BEGIN 1, END 1, BEGIN 2 and so on down the file, with
    code in each region; also for a file without a mark. SyntaxError where the solution has one. A file with
    the mark GIVEN, and then no other, stays as it is. Of a region BONUS only its task stays, as a comment.
    """
    source, bonuses = _BONUS.subn(r"\1", source)
    if bonuses != len(re.findall(r"^ *# (?:BONUS|END BONUS)\b", source, re.MULTILINE)):
        raise ValueError("a BONUS without its END, or an END without its BONUS")
    if _GIVEN.search(source):
        if _MARK.search(source):
            raise ValueError("GIVEN and TODO in one file: either all of it is handed out or a skeleton")
        return source
    lines, tree, marks = source.split("\n"), ast.parse(source), _marks(source)
    out, copied = [], 0
    for (begin, match), (end, _) in zip(marks[::2], marks[1::2], strict=True):
        kept = begin
        while lines[kept].lstrip().startswith("#") and kept < end - 1:
            kept += 1
        if not "".join(lines[kept : end - 1]).strip():
            raise ValueError(f"line {begin}: TODO {match[2]} holds no code")
        todo = Todo(int(match[2]), match[3], begin)
        out += lines[copied:kept] + [match[1] + line for line in _placeholders(todo, kept + 1, end, tree)]
        copied = end - 1
    return "\n".join(out + lines[copied:])


def without_bonuses(source: str) -> str:
    """The text with its TODOs done and no BONUS: what a student who stops there hands in."""
    return _BONUS.sub(r"\1", source)


def _marks(source: str) -> list[tuple[int, re.Match[str]]]:
    """Line and match of each mark; their one legal order leaves no room for gaps, repeats or nesting."""
    marks: list[tuple[int, re.Match[str]]] = []
    for at, line in enumerate(source.split("\n"), start=1):
        if _MARK.search(line):
            number, ends = len(marks) // 2 + 1, len(marks) % 2
            match = (_END if ends else _BEGIN).fullmatch(line)
            if not match or int(match[2]) != number or (ends and match[1] != marks[-1][1][1]):
                due = f"END TODO {number}" if ends else f"BEGIN TODO {number}: task (about 3 lines)"
                raise ValueError(f"line {at}: '# {due}' is due where '{line.strip()}' stands")
            marks.append((at, match))
    if not marks:
        raise ValueError("no TODO mark in the file; without one the skeleton hands out the whole solution")
    if len(marks) % 2:
        raise ValueError(f"line {marks[-1][0]}: TODO {marks[-1][1][2]} has no END")
    return marks


def _placeholders(todo: Todo, first: int, end: int, tree: ast.Module) -> list[str]:
    """What stands, before indentation, for the code in lines `first` to `end` - 1."""
    task = f"TODO {todo.number}: {todo.text}"
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    around = [node for node in functions if node.lineno < todo.line and first in lines_of(node)]
    if around:
        text = json.dumps(task, ensure_ascii=False)
        decorators = map(ast.unparse, max(around, key=lambda node: node.lineno).decorator_list)
        kernel = any(re.fullmatch(r"([\w.]+\.)?jit(\(.*\))?", decorator) for decorator in decorators)
        return [f"tl.static_assert(False, {text})" if kernel else f"raise NotImplementedError({text})"]
    # A raise at module level would stop the import, and with it the exercises that do not need this region.
    statements = [statement for statement in tree.body if todo.line < statement.lineno < end]
    if not (statements and all(map(bound_names, statements))):
        raise ValueError(f"line {todo.line}: outside a function, TODO {todo.number} may only define names")
    names = dict.fromkeys(name for statement in statements for name in bound_names(statement))
    return [f"{name} = None  # {task}" for name in names]


def only_adds_lines(skeleton: str, solution: str) -> list[str]:
    """Lines of the skeleton, placeholders aside, that the solution lacks or has in another order."""
    placeholders = {todo.line for todo in placeholders_in(skeleton, parse(skeleton))}
    rest, strange = solution.split("\n"), []
    for at, line in enumerate(skeleton.split("\n"), start=1):
        if at not in placeholders and line not in rest:
            strange.append(line)
        elif at not in placeholders:
            rest = rest[rest.index(line) + 1 :]
    return strange


def render_native(source: str) -> str | None:
    """The same of a CUDA C++ file, with `//` for `#` in the marks and an #error for each task; None for one
    that is not handed out: it has neither a TODO nor the mark GIVEN. ValueError where marks do not pair.
    """
    if re.search(r"^// GIVEN: ", source, re.MULTILINE):
        return source
    placeholder = r'\g<begin>\g<kept>\g<indent>#error "TODO \g<number>: \g<text>"\n\g<end>'
    rendered, tasks = _NATIVE_TASK.subn(placeholder, source)
    if len(re.findall(r"//\s*(?:BEGIN|END)\s*TODO\b", source)) != 2 * tasks:
        raise ValueError("a BEGIN TODO without its END, or an END without its BEGIN")
    numbers = [int(number) for number in re.findall(r'#error "TODO (\d+):', rendered)]
    if numbers != list(range(1, tasks + 1)):
        raise ValueError(f"TODOs are numbered {numbers}, not from 1 on")
    return rendered if tasks else None


def write_skeletons(root: Path) -> list[Path]:
    """Write the student files of labs/ and of the capstone from the solutions below `root`, and return them;
    on UncommittedWork write none.
    """
    texts = _rendered(root)
    lost = [str(path.relative_to(root)) for path, text in texts.items() if _would_lose(path, text)]
    if lost:
        raise UncommittedWork(f"nothing written, git has no copy of {', '.join(lost)}; commit it first")
    for path, text in {**texts, **_copies(root, texts)}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    return sorted(texts)


def outdated(root: Path) -> list[Path]:
    """The student files, and the copies of them, that are not what their solutions give; writes nothing."""
    texts = _rendered(root)
    wanted = {**texts, **_copies(root, texts)}
    return sorted(path for path, text in wanted.items() if not path.is_file() or path.read_bytes() != text)


def _rendered(root: Path) -> dict[Path, bytes]:
    """Each student file with its skeleton; ValueError with the solution that has none."""
    texts: dict[Path, bytes] = {}
    capstone = root / "solutions" / "gpu-programming"
    # Not the files that the log keeps of the worked example: they are no one's to fill in.
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
        raise FileNotFoundError(f"no solutions/lab*/*.py below {root}, so no skeleton to write")
    return texts


def _copies(root: Path, texts: dict[Path, bytes]) -> dict[Path, bytes]:
    """The second copy of each skeleton; what is given, and has no TODO, needs none."""
    tasks = {path: text for path, text in texts.items() if b"TODO " in text}
    return {root / COPIES / path.relative_to(root): text for path, text in tasks.items()}


def _would_lose(path: Path, text: bytes) -> bool:
    if not path.exists() or path.read_bytes() == text:
        return False
    # Ignored files count as well: git has no copy of them either.
    command = ["git", "status", "--porcelain", "--ignored", "--", path.name]
    status = run_tool(command, None, cwd=path.parent)
    return status.code != 0 or bool(status.output)
