"""Make untrusted text from submissions, archives and logs safe to show and to store."""

from __future__ import annotations

import re

MOST_CHARACTERS = 200  # per line

# What a CI service takes for a command in a log: `::error::` of GitHub and `--- ` of Buildkite at the
# start of a line, `##[error]`, `##vso[` and `##teamcity[` anywhere in it, and GitLab's and Travis's sections.
_COMMAND = re.compile(
    r"^(?P<colons>\s*:)(?=:)|(?P<hashes>#)(?=#\w*\[)|(?P<section>section_start|section_end|travis_\w+)(?=:)"
    r"|^(?P<heading>\s*[-+~^])(?=([-+~^])\5(?:\s|$))",
    re.MULTILINE,
)


def one_line(text: str) -> str:
    """Return at most 200 printable characters, without line breaks."""
    return harmless(" ".join(printable(text).split())[:MOST_CHARACTERS])


def printable(text: str) -> str:
    """Return the text without control characters (except newline and tab) and lone surrogates.

    What would be a command in the log of a CI service has a blank in it, as in `: :error`.
    """
    return harmless("".join(char for char in text if char in "\n\t" or char.isprintable()))


def harmless(text: str) -> str:
    """Return the text with a blank in everything that a CI service would take for a command in a log."""
    return _COMMAND.sub(r"\g<0> ", text)
