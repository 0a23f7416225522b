"""Document 001's derivation of a workstream's state, each rule in the order in which it is tested."""

from engine.core.derive import derive_workstream
from engine.core.plan import TaskPlan
from engine.core.records import Pardon, Task
from engine.machines import MACHINES

MACHINE = MACHINES["orchestration.task"]


def task(
    state: str, *, critical: bool = True, started: bool | None = None, pardon: Pardon | None = None
) -> Task:
    if started is None:
        started = state not in ("pending", "queued")
    return Task(
        run=1,
        number=1,
        plan=TaskPlan("t", critical=critical),
        machine=MACHINE.name,
        state=state,
        phase=MACHINE.phase[state],
        version=1,
        created=0,
        entered=0,
        started=1 if started else None,
        pardon=pardon,
    )


def test_no_tasks_is_planned() -> None:
    assert derive_workstream([]) == "planned"


def test_any_running_or_validating_task_is_executing_even_beside_a_critical_failure() -> None:
    assert derive_workstream([task("running"), task("failed")]) == "executing"
    assert derive_workstream([task("validating"), task("completed")]) == "executing"


def test_a_critical_task_that_failed_is_failed() -> None:
    assert derive_workstream([task("completed"), task("failed"), task("pending")]) == "failed"


def test_a_failed_task_that_is_not_critical_does_not_fail_the_workstream() -> None:
    assert derive_workstream([task("failed", critical=False), task("pending")]) == "executing"


def test_a_waived_failure_counts_as_completed() -> None:
    assert derive_workstream([task("completed"), task("failed", pardon=Pardon.WAIVED)]) == "validating"


def test_all_completed_is_validating() -> None:
    assert derive_workstream([task("completed"), task("completed")]) == "validating"


def test_all_pending_or_queued_and_none_ever_started_is_ready() -> None:
    assert derive_workstream([task("pending"), task("queued")]) == "ready"


def test_queued_again_after_a_retry_is_executing() -> None:
    assert derive_workstream([task("queued", started=True), task("pending")]) == "executing"


def test_mixed_states_are_executing() -> None:
    assert derive_workstream([task("completed"), task("pending")]) == "executing"
    assert derive_workstream([task("retrying")]) == "executing"
