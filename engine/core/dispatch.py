"""Giving ready work to free slots: by priority, runs taking turns, within every limit.

Called at the end of a batch, so that a slot freed and filled in one batch is one commit.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from engine.core.attempts import open_check, open_final_checks, start_work
from engine.core.book import Book
from engine.core.decision import Decision
from engine.core.draft import Draft
from engine.core.finish import finish
from engine.core.model import Model, Offer
from engine.core.ready import (
    Blocker,
    Lane,
    Rank,
    Why,
    breaker_blocker,
    final_checks_ready,
    lane_of,
    run_blocker,
    task_blocker,
)
from engine.core.records import TaskKey, Worker
from engine.core.runs import start_sub_run
from engine.core.signals import Signal
from engine.core.workers import tidy


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(Signal):
    """The end of a batch; it carries the id of the signal that made the batch worth dispatching."""


def dispatch(model: Model, now: int, signal: int) -> Decision:
    """Start what may start, and let workers that hold nothing rest."""
    draft = Draft(model, Batch(id=signal), now, 0.0)
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
        if lane_blocker(draft, lane) is None:
            lanes.append((lane, queue.offers(lane, admitted(lane))))
            call_next(len(lanes) - 1)
    while line:
        urgency, number, ticket, rank, place, key = heappop(line)
        lane = lanes[place][0]
        if lane_blocker(draft, lane) is not None:
            continue
        had = turns.get(key[0], 0)
        if had > number:
            heappush(line, (urgency, had, ticket, rank, place, key))
            continue
        if _admitted(draft, key, lane):
            turns[key[0]] = had + 1
            _start(draft, key, lane)
        call_next(place)


def _serve_freed(draft: Draft) -> None:
    """A sub-run begun just now has tasks that the queue does not know; one that is over already has
    made room in its parent.
    """
    for run in draft.affected_runs():
        waiting = [key for keys in draft.model.queue.ready.get(run.number, {}).values() for key in keys]
        fresh = [key for key in draft.touched_tasks if key[0] == run.number]
        checks = [(run.number, 0)] if final_checks_ready(run) else []
        for key in dict.fromkeys([*checks, *waiting, *fresh]):
            task = draft.find_task(key)
            if task is not None and task_blocker(draft, task) is not None:
                continue
            lane = lane_of(draft.run(run.number), task)
            if _admitted(draft, key, lane) and lane_blocker(draft, lane) is None:
                _start(draft, key, lane)


def _admitted(draft: Draft, key: TaskKey, lane: Lane) -> bool:
    """Its run may have reached its limit, or be over, since the queue was made."""
    run = draft.run(key[0])
    if run.terminal or (key[1] == 0 and not final_checks_ready(run)):
        return False
    blocker = run_blocker(draft, run)
    return blocker is None or (lane.rank is Rank.CHECK and blocker.why is Why.FAILURE)


def _start(draft: Draft, key: TaskKey, lane: Lane) -> None:
    if not lane.worker and lane.rank is not Rank.CHECK:
        start_sub_run(draft, draft.task(key))
        return
    worker = best_worker(draft, lane)
    assert worker is not None
    if key[1] == 0:
        open_final_checks(draft, draft.run(key[0]), worker)
    elif lane.rank is Rank.CHECK:
        open_check(draft, draft.task(key), worker)
    else:
        start_work(draft, draft.task(key), worker)


def lane_blocker(book: Book, lane: Lane) -> Blocker | None:
    """What keeps everything in this lane from starting now."""
    if lane.tool:
        blocker = breaker_blocker(book, lane.tool)
        if blocker is not None:
            return blocker
    if (lane.worker or lane.rank is Rank.CHECK) and best_worker(book, lane) is None:
        capable = [worker for worker in _workers(book) if fits(worker, lane) and worker.willing]
        if not capable:
            needs = ", ".join(lane.capabilities) or "anything"
            return Blocker(Why.WORKER, detail=f"no worker that takes work is capable of {needs}")
        return Blocker(Why.SLOT, detail=f"every slot of {len(capable)} capable workers is taken")
    return None


def fits(worker: Worker, lane: Lane) -> bool:
    return worker.capabilities.issuperset(lane.capabilities)


def best_worker(book: Book, lane: Lane) -> Worker | None:
    """The capable worker with the most free slots."""
    best, most = None, 0
    for worker in _workers(book):
        free = book.free_slots(worker)
        if free > most and fits(worker, lane):
            best, most = worker, free
    return best


def _workers(book: Book) -> list[Worker]:
    model = book.model if isinstance(book, Draft) else book
    assert isinstance(model, Model)
    found = [book.worker(worker.id) for worker in model.workers()]
    return [worker for worker in found if worker is not None]
