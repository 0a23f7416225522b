"""What becomes of work when its worker stops, of probes that are lost, of slots, and of odd settings."""

from typing import Any

import pytest

from engine.core import signals as s
from engine.core.decision import Ask, Dismiss
from engine.core.errors import Refused
from engine.core.model import Model, Snapshot
from engine.core.plan import Category, Clause, ErrorRule, Retry, Settings, Tool, WhenOpen
from engine.core.records import Purpose, TimerKind, Token
from engine.machines import Kind, Lifecycle, Phase
from tests.core.driver import Driver, every_pair, every_task_machine, task, workflow
from tests.core.scene import Scene, worker_ref

ONCE = Retry(max_attempts=1)
HEALTHY = Settings(tools={"aider": Tool("aider", has_health_command=True)})

stopped_by = pytest.mark.parametrize("verb", [s.TerminateWorker, s.WorkerBroken])


# ---- a worker that is stopped under what it runs


@every_pair
@stopped_by
def test_a_check_whose_worker_is_stopped_runs_again_elsewhere(pair: Lifecycle, verb: type[s.Signal]) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", checks=1, retry=ONCE), lifecycle=pair))
    drive.exits("a")
    drive.register("w2")
    check = drive.live("a")
    drive.feed(verb, worker="w")
    drive.ends(check, -15)
    assert drive.attempt("a").worker == "w2"
    assert drive.live("a").purpose is Purpose.CHECK
    drive.exits("a")
    assert (drive.phase("a"), drive.phase()) == (Phase.SUCCEEDED, Phase.SUCCEEDED)


@every_pair
@stopped_by
def test_final_checks_whose_worker_is_stopped_run_again_elsewhere(
    pair: Lifecycle, verb: type[s.Signal]
) -> None:
    drive = Driver()
    drive.submit(workflow(task("a"), checks=1, lifecycle=pair))
    drive.exits("a")
    drive.register("w2")
    check = drive.live()
    drive.feed(verb, worker="w")
    drive.ends(check, -15)
    assert drive.live() != check
    drive.exits()
    assert drive.phase() is Phase.SUCCEEDED


def test_a_check_that_passed_although_its_worker_was_stopped_has_passed() -> None:
    drive = Driver()
    drive.submit(workflow(task("a", checks=1)))
    drive.exits("a")
    check = drive.live("a")
    drive.feed(s.TerminateWorker, worker="w")
    drive.ends(check, 0)
    assert drive.state() == "success"


def test_a_health_command_whose_worker_is_stopped_says_nothing_of_the_tool() -> None:
    drive = Driver(HEALTHY)
    drive.submit(workflow(task("a", tool="aider")))
    drive.exits("a", 1)
    drive.feed(s.TripBreaker, tool="aider")
    drive.advance(61)
    health = drive.live("a")
    assert health.purpose is Purpose.HEALTH
    drive.feed(s.TerminateWorker, worker="w")
    drive.ends(health, -15)
    assert (drive.state("a"), drive.breaker("aider")) == ("CIRCUIT_OPEN", "HALF_OPEN")
    drive.register("w2")
    assert drive.live("a").purpose is Purpose.HEALTH
    drive.exits("a")
    drive.exits("a")
    assert (drive.state(), drive.breaker("aider")) == ("success", "CLOSED")


@stopped_by
def test_a_cancel_hook_whose_worker_was_stopped_is_left_out_on_record(verb: type[s.Signal]) -> None:
    drive = Driver()
    drive.submit(workflow(task("a", has_cancel_hook=True)))
    drive.register("w2")
    drive.cancel()
    drive.feed(verb, worker="w")
    drive.exits("a", -15)
    assert drive.facts("a") == ["hook_skipped"]
    assert drive.started(Purpose.HOOK) == []
    assert (drive.state("a"), drive.state()) == ("CANCELLED", "cancelled")


# ---- probes that are lost


def waiting_circuit(settings: Settings | None = None) -> Driver:
    """A task in its own open circuit, whose one probe is under way."""
    drive = Driver(settings)
    drive.submit(workflow(task("a", tool="aider", when_circuit_open=WhenOpen.WAIT, retry=ONCE)))
    drive.exits("a", 1)
    drive.advance(60)
    return drive


