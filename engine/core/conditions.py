"""A task's `when`: parameters and the outcomes of its needs, compared with values."""

from enum import StrEnum

from engine.core.book import Book, failed_for_good
from engine.core.records import Pardon, Run, Task
from engine.machines import Phase


class Outcome(StrEnum):
    """How a task came out, in words that are the same under every machine."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    WAIVED = "waived"


def outcome(task: Task) -> Outcome | None:
    """None while it is not decided."""
    if task.phase is Phase.SUCCEEDED or task.pardon is Pardon.CARRIED:
        return Outcome.SUCCEEDED
    if task.pardon is Pardon.WAIVED:
        return Outcome.WAIVED
    if task.phase is Phase.CANCELLED:
        return Outcome.CANCELLED
    if failed_for_good(task):
        return Outcome.FAILED
    if task.phase is Phase.SKIPPED or task.pardon is not None or task.blocked is not None:
        return Outcome.SKIPPED
    return None


def holds_true(book: Book, run: Run, task: Task) -> bool:
    """Whether every part of the task's condition is true now."""
    return all(
        (subject_value(book, run, test.subject) == test.value) is test.equal for test in task.plan.when
    )


def subject_value(book: Book, run: Run, subject: str) -> str | None:
    """`params.NAME`, or `needs.NAME` for the outcome of a need; None when there is none."""
    kind, _, name = subject.partition(".")
    if kind == "params":
        return run.params.get(name)
    number = run.plan.numbers.get(name)
    return outcome(book.task((run.number, number))) if kind == "needs" and number is not None else None
