"""The hash chain of the audit trail: what makes any later change of it visible.

`row_hash` is the SHA-256 of the row's fields, each with its length in front, so that no two rows have
the same bytes. `hash` is the SHA-256 of the hash before it and `row_hash`; a row whose payload is
pruned one day keeps both, and with them its place.
"""

from dataclasses import dataclass
from hashlib import sha256

GENESIS = bytes(32)
"""What the first row is chained to."""


def prefixed(text: str | None) -> str:
    """A field with its length in front; nothing at all is another thing than an empty text."""
    return "-" if text is None else f"{len(text)}:{text}"


def arrow_words(machine: str, from_state: str | None, event: str, to_state: str | None) -> str:
    """The part of a canonical row that every row of the same arrow shares."""
    return prefixed(machine) + prefixed(from_state) + prefixed(event) + prefixed(to_state)


def row_hash(
    seq: int, at: int, run: int | None, task: int | None, name: str | None, version: int, words: str,
    since: int | None, cause: int, actor: str, source: str, reason: str | None, request_id: str | None,
    metadata: str,
) -> bytes:  # fmt: skip
    """The digest of one row; `words` are its arrow's. Integers cannot hold a comma."""
    told = "-" if reason is None else f"{len(reason)}:{reason}"
    named = "-" if name is None else f"{len(name)}:{name}"
    asked = "-" if request_id is None else f"{len(request_id)}:{request_id}"
    canonical = (
        f"{seq},{at},{run},{task},{version},{since},{cause};{words}{named}{len(actor)}:{actor}"
        f"{len(source)}:{source}{told}{asked}{len(metadata)}:{metadata}"
    )
    return sha256(canonical.encode()).digest()


def link(previous: bytes, digest: bytes) -> bytes:
    """The next hash of the chain."""
    return sha256(previous + digest).digest()


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the chain: the last row and its hash. Kept elsewhere it is an anchor."""

    seq: int = 0
    hash: bytes = GENESIS
    at: int = 0

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash.hex()}"

    @classmethod
    def parse(cls, text: str) -> "Head":
        """The head that `str` wrote; ValueError when it is none."""
        seq, colon, digest = text.strip().partition(":")
        hash = bytes.fromhex(digest)
        if not colon or not seq.isdecimal() or len(hash) != len(GENESIS):
            raise ValueError("an anchor is a row number, a colon and 64 hexadecimal digits")
        return cls(int(seq), hash)
