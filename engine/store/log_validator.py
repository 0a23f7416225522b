"""Judges a log of transitions, ours or another system's: document 001's schema, arrows, invariants, order.

Whatever the lines hold, a fault is a `Problem` with its line and a sentence, never an exception. Memory
grows with the entities that are named, not with the lines.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, BinaryIO, NoReturn

from engine.core.records import Entity
from engine.machines import MACHINES, Machine
from engine.machines.errors import hint
from engine.store.events import DRIVEN_BY, EVENT_TYPES, SEVERITY_OF, Severity
from engine.store.log_entities import Entities, Move
from engine.store.log_problems import Complaints, Fault, Problem, Summary, cut, is_whole, kind_of, quoted

LONGEST_LINE = 1 << 20
LONGEST_ID = 1024

ENTITIES: dict[str, Entity] = {event_type: entity for entity, event_type in EVENT_TYPES.items()}

UNNAMED: dict[Entity, str] = {
    Entity.RUN: "orchestration.workstream",
    Entity.TASK: "orchestration.task",
    Entity.WORKER: "orchestration.worker",
    Entity.BREAKER: "pipeline.breaker",
}
"""Which machine an event follows that does not name one: document 001's, where it has one."""

UNSAID: set[tuple[str, str, str]] = {
    ("orchestration.task", "running", "cancelled"),
    ("orchestration.task", "retrying", "queued"),
    ("orchestration.workstream", "validating", "failed"),
    ("orchestration.workstream", "planned", "cancelled"),
    ("orchestration.workstream", "ready", "cancelled"),
    ("orchestration.workstream", "executing", "cancelled"),
    ("orchestration.worker", "unresponsive", "shutdown"),
    ("orchestration.worker", "idle", "shutdown"),
    ("orchestration.worker", "busy", "shutdown"),
}
"""Arrows that document 001 draws without a word on how they are told: others may choose the severity."""

SEVERITIES = tuple(map(str, Severity))
WORDS = ("event_type", "severity", "from_state", "to_state", "trigger")


