"""The two keys of a run: seeds and orders follow from one, which is published after the term, and seals from
the other, which never is.

Both are drawn independently, so the published key says nothing about the other. A run that was begun when
there was one key has only `state/secret`, and goes on sealing with it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from grader.classroom.records import Receipt
from grader.classroom.run_folder import RunFolder
from grader.system import seeds
from grader.system.files import read_bytes, replace

FEWEST = 16  # minimum bytes of a given secret


@dataclass(frozen=True)
class Keys:
    """The keys of one run; they are equal in a run that was begun when there was one key."""

    seeds: bytes
    seals: bytes

    @property
    def seal_commitment(self) -> str:
        """Return the hash that names the key of the seals; empty in a run with one key."""
        return "" if self.seals == self.seeds else commitment(self.seals)


def load(run: RunFolder, given: Path | None, seal_commitment: str = "") -> Keys:
    """Return the keys in the run's folder, or draw them; a given secret becomes the key of the seeds.

    `seal_commitment` is the one that the run was begun with. Raises ValueError if the given secret is too
    short or differs from the one in the folder, or if the key of the seals is missing.
    """
    supplied = read_bytes(given).strip() if given else None
    if supplied is not None and len(supplied) < FEWEST:
        raise ValueError(f"{given}: a secret has at least {FEWEST} bytes")
    if run.secret.exists():
        found = read_bytes(run.secret).strip()
        if supplied not in (None, found):
            raise ValueError(f"{given}: this run was started with another secret")
        seals = sealing_key(run)
        if seals is None and seal_commitment:
            raise ValueError(f"state/sealing-key is missing in {run.root}: put it back from a copy")
        return Keys(found, seals or found)
    run.secret.parent.mkdir(parents=True, exist_ok=True)
    run.secret.parent.chmod(0o700)
    # The secret is last: without it the next command begins anew.
    seals = _store(run.sealing_key, secrets.token_hex(32).encode())
    return Keys(_store(run.secret, supplied or secrets.token_hex(32).encode()), seals)


def sealing_key(run: RunFolder) -> bytes | None:
    """Return the key of the seals, None if the folder has none of its own."""
    return read_bytes(run.sealing_key).strip() if run.sealing_key.exists() else None


def commitment(secret: bytes) -> str:
    """Return the hash to publish now; of the two keys, only that of the seeds is published after the term."""
    return hashlib.sha256(secret).hexdigest()


def seed(secret: bytes, student: str, unit: str, attempt: int, blind: bool) -> int:
    """Return the seed of one grading, 160 bits."""
    return int.from_bytes(mac(secret, "seed", student, unit, attempt, blind)[: seeds.BYTES], "big")


def earlier_seed(secret: bytes, student: str, unit: str, attempt: int, blind: bool) -> int:
    """Return the seed of 32 bits that earlier versions derived."""
    return int.from_bytes(mac(secret, "seed", student, unit, attempt, blind)[:4], "big")


def order(secret: bytes, purpose: str, items: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the items in a pseudorandom order that depends only on the secret and the items."""
    return sorted(items, key=lambda item: mac(secret, purpose, *item))


def sealed(keys: Keys, receipt: Receipt) -> Receipt:
    """Return the receipt with the name of the sealing key and the seal, every field being written out."""
    named = receipt.model_copy(update={"seal_commitment": keys.seal_commitment, "seal": ""})
    complete = Receipt.model_validate_json(named.model_dump_json())
    return complete.model_copy(update={"seal": seal(keys.seals, complete)})


def seal(key: bytes, receipt: Receipt) -> str:
    """Return the HMAC that shows whether a receipt was changed after it was written.

    It covers the fields that the receipt's file has, so that a new field breaks no older seal.
    """
    written = receipt.model_copy(update={"seal": ""}).model_dump_json(exclude_unset=True)
    return mac(key, "receipt", written).hex()


def mac(key: bytes, *words: object) -> bytes:
    """Return the HMAC-SHA-256 of some words."""
    return hmac.digest(key, "\0".join(map(str, words)).encode(), "sha256")


def _store(path: Path, key: bytes) -> bytes:
    replace(path, key)
    path.chmod(0o600)
    return key
