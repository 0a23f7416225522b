"""`interlock machines`, run as a process of its own and read back."""

import fcntl
import json
import os
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.machines import GUARDS, MACHINES, Kind, Machine

COMMAND = [str(Path(sys.executable).with_name("interlock"))]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}

every_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


def interlock(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, env=ENVIRONMENT, timeout=30
    )


def printed(*arguments: str) -> str:
    done = interlock(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def on_a_terminal(*arguments: str, columns: int = 100, **environment: str) -> str:
    """What the command writes when its output is a terminal of that width."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env={**ENVIRONMENT, "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    received = b"".join(_chunks(ours))
    os.close(ours)
    _, complaint = process.communicate(timeout=30)
    assert (process.returncode, complaint) == (0, b"")
    return received.decode().replace("\r\n", "\n")


def _chunks(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # Linux says EIO once the other side has closed
            return
        if not chunk:
            return
        yield chunk


def expected_json(machine: Machine) -> dict[str, object]:
    return {
        "name": machine.name,
        "document": machine.document,
        "entity": machine.entity,
        "initial": machine.initial,
        "states": [
            {"name": state.name, "description": state.description, "terminal": state.terminal}
            for state in machine.states
        ],
        "transitions": [
            {
                "from": arrow.source,
                "event": arrow.event,
                "to": arrow.target,
                "kind": str(arrow.kind),
                "guard": arrow.guard,
                "description": arrow.description,
            }
            for arrow in machine.arrows
        ],
    }


class Diagram:
    """A Mermaid state diagram, read back by the few rules that ours follow."""

    EDGE = re.compile(r"    (\S+) --> (\S+)(?: : ([^:;]+))?")
    LABEL = re.compile(r"(\w+)(?: \[(\w+)\])?(?: \((recovery|cascade)\))?")

    def __init__(self, block: str) -> None:
        fence, title, closing, kind, *lines = block.splitlines()
        assert (fence, closing, kind) == ("---", "---", "stateDiagram-v2")
        assert title.startswith("title: ")
        self.title = title.removeprefix("title: ")
        self.initial: list[str] = []
        self.terminal: set[str] = set()
        self.edges: list[tuple[str, str, str, str | None, str]] = []
        for line in lines:
            edge = self.EDGE.fullmatch(line)
            assert edge, line
            self._add(*edge.groups())

    def _add(self, source: str, target: str, label: str | None) -> None:
        if source == "[*]":
            self.initial.append(target)
        elif target == "[*]":
            self.terminal.add(source)
        else:
            parts = self.LABEL.fullmatch(label or "")
            assert parts, label
            event, guard, kind = parts.groups()
            self.edges.append((source, event, target, guard, kind or "normal"))

    @property
    def states(self) -> set[str]:
        return {state for source, _, target, _, _ in self.edges for state in (source, target)}


def diagrams(text: str) -> list[Diagram]:
    assert text.endswith("\n")
    return [Diagram(block) for block in text.removesuffix("\n").split("\n\n")]


def test_json_lists_every_machine_in_the_published_form() -> None:
    assert json.loads(printed("machines", "--json")) == [expected_json(m) for m in MACHINES.values()]


def test_json_of_one_machine_is_a_list_of_one() -> None:
    assert json.loads(printed("machines", "pipeline.step", "--json")) == [
        expected_json(MACHINES["pipeline.step"])
    ]


def test_mermaid_of_every_machine_reads_back_as_its_table() -> None:
    drawn = diagrams(printed("machines", "--mermaid"))
    assert [diagram.title for diagram in drawn] == list(MACHINES)
    for diagram, machine in zip(drawn, MACHINES.values(), strict=True):
        assert diagram.initial == [machine.initial]
        assert diagram.states == set(machine.state)
        assert diagram.terminal == {state.name for state in machine.states if state.terminal}
        assert diagram.edges == [(a.source, a.event, a.target, a.guard, str(a.kind)) for a in machine.arrows]


def test_mermaid_of_one_machine_is_one_diagram_by_itself() -> None:
    (diagram,) = diagrams(printed("machines", "--mermaid", "toolchain.task"))
    assert diagram.title == "toolchain.task"
    assert {kind for *_, kind in diagram.edges} == {"normal", "recovery", "cascade"}


def test_the_list_has_a_line_for_every_machine_with_its_counts() -> None:
    header, *lines = printed("machines").splitlines()
    assert re.split(r"  +", header) == ["name", "doc", "drives", "states", "transitions"]
    assert [re.split(r"  +", line) for line in lines] == [
        ["execution", "004", "run or task", "11", "25"],
        ["pipeline.workstream", "000", "run", "6", "7 +1 recovery"],
        ["pipeline.step", "000", "task", "5", "5 +2 recovery"],
        ["pipeline.breaker", "000", "breaker", "3", "6 +1 recovery"],
        ["orchestration.task", "001", "task", "8", "9"],
        ["orchestration.workstream", "001", "run", "7", "9"],
        ["orchestration.worker", "001", "worker health", "5", "8 +1 recovery"],
        ["supervision.worker", "002", "worker control", "6", "8 +2 recovery"],
        ["supervision.job", "002", "run", "6", "7"],
        ["toolchain.task", "003", "task", "11", "18 +1 recovery +4 cascade"],
    ]


@every_machine
def test_one_machine_is_shown_with_all_it_has_in_80_columns_of_plain_text(machine: Machine) -> None:
    text = printed("machines", machine.name)
    assert max(map(len, text.splitlines())) <= 80
    assert text == "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    assert text.isascii()
    assert "\x1b" not in text
    words = " ".join(text.split())
    assert words.startswith(f"{machine.name}: drives a {machine.entity}, from document {machine.document}")
    for state in machine.states:
        mark = " initial" if state.name == machine.initial else " terminal" if state.terminal else ""
        assert re.search(rf"^{state.name} *{mark} ", text, re.MULTILINE)
    for arrow in machine.arrows:
        assert re.search(rf"^{arrow.source} +{arrow.event} +{arrow.target} ", text, re.MULTILINE)
    for guard in {arrow.guard for arrow in machine.arrows if arrow.guard}:
        assert f"{guard} {GUARDS[guard].description}" in words
    for kind in (Kind.RECOVERY, Kind.CASCADE):
        fired = f"{kind} fired only by" in words
        assert fired is any(arrow.kind is kind for arrow in machine.arrows)


def test_a_wide_terminal_is_used_in_full() -> None:
    text = on_a_terminal("machines", "toolchain.task", columns=200, NO_COLOR="1")
    assert "Its dependencies are met and a slot is free." in text
    assert 80 < max(map(len, text.splitlines())) <= 200


def test_a_terminal_gets_colour() -> None:
    text = on_a_terminal("machines", "pipeline.step")
    assert "\x1b[1mpipeline.step\x1b[0m: drives a task" in text


@pytest.mark.parametrize("unwelcome", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_gets_plain_text_where_colour_is_unwelcome(unwelcome: dict[str, str]) -> None:
    text = on_a_terminal("machines", "pipeline.step", columns=80, **unwelcome)
    assert text == printed("machines", "pipeline.step")


def test_an_unknown_machine_is_refused_in_one_sentence_with_a_suggestion() -> None:
    refused = interlock("machines", "pipelin.step")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        "interlock: there is no machine 'pipelin.step'; did you mean 'pipeline.step'?\n"
    )


def test_an_unknown_machine_with_control_characters_does_not_reach_the_terminal_raw() -> None:
    refused = interlock("machines", "\x1b[31mred\x07")
    assert refused.returncode == 2
    assert r"'\x1b[31mred\x07'" in refused.stderr


@pytest.mark.parametrize("arguments", [("--json", "--mermaid"), ("--diagram",), ("execution", "execution")])
def test_a_command_line_that_makes_no_sense_exits_with_2(arguments: tuple[str, ...]) -> None:
    refused = interlock("machines", *arguments)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr != ""


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("arguments", [("machines",), ("machines", "--json"), ("--help",)], ids=" ".join)
def test_a_full_disk_is_told_in_one_sentence(arguments: tuple[str, ...], unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**ENVIRONMENT, "PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 1
    assert done.stderr == "interlock: the output could not be written: No space left on device\n"


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("arguments", [("machines",), ("machines", "--json"), ("--help",)], ids=" ".join)
def test_a_reader_that_has_gone_ends_the_command_silently(
    arguments: tuple[str, ...], unbuffered: str
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, *arguments],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        env={**ENVIRONMENT, "PYTHONUNBUFFERED": unbuffered},
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("arguments", [("machines",), ("machines", "execution", "--json")], ids=" ".join)
def test_a_closed_standard_output_is_a_wish_to_see_nothing(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *arguments],
        stderr=subprocess.PIPE,
        check=False,
        env=ENVIRONMENT,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_help_lists_the_command_without_loading_it() -> None:
    assert re.search(r"machines +List the state machines", printed("--help"))
    script = "import sys, console.cli; print({'engine', 'rich', 'console.commands'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "set()"
