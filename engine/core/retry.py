"""Whether and when a failed task is tried again."""

from engine.core.plan import Category, ErrorRule, Retry, Settings
from engine.core.records import Task

PERMANENT_EXITS = frozenset({126, 127})
"""The command cannot be executed, or does not exist."""


def backoff(retry: Retry, failures: int, rand: float) -> int:
    """The wait before the next attempt, after so many failed ones: capped, then jittered."""
    exponent = min(failures - 1, 62)
    plain = min(retry.cap, retry.base << exponent)
    return round(plain * (1 + retry.jitter * (2 * rand - 1)))


def categorise(
    rules: tuple[ErrorRule, ...], exit_code: int | None, matched: frozenset[str] = frozenset()
) -> Category:
    """The first rule that fits decides; without one, the documents' reading of exit codes."""
    for rule in rules:
        code_fits = not rule.exit_codes or exit_code in rule.exit_codes
        text_fits = rule.pattern is None or rule.pattern in matched
        if code_fits and text_fits and (rule.exit_codes or rule.pattern is not None):
            return rule.category
    return Category.PERMANENT if exit_code in PERMANENT_EXITS else Category.UNKNOWN


def rules_of(settings: Settings, task: Task) -> tuple[ErrorRule, ...]:
    """The task's own rules first, then its tool's."""
    return task.plan.errors + settings.tool(task.plan.tool).errors


def repeats_of(task: Task, fingerprint: str | None) -> int:
    """How often this error has now come in a row."""
    same = fingerprint is not None and fingerprint == task.fingerprint
    return task.repeats + 1 if same else 1


def retry_left(settings: Settings, task: Task, category: Category, repeats: int) -> bool:
    """The one reading of every `retry_count < max_retries`."""
    retry = settings.retry_of(task.plan)
    return (
        task.retries < retry.max_retries
        and category is not Category.PERMANENT
        and repeats <= retry.max_repeats
        and settings.tool(task.plan.tool).retry_on_failure
        and task.losses < settings.max_losses
        and not task.probing
    )


def loss_left(settings: Settings, task: Task) -> bool:
    """Whether a lost attempt may be tried again. Losses use no retries and have their own bound."""
    return task.losses + 1 < settings.max_losses and settings.tool(task.plan.tool).retry_on_failure
