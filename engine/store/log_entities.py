"""The entities that a log tells of, followed from event to event.

What is kept is one small record for each entity and machine, so that a log of any length can be judged.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from engine.core.records import Entity
from engine.machines import MACHINES, Arrow, Kind, Machine, Phase
from engine.store.events import DRIVEN_BY
from engine.store.log_problems import Complaints, Fault, cut, is_whole

UNDERWAY = {
    Phase.ACTIVE,
    Phase.CHECKING,
    Phase.FAILING,
    Phase.BACKOFF,
    Phase.CANCELLING,
    Phase.RECOVERING,
}
"""A task in one of these is not done and cannot have been waived: its run has not succeeded."""

SHOWN = 3


class Standing:
    """What is remembered of an entity under a machine."""

    __slots__ = ("machine", "retries", "state", "version")

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.state: str | None = None
        """None after a state that the machine does not have: whatever follows is accepted."""
        self.retries = 0
        self.version: int | None = None


class Move(NamedTuple):
    """What an event says happened, legal or not."""

    entity: Entity
    machine: Machine
    source: str
    target: str
    own: bool
    """It names its machine, as ours do."""
    book: dict[str, Standing]
    recovery: bool = False
    guard: str | None = None
    succeeds: bool = False
    """A run of ours ends well."""


class Entities:
    """Every entity that was met, and the state it was left in."""

    def __init__(self, complaints: Complaints, partial: bool) -> None:
        self._complaints = complaints
        self._partial = partial
        self._books: dict[tuple[Entity, str], dict[str, Standing]] = {
            (entity, name): {} for entity, names in DRIVEN_BY.items() for name in names
        }
        self._tasks: dict[str, list[tuple[str, Standing]]] = {}
        """By run, those of its tasks that were met."""

    def legal_moves(self, own: bool) -> Iterator[tuple[Arrow, Move]]:
        for entity, name in self._books:
            for arrow in MACHINES[name].arrows:
                yield arrow, self.along(entity, MACHINES[name], arrow, own)

    def along(self, entity: Entity, machine: Machine, arrow: Arrow, own: bool) -> Move:
        move = self.astray(entity, machine, arrow.source, arrow.target, own)
        ends_well = machine.phase[arrow.target] is Phase.SUCCEEDED
        return move._replace(
            recovery=arrow.kind is Kind.RECOVERY,
            guard=arrow.guard,
            succeeds=own and entity is Entity.RUN and ends_well,
        )

    def astray(self, entity: Entity, machine: Machine, source: str, target: str, own: bool) -> Move:
        """A move that the machine does not have."""
        return Move(entity, machine, source, target, own, self._books[entity, machine.name])

    def follow(self, move: Move, entity: str, metadata: Mapping[str, object]) -> None:
        standing = move.book.get(entity)
        if standing is None:
            standing = self._met(move, entity)
        elif standing.state not in (move.source, None) and move.source in move.machine.state:
            self._complaints.say(
                Fault.CONTINUITY, f"it leaves {cut(move.source)}, but it was in {standing.state}", entity
            )
        if move.own and "version" in metadata:
            self._version(entity, standing, metadata["version"])
        if "retry_count" in metadata or move.recovery:
            self._retries(move, entity, standing, metadata)
        standing.state = move.target if move.target in move.machine.state else None
        if move.succeeds:
            self._finished(entity)

    def _met(self, move: Move, entity: str) -> Standing:
        standing = Standing(move.machine)
        others = [
            name
            for name in DRIVEN_BY[move.entity]
            if name != move.machine.name and entity in self._books[move.entity, name]
        ]
        if not others:
            self._complaints.summary.entities += 1
        elif move.entity is not Entity.WORKER:
            self._complaints.say(
                Fault.MACHINE,
                f"it follows {move.machine.name}, but it followed {others[0]} before;"
                " an entity is in exactly one state",
                entity,
            )
        if not self._partial:
            standing.version = 1
            if move.source != move.machine.initial and move.source in move.machine.state:
                self._complaints.say(
                    Fault.START,
                    f"its first event leaves {cut(move.source)}, but {move.machine.name} begins in"
                    f" {move.machine.initial}; a log without its beginning is partial",
                    entity,
                )
        if move.own and move.entity is Entity.TASK:
            self._tasks.setdefault(entity.partition("/")[0], []).append((entity, standing))
        move.book[entity] = standing
        return standing

    def _version(self, entity: str, standing: Standing, version: object) -> None:
        if not is_whole(version):
            self._complaints.say(Fault.SCHEMA, "metadata.version must be a whole number of 64 bits", entity)
            return
        before, standing.version = standing.version, version
        if before is not None and version != before + 1:
            what = "an event in between is missing" if version > before else "it was told before"
            self._complaints.say(
                Fault.VERSION, f"its version is {version:,} and was {before:,}: {what}", entity
            )

    def _retries(self, move: Move, entity: str, standing: Standing, metadata: Mapping[str, object]) -> None:
        say = self._complaints.say
        if move.recovery:
            standing.retries = 0
        count, limit = metadata.get("retry_count"), metadata.get("max_retries")
        if count is None:
            return
        if not is_whole(count) or count < 0:
            say(Fault.SCHEMA, "metadata.retry_count must be a whole number from 0 on", entity)
            return
        if count < standing.retries:
            say(Fault.RETRIES, f"its retry_count is {count:,} and was {standing.retries:,}", entity)
        standing.retries = count
        if not is_whole(limit):
            return
        if count > limit:
            say(Fault.RETRIES, f"its retry_count {count:,} is above its max_retries {limit:,}", entity)
        elif count < limit and move.guard == "no_retry_left" and not move.own:
            say(
                Fault.GUARD,
                f"it goes to {move.target} with a retry_count of {count:,} of {limit:,}:"
                f" {move.machine.name} allows that when none is left",
                entity,
            )

    def _finished(self, run: str) -> None:
        """A run that succeeded has no task underway."""
        open_tasks = [
            f"{cut(task)} is in {standing.state}"
            for task, standing in self._tasks.get(run, ())
            if standing.state is not None and standing.machine.phase[standing.state] in UNDERWAY
        ]
        if open_tasks:
            more = f" and {len(open_tasks) - SHOWN:,} more" if len(open_tasks) > SHOWN else ""
            told = f"it succeeded, but {', '.join(open_tasks[:SHOWN])}{more}"
            self._complaints.say(Fault.UNFINISHED, told, run)
