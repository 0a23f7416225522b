"""The engine begins: everything believed alive is asked for. Recovery only asks; it runs nothing itself."""

from engine.core.decision import Ask
from engine.core.draft import Draft
from engine.core.workers import doubt
from engine.machines import Phase, RunCue


def engine_started(draft: Draft) -> None:
    for worker in draft.model.workers():
        tokens = draft.holds(worker.id)
        if not tokens:
            continue
        doubt(draft, tokens)
        for token in tokens:
            attempt = draft.attempt(token)
            run = draft.run(token.run)
            believed = attempt is not None and not attempt.fenced
            if believed and run.phase is Phase.ACTIVE and draft.answers(run, RunCue.DOUBT):
                draft.move_run(run, RunCue.DOUBT, reason="the engine restarted")
        draft.tell(Ask(worker.id, tokens))
