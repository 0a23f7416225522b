"""A task's `when`: parameters and the outcomes of its needs, compared with values."""

from engine.core.book import Book
from engine.core.records import Run, Task


def holds_true(book: Book, run: Run, task: Task) -> bool:
    """Whether every part of the task's condition is true now."""
    return all(
        (subject_value(book, run, test.subject) == test.value) is test.equal for test in task.plan.when
    )


def subject_value(book: Book, run: Run, subject: str) -> str | None:
    """`params.NAME` or `needs.NAME`: the latter is the outcome, as in `succeeded`; None when unknown."""
    kind, _, name = subject.partition(".")
    if kind == "params":
        return run.params.get(name)
    number = run.plan.numbers.get(name)
    if kind != "needs" or number is None:
        return None
    return book.task((run.number, number)).phase.value
