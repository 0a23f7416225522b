"""Every cue × every state of every machine: where it leads, and where it must mean nothing."""

import pytest

from engine.machines import (
    MACHINES,
    RUN_MACHINES,
    TASK_MACHINES,
    BreakerCue,
    ControlCue,
    Cue,
    HealthCue,
    Kind,
    Machine,
    Phase,
    RunCue,
    TaskCue,
    transition,
)
from tests.machines.leads import LEADS

EVERY_CUE: tuple[Cue, ...] = (*TaskCue, *RunCue, *HealthCue, *ControlCue, *BreakerCue)

every_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)

RETRIES = {
    TaskCue.CHECKS_FAILED_RETRY,
    TaskCue.FAILED_RETRY,
    TaskCue.TIMED_OUT_RETRY,
    RunCue.RETRY_ELIGIBLE,
}

RECOVERIES: set[Cue] = {
    TaskCue.RESET,
    TaskCue.ATTESTED,
    RunCue.CORRECTED,
    BreakerCue.RESET,
    HealthCue.SHUTDOWN,
    ControlCue.TERMINATE,
}
ENDINGS: set[Cue] = {TaskCue.STOPPED, TaskCue.FORCED, TaskCue.RUN_CANCELLED, TaskCue.RUN_FAILED}


def values_for(cue: Cue) -> dict[str, object]:
    """What the engine knows when it gives this cue: every condition holds, and a retry is left or not."""
    return {
        "retry_left": cue in RETRIES,
        "steps_unfinished": True,
        "retries_zeroed": True,
        "evidence_given": True,
        "healthy_or_overridden": True,
        "never_registered": True,
        "still_holds": True,
        "run_open_retries_zeroed": True,
        "run_cancelled": True,
        "run_ended": True,
    }


def path(machine: Machine, cue: Cue, state: str) -> list[str] | None:
    """The states that a cue passes, the first and the last included; None where it has no meaning."""
    events = machine.steps(cue, state)
    if events is None:
        return None
    passed = [state]
    for event in events:
        passed.append(transition(machine.name, passed[-1], event, values_for(cue)))
    return passed


def answers(machine: Machine, cue: Cue) -> dict[str, str]:
    """Where a cue leads from each state in which it has a meaning."""
    found = {state: path(machine, cue, state) for state in machine.state}
    return {state: passed[-1] for state, passed in found.items() if passed is not None}


def in_phase(machine: Machine, *phases: Phase) -> set[str]:
    return {state for state, phase in machine.phase.items() if phase in phases}


@every_machine
def test_every_cue_leads_from_every_state_where_it_was_written_down_by_hand(machine: Machine) -> None:
    for cue in EVERY_CUE:
        rows = LEADS[machine.name].get(cue, "").split()
        assert answers(machine, cue) == dict(row.split(">") for row in rows), cue


def test_every_cue_means_something_to_some_machine() -> None:
    assert {cue for rows in LEADS.values() for cue in rows} == set(EVERY_CUE)


@every_machine
def test_the_cues_of_one_entity_mean_nothing_to_the_machine_of_another(machine: Machine) -> None:
    speaks = {
        "run or task": {"run", "task"},
        "run": {"run"},
        "task": {"task"},
        "breaker": {"breaker"},
        "worker health": {"health"},
        "worker control": {"control"},
    }
    assert {cue.partition(".")[0] for cue in machine.cues} == speaks[machine.entity]


@every_machine
def test_a_cue_never_leaves_a_terminal_state_except_to_correct_or_to_terminate(machine: Machine) -> None:
    for cue in EVERY_CUE:
        if cue in (RunCue.CORRECTED, ControlCue.TERMINATE):
            continue
        for state in answers(machine, cue):
            assert not machine.is_terminal(state), f"{cue} in {state}"


@every_machine
def test_a_cue_never_rests_in_a_moment_between_two_decisions(machine: Machine) -> None:
    for cue in EVERY_CUE:
        for state, end in answers(machine, cue).items():
            assert machine.phase[end] is not Phase.FAILING, f"{cue} from {state}"
            assert machine.phase[state] is not Phase.FAILING, f"{cue} in {state}"


@every_machine
def test_only_recovery_cues_take_recovery_arrows_and_only_ends_of_runs_take_cascades(
    machine: Machine,
) -> None:
    for cue in EVERY_CUE:
        for state in answers(machine, cue):
            here = state
            for event in machine.steps(cue, state) or ():
                arrow = machine.arrow(here, event, values_for(cue))
                assert arrow.kind is not Kind.RECOVERY or cue in RECOVERIES, f"{cue} in {state}"
                assert arrow.kind is not Kind.CASCADE or cue in ENDINGS, f"{cue} in {state}"
                here = arrow.target


