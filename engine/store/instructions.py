"""Instructions as rows of the outbox, and back."""

import json
from typing import Any

from engine.core.decision import Ask, Dismiss, Forget, Halt, Instruction, Reap, Start
from engine.core.records import Stop
from engine.store.codec import as_json, parse_token


def instruction_values(instruction: Instruction) -> tuple[str, str]:
    """The name of an instruction and its body."""
    match instruction:
        case Start(token, worker):
            body: dict[str, object] = {"token": str(token), "worker": worker}
        case Halt(token, worker, grace, why):
            body = {"token": str(token), "worker": worker, "grace": grace, "why": why.value}
        case Ask(worker, tokens) | Reap(worker, tokens):
            body = {"worker": worker, "tokens": [str(token) for token in tokens]}
        case Forget(token):
            body = {"token": str(token)}
        case Dismiss(worker):
            body = {"worker": worker}
        case _:
            raise TypeError(f"an instruction that no outbox knows: {instruction!r}")
    return type(instruction).__name__.lower(), as_json(body)


def parse_instruction(name: str, text: str) -> Instruction:
    body: dict[str, Any] = json.loads(text)
    match name:
        case "start":
            return Start(parse_token(body["token"]), body["worker"])
        case "halt":
            return Halt(parse_token(body["token"]), body["worker"], body["grace"], Stop(body["why"]))
        case "ask":
            return Ask(body["worker"], tuple(map(parse_token, body["tokens"])))
        case "reap":
            return Reap(body["worker"], tuple(map(parse_token, body["tokens"])))
        case "forget":
            return Forget(parse_token(body["token"]))
        case "dismiss":
            return Dismiss(body["worker"])
    raise ValueError(f"an instruction that no outbox knows: {name}")
