"""The secret of a run: seeds, orders and seals are made from it, and it is not chosen after the fact."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from pathlib import Path

from grader.batch.models import Receipt
from grader.files import read_bytes, replace

FEWEST = 16  # bytes of a secret that was given


def load(path: Path, given: Path | None) -> bytes:
    """The run's secret: the one in its folder, else the one that was given, else a new one.

    ValueError where the one that was given is too short, or not the one that the run was begun with.
    """
    wanted = read_bytes(given).strip() if given else None
    if wanted is not None and len(wanted) < FEWEST:
        raise ValueError(f"{given}: a secret has at least {FEWEST} bytes")
    if path.exists():
        found = read_bytes(path).strip()
        if wanted not in (None, found):
            raise ValueError(f"{given}: this run was begun with another secret")
        return found
    found = wanted or secrets.token_hex(32).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    replace(path, found)
    path.chmod(0o600)
    return found


def commitment(secret: bytes) -> str:
    """What may be published at once; the secret follows after the term."""
    return hashlib.sha256(secret).hexdigest()


def seed(secret: bytes, student: str, unit: str, attempt: int, blind: bool) -> int:
    """The seed of one grading, 32 bits."""
    return int.from_bytes(_mac(secret, "seed", student, unit, attempt, blind)[:4], "big")


def order(secret: bytes, purpose: str, items: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The items in an order that nobody chose and that stays the same for the same items."""
    return sorted(items, key=lambda item: _mac(secret, purpose, *item))


def seal(secret: bytes, receipt: Receipt) -> str:
    """What shows that a receipt was not changed after it was written."""
    return _mac(secret, "receipt", receipt.model_copy(update={"seal": ""}).model_dump_json()).hex()


def _mac(secret: bytes, *words: object) -> bytes:
    return hmac.digest(secret, "\0".join(map(str, words)).encode(), "sha256")
