"""What a worker does before it tells of an exit: it matches the output with the patterns of the rules."""

import re

from engine.core.model import Model
from engine.core.records import Token
from engine.core.retry import rules_of


def matched(model: Model, token: Token, output: str) -> frozenset[str]:
    task = model.find_task(token.key)
    rules = rules_of(model.settings, task) if task is not None else ()
    return frozenset(rule.pattern for rule in rules if rule.pattern and re.search(rule.pattern, output))