@every_machine
def test_every_arrow_is_taken_by_some_cue(machine: Machine) -> None:
    taken = set()
    for cue in EVERY_CUE:
        for state in answers(machine, cue):
            here = state
            for event in machine.steps(cue, state) or ():
                arrow = machine.arrow(here, event, values_for(cue))
                taken.add(arrow)
                here = arrow.target
    assert set(machine.arrows) - taken == set()


@pytest.mark.parametrize("name", TASK_MACHINES)
def test_every_task_machine_starts_its_work_and_hears_how_it_ended(name: str) -> None:
    machine = MACHINES[name]
    active = in_phase(machine, Phase.ACTIVE)
    assert set(answers(machine, TaskCue.START).values()) == active
    for cue in (
        TaskCue.EXITED_OK,
        TaskCue.FAILED_RETRY,
        TaskCue.FAILED,
        TaskCue.TIMED_OUT_RETRY,
        TaskCue.TIMED_OUT,
        TaskCue.STOPPING,
        TaskCue.STOPPED,
        TaskCue.FORCED,
        TaskCue.HOOK_FAILED,
    ):
        assert active <= set(answers(machine, cue)), cue


@pytest.mark.parametrize("name", TASK_MACHINES)
def test_checks_run_in_the_state_that_a_good_exit_leads_to(name: str) -> None:
    machine = MACHINES[name]
    checked = set(answers(machine, TaskCue.EXITED_OK).values())
    assert checked == (in_phase(machine, Phase.CHECKING) or in_phase(machine, Phase.ACTIVE))
    for cue in (TaskCue.CHECKS_PASSED, TaskCue.CHECKS_FAILED_RETRY, TaskCue.CHECKS_FAILED):
        assert checked <= set(answers(machine, cue)), cue


@pytest.mark.parametrize("name", TASK_MACHINES)
def test_what_happened_to_a_task_ends_in_a_fitting_phase(name: str) -> None:
    machine = MACHINES[name]
    fitting: dict[Cue, set[Phase]] = {
        TaskCue.READY: {Phase.QUEUED},
        TaskCue.HOLD: {Phase.HELD},
        TaskCue.WAIT: {Phase.WAITING},
        TaskCue.RELEASED: {Phase.QUEUED},
        TaskCue.REJECTED: {Phase.CANCELLED},
        TaskCue.EXPIRED: {Phase.CANCELLED},
        TaskCue.START: {Phase.ACTIVE},
        TaskCue.EXITED_OK: {Phase.ACTIVE, Phase.CHECKING},
        TaskCue.CHECKS_PASSED: {Phase.SUCCEEDED},
        # 004 retries below a task that stays active; 001 does not retry a failed check.
        TaskCue.CHECKS_FAILED_RETRY: {Phase.BACKOFF, Phase.ACTIVE, Phase.FAILED},
        TaskCue.FAILED_RETRY: {Phase.BACKOFF, Phase.ACTIVE},
        TaskCue.TIMED_OUT_RETRY: {Phase.BACKOFF, Phase.ACTIVE},
        # 003 has no final failure: its task stays behind its circuit.
        TaskCue.CHECKS_FAILED: {Phase.FAILED, Phase.PARKED},
        TaskCue.FAILED: {Phase.FAILED, Phase.PARKED},
        TaskCue.TIMED_OUT: {Phase.FAILED, Phase.PARKED},
        TaskCue.HOOK_FAILED: {Phase.FAILED, Phase.PARKED},
        TaskCue.RETRY_DUE: {Phase.QUEUED},
        TaskCue.SKIP: {Phase.SKIPPED},
        TaskCue.STOPPING: {Phase.ACTIVE, Phase.CHECKING, Phase.PROBING, Phase.CANCELLING},
        # 000 ends a stopped step by failure, and 001 a forced validation; a check or probe of 003 that was
        # stopped waits for the end of its run, the only one to have an arrow for it.
        TaskCue.STOPPED: {Phase.CANCELLED, Phase.FAILED, Phase.CHECKING, Phase.PROBING},
        TaskCue.FORCED: {Phase.CANCELLED, Phase.FAILED, Phase.CHECKING, Phase.PROBING},
        TaskCue.DOUBT: {Phase.RECOVERING},
        TaskCue.REGAINED: {Phase.ACTIVE},
        TaskCue.PARK: {Phase.PARKED},
        TaskCue.PROBE: {Phase.PROBING},
        TaskCue.PROBE_REFUSED: {Phase.PARKED},
        TaskCue.RESET: {Phase.IDLE},
        TaskCue.ATTESTED: {Phase.SUCCEEDED},
    }
    for cue, phases in fitting.items():
        for state, end in answers(machine, cue).items():
            assert machine.phase[end] in phases, f"{cue} from {state}"