def validate(
    lines: Iterable[bytes], summary: Summary | None = None, *, partial: bool = False
) -> Iterator[Problem]:
    """The problems of a log, in its order; `summary` is brought up to date with every line.

    A partial log is one whose beginning was rotated away: an entity may be met in any state.
    """
    complaints = Complaints(summary if summary is not None else Summary())
    validator = _Validator(complaints, partial)
    for line in lines:
        validator.read(line)
        if complaints.open:
            yield from complaints.open
            complaints.open.clear()


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; of one that is too long only as much as shows that it is."""
    while line := file.readline(LONGEST_LINE + 1):
        yield line
        while len(line) > LONGEST_LINE and line[-1:] != b"\n":
            line = file.readline(LONGEST_LINE + 1)


class _Validator:
    def __init__(self, complaints: Complaints, partial: bool) -> None:
        self._summary = complaints.summary
        self._say = complaints.say
        self._entities = Entities(complaints, partial)
        self._flawless: dict[tuple[object, ...], Move] = dict(self._flawless_moves())
        """By all that an event says apart from who and when: a look here is most of the work."""
        self._decoder = json.JSONDecoder(parse_constant=_no_number, object_pairs_hook=self._object)
        self._doubled: str | None = None
        self._stamp: object = None
        self._moment: datetime | None = None
        self._seq: int | None = None
        self._carriage_returns = False

    def _flawless_moves(self) -> Iterator[tuple[tuple[object, ...], Move]]:
        for own in (True, False):
            for arrow, move in self._entities.legal_moves(own):
                if not own and move.machine.name != UNNAMED[move.entity]:
                    continue
                named = move.machine.name if own else None
                for severity in _severities(move):
                    way = (arrow.source, arrow.event, arrow.target)
                    yield (EVENT_TYPES[move.entity], named, *way, severity), move

    def read(self, line: bytes) -> None:
        self._summary.lines += 1
        event = self._parsed(line)
        if event is None:
            return
        entity, metadata = event.get("entity_id"), event.get("metadata")
        if not isinstance(entity, str) or not 0 < len(entity) <= LONGEST_ID:
            self._say(Fault.SCHEMA, f"entity_id must be a text of 1 to {LONGEST_ID:,} characters")
            entity = None
        if not isinstance(metadata, dict):
            self._say(Fault.SCHEMA, "metadata must be an object", entity)
            metadata = {}
        try:
            move = self._flawless.get(
                (
                    event["event_type"],
                    metadata.get("machine"),
                    event["from_state"],
                    event["trigger"],
                    event["to_state"],
                    event["severity"],
                )
            )
        except (KeyError, TypeError):
            move = None
        if move is None:
            move = self._explained(entity, event, metadata.get("machine"))
        stamp = event.get("timestamp")
        if stamp != self._stamp or stamp is None:
            self._time(entity, stamp)
        if "seq" in metadata:
            self._sequence(entity, metadata["seq"])
        if move is not None and entity is not None:
            self._summary.events += 1
            self._entities.follow(move, entity, metadata)

    # ---- the line

    def _parsed(self, line: bytes) -> dict[str, Any] | None:
        if len(line) > LONGEST_LINE:
            self._say(Fault.TOO_LONG, f"the line is longer than {LONGEST_LINE:,} bytes and was not read")
            return None
        self._doubled = None
        try:
            text = line.decode()
            if text[:1] != "{" and not (text := self._trimmed(text)):
                return None
            event, end = self._decoder.raw_decode(text)
        except UnicodeDecodeError as error:
            self._say(Fault.ENCODING, f"it is not UTF-8: {error.reason} at byte {error.start + 1}")
        except json.JSONDecodeError as error:
            self._say(Fault.JSON, f"it is not JSON: {error.msg} at character {error.pos + 1}")
        except RecursionError:
            self._say(Fault.JSON, "its JSON is nested too deeply to be read")
        except ValueError as error:
            self._say(Fault.JSON, f"its JSON cannot be read: {error}")
        else:
            if (rest := text[end:]) != "\n":
                self._ending(rest)
            if self._doubled is not None:
                self._say(Fault.DUPLICATE_KEY, f"the key {quoted(self._doubled)} is there twice")
            if isinstance(event, dict):
                return event
            self._say(Fault.SCHEMA, f"it must be an object, not {kind_of(event)}")
        return None

    def _trimmed(self, text: str) -> str:
        """The text from its first word on, after what should not be there before it."""
        trimmed = text.lstrip("\ufeff \t\r\n")
        if text[:1] == "\ufeff":
            self._say(Fault.ENCODING, "it begins with a byte order mark, which a log of JSON lines has not")
        elif not trimmed:
            self._say(Fault.EMPTY, "the line is empty")
        return trimmed

    def _ending(self, rest: str) -> None:
        if rest.strip(" \t\r\n"):
            self._say(Fault.JSON, f"it goes on after its JSON: {quoted(rest.strip())}")
        elif "\r" in rest and not self._carriage_returns:
            self._carriage_returns = True
            self._say(Fault.LINE_END, "it ends in CR LF instead of LF; said once for the whole log")

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            self._doubled = Counter(key for key, _ in pairs).most_common(1)[0][0]
        return made

    def _time(self, entity: str | None, stamp: object) -> None:
        """Timestamps are compared with the line before, so that one stray clock is one problem."""
        if not isinstance(stamp, str):
            told = (
                f"timestamp must be a text, not {kind_of(stamp)}"
                if stamp is not None
                else "timestamp is missing"
            )
            self._say(Fault.SCHEMA, told, entity)
            return
        try:
            moment = datetime.fromisoformat(stamp)
        except ValueError:
            moment = None
        if moment is None or "T" not in stamp:
            self._say(Fault.SCHEMA, f"the timestamp {quoted(stamp)} is not ISO 8601", entity)
        elif moment.tzinfo is None:
            self._say(Fault.SCHEMA, f"the timestamp {stamp} has no zone; UTC is told by a Z", entity)
        else:
            if self._moment is not None and moment < self._moment:
                self._say(
                    Fault.ORDER, f"its timestamp {stamp} is before {self._stamp}, of a line above", entity
                )
            self._stamp, self._moment = stamp, moment

    def _sequence(self, entity: str | None, seq: object) -> None:
        if not is_whole(seq):
            self._say(Fault.SCHEMA, "metadata.seq must be a whole number of 64 bits", entity)
            return
        before, self._seq = self._seq, seq
        if before is not None and seq <= before:
            what = "is there twice" if seq == before else f"comes after {before:,}"
            self._say(Fault.SEQUENCE, f"the sequence number {seq:,} {what}", entity)

    # ---- the event by itself

    def _explained(self, entity: str | None, event: dict[str, Any], name: object) -> Move | None:
        """Say why an event is not among the flawless ones, and what it means all the same."""
        for key in WORDS:
            if key not in event:
                self._say(Fault.SCHEMA, f"{key} is missing", entity)
            elif not isinstance(event[key], str):
                self._say(Fault.SCHEMA, f"{key} must be a text, not {kind_of(event[key])}", entity)
        words = [event[key] for key in WORDS if isinstance(event.get(key), str)]
        if len(words) < len(WORDS):
            return None
        event_type, severity, source, target, trigger = words
        machine = self._machine(entity, event_type, name)
        if machine is None:
            return None
        kind, own = ENTITIES[event_type], name is not None
        way = (source, trigger, target)
        arrow = next((a for a in machine.arrows if (a.source, a.event, a.target) == way), None)
        if arrow is not None:
            move = self._entities.along(kind, machine, arrow, own)
        else:
            move = self._entities.astray(kind, machine, source, target, own)
            self._refuse(entity, machine, *way)
        self._severity(entity, severity, _severities(move) if arrow is not None else tuple(Severity), move)
        return move

    def _machine(self, entity: str | None, event_type: str, name: object) -> Machine | None:
        kind = ENTITIES.get(event_type)
        if kind is None:
            self._unknown(Fault.SCHEMA, entity, "there is no event_type", event_type, ENTITIES)
            return None
        if name is None:
            return MACHINES[UNNAMED[kind]]
        if not isinstance(name, str):
            self._say(Fault.SCHEMA, f"metadata.machine must be a text, not {kind_of(name)}", entity)
        elif name not in MACHINES:
            self._unknown(Fault.MACHINE, entity, "there is no machine", name, MACHINES)
        elif name not in DRIVEN_BY[kind]:
            fitting = ", ".join(DRIVEN_BY[kind])
            self._say(Fault.MACHINE, f"{name} makes no {event_type}; these do: {fitting}", entity)
        else:
            return MACHINES[name]
        return None

    def _refuse(self, entity: str | None, machine: Machine, source: str, trigger: str, target: str) -> None:
        unknown = [state for state in dict.fromkeys((source, target)) if state not in machine.state]
        for state in unknown:
            self._unknown(Fault.STATE, entity, f"{machine.name} has no state", state, machine.state)
        if trigger not in machine.events:
            self._unknown(Fault.TRIGGER, entity, f"{machine.name} has no trigger", trigger, machine.events)
        elif not unknown:
            ways = [f"{arrow.event} to {arrow.target}" for arrow in machine.arrows if arrow.source == source]
            allowed = f"allowed there: {', '.join(ways)}" if ways else "nothing is allowed there"
            final = machine.state[source].terminal
            told = f"{machine.name} has no {trigger} from {source} to {target}"
            why = f": {source} is final" if final else ""
            self._say(Fault.TERMINAL if final else Fault.TRANSITION, f"{told}{why}; {allowed}", entity)

    def _severity(self, entity: str | None, severity: str, fitting: tuple[Severity, ...], move: Move) -> None:
        if severity not in SEVERITIES:
            self._unknown(Fault.SCHEMA, entity, "there is no severity", severity, SEVERITIES)
        elif severity not in fitting:
            told = f"{move.source} to {move.target} ({move.machine.name}) is told as {fitting[0]}"
            self._say(Fault.SEVERITY, f"{told}, not as {severity}", entity)

    def _unknown(self, kind: Fault, entity: str | None, what: str, word: str, known: Iterable[str]) -> None:
        self._say(kind, f"{what} {quoted(word)}{hint(cut(word), tuple(known))}", entity)


def _severities(move: Move) -> tuple[Severity, ...]:
    """The severities that a legal move may be told with."""
    if not move.own and (move.machine.name, move.source, move.target) in UNSAID:
        return tuple(Severity)
    return (SEVERITY_OF[move.entity, move.machine.name, move.target],)


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number in JSON")
