"""Giving ready work to free slots: by priority, runs taking turns, within every limit.

Called at the end of a batch, so that a slot freed and filled in one batch is one commit.
"""

from dataclasses import dataclass

from engine.core.attempts import open_check, open_final_checks, start_work
from engine.core.book import Book
from engine.core.decision import Decision
from engine.core.draft import Draft
from engine.core.finish import finish
from engine.core.model import Model
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
    for lane in model.queue.order:
        if model.queue.lanes[lane]:
            _serve(draft, model, lane)
    finish(draft)
    while _serve_fresh(draft):
        finish(draft)
    for name in model.loose:
        worker = draft.worker(name)
        if worker is not None:
            tidy(draft, worker)
    return draft.done()


def _serve_fresh(draft: Draft) -> bool:
    """What a sub-run started just now made ready is not in the queue yet. False when there is nothing."""
    started = False
    touched, changed = list(draft.touched_tasks), draft.changed_runs()
    draft.touched_tasks.clear()
    keys = [*touched, *((run.number, 0) for run in changed if final_checks_ready(run))]
    for key in keys:
        run, task = draft.run(key[0]), draft.find_task(key)
        if run.terminal or (task is not None and task_blocker(draft, task) is not None):
            continue
        lane = lane_of(run, task)
        if _admitted(draft, key, lane) and lane_blocker(draft, lane) is None:
            _start(draft, key, lane)
            started = True
    return started


def _serve(draft: Draft, model: Model, lane: Lane) -> None:
    offers = model.queue.offers(lane)
    while lane_blocker(draft, lane) is None:
        key = next((offer for offer in offers if _admitted(draft, offer, lane)), None)
        if key is None:
            return
        _start(draft, key, lane)


def _admitted(draft: Draft, key: TaskKey, lane: Lane) -> bool:
    """Its run may have reached its limit, or be over, since the queue was made."""
    blocker = run_blocker(draft, draft.run(key[0]))
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
