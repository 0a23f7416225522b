"""The guards that arrows name, each evaluated on values passed in.

`retry_left` is the one reading of every `retry_count < max_retries` in the documents.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Values = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Guard:
    """A named condition. `test` answers None when the values do not tell."""

    name: str
    description: str
    needs: tuple[str, ...]
    test: Callable[[Values], bool | None]
    opposite: str | None = None


def _retry_left(values: Values) -> bool | None:
    told = values.get("retry_left")
    if told is not None:
        return bool(told)
    count, limit = values.get("retry_count"), values.get("max_retries")
    if isinstance(count, int) and isinstance(limit, int):
        return count < limit
    return None


def _no_retry_left(values: Values) -> bool | None:
    left = _retry_left(values)
    return None if left is None else not left


def _flag(name: str, description: str) -> Guard:
    def test(values: Values) -> bool | None:
        told = values.get(name)
        return None if told is None else bool(told)

    return Guard(name, description, (name,), test)


_RETRY_NEEDS = ("retry_left", "retry_count and max_retries")

GUARDS: dict[str, Guard] = {
    guard.name: guard
    for guard in (
        Guard(
            "retry_left",
            "the budget is not used up, the error is neither permanent nor repeated, the tool may be retried",
            _RETRY_NEEDS,
            _retry_left,
            opposite="no_retry_left",
        ),
        Guard(
            "no_retry_left",
            "the budget is used up, or the error is permanent or repeated, or the tool is not retried",
            _RETRY_NEEDS,
            _no_retry_left,
            opposite="retry_left",
        ),
        _flag("steps_unfinished", "a step is neither successful nor waived"),
        _flag("retries_zeroed", "the retry count is set to 0 in the same transaction"),
        _flag("evidence_given", "the operator attests that it did succeed, with evidence"),
        _flag("healthy_or_overridden", "the health command passed, or the operator overrode it by name"),
        _flag("never_registered", "it did not register within its time"),
        _flag("still_holds", "it still holds a process or a slot"),
        _flag("run_open_retries_zeroed", "its run is not final, and the attempts are set to 0 with it"),
        _flag("run_cancelled", "its run was cancelled"),
        _flag("run_ended", "its run was cancelled or failed"),
    )
}
