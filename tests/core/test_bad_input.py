"""Bad input gets a clear error and changes nothing."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from engine.core import signals as s
from engine.core.decide import HANDLERS, decide
from engine.core.draft import FUSE
from engine.core.errors import CoreError, FuseBlown, Refused
from engine.core.explain import explain
from engine.core.plan import (
    SECOND,
    Approval,
    Category,
    Clause,
    ErrorRule,
    OnFailure,
    Plan,
    Retry,
    TaskPlan,
    WhenOpen,
)
from engine.core.records import Entity, Ref, TimerKind, Token
from engine.machines import (
    MACHINES,
    Arrow,
    InvalidTransitionError,
    Lifecycle,
    MachineError,
    MissingValuesError,
    TaskCue,
    UnknownMachineError,
    transition,
)
from tests.core.scene import ORCHESTRATION, PIPELINE, Scene, approval, run_ref, task_ref

# ---- things that do not exist


UNKNOWN: list[tuple[type[s.Signal], dict[str, Any]]] = [
    (s.Cancel, {"run": 9}),
    (s.Cancel, {"run": 9, "force": True}),
    (s.Resume, {"run": 9}),
    (s.Rerun, {"run": 9}),
    (s.Rerun, {"run": 9, "task": 1}),
    (s.Approve, {"target": run_ref(9), "actor": "ann"}),
    (s.Approve, {"target": task_ref(1, 9), "actor": "ann"}),
    (s.Approve, {"target": Ref(Entity.WORKER, "w"), "actor": "ann"}),
    (s.Reject, {"target": task_ref(9, 1), "actor": "ann", "reason": "no"}),
    (s.AnswerLost, {"run": 9, "task": 1, "retry": True}),
    (s.AnswerLost, {"run": 1, "task": 9, "retry": True}),
    (s.ResetTask, {"run": 1, "task": 9}),
    (s.ResetTask, {"run": 1, "task": 0}),
    (s.WaiveTask, {"run": 9, "task": 1}),
    (s.AttestTask, {"run": 1, "task": -1, "evidence": "saw it"}),
    (s.CorrectRun, {"run": 9}),
    (s.AbandonRun, {"run": 9}),
    (s.PauseWorker, {"worker": "ghost"}),
    (s.ResumeWorker, {"worker": "ghost"}),
    (s.DrainWorker, {"worker": "ghost"}),
    (s.TerminateWorker, {"worker": "ghost"}),
    (s.TripBreaker, {"tool": ""}),
    (s.ProbeBreaker, {"tool": ""}),
    (s.ResetBreaker, {"tool": "", "healthy": True}),
]


@pytest.mark.parametrize(("signal", "fields"), UNKNOWN, ids=lambda value: getattr(value, "__name__", None))
def test_a_command_about_something_unknown_is_refused_in_a_sentence(
    signal: type[s.Signal], fields: dict[str, Any]
) -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"))
    answer = scene.refused(signal, **fields)
    assert "no such" in answer or "is needed" in answer


@pytest.mark.parametrize("signal", [s.ProbeBreaker, s.ResetBreaker])
def test_a_tool_that_never_failed_has_a_closed_breaker_and_says_so(signal: type[s.Signal]) -> None:
    assert "CLOSED" in Scene().refused(signal, tool="never-seen")


REPORTS: list[tuple[type[s.Signal], dict[str, Any]]] = [
    *((kind, {"worker": "ghost"}) for kind in (s.WorkerQuiet, s.WorkerBack, s.WorkerGone)),
    *((kind, {"worker": "ghost"}) for kind in (s.WorkerExhausted, s.WorkerBroken)),
    *((kind, {"token": Token(9, 9, 9)}) for kind in (s.AttemptStarted, s.AttemptLost, s.AttemptFound)),
    (s.AttemptMissing, {"token": Token(9, 9, 9)}),
    (s.AttemptEnded, {"token": Token(9, 9, 9), "exit_code": 0}),
    (s.AttemptAdopted, {"token": Token(1, 1, 1), "worker": "ghost"}),
    *((s.TimerDue, {"ref": ref, "kind": kind}) for ref in (run_ref(9), task_ref(1, 9)) for kind in TimerKind),
    (s.TimerDue, {"ref": Ref(Entity.WORKER, "ghost"), "kind": TimerKind.GIVE_UP}),
    (s.TimerDue, {"ref": Ref(Entity.BREAKER, "ghost"), "kind": TimerKind.COOLDOWN}),
]


@pytest.mark.parametrize(("signal", "fields"), REPORTS, ids=lambda value: getattr(value, "__name__", None))
def test_a_report_about_something_unknown_is_taken_and_changes_nothing(
    signal: type[s.Signal], fields: dict[str, Any]
) -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"))
    before = scene.model.snapshot(), scene.model.derived()
    scene.tell(signal, **fields)
    assert (scene.model.snapshot(), scene.model.derived()) == before


@pytest.mark.parametrize("ref", [run_ref(9), task_ref(1, 9), task_ref(9, 1)])
def test_explaining_what_does_not_exist_is_refused(ref: Ref) -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"))
    with pytest.raises(CoreError, match="there is no"):
        explain(scene.model, ref, 0)


@pytest.mark.parametrize("ref", [Ref(Entity.WORKER, "w"), Ref(Entity.BREAKER, "aider")])
def test_explaining_what_is_neither_run_nor_task_is_refused(ref: Ref) -> None:
    with pytest.raises(CoreError):
        explain(Scene(slots=1).model, ref, 0)


# ---- signals that nobody knows


@dataclass(frozen=True, slots=True, kw_only=True)
class Gossip(s.Signal):
    """Not a signal of the core."""


def test_a_signal_of_an_unknown_type_is_refused_by_its_name() -> None:
    assert "Gossip" in Scene(slots=1).refused(Gossip)


def test_the_bare_signal_is_refused_too() -> None:
    assert "Signal" in Scene().refused(s.Signal)


def test_every_signal_has_a_handler() -> None:
    kinds = {
        kind
        for kind in vars(s).values()
        if isinstance(kind, type) and issubclass(kind, s.Signal) and kind is not s.Signal
    }
    assert kinds == set(HANDLERS)


# ---- guards


def test_a_guard_without_its_values_is_an_error_that_names_them() -> None:
    with pytest.raises(MissingValuesError, match="retry_left"):
        transition("orchestration.task", "running", "execution_failed")
    with pytest.raises(MissingValuesError, match="evidence_given"):
        transition("pipeline.step", "S_FAILED", "attested_by_operator", {})


def test_an_unknown_machine_or_pair_is_refused_before_there_is_a_plan() -> None:
    with pytest.raises(UnknownMachineError):
        Lifecycle("executoin", "execution")
    with pytest.raises(MachineError, match="does not drive a run"):
        Lifecycle("toolchain.task", "execution")


def test_attesting_needs_evidence() -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a", retry=Retry(max_attempts=1)), lifecycle=PIPELINE)
    scene.end(1, 1, 1)
    for evidence in ("", "  "):
        assert "evidence" in scene.refused(s.AttestTask, run=1, task=1, evidence=evidence)
    scene.tell(s.AttestTask, run=1, task=1, evidence="the file is there")
    assert scene.state(1) == "S_SUCCESS"


def test_a_command_in_the_wrong_state_names_state_and_what_is_allowed() -> None:
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a"))
    with pytest.raises(InvalidTransitionError) as refusal:
        decide(scene.model, s.ResetTask(id=99, run=1, task=1), 0, 0.5)
    assert refusal.value.state == "IN_PROGRESS"
    assert "tool_execution_complete" in refusal.value.allowed
    assert refusal.value.entity == "1/1"


# ---- absurd plans

A = TaskPlan("a")
ABSURD: dict[str, Plan] = {
    "no tasks": Plan("p", ()),
    "needs itself": Plan("p", (TaskPlan("a", (1,)),)),
    "a circle": Plan("p", (TaskPlan("a", (2,)), TaskPlan("b", (3,)), TaskPlan("c", (1,)))),
    "no workers": Plan("p", (A,), worker_count=0),
    "eleven workers": Plan("p", (A,), worker_count=11),
    "a run that cannot be held": Plan("p", (A,), PIPELINE, approval=approval()),
    "a run that cannot wait": Plan("p", (A,), ORCHESTRATION, wait=SECOND),
    "a run that cannot wait no time": Plan("p", (A,), ORCHESTRATION, wait=0),
    "a task that cannot be held": Plan("p", (replace(A, approval=approval()),)),
    "a task that cannot wait no time": Plan("p", (A, TaskPlan("b", (1,), wait=0))),
    "no circuit to wait in": Plan("p", (replace(A, when_circuit_open=WhenOpen.WAIT),), PIPELINE),
    "continue under a mirror": Plan("p", (A,), PIPELINE, on_failure=OnFailure.CONTINUE),
    "no concurrency": Plan("p", (A,), concurrency=0),
    "negative concurrency": Plan("p", (A,), concurrency=-1),
    "no attempts": Plan("p", (replace(A, retry=Retry(max_attempts=0)),)),
    "a backoff into the past": Plan("p", (replace(A, retry=Retry(base=-SECOND)),)),
    "a jitter into the past": Plan("p", (replace(A, retry=Retry(jitter=1.5)),)),
    "a pattern that is none": Plan("p", (replace(A, errors=(ErrorRule(Category.PERMANENT, pattern="("),)),)),
    "a negative timeout": Plan("p", (replace(A, timeout=-1),)),
    "a negative timeout of the run": Plan("p", (A,), timeout=-1),
    "a negative grace": Plan("p", (A,), grace=-1),
    "negative checks": Plan("p", (replace(A, checks=-1),)),
    "negative final checks": Plan("p", (A,), checks=-1),
    "a negative wait": Plan("p", (A,), wait=-1),
    "an expiry in the past": Plan("p", (A,), approval=Approval((Clause(),), expires=-1)),
    "a quorum of nobody": Plan("p", (A,), approval=Approval((Clause(count=0),))),
    "two tasks of one name": Plan("p", (A, A)),
}


@pytest.mark.parametrize("name", ABSURD)
def test_an_absurd_plan_is_refused_before_a_run_exists(name: str) -> None:
    scene = Scene(slots=1)
    answer = scene.refused(s.Submit, plan=ABSURD[name], actor="dev")
    assert "p" in answer
    assert list(scene.model.runs()) == []


def test_an_absurd_plan_is_refused_inside_another_as_well() -> None:
    outer = Plan("outer", (TaskPlan("sub", uses=ABSURD["a circle"]),))
    assert "circle" in Scene().refused(s.Submit, plan=outer, actor="dev")


@pytest.mark.parametrize("need", [0, -1, 2, 99])
def test_a_need_that_is_no_task_cannot_even_be_written(need: int) -> None:
    with pytest.raises(ValueError, match="which is no task"):
        Plan("p", (TaskPlan("a", (need,)),))


def test_all_that_is_wrong_with_a_plan_is_told_at_once() -> None:
    plan = Plan("p", (TaskPlan("a", (1,), approval=approval()),), PIPELINE, wait=SECOND, worker_count=99)
    answer = Scene().refused(s.Submit, plan=plan, actor="dev")
    for word in ("circle", "held state", "worker_count"):
        assert word in answer


# ---- the fuse


def test_the_longest_documented_chain_is_far_below_the_fuse() -> None:
    longest = max(len(path) for machine in MACHINES.values() for path in machine._steps.values())
    assert longest * 4 < FUSE


def test_a_broken_machine_that_goes_in_circles_blows_the_fuse_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = MACHINES["toolchain.task"]
    round_about = " > ".join(["ping", "pong"] * FUSE + ["ping"])
    broken = replace(
        whole,
        arrows=(
            *whole.arrows,
            Arrow("PENDING", "ping", "IN_PROGRESS", "A circle."),
            Arrow("IN_PROGRESS", "pong", "PENDING", "And back."),
        ),
        cues={
            **whole.cues,
            TaskCue.EXITED_OK: {"PENDING": round_about, "IN_PROGRESS": f"pong > {round_about}"},
        },
    )
    scene = Scene(slots=1)
    scene.run_tasks(TaskPlan("a", checks=1))
    token = scene.live(1, 1)
    monkeypatch.setitem(MACHINES, "toolchain.task", broken)
    before = scene.model.snapshot(), scene.model.derived()
    with pytest.raises(FuseBlown) as blown:
        decide(scene.model, s.AttemptEnded(id=99, token=token, exit_code=0), 0, 0.5)
    assert blown.value.signal == 99
    assert len(blown.value.story) == FUSE + 1
    assert (scene.model.snapshot(), scene.model.derived()) == before


def test_a_refusal_says_what_why_and_what_instead() -> None:
    refusal = Refused("cancel 3", "it is over", "resume it")
    assert str(refusal) == "cancel 3: it is over; resume it"
    assert str(Refused("cancel 3", "it is over")) == "cancel 3: it is over"
