"""Make untrusted text from submissions, archives and logs safe to show and to store."""

from __future__ import annotations

MOST_CHARACTERS = 200  # per line


def one_line(text: str) -> str:
    """Return at most 200 printable characters, without line breaks."""
    return " ".join(printable(text).split())[:MOST_CHARACTERS]


def printable(text: str) -> str:
    """Return the text without control characters (except newline and tab) and lone surrogates."""
    return "".join(char for char in text if char in "\n\t" or char.isprintable())
