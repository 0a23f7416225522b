"""What a condition sees of a need, and what a run that is taken up again takes along."""

import pytest

from engine.core import signals as s
from engine.core.errors import Refused
from engine.core.plan import OnFailure, Test
from engine.core.records import Pardon, Token
from engine.core.refusals import refusals
from engine.machines import Lifecycle, Phase
from tests.core.driver import Driver, every_pair, every_task_machine, task, workflow

NEVER = (Test("params.x", "nobody says so"),)
"""A condition that is false in every run here."""


def when(need: str, outcome: str) -> tuple[Test, ...]:
    return (Test(f"needs.{need}", outcome),)


def over(drive: Driver) -> None:
    """Bring a run that rests failed to its end, so that it can be taken up again."""
    if not drive.record().terminal:
        drive.feed(s.AbandonRun, run=drive.run)
    assert drive.record().terminal


# ---- conditions


@every_pair
def test_a_condition_sees_a_need_that_was_carried_over_as_succeeded(pair: Lifecycle) -> None:
    drive = Driver()
    parts = task("build"), task("deploy", "build", when=when("build", "succeeded"))
    drive.submit(workflow(*parts, lifecycle=pair))
    drive.exits("build")
    drive.fails_for_good("deploy")
    over(drive)
    drive.again(s.Resume)
    drive.play()
    assert drive.started() == ["build", "deploy", "deploy"]
    assert drive.phase("deploy") is Phase.SUCCEEDED


@every_task_machine
def test_a_failed_need_is_called_failed_under_every_machine(machine: str) -> None:
    drive = Driver()
    parts = task("a", optional=True), task("b", "a", when=when("a", "failed"))
    drive.submit(workflow(*parts, lifecycle=Lifecycle("execution", machine)))
    drive.fails_for_good("a")
    assert drive.started() == ["a", "b"]


@every_task_machine
def test_a_need_passed_over_by_its_condition_is_called_skipped_under_every_machine(machine: str) -> None:
    drive = Driver()
    parts = task("a", when=NEVER), task("b", "a", when=when("a", "skipped"))
    drive.submit(workflow(*parts, lifecycle=Lifecycle("execution", machine)))
    assert drive.started() == ["b"]


@every_task_machine
def test_a_waived_need_is_called_waived_under_every_machine(machine: str) -> None:
    drive = Driver()
    parts = task("a"), task("b", "a", when=when("a", "waived"))
    drive.submit(workflow(*parts, lifecycle=Lifecycle("pipeline.workstream", machine)))
    drive.fails_for_good("a")
    drive.mend(s.WaiveTask, "a", reason="known")
    assert drive.started() == ["a", "b"]


@pytest.mark.parametrize("word", ["behind an open circuit", "COMPLETED", "success", ""])
def test_a_condition_on_a_word_that_no_need_comes_out_as_is_refused(word: str) -> None:
    (wrong,) = refusals(workflow(task("a"), task("b", "a", when=when("a", word))))
    assert "succeeded, failed, cancelled, skipped, waived" in wrong


def test_a_condition_on_a_task_that_is_no_need_is_refused() -> None:
    (wrong,) = refusals(workflow(task("a"), task("b", when=when("a", "succeeded"))))
    assert "not among its needs" in wrong


# ---- taking up again


def test_what_a_rerun_left_out_is_not_called_carried_over_by_a_resume() -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), task("b"), on_failure=OnFailure.CONTINUE))
    drive.fails_for_good("a")
    drive.fails_for_good("b")
    drive.again(s.Rerun, task=1)
    drive.fails_for_good("a")
    drive.again(s.Resume)
    assert drive.task("b").pardon is Pardon.LEFT_OUT
    assert "carried_over" not in drive.facts("b")


@every_pair
def test_a_resumed_run_tries_an_optional_task_that_failed_again(pair: Lifecycle) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", optional=True), task("b", "a"), lifecycle=pair))
    drive.fails_for_good("a")
    drive.fails_for_good("b")
    over(drive)
    drive.again(s.Resume)
    assert drive.started() == ["a", "b", "a"]


def test_a_run_is_resumed_by_one_run_at_a_time() -> None:
    drive = Driver()
    first = drive.submit(workflow(task("a")))
    drive.fails_for_good("a")
    drive.again(s.Resume)
    with pytest.raises(Refused, match="run 2 has taken it up and is not over"):
        drive.feed(s.Resume, run=first, actor="ops")
    drive.fails_for_good("a")
    drive.feed(s.Resume, run=first, actor="ops")
    assert drive.model.run(first).resumed_by == 3


@pytest.mark.parametrize("verb", [s.Resume, s.Rerun])
def test_a_sub_run_is_not_taken_up_while_its_parent_goes_on(verb: type[s.Signal]) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", uses=workflow(task("x")))))
    drive.ends(Token(2, 1, 1), 127)
    assert drive.model.run(2).terminal
    with pytest.raises(Refused, match="belongs to run 1, which is not over"):
        drive.feed(verb, run=2, actor="ops")