@pytest.mark.parametrize("name", TASK_MACHINES)
def test_the_end_of_a_run_reaches_every_state_in_which_a_task_may_rest(name: str) -> None:
    machine = MACHINES[name]
    stopped = set(answers(machine, TaskCue.STOPPED)) | set(answers(machine, TaskCue.FORCED))
    for ending in (TaskCue.RUN_CANCELLED, TaskCue.RUN_FAILED):
        reached = stopped | set(answers(machine, ending))
        resting = {s.name for s in machine.states if not s.terminal and s.phase is not Phase.FAILING}
        assert resting - reached == set(), ending


@pytest.mark.parametrize("name", TASK_MACHINES)
def test_after_the_end_of_its_run_a_task_is_final_or_keeps_its_state_under_a_mark(name: str) -> None:
    machine = MACHINES[name]
    for ending in (TaskCue.RUN_CANCELLED, TaskCue.RUN_FAILED):
        for state, end in answers(machine, ending).items():
            assert machine.is_terminal(end) or end == state, f"{ending} in {state}"


@pytest.mark.parametrize("name", RUN_MACHINES)
def test_every_open_run_can_be_forced_to_an_end(name: str) -> None:
    machine = MACHINES[name]
    forced = answers(machine, RunCue.FORCED)
    assert set(forced) == {state.name for state in machine.states if not state.terminal}
    for end in forced.values():
        assert machine.is_terminal(end)


@pytest.mark.parametrize("name", RUN_MACHINES)
def test_every_open_run_can_be_cancelled_gracefully_except_while_001_validates(name: str) -> None:
    machine = MACHINES[name]
    cancellable = {cue for cue in (RunCue.STOPPING, RunCue.STOPPED) if cue in machine.cues}
    reached = {state for cue in cancellable for state in answers(machine, cue)}
    assert {s.name for s in machine.states if not s.terminal} - reached == (
        {"validating"} if name == "orchestration.workstream" else set()
    )


@pytest.mark.parametrize("name", RUN_MACHINES)
def test_a_running_run_hears_of_success_failure_and_timeout(name: str) -> None:
    machine = MACHINES[name]
    active = in_phase(machine, Phase.ACTIVE)
    assert set(answers(machine, RunCue.START).values()) == active
    for cue in (RunCue.DONE, RunCue.FAILED, RunCue.TIMED_OUT):
        assert active <= set(answers(machine, cue)), cue
    checked = set(answers(machine, RunCue.DONE).values())
    for cue in (RunCue.CHECKS_PASSED, RunCue.CHECKS_FAILED):
        assert checked <= set(answers(machine, cue)), cue


def test_a_run_timeout_cancels_under_supervision_and_fails_elsewhere() -> None:
    for name in RUN_MACHINES:
        machine = MACHINES[name]
        ends = {machine.phase[end] for end in answers(machine, RunCue.TIMED_OUT).values()}
        assert ends == ({Phase.CANCELLED} if name == "supervision.job" else {Phase.FAILED})


def test_a_result_that_arrives_while_recovering_succeeds_through_running() -> None:
    for cue in (TaskCue.CHECKS_PASSED, RunCue.CHECKS_PASSED):
        assert path(MACHINES["execution"], cue, "recovering") == ["recovering", "running", "success"]


def test_a_graceful_cancel_that_arrives_while_recovering_goes_through_running() -> None:
    for cue in (TaskCue.STOPPING, RunCue.STOPPING):
        assert path(MACHINES["execution"], cue, "recovering") == ["recovering", "running", "cancelling"]


def test_a_task_that_timed_out_for_good_passes_timeout_and_failed_on_its_way() -> None:
    passed = path(MACHINES["toolchain.task"], TaskCue.TIMED_OUT, "IN_PROGRESS")
    assert passed == ["IN_PROGRESS", "TIMEOUT", "FAILED", "CIRCUIT_OPEN"]


def test_a_workstream_of_000_is_cancelled_through_running() -> None:
    workstream = MACHINES["pipeline.workstream"]
    assert path(workstream, RunCue.STOPPED, "S_PENDING") == ["S_PENDING", "S_RUNNING", "S_ABANDONED"]
    assert path(workstream, RunCue.STOPPED, "S_RETRYING") == ["S_RETRYING", "S_RUNNING", "S_ABANDONED"]


def test_an_exhausted_workstream_of_000_rests_in_failed() -> None:
    workstream = MACHINES["pipeline.workstream"]
    assert path(workstream, RunCue.FAILED, "S_RETRYING") == ["S_RETRYING", "S_RUNNING", "S_FAILED"]
    assert path(workstream, RunCue.FAILED, "S_FAILED") == ["S_FAILED"]


def test_a_workers_two_regions_agree_on_what_ends_it() -> None:
    health, control = MACHINES["orchestration.worker"], MACHINES["supervision.worker"]
    assert set(answers(health, HealthCue.SHUTDOWN)) == {s.name for s in health.states if not s.terminal}
    assert set(answers(control, ControlCue.TERMINATE)) == set(control.state) - {"TERMINATED"}
    assert "PAUSED" not in answers(control, ControlCue.ASSIGNED)
