"""A lifecycle pairs the machine of a run with that of its tasks."""

from itertools import product

import pytest

from engine.machines import (
    LIFECYCLES,
    MACHINES,
    RUN_MACHINES,
    TASK_MACHINES,
    Lifecycle,
    MachineError,
    UnknownMachineError,
)

RUN = {"execution", "pipeline.workstream", "orchestration.workstream", "supervision.job"}
TASK = {"execution", "pipeline.step", "orchestration.task", "toolchain.task"}


def test_the_five_lifecycles_pair_these_machines() -> None:
    assert {name: (pair.run, pair.task) for name, pair in LIFECYCLES.items()} == {
        "standard": ("execution", "toolchain.task"),
        "execution": ("execution", "execution"),
        "pipeline": ("pipeline.workstream", "pipeline.step"),
        "orchestration": ("orchestration.workstream", "orchestration.task"),
        "supervision": ("supervision.job", "execution"),
    }


def test_four_machines_drive_runs_and_four_drive_tasks() -> None:
    assert set(RUN_MACHINES) == RUN
    assert set(TASK_MACHINES) == TASK


def test_every_run_machine_may_be_paired_with_every_task_machine() -> None:
    for run, task in product(RUN, TASK):
        assert Lifecycle(run, task) == Lifecycle(run, task)


def test_a_machine_that_drives_something_else_is_refused_by_name() -> None:
    for name in set(MACHINES) - RUN:
        with pytest.raises(MachineError, match=f"^{name} does not drive a run; "):
            Lifecycle(name, "execution")
    for name in set(MACHINES) - TASK:
        with pytest.raises(MachineError, match=f"^{name} does not drive a task; "):
            Lifecycle("execution", name)


def test_a_machine_that_does_not_exist_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UnknownMachineError, match=r"'toolchain\.tusk'; did you mean 'toolchain\.task'\?"):
        Lifecycle("execution", "toolchain.tusk")
