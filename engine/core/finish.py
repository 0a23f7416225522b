"""The end of every decision: freed tasks are made ready and touched runs settle, until nothing moves."""

from engine.core.draft import Draft
from engine.core.errors import FuseBlown
from engine.core.runs import make_ready, settle

MAX_SETTLINGS = 200
"""Of one run for one signal, beyond one for each other run that the signal reaches."""


def finish(draft: Draft) -> None:
    settled: dict[int, int] = {}
    while True:
        if draft.freed:
            keys = list(draft.freed)
            draft.freed.clear()
            for key in keys:
                make_ready(draft, key)
        elif draft.touched_runs:
            number = draft.touched_runs.popitem()[0]
            settled[number] = settled.get(number, 0) + 1
            if settled[number] > MAX_SETTLINGS + draft.reach:
                raise FuseBlown(f"run {number}", draft.signal.id, ("it does not settle",) * settled[number])
            settle(draft, number)
        else:
            return
