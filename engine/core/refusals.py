"""What is refused before a run exists: wishes that no machine can grant, numbers that cannot be meant."""

import re
from collections import Counter

from engine.core.conditions import Outcome
from engine.core.plan import (
    MAX_DEPTH,
    MAX_WORKERS,
    SECOND,
    Approval,
    Clause,
    ErrorRule,
    OnFailure,
    Plan,
    Retry,
    Settings,
    TaskPlan,
    Tool,
    WhenOpen,
)
from engine.machines import RunCue, TaskCue

AT_LEAST: dict[str, float] = {
    "concurrency": 1,
    "timeout": 1,
    "wait": 1,
    "checks": 0,
    "grace": 0,
    "hook_timeout": 1,
    "abandon_after": 1,
    "max_probes": 0,
    "max_attempts": 1,
    "base": 0,
    "cap": 0,
    "jitter": 0,
    "max_repeats": 0,
    "expires": 1,
    "count": 1,
    "failure_threshold": 1,
    "success_threshold": 1,
    "cooldown": 1,
    "task_timeout": 1,
    "check_timeout": 1,
    "max_losses": 1,
    "give_up_after": 1,
    "register_within": 1,
    "kill_margin": 1,
}
"""The smallest value of each number in a plan or in the settings that can be meant."""

AT_MOST = 100 * 365 * 24 * 3600 * SECOND
"""A hundred years: more fits no clock, and no column."""


def refusals(plan: Plan) -> list[str]:
    """Every wish of a plan that cannot be granted, each with the way out; empty when all can."""
    return _plan_refusals(plan, 0, {})


def settings_refusals(settings: Settings) -> list[str]:
    """The same for what the operator has set."""
    found = _bounds("settings", settings)
    for name, tool in settings.tools.items():
        found.extend(_bounds(f"tool {name}", tool))
        for rule in tool.errors:
            found.extend(_pattern_refusals(f"tool {name}", rule))
    for clause in settings.policy:
        found.extend(_bounds("policy", clause))
    return found


def _plan_refusals(plan: Plan, depth: int, seen: dict[int, int]) -> list[str]:
    """A plan used in many places is looked at once, and again only where it lies deeper."""
    if depth > MAX_DEPTH:
        return [f"{plan.name}: sub-runs go {MAX_DEPTH} deep at most; flatten the innermost workflow"]
    found: list[str] = []
    if id(plan) not in seen:
        found = [*_run_refusals(plan), *_cycles(plan), *_same_names(plan)]
        for part in plan.tasks:
            found.extend(_task_refusals(plan, part))
    if seen.get(id(plan), -1) < depth:
        seen[id(plan)] = depth
        for part in plan.tasks:
            if part.uses is not None:
                found.extend(_plan_refusals(part.uses, depth + 1, seen))
    return found


def _same_names(plan: Plan) -> list[str]:
    twice = [name for name, times in Counter(part.name for part in plan.tasks).items() if times > 1]
    return [f"{plan.name}: two tasks have the same name: {', '.join(twice)}"] if twice else []


def _run_refusals(plan: Plan) -> list[str]:
    found = _bounds(plan.name, plan)
    run = plan.lifecycle.run
    if not plan.tasks:
        found.append(f"{plan.name}: it has no tasks; give it at least one")
    if not 1 <= plan.worker_count <= MAX_WORKERS:
        found.append(f"{plan.name}: worker_count is 1 to {MAX_WORKERS}, not {plan.worker_count}")
    held = plan.approval is not None or plan.wait is not None
    if held and RunCue.HOLD not in plan.run_machine.cues:
        found.append(
            f"{plan.name}: {run} has no held state: approval or wait of a run needs lifecycle"
            " `standard` or `execution`"
        )
    if plan.failure_policy is OnFailure.CONTINUE and plan.mirrors_tasks:
        found.append(
            f"{plan.name}: {run} mirrors a failed task at once, so nothing can continue beside it:"
            " take `on_failure: finish`, or another lifecycle"
        )
    return found


def _task_refusals(plan: Plan, part: TaskPlan) -> list[str]:
    where, machine = f"{plan.name}/{part.name}", plan.lifecycle.task
    found = _bounds(where, part)
    held = part.approval is not None or part.wait is not None
    if held and TaskCue.HOLD not in plan.task_machine.cues:
        found.append(
            f"{where}: {machine} has no held state: approval of a single task needs"
            " lifecycle `execution` or `supervision`, or a `uses` sub-run"
        )
    if part.when_circuit_open is WhenOpen.WAIT and TaskCue.PROBE not in plan.task_machine.cues:
        found.append(
            f"{where}: {machine} has no open circuit to wait in:"
            " `when_circuit_open: wait` needs lifecycle `standard`"
        )
    if part.uses is not None and (part.tool is not None or part.has_cancel_hook):
        found.append(f"{where}: a task that uses a workflow has no tool and no cancel hook; its tasks have")
    for rule in part.errors:
        found.extend(_pattern_refusals(where, rule))
    for test in part.when:
        kind, _, name = test.subject.partition(".")
        if kind == "needs" and plan.numbers.get(name) not in part.needs:
            found.append(f"{where}: `when` speaks of {test.subject}, which is not among its needs")
        elif kind == "needs" and test.value not in list(Outcome):
            words = ", ".join(Outcome)
            found.append(f"{where}: a need comes out as one of {words}, never as {test.value!r}")
        elif kind not in ("needs", "params") or not name:
            found.append(f"{where}: `when` knows `params.NAME` and `needs.NAME`, not {test.subject!r}")
    return found


def _pattern_refusals(where: str, rule: ErrorRule) -> list[str]:
    try:
        re.compile(rule.pattern or "")
    except re.error as error:
        return [f"{where}: the pattern {rule.pattern!r} of an error rule is no regular expression: {error}"]
    return []


def _bounds(where: str, part: Plan | TaskPlan | Retry | Approval | Clause | Tool | Settings) -> list[str]:
    """Numbers that cannot be meant, here and in what this part is made of."""
    found = []
    for name, least in AT_LEAST.items():
        value = getattr(part, name, None)
        most = 1 if name == "jitter" else AT_MOST
        if not isinstance(value, int | float) or least <= value <= most:
            continue
        bound = f"at most {most:,}" if value > most else f"at least {least:g}"
        found.append(f"{where}: {name} is {bound}, not {value}")
    inner = [getattr(part, "retry", None), getattr(part, "approval", None), *getattr(part, "clauses", ())]
    for deeper in inner:
        if deeper is not None:
            found.extend(_bounds(where, deeper))
    return found


def _cycles(plan: Plan) -> list[str]:
    unmet = {n: len(set(task.needs)) for n, task in enumerate(plan.tasks, 1)}
    free = [n for n, count in unmet.items() if not count]
    while free:
        for dependent in plan.dependents[free.pop()]:
            unmet[dependent] -= 1
            if not unmet[dependent]:
                free.append(dependent)
    stuck = [plan.task(n).name for n, count in unmet.items() if count]
    return [f"{plan.name}: these tasks need each other in a circle: {', '.join(stuck)}"] if stuck else []
