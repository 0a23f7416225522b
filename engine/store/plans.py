"""Plans as canonical JSON, and back: what a run was made from stays readable for as long as the store.

Canonical means: keys sorted, defaults left out, sets in order. So the same plan has the same text, and the
text's SHA-256 is the name of the workflow version.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import Enum
from hashlib import sha256
from typing import Any

from engine.core.plan import (
    Approval,
    Category,
    Clause,
    ErrorRule,
    OnFailure,
    OnLost,
    Plan,
    Retry,
    TaskPlan,
    Test,
    WhenOpen,
)
from engine.machines import Lifecycle


def plan_text(plan: Plan) -> str:
    text = json.dumps(_values(plan), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    # A lone surrogate, which UTF-8 cannot hold, becomes JSON's own escape of it, and comes back as it was.
    return text.encode("utf-8", "backslashreplace").decode()


def version_id(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def parse_plan(text: str) -> Plan:
    return _plan(json.loads(text))


def _values(part: Any) -> Any:
    if isinstance(part, Enum):
        return part.value
    if isinstance(part, frozenset):
        return sorted(part)
    if isinstance(part, tuple):
        return [_values(item) for item in part]
    if isinstance(part, Lifecycle):
        return {"run": part.run, "task": part.task}
    if isinstance(part, Plan | TaskPlan | Retry | Approval | Clause | ErrorRule | Test):
        return {
            spec.name: _values(getattr(part, spec.name))
            for spec in fields(part)
            if spec.init and _worth_telling(getattr(part, spec.name), spec.default)
        }
    return part


def _worth_telling(value: object, usual: object) -> bool:
    return usual is MISSING or value != usual


def _plan(told: Mapping[str, Any]) -> Plan:
    parts = dict(told)
    if "lifecycle" in parts:
        parts["lifecycle"] = Lifecycle(**parts["lifecycle"])
    if parts.get("on_failure") is not None:
        parts["on_failure"] = OnFailure(parts["on_failure"])
    _approval(parts)
    parts["tasks"] = tuple(map(_task, parts["tasks"]))
    return Plan(**parts)


def _task(told: Mapping[str, Any]) -> TaskPlan:
    parts = dict(told)
    _turn(parts, "needs", tuple)
    _turn(parts, "capabilities", frozenset)
    _turn(parts, "expected_exits", frozenset)
    _turn(parts, "on_lost", OnLost)
    _turn(parts, "when_circuit_open", WhenOpen)
    if "errors" in parts:
        parts["errors"] = tuple(_rule(rule) for rule in parts["errors"])
    if "when" in parts:
        parts["when"] = tuple(Test(**test) for test in parts["when"])
    if parts.get("retry") is not None:
        parts["retry"] = Retry(**parts["retry"])
    if parts.get("uses") is not None:
        parts["uses"] = _plan(parts["uses"])
    _approval(parts)
    return TaskPlan(**parts)


def _rule(told: Mapping[str, Any]) -> ErrorRule:
    return ErrorRule(Category(told["category"]), frozenset(told.get("exit_codes", ())), told.get("pattern"))


def _approval(parts: dict[str, Any]) -> None:
    if parts.get("approval") is not None:
        parts["approval"] = parse_approval(parts["approval"])


def parse_approval(told: Mapping[str, Any]) -> Approval:
    clauses = tuple(
        Clause(frozenset(clause.get("users", ())), frozenset(clause.get("teams", ())), clause.get("count", 1))
        for clause in told["clauses"]
    )
    return Approval(clauses, told["expires"]) if "expires" in told else Approval(clauses)


def _turn(parts: dict[str, Any], name: str, kind: Any) -> None:
    if name in parts:
        parts[name] = kind(parts[name])
