"""Show the next level of a hint and record it; imports no torch."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from grader.course.catalog import Entry
from grader.course.hints import Hint, hints_of
from grader.course.spec import lab_word
from grader.results import by_lab
from grader.student import next_hint, opened_hints
from grader.student.next_hint import Pointer
from grader.student.opened_hints import OpenedHints

SOURCE = Path("labs")
BY_NUMBER = "for a hint by its number: make hint LAB=2 K=3"
WIDEST = 100  # columns; longer lines of text are hard to read


class NoHintError(ValueError):
    """No hint can be shown; the message, for a student, says why."""


def give(
    entries: Sequence[Entry],
    labs: str | None,
    keyword: str,
    folder: Path,
    console: Console,
    *,
    again: bool,
    everything: bool,
) -> None:
    """Show the next level of the most useful hint, or with `again` the levels shown so far.

    `keyword` is a hint's number, which needs exactly one lab, or a word to select by; `folder` has the
    results. NoHintError if there is no such hint.
    """
    known, trouble = opened_hints.load(folder)
    if trouble:
        words = f"{folder / opened_hints.FILE} is damaged ({trouble}): every hint starts at level 1 again"
        _say(console, words, "yellow")
    chosen, others = _choose(entries, labs, keyword, folder, console, known.last if again else None)
    if chosen is None:
        _say(console, f"nothing failed in the last run, and no TODO is open; {BY_NUMBER}", "")
        return
    hints = _hints(chosen)
    if chosen.hint not in hints:
        raise NoHintError(_no_such_hint(chosen, hints))
    levels, lab = hints[chosen.hint], chosen.entry.folder.name
    so_far = min(known.level(lab, chosen.hint), len(levels))
    if again and not so_far:
        raise NoHintError(f"hint {chosen.hint} has not been shown yet: run this without AGAIN=1")
    until = so_far if again else len(levels) if everything else min(so_far + 1, len(levels))
    shown = range(1 if again else so_far + 1, until + 1)
    lab_words = lab_word(lab, chosen.entry.number)
    _say(console, f"{lab_words}, hint {chosen.hint}" + (f", for {chosen.why}" if chosen.why else ""), "bold")
    if chosen.cause:
        _say(console, f"likely cause: {chosen.cause}", "")
    for level in shown:
        _show(console, levels[level], len(levels))
    if shown:
        console.print()
    known.show(lab, chosen.hint, until)
    _remember(known, folder, console)
    _say(console, _what_next(chosen, len(levels) - until, bool(shown), others), "dim")


def _choose(entries, labs, keyword, folder, console, last) -> tuple[Pointer | None, list[Pointer]]:
    """Return the hint to show, and other useful hints of its lab; `last` is the one to show again, if any.

    None if nothing needs a hint; NoHintError if nothing with this keyword does.
    """
    if keyword.isdigit():
        if labs is None or len(entries) != 1:
            raise NoHintError(f"hint {keyword} of which lab? For lab 2: make hint LAB=2 K={keyword}")
        return Pointer(entries[0], int(keyword), ""), []
    if last and not keyword:
        for entry in entries:
            if entry.folder.name == last[0]:
                return Pointer(entry, last[1], ""), []
    results, trouble = next_hint.last_results(folder)
    if trouble:
        words = f"{folder / 'results.json'} cannot be read ({trouble}): hints for open TODOs only"
        _say(console, words, "yellow")
    runs = [*([results] if results else []), *by_lab.read(folder).values()]
    found = next_hint.pointers(entries, runs, keyword, SOURCE)
    if not found:
        if keyword:
            words = f"no failure in the last run and no open TODO with {keyword!r} in its name"
            raise NoHintError(f"{words}; {BY_NUMBER}")
        return None, []
    first = found[0]
    same_lab = [one for one in found if one.entry is first.entry and one.hint]
    return first, [one for one in same_lab if one.hint != first.hint]


def _hints(pointer: Pointer) -> dict[int, dict[int, Hint]]:
    try:
        return hints_of(pointer.readme.read_text("utf-8", errors="replace"))
    except OSError as error:
        raise NoHintError(f"{next_hint.place_of(pointer)} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise NoHintError(f"{next_hint.place_of(pointer)} cannot be used: {error}") from None


def _no_such_hint(pointer: Pointer, hints: dict[int, dict[int, Hint]]) -> str:
    titles = "\n".join(f"  hint {number}: {levels[1].title}" for number, levels in sorted(hints.items()))
    none_written = f"{pointer.why}\nthere is no hint for it"
    wanted = f"there is no hint {pointer.hint}" if pointer.hint is not None else none_written
    return f"{wanted}; {next_hint.place_of(pointer)} has these:\n{titles}"


def _show(console: Console, hint: Hint, levels: int) -> None:
    width = min(console.width, WIDEST)
    console.print()
    _say(console, f"level {hint.level} of {levels}: {hint.title}", "cyan")
    for is_code, text in hint.parts:
        if is_code:
            _say(console, textwrap.indent(text, "    "), "")
        else:
            # rich's own wrapping pads piped lines with blanks.
            wrapped = textwrap.wrap(text, width - 2, break_long_words=False, break_on_hyphens=False)
            _say(console, textwrap.indent("\n".join(wrapped), "  "), "")


def _remember(known: OpenedHints, folder: Path, console: Console) -> None:
    try:
        opened_hints.save(known, folder)
    except OSError as error:
        _say(console, f"{folder / opened_hints.FILE} could not be written: {error.strerror}", "yellow")


def _what_next(pointer: Pointer, left: int, is_new: bool, others: Sequence[Pointer]) -> str:
    words = [] if is_new else [f"you have seen all of hint {pointer.hint}: AGAIN=1 shows it again"]
    if left:
        levels = f"{left} more level{'s' if left > 1 else ''}"
        words.append(f"{levels} in hint {pointer.hint}: try first, then run the same command again")
    if others:
        numbers = ", ".join(str(number) for number in dict.fromkeys(other.hint for other in others))
        words.append(f"other hints that may help: {numbers} (K=number)")
    words.append(next_hint.place_of(pointer))
    return "; ".join(words)


def _say(console: Console, words: str, style: str) -> None:
    console.print(Text(words, style=style), soft_wrap=True)
