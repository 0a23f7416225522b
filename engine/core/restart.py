"""The engine begins: everything believed alive is asked for. Recovery only asks; it runs nothing itself."""

from engine.core.decision import Ask
from engine.core.draft import Draft
from engine.core.signals import EngineStarted
from engine.core.workers import doubt
from engine.machines import Phase, RunCue


def engine_started(draft: Draft, signal: EngineStarted) -> None:
    for worker, tokens in draft.model.held.items():
        if not tokens:
            continue
        doubt(draft, tuple(tokens))
        for token in tokens:
            attempt = draft.attempt(token)
            if attempt is None or attempt.fenced:
                continue
            run = draft.run(token.run)
            if run.phase is Phase.ACTIVE and draft.answers(run, RunCue.DOUBT):
                draft.move_run(run, RunCue.DOUBT, reason="the engine restarted")
        draft.tell(Ask(worker, tuple(tokens)))