def test_a_lost_health_command_leaves_the_one_probe_to_be_made() -> None:
    drive = waiting_circuit(HEALTHY)
    drive.lost("a")
    assert drive.state("a") == "CIRCUIT_OPEN"
    assert drive.due(TimerKind.PROBE, "a") == 60
    drive.advance(60)
    drive.exits("a")
    assert (drive.state("a"), drive.live("a").purpose) == ("IN_PROGRESS", Purpose.WORK)


def test_a_health_command_that_fails_uses_the_one_probe_up() -> None:
    drive = waiting_circuit(HEALTHY)
    drive.exits("a", 1)
    assert drive.due(TimerKind.PROBE, "a") is None
    assert "no probe is left" in drive.explain("a")


def test_a_lost_probe_is_tried_again_within_the_bound_of_losses() -> None:
    drive = waiting_circuit()
    for _ in range(2):
        drive.lost("a")
        assert drive.state("a") == "RETRYING"
        drive.advance(60)
        assert drive.state("a") == "IN_PROGRESS"
    drive.lost("a")
    assert drive.state("a") == "CIRCUIT_OPEN"


def test_a_fresh_task_that_is_the_probe_of_the_breaker_and_fails_opens_its_circuit() -> None:
    drive = Driver()
    drive.feed(s.TripBreaker, tool="aider")
    drive.submit(workflow(task("a", tool="aider")))
    drive.advance(60)
    drive.exits("a", 1)
    assert (drive.state("a"), drive.breaker("aider")) == ("CIRCUIT_OPEN", "OPEN")
    assert "RETRYING" not in drive.history("a")


# ---- what never started


@every_task_machine
@pytest.mark.parametrize("retried", [True, False])
def test_what_never_started_is_no_loss_however_often(machine: str, retried: bool) -> None:
    drive = Driver(Settings(tools={"aider": Tool("aider", retry_on_failure=retried)}))
    drive.submit(workflow(task("a", tool="aider", retry=ONCE), lifecycle=Lifecycle("execution", machine)))
    for number in range(1, 8):
        assert drive.live("a") == Token(1, 1, number)
        drive.feed(s.AttemptLost, token=drive.live("a"), ran=False)
        drive.advance(100)
    assert (drive.task("a").losses, drive.task("a").retries) == (0, 0)
    drive.exits("a")
    assert drive.state() == "success"


# ---- slots of what was forced


def forced() -> tuple[Scene, Token]:
    """The only slot is still held by what a forced run left behind."""
    scene = Scene(slots=1)
    run = scene.submit(workflow(task("a")))
    token = scene.live(run, 1)
    scene.tell(s.Cancel, run=run, force=True)
    assert scene.run(run).terminal
    return scene, token


def test_a_run_stays_in_the_model_while_something_of_it_may_live() -> None:
    scene, _ = forced()
    before = scene.model.snapshot(), scene.model.derived()
    with pytest.raises(ValueError, match="may still live"):
        scene.model.retire(1)
    assert (scene.model.snapshot(), scene.model.derived()) == before


def test_a_late_word_frees_the_slot_and_lets_the_run_go() -> None:
    scene, token = forced()
    scene.tell(s.AttemptEnded, token=token, exit_code=-9)
    assert scene.model.holds("w") == ()
    scene.model.retire(1)
    assert list(scene.model.runs()) == []
    run = scene.submit(workflow(task("b")))
    assert scene.live(run, 1).run == run


def test_an_engine_starts_with_what_a_forced_run_left_behind() -> None:
    scene, token = forced()
    asked = [told for decision in scene.restart() for told in decision.instructions]
    assert asked == [Ask("w", (token,))]


def test_an_engine_starts_although_the_run_of_a_fenced_attempt_is_not_loaded() -> None:
    scene, token = forced()
    whole = scene.model.snapshot()
    bare = Snapshot(attempts=whole.attempts, workers=whole.workers, next_run=whole.next_run)
    scene.model = Model.load(bare, scene.model.settings)
    assert Ask("w", (token,)) in [told for one in scene.tell(s.EngineStarted) for told in one.instructions]


