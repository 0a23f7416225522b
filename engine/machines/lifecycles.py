"""A lifecycle is the pair of machines that a run and its tasks follow."""

from dataclasses import dataclass

from engine.machines import execution, orchestration, pipeline, supervision, toolchain
from engine.machines.cues import RunCue, TaskCue
from engine.machines.errors import MachineError, UnknownMachineError, hint
from engine.machines.machine import Machine

MACHINES: dict[str, Machine] = {
    machine.name: machine
    for machine in (
        execution.EXECUTION,
        pipeline.WORKSTREAM,
        pipeline.STEP,
        pipeline.BREAKER,
        orchestration.TASK,
        orchestration.WORKSTREAM,
        orchestration.WORKER,
        supervision.WORKER,
        supervision.JOB,
        toolchain.TASK,
    )
}

RUN_MACHINES = tuple(name for name, machine in MACHINES.items() if RunCue.START in machine.cues)
TASK_MACHINES = tuple(name for name, machine in MACHINES.items() if TaskCue.START in machine.cues)


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """Which machine the run follows, and which its tasks."""

    run: str
    task: str

    def __post_init__(self) -> None:
        for machine, fitting, what in ((self.run, RUN_MACHINES, "run"), (self.task, TASK_MACHINES, "task")):
            if machine not in MACHINES:
                raise UnknownMachineError(machine, fitting)
            if machine not in fitting:
                raise MachineError(f"{machine} does not drive a {what}{hint(machine, fitting)}")


LIFECYCLES: dict[str, Lifecycle] = {
    "standard": Lifecycle("execution", "toolchain.task"),
    "execution": Lifecycle("execution", "execution"),
    "pipeline": Lifecycle("pipeline.workstream", "pipeline.step"),
    "orchestration": Lifecycle("orchestration.workstream", "orchestration.task"),
    "supervision": Lifecycle("supervision.job", "execution"),
}
