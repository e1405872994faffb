"""What modules look for in a text: a sentence that has it decides something, and is not only shown."""

from __future__ import annotations

import ast
import contextlib
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache

STARTS = frozenset({"startswith", "removeprefix"})
ENDS = frozenset({"endswith", "removesuffix"})
METHODS = STARTS | ENDS | {"partition", "rpartition", "find", "rfind", "index", "count"}
KEYED = frozenset({"get", "pop", "setdefault"})
PATTERNS = frozenset({"compile", "search", "match", "fullmatch", "findall", "finditer", "split", "sub"})
NO_TEXTS = frozenset({"sys.modules", "os.environ"})
LEAST = 3  # letters; what is shorter is looked for in names and paths
Above = Callable[[ast.AST], ast.AST | None]
NONSENSE = "zqx jvw"
VALUE = "\0"  # stands for a value in an f-string


def parts(node: ast.AST | None) -> list[str]:
    """Return a string as one part, an f-string as its literal parts with VALUE for each value, or nothing."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=values):
            return [str(one.value) if isinstance(one, ast.Constant) else VALUE for one in values]
    return []


def constants(node: ast.AST, above: Above) -> list[str] | None:
    """Return the strings that an expression may be, None if it may be something else.

    A name is known if a loop around it goes over constants.
    """
    match node:
        case ast.Constant(value=value):
            return [value] if isinstance(value, str) else []
        case ast.Tuple(elts=elts) | ast.List(elts=elts) | ast.Set(elts=elts):
            return _joined(constants(one, above) for one in elts)
        case ast.Dict(keys=keys):
            return _joined(constants(one, above) if one else None for one in keys)
        case ast.Name(id=name):
            return _looped(node, name, above)
    return None


def _joined(found: Iterable[list[str] | None]) -> list[str] | None:
    every = list(found)
    return None if None in every else [word for words in every for word in words or ()]


def _looped(node: ast.AST, name: str, above: Above) -> list[str] | None:
    """Return the constants that a loop gives a name, over a literal or over a constant of the module."""
    loops: list[ast.comprehension | ast.For] = []
    module, outer = node, above(node)
    while outer:
        loops += [outer] if isinstance(outer, ast.For) else getattr(outer, "generators", [])
        module, outer = outer, above(outer)
    for loop in loops:
        first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else loop.target
        if isinstance(first, ast.Name) and first.id == name:
            over = loop.iter
            if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and not over.args:
                over = over.func.value if over.func.attr in ("items", "keys") else over
            found = _value(module, over.id) if isinstance(over, ast.Name) else over
            return constants(found, above) if found and not isinstance(found, ast.Name) else None
    return None


def _value(module: ast.AST, name: str) -> ast.AST | None:
    """Return what a name of the module stands for, None if that is not one expression."""
    values = [
        one.value
        for one in getattr(module, "body", [])
        if isinstance(one, (ast.Assign, ast.AnnAssign))
        for target in (one.targets if isinstance(one, ast.Assign) else [one.target])
        if isinstance(target, ast.Name) and target.id == name
    ]
    return values[0] if len(values) == 1 else None


class Words:
    """Words that may be in a text or at an end of its lines, strings that may be all of it, and patterns."""

    def __init__(self) -> None:
        self.within: set[str] = set()
        self.starts: set[str] = set()
        self.ends: set[str] = set()
        self.whole: set[str] = set()
        self.patterns: set[str] = set()

    def has(self, text: Sequence[str]) -> bool:
        """Return whether a text, in parts, has what is looked for, or may have with a value beside it."""
        joined = "".join(text)
        words = [word for word in self.within if sum(map(str.isalpha, word)) >= LEAST]
        exact = re.compile("".join(".*" if one == VALUE else re.escape(one) for one in text), re.DOTALL)
        return (
            any(word in joined for word in words)
            or any(line.strip().startswith(tuple(self.starts)) for line in joined.split("\n"))
            or any(line.strip().endswith(tuple(self.ends)) for line in joined.split("\n"))
            or any(_pattern(one).search(joined) for one in self.patterns)
            or any(exact.fullmatch(one) for one in self.whole)
            or any(_overlap(text, word) for word in (*words, *self.starts, *self.ends))
        )

    def looked(self, method: str, words: Collection[str]) -> None:
        """Take up what a method of METHODS looks for."""
        (self.starts if method in STARTS else self.ends if method in ENDS else self.within).update(words)


def everywhere(trees: Iterable[ast.Module]) -> Words:
    """Return all that some modules look for in any string."""
    found = Words()
    for tree in trees:
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(tree):
            _take(found, node, parents.get)
    plain = re.compile(rf"(?<![\\A-Za-z])[A-Za-z]{{{LEAST}}}")
    found.patterns = {one for one in found.patterns if plain.search(one) and not _takes_apart(one)}
    return found


def _take(found: Words, node: ast.AST, above: Above) -> None:
    match node:
        case ast.Compare(ops=ops):
            sides = [node.left, *node.comparators]
            for op, left, right in zip(ops, sides, sides[1:], strict=False):
                found.whole |= {word for one in (left, right) for word in constants(one, above) or ()}
                if isinstance(op, (ast.In, ast.NotIn)) and ast.unparse(right) not in NO_TEXTS:
                    found.within |= set(constants(left, above) or ())
        case ast.Call(func=ast.Attribute(attr=name), args=[first, *_]):
            known = set(constants(first, above) or ())
            if name in METHODS:
                found.looked(name, known)
            found.whole |= known if name in KEYED else set()
            found.patterns |= set(parts(first)) if name in PATTERNS else set()
        case ast.MatchValue(value=value) | ast.Subscript(slice=value):
            found.whole |= set(parts(value))
        case ast.Dict(keys=keys):
            found.whole |= {word for one in keys for word in parts(one)}
        case ast.Set(elts=elts):
            found.whole |= {word for one in elts for word in parts(one)}
        case ast.ClassDef(body=body):  # values of an enum, which also choose its member
            values = [one.value for one in body if isinstance(one, ast.Assign)]
            found.whole |= {word for one in values for word in parts(one)}


@lru_cache
def _takes_apart(pattern: str) -> bool:
    """Return whether a pattern finds something in nonsense: it takes texts apart, and looks for no words."""
    with contextlib.suppress(re.error):
        return re.search(pattern, NONSENSE) is not None
    return False


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error:
        return re.compile("")  # matches everything, for want of knowledge


def _overlap(text: Sequence[str], word: str) -> bool:
    """Whether a word may begin before a value, or end behind it, and the value has the rest."""
    return any(
        (behind == VALUE and before.endswith(word[:n])) or (before == VALUE and behind.startswith(word[-n:]))
        for before, behind in itertools.pairwise(text)
        for n in range(LEAST + 1, len(word))
    )
