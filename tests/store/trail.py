"""Rows of a trail as a store would have written them, for the tests of the log."""

from collections.abc import Iterator, Mapping

from engine.core.records import Entity, Ref
from engine.machines import MACHINES, Arrow
from engine.store.events import DRIVEN_BY
from engine.store.gate import AuditRow

START = 1_705_314_600_000_000
"""2024-01-15T10:30:00Z"""

Way = tuple[Entity, str, Arrow]

EVERY_ARROW: list[Way] = [
    (entity, name, arrow)
    for entity, names in DRIVEN_BY.items()
    for name in names
    for arrow in MACHINES[name].arrows
]

REFS: dict[Entity, tuple[Ref, str]] = {
    Entity.RUN: (Ref(Entity.RUN, 182), "182"),
    Entity.TASK: (Ref(Entity.TASK, (182, 1)), "182/build"),
    Entity.WORKER: (Ref(Entity.WORKER, "worker-1"), "worker-1"),
    Entity.BREAKER: (Ref(Entity.BREAKER, "aider"), "aider"),
}


def row(
    entity: Entity,
    machine: str,
    source: str | None,
    event: str,
    target: str | None,
    *,
    seq: int = 1,
    version: int | None = None,
    label: str | None = None,
    reason: str | None = None,
    request_id: str | None = None,
    since: int | None = None,
    metadata: Mapping[str, object] | None = None,
) -> AuditRow:
    ref, usual = REFS[entity]
    return AuditRow(
        seq=seq, at=START + seq * 1_000, cause=seq + 1000, actor="alice", source="console", ref=ref,
        label=label or usual, machine=machine, version=version or seq + 1, from_state=source, event=event,
        to_state=target, reason=reason, request_id=request_id, since=since, metadata=metadata or {},
    )  # fmt: skip


def life(entity: Entity, machine: str, arrow: Arrow) -> list[AuditRow]:
    """The shortest life of an entity that ends with this arrow."""
    path = [*_way_to(machine, arrow.source), arrow]
    return [
        row(entity, machine, step.source, step.event, step.target, seq=seq)
        for seq, step in enumerate(path, 1)
    ]


def _way_to(machine: str, state: str) -> list[Arrow]:
    ways: dict[str, list[Arrow]] = {MACHINES[machine].initial: []}
    while state not in ways:
        for arrow in MACHINES[machine].arrows:
            if arrow.source in ways:
                ways.setdefault(arrow.target, [*ways[arrow.source], arrow])
    return ways[state]


def named(ways: list[Way]) -> Iterator[str]:
    """Names for parametrized tests."""
    for entity, name, arrow in ways:
        yield f"{entity} {name} {arrow.source} {arrow.event} {arrow.target}"
