"""The secret of a run, from which seeds, orders and seals are derived; its hash is published in advance."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from pathlib import Path

from grader.classroom.records import Receipt
from grader.system.files import read_bytes, replace

FEWEST = 16  # minimum bytes of a given secret


def load(path: Path, given: Path | None) -> bytes:
    """Return the run's secret: the one in its folder, else the given one, else a new one.

    Raises ValueError if the given one is too short or differs from the one in the folder.
    """
    supplied = read_bytes(given).strip() if given else None
    if supplied is not None and len(supplied) < FEWEST:
        raise ValueError(f"{given}: a secret has at least {FEWEST} bytes")
    if path.exists():
        found = read_bytes(path).strip()
        if supplied not in (None, found):
            raise ValueError(f"{given}: this run was started with another secret")
        return found
    found = supplied or secrets.token_hex(32).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    replace(path, found)
    path.chmod(0o600)
    return found


def commitment(secret: bytes) -> str:
    """Return the hash to publish now; the secret itself is published after the term."""
    return hashlib.sha256(secret).hexdigest()


def seed(secret: bytes, student: str, unit: str, attempt: int, blind: bool) -> int:
    """Return the seed of one grading, 32 bits."""
    return int.from_bytes(_mac(secret, "seed", student, unit, attempt, blind)[:4], "big")


def order(secret: bytes, purpose: str, items: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the items in a pseudorandom order that depends only on the secret and the items."""
    return sorted(items, key=lambda item: _mac(secret, purpose, *item))


def seal(secret: bytes, receipt: Receipt) -> str:
    """Return the HMAC that shows whether a receipt was changed after it was written."""
    return _mac(secret, "receipt", receipt.model_copy(update={"seal": ""}).model_dump_json()).hex()


def _mac(secret: bytes, *words: object) -> bytes:
    return hmac.digest(secret, "\0".join(map(str, words)).encode(), "sha256")