# ---- workers that come back, or never came


def test_a_worker_that_registers_after_it_was_given_up_is_dismissed() -> None:
    drive = Driver(slots=1)
    drive.feed(s.WorkerGone, worker="w")
    drive.register("w")
    assert drive.told(Dismiss) == [Dismiss("w")]
    assert drive.worker().health == "shutdown"


def test_a_busy_worker_that_registers_again_is_asked_for_what_it_holds() -> None:
    drive = Driver(slots=1)
    drive.submit(workflow(task("a")))
    drive.begins("a")
    drive.register("w", 4, frozenset({"gpu"}))
    assert drive.told(Ask) == [Ask("w", (drive.live("a"),))]
    assert drive.worker().slots == 1


def test_a_worker_terminated_before_it_registers_has_not_missed_its_time() -> None:
    drive = Driver(slots=0)
    drive.feed(s.WorkerCreated, worker="w")
    drive.advance(1)
    drive.feed(s.TerminateWorker, worker="w")
    assert drive.health() == []
    drive.register("w")
    assert drive.health() == ["registration_complete", "shutdown_requested"]
    assert drive.told(Dismiss) == [Dismiss("w")]


def test_a_worker_terminated_before_it_registers_is_given_up_after_its_time() -> None:
    drive = Driver(slots=0)
    drive.feed(s.WorkerCreated, worker="w")
    drive.feed(s.TerminateWorker, worker="w")
    drive.advance(61)
    assert drive.worker().health == "shutdown"
    (move,) = drive.moves_of(ref=worker_ref("w"), machine="orchestration.worker")
    assert (move.kind, move.at) == (Kind.RECOVERY, 60_000_000)


# ---- settings

ABSURD: dict[str, tuple[dict[str, Any], str]] = {
    "a jitter that is no number": ({"retry": Retry(jitter=float("nan"))}, "jitter"),
    "a jitter above the whole": ({"retry": Retry(jitter=1.5)}, "jitter"),
    "a cap beyond all clocks": ({"retry": Retry(cap=10**400)}, "cap"),
    "no attempts": ({"retry": Retry(max_attempts=0)}, "max_attempts"),
    "a timeout that no column holds": ({"task_timeout": 2**63}, "task_timeout"),
    "no losses": ({"max_losses": 0}, "max_losses"),
    "no time to register": ({"register_within": 0}, "register_within"),
    "a policy of nobody": ({"policy": (Clause(count=0),)}, "count"),
    "a tool that never runs": ({"tools": {"t": Tool("t", concurrency=0)}}, "concurrency"),
    "a tool that is always open": ({"tools": {"t": Tool("t", failure_threshold=0)}}, "failure_threshold"),
    "a tool that closes by itself": ({"tools": {"t": Tool("t", success_threshold=0)}}, "success_threshold"),
    "a cooldown into the past": ({"tools": {"t": Tool("t", cooldown=-5)}}, "cooldown"),
    "a tool with an odd retry": ({"tools": {"t": Tool("t", retry=Retry(base=-1))}}, "base"),
    "a pattern that is none": (
        {"tools": {"t": Tool("t", errors=(ErrorRule(Category.PERMANENT, pattern="("),))}},
        "no regular expression",
    ),
}


@pytest.mark.parametrize("name", ABSURD)
def test_absurd_settings_are_refused_before_anything_is_decided(name: str) -> None:
    wishes, word = ABSURD[name]
    with pytest.raises(Refused, match=word):
        Model.load(Snapshot(), Settings(**wishes))


def test_all_that_is_wrong_with_the_settings_is_told_at_once() -> None:
    wrong = Settings(max_losses=0, tools={"t": Tool("t", concurrency=0, cooldown=-5)})
    with pytest.raises(Refused) as refusal:
        Model.load(Snapshot(), wrong)
    assert all(word in str(refusal.value) for word in ("max_losses", "concurrency", "cooldown", "tool t"))
