"""Follows where a string goes in some modules, to tell whether it is only shown.

Whatever is not known here is a use: a string is only shown if nothing else is possible.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from grader.classroom.grading.definitions import Definitions, Function, name_of, parameters
from grader.classroom.grading.looked_for import METHODS, Words, constants

# Fields whose values end in a report. A field of another name may be sent on by name, which is not followed.
SHOWN = frozenset({"where", "why", "words", "cause", "message", "help", "waiting", "fault", "assurance"})
SHOWING = frozenset({"pytest.skip", "pytest.fail", "warnings.warn"})
KEEP = frozenset(
    {"str", "harmless", "one_line", "printable", "list", "tuple", "sorted", "reversed", "iter", "fromkeys"}
)
KEEP_METHODS = frozenset({"strip", "lstrip", "rstrip", "lower", "upper", "capitalize"})
COUNT = frozenset({"len", "bool", "any", "all"})  # of several texts: says nothing of a text
Steps = tuple[int | str, ...]  # how it is taken from what holds it: an index, "*" of a list, "v" of a dict


class Flow:
    """Where one string after the other goes; `met` is what is looked for in it on its way."""

    def __init__(self, trees: Mapping[str, ast.Module]):
        self._definitions = Definitions(trees)
        self._seen: set[object] = set()
        self.met = Words()
        self.raised = False  # whether it is in an exception, whose text anybody may look at

    def only_shown(self, node: ast.AST) -> bool:
        """Return whether nothing but showing can happen to a string, apart from a search for `met`."""
        self._seen, self.met, self.raised = set(), Words(), False
        return self._shown(node, ())

    def _shown(self, node: ast.AST, steps: Steps) -> bool:
        parent, field = self._definitions.place(node)
        match parent:
            case ast.JoinedStr() | ast.FormattedValue():
                return field != "format_spec" and self._shown(parent, ())
            case ast.BoolOp() | ast.BinOp(op=ast.Add()):
                return self._shown(parent, steps)
            case ast.IfExp():
                return field == "test" or self._shown(parent, steps)
            case ast.UnaryOp(op=ast.Not()) | ast.If() | ast.While() | ast.Assert():
                return True
            case ast.Expr():
                return isinstance(
                    node, ast.Call
                )  # what it returns is dropped; a docstring is not asked about
            case ast.Starred():
                return self._spread(parent, steps)
            case ast.Tuple() | ast.List():
                return self._shown(parent, (_index(parent, node), *steps))
            case ast.Dict():
                return field == "values" and self._shown(parent, ("v", *steps))
            case ast.ListComp() | ast.GeneratorExp():
                return self._shown(parent, ("*", *steps))
            case ast.comprehension() | ast.For():
                looped = bool(steps) and steps[0] != "v" and self._bound(parent.target, steps[1:])
                return looped or field == "ifs"
            case ast.Subscript(slice=key):
                return field == "value" and self._taken(parent, key, steps)
            case ast.Compare() | ast.Attribute() | ast.Call() | ast.keyword():
                return self._asked(parent, node, field, steps)
        return self._stored(parent, field, steps)

    def _stored(self, parent: ast.AST, field: str, steps: Steps) -> bool:
        match parent:
            case ast.Assign(targets=targets):
                return all(self._bound(target, steps) for target in targets)
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target, op=ast.Add()):
                return field == "value" and self._bound(target, steps)
            case ast.Return() | ast.YieldFrom():
                return self._returned(parent, steps)
            case ast.Yield():
                return self._returned(parent, ("*", *steps))
        return False

    def _asked(self, parent: ast.AST, node: ast.AST, field: str, steps: Steps) -> bool:
        match parent:
            case ast.Compare():
                return self._compared(parent, node, steps)
            case ast.Attribute():
                return self._attribute(parent, steps)
            case ast.keyword(arg=name):
                call, _ = self._definitions.place(parent)
                return isinstance(call, ast.Call) and bool(name) and self._argument(call, name, -1, steps)
            case ast.Call(args=args):
                at = next((k for k, one in enumerate(args) if one is node), -1)
                certain = field == "args" and not any(isinstance(one, ast.Starred) for one in args[: at + 1])
                return certain and self._argument(parent, None, at, steps)
        return False

    def _compared(self, compare: ast.Compare, node: ast.AST, steps: Steps) -> bool:
        """Whether a comparison is with constants; they are then among what is looked for."""
        if len(compare.ops) != 1:
            return False
        op, left, right = compare.ops[0], compare.left, compare.comparators[0]
        if isinstance(op, (ast.Is, ast.IsNot)):
            return True
        inside = isinstance(op, (ast.In, ast.NotIn)) and node is right
        if steps:
            return inside and steps[0] == "v"  # among the keys
        found = constants(left if node is right else right, self._definitions.parent)
        (self.met.within if inside else self.met.whole).update(found or ())
        return found is not None

    def _spread(self, node: ast.Starred, steps: Steps) -> bool:
        above = self._definitions.parent(node)
        if not steps or not isinstance(above, (ast.Tuple, ast.List)):
            return False
        first = _index(above, node)
        place = first + steps[0] if isinstance(first, int) and isinstance(steps[0], int) else "*"
        return self._shown(above, (place, *steps[1:]))

    def _taken(self, parent: ast.Subscript, key: ast.AST, steps: Steps) -> bool:
        if isinstance(key, ast.Slice):
            return self._shown(parent, ("*", *steps[1:]) if steps else ())
        if not steps:
            return False
        number = key.value if isinstance(key, ast.Constant) else None
        if isinstance(number, int) and number >= 0 and isinstance(steps[0], int) and number != steps[0]:
            return True  # another one is taken
        return self._shown(parent, steps[1:])

    def _attribute(self, node: ast.Attribute, steps: Steps) -> bool:
        if not any(hasattr(kind, node.attr) for kind in ((list, tuple, dict) if steps else (str,))):
            return True  # of another value that has the same name
        call, field = self._definitions.place(node)
        if not isinstance(call, ast.Call) or field != "func":
            return False
        if not steps:
            said = [constants(one, self._definitions.parent) for one in call.args]
            known = node.attr in METHODS and None not in said
            if known:
                self.met.looked(node.attr, [word for words in said for word in words or ()])
            return known or (node.attr in KEEP_METHODS and not call.args and self._shown(call, ()))
        if steps[0] == "v":
            taken = {"get": steps[1:], "values": ("*", *steps[1:]), "items": ("*", 1, *steps[1:])}
            return node.attr in taken and self._shown(call, taken[node.attr])
        return node.attr in ("append", "extend", "insert")

    def _argument(self, call: ast.Call, keyword: str | None, at: int, steps: Steps) -> bool:
        name, method = name_of(call.func), isinstance(call.func, ast.Attribute)
        if self._is_exception(call) or ast.unparse(call.func) in SHOWING:
            self.raised = True
            return not steps and self._kept(call, keyword, at)
        if keyword:
            return self._passed(call, keyword, at, steps)
        match at, name:
            case (0, _) if name in KEEP:
                return self._shown(call, steps)
            case (1, "filter" | "get") | (1, "next"):
                return self._shown(call, steps)
            case (0, "next") if steps:
                return self._shown(call, steps[1:])
            case (0, "join") if method:
                return bool(steps) and steps[0] != "v" and self._shown(call, ())
            case (0, "append") if isinstance(call.func, ast.Attribute):
                return self._bound(call.func.value, ("*", *steps))
            case (0, "extend") if isinstance(call.func, ast.Attribute):
                return self._bound(call.func.value, steps)
        return (at == 0 and name in COUNT and bool(steps)) or self._passed(call, keyword, at, steps)

    def _passed(self, call: ast.Call, keyword: str | None, at: int, steps: Steps) -> bool:
        """Whether each function or class that may be called only shows an argument."""
        meant = self._definitions.meant(call.func)
        if keyword and name_of(call.func) == "replace":
            return self._field(keyword, steps)
        if keyword:  # a function without this parameter is not the one
            meant = [
                one for one in meant
                if not isinstance(one, Function) or keyword in parameters(one) or one.args.kwarg
            ]  # fmt: skip
        if not meant:
            return bool(keyword) and self._field(keyword or "", steps)
        for one in meant:
            if isinstance(one, Function):
                if not self._parameter(one, keyword, at, steps):
                    return False
            elif not self._constructed(one, keyword, at, steps):
                return False
        return True

    def _is_exception(self, call: ast.Call) -> bool:
        name = name_of(call.func)
        if name == "__init__":
            own = self._definitions.enclosing(call, ast.ClassDef)
            name = own.name if own else ""
        raised = isinstance(self._definitions.parent(call), ast.Raise)
        return raised or name.endswith(("Error", "Exception"))

    def _kept(self, call: ast.Call, keyword: str | None, at: int) -> bool:
        """Whether an exception only shows an argument: its own `__init__` may keep it under a name."""
        own = [part for one in self._definitions.meant(call.func) for part in one.body]
        made = [one for one in own if isinstance(one, Function) and one.name == "__init__"]
        return all(self._parameter(one, keyword, at, ()) for one in made)

    def _constructed(self, one: ast.ClassDef, keyword: str | None, at: int, steps: Steps) -> bool:
        fields = [part.target for part in one.body if isinstance(part, ast.AnnAssign)]
        place = name_of(fields[at]) if 0 <= at < len(fields) and not one.bases else ""
        return self._field(keyword or place, steps)

    def _parameter(self, function: Function, keyword: str | None, at: int, steps: Steps) -> bool:
        names = [one.arg for one in [*function.args.posonlyargs, *function.args.args]]
        static = any(name_of(one) == "staticmethod" for one in function.decorator_list)
        if isinstance(self._definitions.parent(function), ast.ClassDef) and not static:
            names = names[1:]
        name = keyword or (names[at] if 0 <= at < len(names) else "")
        return name in parameters(function) and self._variable(function, name, steps)

    def _bound(self, target: ast.AST, steps: Steps) -> bool:
        match target:
            case ast.Name(id=name):
                return self._variable(self._definitions.scope(target), name, steps)
            case ast.Attribute(attr=name):
                return self._field(name, steps)
            case ast.Subscript(value=ast.Name(id=name)):
                return self._variable(self._definitions.scope(target), name, ("v", *steps))
            case ast.Tuple(elts=parts) if steps and not any(isinstance(one, ast.Starred) for one in parts):
                chosen = parts[steps[0] : steps[0] + 1] if isinstance(steps[0], int) else parts
                return all(self._bound(part, steps[1:]) for part in chosen)
        return False

    def _field(self, name: str, steps: Steps) -> bool:
        uses = self._definitions.attributes(name)
        return name in SHOWN and bool(uses) and self._all(("field", name, steps), uses, steps)

    def _variable(self, scope: ast.AST, name: str, steps: Steps) -> bool:
        uses = self._definitions.uses(name, scope)
        if uses is None or not (uses or isinstance(scope, Function)):
            return False
        return self._all(("variable", scope, name, steps), uses, steps)

    def _returned(self, node: ast.AST, steps: Steps) -> bool:
        function = self._definitions.scope(node)
        uses = self._definitions.results(function) if isinstance(function, Function) else None
        return bool(uses) and self._all(("returned", function, steps), uses or (), steps)

    def _all(self, key: object, uses: Sequence[ast.expr], steps: Steps) -> bool:
        """Whether all uses show a value; what is being looked at already does no more than the others."""
        if key in self._seen:
            return True
        self._seen.add(key)
        return all(self._shown(one, steps) for one in uses)


def _index(holder: ast.Tuple | ast.List, node: ast.AST) -> int | str:
    """Return the place in a tuple, "*" in a list or behind something of unknown length."""
    at = next(k for k, one in enumerate(holder.elts) if one is node)
    spread = any(isinstance(one, ast.Starred) for one in holder.elts[:at])
    return "*" if spread or isinstance(holder, ast.List) else at
