"""What can be wrong with a log of transitions, and how it is said.

A sentence quotes the log, but never more of it than a reader needs.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeGuard

LONGEST_QUOTE = 60
LARGEST = 2**63 - 1


class Fault(StrEnum):
    """What kind of thing is wrong."""

    TOO_LONG = "too_long"
    ENCODING = "encoding"
    EMPTY = "empty"
    LINE_END = "line_end"
    JSON = "json"
    DUPLICATE_KEY = "duplicate_key"
    SCHEMA = "schema"
    MACHINE = "machine"
    STATE = "state"
    TRIGGER = "trigger"
    TRANSITION = "transition"
    TERMINAL = "terminal"
    GUARD = "guard"
    START = "start"
    CONTINUITY = "continuity"
    ORDER = "order"
    SEQUENCE = "sequence"
    VERSION = "version"
    RETRIES = "retries"
    UNFINISHED = "unfinished"
    SEVERITY = "severity"


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: where, of which kind and entity, and a sentence for the reader.

    Entity and sentence hold text of the log; whoever shows them makes control characters visible.
    """

    line: int
    kind: Fault
    entity: str | None
    sentence: str


@dataclass(slots=True)
class Summary:
    """What was read so far."""

    lines: int = 0
    events: int = 0
    """Lines that say which entity went from where to where, rightly or wrongly."""
    entities: int = 0
    problems: int = 0


class Complaints:
    """The problems of the line that is being read."""

    def __init__(self, summary: Summary) -> None:
        self.summary = summary
        self.open: list[Problem] = []

    def say(self, kind: Fault, sentence: str, entity: str | None = None) -> None:
        self.summary.problems += 1
        told = f"{cut(entity)}: {sentence}" if entity is not None else sentence
        self.open.append(Problem(self.summary.lines, kind, entity, told))


def cut(text: str) -> str:
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"


def quoted(text: str) -> str:
    return repr(cut(text))


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is a whole number that a log can mean: a longer one is refused before it is printed."""
    return type(value) is int and -LARGEST <= value <= LARGEST


def kind_of(value: object) -> str:
    """What JSON calls a value."""
    words = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "an array"}
    return "null" if value is None else words.get(type(value), "an object")
