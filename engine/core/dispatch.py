"""Giving ready work to free slots: by priority, runs taking turns, within every limit.

Called after each decision, its starts carry that signal's id. A slot freed and filled is one commit.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from engine.core.attempts import open_check, open_final_checks, start_work
from engine.core.book import Book
from engine.core.decision import Decision
from engine.core.draft import Draft
from engine.core.finish import finish
from engine.core.model import Model
from engine.core.queue import Offer
from engine.core.ready import (
    CHECKS_ONLY,
    OPEN,
    Blocker,
    Lane,
    Rank,
    Why,
    breaker_blocker,
    final_checks_ready,
    lane_of,
    openness,
    task_blocker,
)
from engine.core.records import TaskKey, Worker
from engine.core.runs import start_sub_run
from engine.core.signals import Signal
from engine.core.workers import tidy


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided(Signal):
    """Something was decided; the starts that it makes possible carry its id."""


def dispatch(model: Model, now: int, signal: int) -> Decision:
    """Start what may start, and let workers that hold nothing rest."""
    draft = Draft(model, Decided(id=signal), now, 0.0)
    _serve(draft)
    finish(draft)
    served = model.next_run
    while draft.next_run != served:
        served = draft.next_run
        _serve_freed(draft)
        finish(draft)
    for name in model.loose:
        worker = draft.worker(name)
        if worker is not None:
            tidy(draft, worker)
    return draft.done()


def _serve(draft: Draft) -> None:
    """Runs take turns across all lanes; a lane that is blocked drops out."""
    queue = draft.model.queue
    line: list[tuple[int, int, int, Rank, int, TaskKey]] = []
    lanes: list[tuple[Lane, Iterator[Offer]]] = []
    turns: dict[int, int] = {}

    def admitted(lane: Lane) -> Callable[[TaskKey], bool]:
        return lambda key: _admitted(draft, key, lane)

    def call_next(place: int) -> None:
        lane, offers = lanes[place]
        offer = next(offers, None)
        if offer is not None:
            heappush(line, (lane.urgency, offer.round, offer.ticket, lane.rank, place, offer.key))

    for lane in queue.lanes:
        if draft.model.spare or not needs_worker(lane):
            lanes.append((lane, queue.offers(lane, admitted(lane))))
            call_next(len(lanes) - 1)
    while line:
        urgency, number, ticket, rank, place, key = heappop(line)
        lane = lanes[place][0]
        had = turns.get(key[0], 0)
        if had > number:
            heappush(line, (urgency, had, ticket, rank, place, key))
        elif not _admitted(draft, key, lane):
            call_next(place)
        elif _start(draft, key, lane):
            turns[key[0]] = had + 1
            call_next(place)


def _serve_freed(draft: Draft) -> None:
    """A sub-run begun just now has tasks that the queue does not know; one that is over already has
    made room in its parent.
    """
    fresh: dict[int, list[TaskKey]] = {}
    for key in draft.touched_tasks:
        fresh.setdefault(key[0], []).append(key)
    for run in draft.affected_runs():
        waiting = [key for keys in draft.model.queue.ready.get(run.number, {}).values() for key in keys]
        checks = [(run.number, 0)] if final_checks_ready(run) else []
        for key in dict.fromkeys([*checks, *waiting, *fresh.get(run.number, ())]):
            task = draft.find_task(key)
            if task is not None and task_blocker(draft, task) is not None:
                continue
            lane = lane_of(draft.run(run.number), task)
            if _admitted(draft, key, lane):
                _start(draft, key, lane)


def _admitted(draft: Draft, key: TaskKey, lane: Lane) -> bool:
    """Its run may have reached its limit, or be over, since the queue was made."""
    run = draft.run(key[0])
    if run.terminal or (key[1] == 0 and not final_checks_ready(run)):
        return False
    level = openness(draft, run)
    return level == OPEN or (level == CHECKS_ONLY and lane.rank is Rank.CHECK)


def _start(draft: Draft, key: TaskKey, lane: Lane) -> bool:
    """Start one task, unless its lane is blocked."""
    if lane.tool and breaker_blocker(draft, lane.tool) is not None:
        return False
    if not needs_worker(lane):
        start_sub_run(draft, draft.task(key))
        return True
    worker = best_worker(draft, draft.model, lane)
    if worker is None:
        return False
    if key[1] == 0:
        open_final_checks(draft, draft.run(key[0]), worker)
    elif lane.rank is Rank.CHECK:
        open_check(draft, draft.task(key), worker)
    else:
        start_work(draft, draft.task(key), worker)
    return True


def needs_worker(lane: Lane) -> bool:
    return lane.worker or lane.rank is Rank.CHECK


def lane_blocker(model: Model, lane: Lane) -> Blocker | None:
    """What keeps everything in this lane from starting now."""
    if lane.tool:
        blocker = breaker_blocker(model, lane.tool)
        if blocker is not None:
            return blocker
    if not needs_worker(lane) or best_worker(model, model, lane) is not None:
        return None
    workers = [model.worker(name) for name in model.pool]
    capable = [worker for worker in workers if worker is not None and worker.willing and fits(worker, lane)]
    if not capable:
        needs = ", ".join(lane.capabilities) or "anything"
        return Blocker(Why.WORKER, detail=f"no worker that takes work is capable of {needs}")
    return Blocker(Why.SLOT, detail=f"every slot of {len(capable)} capable workers is taken")


def fits(worker: Worker, lane: Lane) -> bool:
    return worker.capabilities.issuperset(lane.capabilities)


def best_worker(book: Book, model: Model, lane: Lane) -> Worker | None:
    """The capable worker with the most free slots."""
    best, most = None, 0
    for name in model.spare:
        worker = book.worker(name)
        if worker is None:
            continue
        free = book.free_slots(worker)
        if free > most and fits(worker, lane):
            best, most = worker, free
    return best
