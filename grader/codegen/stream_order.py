"""Whether all work of a CUDA C++ file is queued on the stream that its host function was given.

It reads the text that the preprocessor handed to the compiler: macros are expanded, comments are gone, and
includes are in. Symbols cannot show a stream, so a stream's name may stand only where it is passed on
unchanged; what is not a known use is refused. `cuda_calls` has the lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grader.codegen import cuda_calls as calls
from grader.codegen.cpp_tokens import NAME, Program, Text

STREAM, CONFIG = "cudaStream_t", "cudaLaunchConfig_t"
_OTHER_STREAMS = {"CUstream", "CUstream_st", "cudaLaunchConfig_st", "CUlaunchConfig", "CUlaunchConfig_st"}


@dataclass(frozen=True)
class Finding:
    """Something that a file may not do; its line, or 0 if unknown, and what to write instead."""

    words: str
    line: int
    instead: str
    file: str = ""  # a header of the student; "" for the file itself

    def __str__(self) -> str:
        place = f", line {self.line}{f' of {self.file}' if self.file else ''}" if self.line else ""
        return f"{self.words}{place}: {self.instead}"


@dataclass
class _Config:
    """A launch configuration: the bracket that it is declared in, and whether its stream has been set."""

    scope: int
    given: bool = False


class _Check:
    """Streams of a program, where they come from and where they go."""

    def __init__(self, program: Program, main: str):
        self.p, self.main = program, main
        self.findings: list[Finding] = []
        self.streams: set[str] = set()
        self.declared: set[int] = set()  # tokens that declare a stream
        self.functions: dict[str, set[tuple[int, int]]] = {}  # a stream's position, and the parameters
        self.lists: set[int] = set()  # brackets of parameter lists
        self.overloads: set[tuple[str, int]] = set()  # without a stream: name and number of parameters
        self.configs: dict[str, _Config] = {}
        self.aliases: dict[int, int] = {}  # tokens from which another name is made, and where it begins

    @property
    def shown(self) -> str:
        """The name in advice."""
        return min(self.streams, key=lambda name: (name != "stream", name), default="stream")

    def refuse(self, index: int, what: str, instead: str) -> None:
        file, line = self.p.places[index]
        self.findings.append(Finding(what, line, instead, "" if file == self.main else file))

    def run(self) -> list[Finding]:
        p = self.p
        if p.broken >= 0:
            self.refuse(
                p.broken, f"{p.tokens[p.broken]} has no partner", "close each bracket where it was opened"
            )
            return self.findings
        for index, token in enumerate(p.tokens):
            if token == STREAM:
                self._declaration(index)
            elif token == CONFIG:
                self._configuration(index)
        for value, index in self.aliases.items():
            # Only of a name that was declared before it: a stream made from itself has no value.
            if not any(p.tokens[one] == p.tokens[value] for one in self.declared if one < index):
                self._another(index)
        for index, token in enumerate(p.tokens):
            bracket = p.list_of(index) if token in self.functions else -1
            if bracket >= 0 and bracket not in self.lists and self._is_overload(index, bracket):
                self.overloads.add((token, len(p.arguments(bracket))))
        for index, token in enumerate(p.tokens):
            self._token(index, token)
        return self.findings

    def _declaration(self, index: int) -> None:
        p = self.p
        name = index + 1 + (p.at(index + 1) == "const")
        bracket, after = p.opener[index], p.at(name + 1)
        in_list = bracket >= 0 and p.tokens[bracket] == "("
        if in_list and after in (",", ")") and NAME.fullmatch(p.at(name)):
            function = p.called(bracket)
            if function < 0:
                self.refuse(index, "a lambda or a pointer takes a stream", "write a function with a name")
                return
            self._parameter(index, function, bracket)
            self.streams.add(p.tokens[name])
            self.declared.add(name)
        elif in_list and p.at(index + 1) in (",", ")") and (p.at(index - 1) == "," or p.called(bracket) >= 0):
            function = p.called(bracket)
            if function >= 0:
                self._parameter(index, function, bracket)
        elif after in ("=", "{", "(") and NAME.fullmatch(p.at(name)) and p.at(index - 1) != "static":
            first = name + 2
            closes = {"{": "}", "(": ")", "=": ";"}[after]
            if p.at(first + 1) == closes and (after == "=" or p.at(first + 2) == ";"):
                self.streams.add(p.tokens[name])
                self.declared.add(name)
                self.aliases[first] = index
            else:
                self._another(index)
        else:
            self._another(index)

    def _another(self, index: int) -> None:
        self.refuse(
            index,
            f"`{STREAM} {self.p.at(index + 1)}` makes another stream or changes one",
            f"pass the stream that the function was given on as a parameter, `{STREAM} {self.shown}`",
        )

    def _parameter(self, index: int, function: int, bracket: int) -> None:
        self.lists.add(bracket)
        parts = self.p.arguments(bracket)
        self.functions.setdefault(self.p.tokens[function], set()).add((self.p.position(index), len(parts)))

    def _configuration(self, index: int) -> None:
        p, name = self.p, index + 1
        start = name + 1 + (p.at(name + 1) == "=")
        if not NAME.fullmatch(p.at(name)) or p.at(start) not in (";", "{") or p.at(index - 1) == "static":
            self.refuse(
                index,
                f"a {CONFIG} that is not a variable of the function that launches",
                f"write `{CONFIG} config = {{}};` and `config.stream = {self.shown};` before the launch",
            )
            return
        self.declared.add(name)
        self.configs[p.tokens[name]] = _Config(-1)

    def _begin(self, name: int) -> None:
        """A configuration is declared here: from now on this one is meant."""
        p = self.p
        start = name + 1 + (p.at(name + 1) == "=")
        config = self.configs[p.tokens[name]] = _Config(p.opener[name])
        for position, (first, end) in enumerate(p.arguments(start) if p.at(start) == "{" else ()):
            words = p.tokens[first:end]
            if words[:3] == [".", "stream", "="] or (position == 3 and words[:1] != ["."]):
                config.given = words[-1] in self.streams

    def _token(self, index: int, token: str) -> None:
        p = self.p
        member = p.at(index - 1) in (".", "->")
        if token == "<<<":
            self._launch(index)
        elif token in _OTHER_STREAMS or (token.startswith("__cuda") and token[6:7].isupper()):
            self.refuse(index, f"{token} is not for host code", "launch with kernel<<<...>>> on the stream")
        elif re.fullmatch(r"asm|__asm|__asm__", token) and self._label(index):
            self.refuse(index, "an asm label gives a function another name", "call it by its own name")
        elif member and token not in self.functions:
            return
        elif token in self.streams:
            if index not in self.declared and not self._passed_on(index):
                self.refuse(
                    index,
                    f"`{token}` is used for something else than to pass the stream on",
                    "pass it to launches, to CUDA calls and to your own functions as it is",
                )
        elif token in self.configs:
            self._config_use(index)
        elif token in calls.STREAM_AT:
            self._call(index, token, calls.STREAM_AT[token])
        elif token in calls.CONFIGURED:
            self._configured(index, token)
        elif token in calls.BY_NAME:
            bracket = p.list_of(index)
            if (
                bracket < 0
                or p.at(bracket + 1).strip('"') not in calls.DRIVER_NAMES
                or p.at(bracket + 2) != ","
            ):
                self.refuse(
                    index,
                    f"{token} finds driver functions",
                    f"ask for one of {', '.join(calls.DRIVER_NAMES)}",
                )
        elif token in self.functions:
            self._own_call(index, token)

    def _label(self, index: int) -> bool:
        """Whether an asm is a label, a single name, and not an instruction, which ends with a semicolon."""
        bracket = index + 1
        while self.p.at(bracket) in ("volatile", "__volatile__"):
            bracket += 1
        inside = "".join(
            one.strip('"') for one in self.p.tokens[bracket + 1 : self.p.closer.get(bracket, bracket)]
        )
        return re.fullmatch(r"[\w.$@]+", inside) is not None

    def _launch(self, index: int) -> None:
        p = self.p
        kernel = p.called(index)
        name = p.tokens[kernel] if kernel >= 0 else "kernel"
        parts = p.arguments(index)
        first, end = parts[-1]
        if len(parts) < 4 or end - first != 1 or p.tokens[first] not in self.streams:
            self.refuse(
                index,
                f"{name}<<<...>>> is not on the stream that the function was given",
                f"write {name}<<<grid, block, shared_bytes, {self.shown}>>>(...), with the {STREAM} "
                "parameter as the fourth launch argument",
            )

    def _passes_stream(self, bracket: int, wanted: Callable[[int, int], bool]) -> bool:
        parts = self.p.arguments(bracket)
        return any(
            end - first == 1 and self.p.tokens[first] in self.streams and wanted(place, len(parts))
            for place, (first, end) in enumerate(parts)
        )

    def _call(self, index: int, token: str, at: int) -> None:
        p, bracket = self.p, self.p.list_of(index)
        if bracket < 0:
            self.refuse(index, f"{token} gets another name", "call it by its own name")
            return
        if not self._passes_stream(bracket, lambda place, _: place >= at):
            self.refuse(
                index,
                f"{token} is not on the stream that the function was given",
                f"give it `{self.shown}`, the {STREAM} parameter, as argument {at + 1}",
            )
        direction = calls.DIRECTION_AT.get(token)
        if direction is not None:
            parts = p.arguments(bracket)
            words = p.tokens[slice(*parts[direction])] if direction < len(parts) else []
            if words != [calls.ON_DEVICE]:
                self.refuse(
                    index,
                    f"{token} between host and GPU waits",
                    f"copy on the GPU, with {calls.ON_DEVICE}; pass numbers as arguments of a kernel",
                )

    def _configured(self, index: int, token: str) -> None:
        p, bracket = self.p, self.p.list_of(index)
        named = bracket >= 0 and p.at(bracket + 1) == "&" and p.at(bracket + 3) == ","
        config = self.configs.get(p.at(bracket + 2)) if named else None
        if config is None or not config.given or config.scope not in p.around(index):
            self.refuse(
                index,
                f"{token} is not on the stream that the function was given",
                f"declare `{CONFIG} config = {{}};` in this function, and set `config.stream = {self.shown}`",
            )

    def _config_use(self, index: int) -> None:
        p, config = self.p, self.configs[self.p.tokens[index]]
        if index in self.declared:
            self._begin(index)
            return
        if p.at(index + 1) == ".":
            given = p.at(index + 3) == "=" and p.at(index + 4) in self.streams and p.at(index + 5) == ";"
            if given and p.at(index + 2) == "stream":
                # Where it is set only sometimes, it is not known to be set.
                config.given |= p.opener[index] == config.scope and p.at(index - 1) in (";", "{", "}")
            if given or p.at(index + 2) != "stream":
                return
        elif p.tokens[index + 1 : index + 5] == ["=", "{", "}", ";"] and not config.given:
            return
        elif p.at(index - 1) == "&" and p.at(index + 1) in (",", ")"):
            bracket = p.opener[index]
            called = p.called(bracket) if bracket >= 0 else -1
            if called >= 0 and p.tokens[called] in (*calls.CONFIGURED, *calls.SETTINGS):
                return
        self.refuse(
            index,
            f"`{p.tokens[index]}` may change its stream here",
            f"set its members one by one, its stream to `{self.shown}`, and give `&{p.tokens[index]}` to the "
            "launch",
        )

    def _own_call(self, index: int, token: str) -> None:
        bracket = self.p.list_of(index)
        if bracket in self.lists and bracket >= 0:
            return
        count = len(self.p.arguments(bracket)) if bracket >= 0 else -1
        shapes = self.functions[token]
        if (token, count) in self.overloads and all(count != of for _, of in shapes):
            return
        # A comma between template arguments moves the position from the left, never that from the right.
        if bracket < 0 or not self._passes_stream(
            bracket,
            lambda place, count: any(place == at or count - place == of - at for at, of in shapes),
        ):
            self.refuse(
                index,
                f"{token} is not given the function's stream",
                f"call it by its name, with `{self.shown}` as its {STREAM} argument",
            )

    def _is_overload(self, index: int, bracket: int) -> bool:
        """Whether a function of the same name, which takes no stream, is defined here."""
        p, before = self.p, self.p.at(index - 1)
        typed = before in ("*", "&", ">") or (
            NAME.fullmatch(before) and before not in ("return", "else", "do")
        )
        return bool(typed) and p.at(p.closer.get(bracket, bracket) + 1) == "{"

    def _passed_on(self, index: int) -> bool:
        """Whether the stream at this token is passed on as it is; who receives it checks the position."""
        p, bracket = self.p, self.p.opener[index]
        before, after = p.at(index - 1), p.at(index + 1)
        if index in self.aliases:
            return True
        if before in ("==", "!=") or after in ("==", "!="):
            return True
        if before == "=" and p.at(index - 2) == "stream" and p.at(index - 3) == ".":
            return p.at(index - 4) in self.configs or (p.tokens[bracket] == "{" and after in (",", "}"))
        if (p.at(index - 3), p.at(index - 2), before, after) == ("(", "void", ")", ";"):
            return True
        if bracket >= 0 and p.tokens[bracket] == "[":  # a lambda takes it along
            start = index - 1 if before == "&" else index
            return (
                p.at(start - 1) in ("[", ",")
                and after in ("]", ",")
                and not NAME.fullmatch(p.at(bracket - 1))
            )
        if not p.alone(index):
            return False
        if p.tokens[bracket] == "<<<":
            return p.position(index) >= 3
        if p.tokens[bracket] == "{":
            return p.at(bracket - 1 - (p.at(bracket - 1) == "=")) in self.configs
        called = p.called(bracket)
        return called >= 0 and (p.tokens[called] in self.functions or p.tokens[called] in calls.STREAM_AT)


def findings(text: Text, refused: Sequence[str], main: str) -> list[Finding]:
    """Return what a file named `main` may not do: `refused` symbols, and work on another stream.

    The first line comes first. A symbol is at the first line that names it.
    """
    program = Program.of(text)
    found = []
    for symbol in refused:
        plain = re.sub(r"_v\d+$|_pt[sd][sz]$", "", symbol)
        group = calls.group_of(plain)
        word = "managed" if plain == "__cudaRegisterManagedVar" else plain  # as in __attribute__((managed))
        file, line = program.places[program.tokens.index(word)] if word in program.tokens else ("", 0)
        where = "" if file == main else file
        shown = "__managed__" if word == "managed" else plain[:80]
        found.append(Finding(f"{shown} {group.does}", line, group.instead, where))
    found += _Check(program, main).run()
    if text.foreign:
        file, line = text.foreign
        where = "" if file == main else file
        found.append(Finding("text that claims to be of a header", line, "leave out #line", where))
    return sorted(found, key=lambda one: (one.line == 0, one.file != "", one.line))
