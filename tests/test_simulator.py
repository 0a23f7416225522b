"""The simulated worlds keep every promise, and the simulator notices when one is broken."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import engine.core.decide
import engine.core.explain
from engine.core.decision import Decision, Instruction, Start, Transition
from engine.core.errors import Refused
from engine.core.explain import Explanation
from engine.core.model import Model, Snapshot
from engine.core.plan import Settings
from engine.core.ready import OPEN, Why
from engine.core.records import Ref
from engine.core.signals import Signal
from engine.machines import Kind
from tests.simulator import Report, Violation, __main__, simulate
from tests.simulator.clock import Clock
from tests.simulator.executor import Executor
from tests.simulator.invariants import Invariants
from tests.simulator.shell import Shell
from tests.simulator.simulation import Parts
from tests.simulator.store import SimulatedStore, Staging

ROOT = Path(__file__).parent.parent
CHUNK = 15
TRIED = range(60)
"""Among so many seeds there must be a world in which a planted fault shows."""


@pytest.mark.parametrize("first", range(0, 300, CHUNK))
def test_every_promise_is_kept_in_these_worlds(first: int) -> None:
    for seed in range(first, first + CHUNK):
        simulate(seed)


def test_a_seed_gives_the_same_world_whatever_the_hash_seed() -> None:
    code = "from tests.simulator import simulate; print([simulate(seed).digest for seed in range(8)])"
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(told) == 1


def test_the_clock_refuses_to_go_back() -> None:
    clock = Clock(5)
    clock.jump(2)
    with pytest.raises(ValueError, match="cannot go back from 7 to 6"):
        clock.advance(6)


# ---- the command


def test_the_command_counts_what_happened(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["simulator", "--seeds", "4", "--jobs", "1"])
    assert __main__.main() == 0
    printed = capsys.readouterr().out
    for word in ("seeds", "steps", "transitions", "facts", "faults", "runs by outcome", "arrows taken"):
        assert word in printed


def test_a_failing_seed_is_printed_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(seed: int) -> Report:
        raise Violation("the sky fell", ["it rained before"], seed, 9)

    monkeypatch.setattr(__main__, "simulate", broken)
    monkeypatch.setattr(sys, "argv", ["simulator", "--first", "7", "--seeds", "1"])
    assert __main__.main() == 1
    printed = capsys.readouterr().out
    assert "seed 7, step 9: the sky fell\n    it rained before" in printed
    assert "make simulate SEED=7" in printed


# ---- planted faults: in the parts of the world


def first_violation(parts: Parts | None = None, seeds: Sequence[int] = TRIED) -> Violation:
    for seed in seeds:
        try:
            simulate(seed, parts)
        except Violation as violation:
            return violation
    pytest.fail("the planted fault was not noticed")


class AheadStore(SimulatedStore):
    """Hands out a record of a later version than it keeps."""

    def load(self) -> Snapshot:
        snapshot = super().load()
        ahead = tuple(replace(run, version=run.version + 1) for run in snapshot.runs[:1])
        return replace(snapshot, runs=(*ahead, *snapshot.runs[1:]))


def test_a_store_that_hands_out_a_wrong_version_is_noticed() -> None:
    what = first_violation(Parts(store=AheadStore)).what
    assert "other runs than the store" in what or "was expected in" in what


class TornStore(SimulatedStore):
    """Keeps the records of a transaction and loses its instructions."""

    def _commit(self, staging: Staging, decisions: Sequence[Decision]) -> None:
        super()._commit(staging, [replace(decision, instructions=()) for decision in decisions])


def test_a_store_that_loses_the_outbox_is_noticed() -> None:
    assert first_violation(Parts(store=TornStore)).what


class DoubleExecutor(Executor):
    """Has forgotten a token as soon as it has started it, and is told everything twice."""

    def receive(self, instruction: Instruction) -> None:
        super().receive(instruction)
        if isinstance(instruction, Start):
            self.workers[instruction.worker].journal.pop(instruction.token, None)
            self.executions.pop(instruction.token, None)
            super().receive(instruction)


def test_an_executor_that_starts_a_task_twice_is_noticed() -> None:
    assert "two live processes of one task" in first_violation(Parts(executor=DoubleExecutor)).what


class DeafShell(Shell):
    """Never hears a timer."""

    @property
    def next_alarm(self) -> int | None:
        return None


def test_a_timer_that_never_fires_leaves_a_run_unfinished_and_is_noticed() -> None:
    assert re.search(
        "has not ended|waits for a timer that is over", first_violation(Parts(shell=DeafShell)).what
    )


class TamperingShell(Shell):
    """Changes the first transition of everything it decides."""

    tampered: Mapping[str, object] = {}

    def _decide(self, batch: list[Signal]) -> list[Decision]:
        return [self._tamper(decision) for decision in super()._decide(batch)]

    def _tamper(self, decision: Decision) -> Decision:
        changes = list(decision.changes)
        for place, change in enumerate(changes):
            if isinstance(change, Transition):
                changes[place] = replace(change, **self.tampered)  # type: ignore[arg-type]
                return replace(decision, changes=tuple(changes))
        return decision


TAMPERED: list[tuple[dict[str, object], str]] = [
    ({"event": "teleport"}, "is in no document"),
    ({"target": "nirvana"}, "is in no document"),
    ({"kind": Kind.CASCADE}, "not cascade"),
    ({"source": "nowhere"}, "was expected in"),
    ({"version": 77}, "was expected in"),
    ({"sets": {"ended": 77}}, "does not fold to its record|has no {'ended'}"),
]


@pytest.mark.parametrize(("tampered", "words"), TAMPERED, ids=lambda value: str(value))
def test_a_transition_that_is_not_what_it_says_is_noticed(tampered: Mapping[str, object], words: str) -> None:
    shell = type("Tampering", (TamperingShell,), {"tampered": tampered})
    assert re.search(words, first_violation(Parts(shell=shell)).what)


def test_a_violation_names_its_seed_and_step() -> None:
    shell = type("Tampering", (TamperingShell,), {"tampered": {"event": "teleport"}})
    violation = first_violation(Parts(shell=shell), [6])
    assert violation.seed == 6
    assert violation.step > 0
    assert str(violation).startswith(f"seed {violation.seed}, step {violation.step}: ")


def test_a_model_that_has_drifted_from_the_store_is_noticed() -> None:
    store, settings = SimulatedStore(), Settings()
    model = Model.load(store.load(), settings)
    model.next_run = 9
    with pytest.raises(Violation, match="other next_run"):
        Invariants(store, settings).rebuilt(model)


# ---- planted faults: in the core


def nothing(*_args: object, **_named: object) -> None:
    """Stands in for a part of the core that does not do its work."""


def impure(model: Model, signal: Signal, now: int, rand: float) -> Decision:
    model.next_run += 1
    return engine.core.decide.decide(model, signal, now, rand)


def obliging(model: Model, signal: Signal, now: int, rand: float) -> Decision:
    try:
        return engine.core.decide.decide(model, signal, now, rand)
    except Refused:
        return Decision(signal.id, now, signal.actor, signal.source)


def fickle(model: Model, signal: Signal, now: int, rand: float) -> Decision:
    decision = engine.core.decide.decide(model, signal, now, rand)
    fickle.calls += 1  # type: ignore[attr-defined]
    return replace(decision, request_id=str(fickle.calls))  # type: ignore[attr-defined]


fickle.calls = 0  # type: ignore[attr-defined]


def idle(model: Model, now: int, signal: int) -> Decision:
    return Decision(signal, now, "engine", "engine")


def excuse(model: Model, ref: Ref, now: int) -> Explanation:
    return replace(engine.core.explain.explain(model, ref, now), what=Why.CONCURRENCY)


CRIPPLED: list[tuple[str, Callable[..., object], str]] = [
    ("tests.simulator.shell.decide", impure, "changed the model|other next_run"),
    ("tests.simulator.shell.decide", fickle, "twice gave two answers"),
    ("tests.simulator.shell.decide", obliging, "nonsense was granted|did not do what it is for"),
    ("tests.simulator.shell.dispatch", idle, "is stuck|says turn"),
    ("tests.simulator.witness.explain", excuse, "which is not so"),
    ("engine.core.breakers.count_failure", nothing, "its history says"),
    ("engine.core.outcomes.backoff", lambda *_: 1, "failures"),
    ("engine.core.holds.quorum", lambda *_: True, "was approved by"),
    ("engine.core.dispatch.openness", lambda *_: OPEN, "starts although"),
    ("engine.core.dispatch.breaker_blocker", nothing, "starts although"),
    ("engine.core.draft.Draft.disarm", nothing, "is over and its timer|fired and is still set"),
    ("engine.core.workers.doubt", nothing, "did not do what it is for"),
    ("engine.core.cancel.stop_run", nothing, "did not do what it is for|nothing times it"),
    ("engine.core.workers.give_up", lambda *_: 1 / 0, "ZeroDivisionError"),
]


@pytest.mark.parametrize(
    ("part", "instead", "words"), CRIPPLED, ids=[row[0] + "-" + row[2] for row in CRIPPLED]
)
def test_a_core_that_does_not_do_its_work_is_noticed(
    part: str, instead: Callable[..., object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, instead)
    assert re.search(words, first_violation().what)
