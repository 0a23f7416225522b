"""`interlock log validate`, run as a process of its own over real files, pipes and terminals."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.core.records import Entity
from engine.machines import MACHINES
from tests.store.logs import foreign, lines
from tests.store.trail import life

COMMAND = [
    sys.executable,
    "-c",
    """
import sys
from cyclopts import App, CycloptsError
from console import output
from console.commands.log import validate

app = App(name="interlock")
app.command(validate)
with output.guarded():
    try:
        app(sys.argv[1:], exit_on_error=False)
    except CycloptsError:
        sys.exit(output.NOT_UNDERSTOOD)
""",
    "validate",
]

CLEAN = b"".join(lines(life(Entity.TASK, "toolchain.task", MACHINES["toolchain.task"].arrows[7])))
WRONG = foreign(to_state="completed")


def judged(
    *arguments: str, given: bytes | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        input=given.decode("utf-8", "surrogateescape") if given is not None else None,
        stdin=subprocess.DEVNULL if given is None else None,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
        env={**os.environ, **environment},
        timeout=60,
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "transitions.jsonl"
    path.write_bytes(CLEAN)
    return path


def test_a_clean_log_is_told_in_one_line(log: Path) -> None:
    done = judged(str(log))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "3 lines, 3 events, 1 entity: no problems\n"


def test_an_empty_log_is_clean(log: Path) -> None:
    log.write_bytes(b"")
    assert judged(str(log)).stdout == "0 lines, 0 events, 0 entities: no problems\n"


def test_a_problem_is_told_with_file_line_and_sentence(log: Path) -> None:
    log.write_bytes(foreign(entity_id="before") + WRONG)
    done = judged(str(log))
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == (
        f"{log}:2: task-ulid-001: orchestration.task has no scheduler_assigned from pending to completed;"
        " allowed there: scheduler_assigned to queued\n"
        "2 lines, 2 events, 2 entities: 1 problem\n"
    )


def test_standard_input_is_read_with_a_dash() -> None:
    assert judged("-", given=CLEAN).returncode == 0
    done = judged("-", given=b"nonsense\n")
    assert done.returncode == 1
    assert done.stdout.startswith("standard input:1: it is not JSON: Expecting value at character 1\n")


def test_partial_accepts_a_log_without_its_beginning(log: Path) -> None:
    log.write_bytes(CLEAN.split(b"\n", 1)[1])
    assert "begins in PENDING" in judged(str(log)).stdout
    done = judged(str(log), "--partial")
    assert (done.returncode, done.stdout) == (0, "2 lines, 2 events, 1 entity: no problems\n")


@pytest.mark.parametrize(
    ("bad", "last"),
    [(20, None), (21, "... and 1 more problem; --all"), (1234, "... and 1,214 more problems; ")],
)
def test_twenty_problems_are_shown_and_the_rest_is_counted(log: Path, bad: int, last: str | None) -> None:
    log.write_bytes(b"nonsense\n" * bad)
    told = judged(str(log)).stdout.splitlines()
    assert told[-1] == f"{bad:,} lines, 0 events, 0 entities: {bad:,} problems"
    assert told[19].startswith(f"{log}:20: ")
    assert len(told) == (21 if last is None else 22)
    assert last is None or told[20].startswith(last)
    assert len(judged(str(log), "--all").stdout.splitlines()) == bad + 1


def test_problems_of_one_line_are_cut_at_twenty_as_well(log: Path) -> None:
    log.write_bytes(b"nonsense\n" * 19 + foreign(severity="loud", to_state="gone", timestamp="now"))
    told = judged(str(log)).stdout.splitlines()
    assert [line.split(":")[1] for line in told[:20]] == [str(n) for n in range(1, 21)]
    assert told[20] == "... and 2 more problems; --all shows every one"


def test_json_has_every_problem_and_the_counts(log: Path) -> None:
    log.write_bytes(b"nonsense\n" * 30 + WRONG)
    done = judged(str(log), "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert {key: told[key] for key in ("lines", "events", "entities")} == {
        "lines": 31,
        "events": 1,
        "entities": 1,
    }
    assert len(told["problems"]) == 31
    assert told["problems"][-1] == {
        "line": 31,
        "kind": "transition",
        "entity": "task-ulid-001",
        "message": "task-ulid-001: orchestration.task has no scheduler_assigned from pending to completed;"
        " allowed there: scheduler_assigned to queued",
    }


def test_json_of_a_clean_log_is_an_empty_list(log: Path) -> None:
    done = judged(str(log), "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"problems": [], "lines": 3, "events": 3, "entities": 1}


NASTY = "\x1b[31mred\x07\u202e\ud800\u0085"


def test_foreign_text_reaches_the_terminal_with_its_control_characters_visible(log: Path) -> None:
    log.write_bytes(
        foreign(entity_id=NASTY, to_state=NASTY, metadata={"machine": NASTY}) + b"{}" + NASTY[:9].encode()
    )
    done = judged(str(log))
    assert done.returncode == 1
    assert [char for char in done.stdout.replace("\n", "") if not char.isprintable()] == []
    assert r"\x1b[31mred\x07\u202e\ud800\x85" in done.stdout
    assert json.loads(judged(str(log), "--json").stdout)["problems"][0]["entity"] == NASTY


def test_text_that_the_output_cannot_show_is_escaped(log: Path) -> None:
    log.write_bytes(foreign(entity_id="строка", severity="error"))
    done = judged(str(log), PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (1, "")
    assert r"\u0441\u0442\u0440\u043e\u043a\u0430" in done.stdout


def test_a_file_name_that_is_no_text_is_shown_escaped(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff\x1b.jsonl"
    Path(os.fsdecode(path)).write_bytes(b"nonsense\n")
    done = judged(os.fsdecode(path))
    assert (done.returncode, done.stderr) == (1, "")
    assert r"/\udcff\x1b.jsonl:1: " in done.stdout


def test_what_cannot_be_read_is_refused_in_one_sentence(tmp_path: Path) -> None:
    missing = tmp_path / "missing.jsonl"
    done = judged(str(missing))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"interlock: cannot read {missing}: No such file or directory\n"
    done = judged(str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"interlock: cannot read {tmp_path}: Is a directory\n"


def test_an_error_in_the_middle_of_reading_is_refused_too() -> None:
    done = judged("/proc/self/mem")
    assert done.returncode == 2
    assert done.stderr == "interlock: cannot read /proc/self/mem: Input/output error\n"


def test_a_closed_standard_input_is_refused() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *COMMAND, "-"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "interlock: standard input is closed; there is nothing to validate\n"


def test_a_reader_that_has_gone_ends_it_silently(log: Path) -> None:
    log.write_bytes(b"nonsense\n" * 100_000)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*COMMAND, str(log), "--all"], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("arguments", [(), ("a", "b"), ("a", "--loud")])
def test_a_command_line_that_makes_no_sense_exits_with_2(arguments: tuple[str, ...]) -> None:
    done = judged(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr != ""


def _received(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # Linux says EIO once the other side has closed
            return
        if not chunk:
            return
        yield chunk


@pytest.mark.slow
def test_a_long_log_tells_its_progress_on_a_terminal_and_takes_it_away(log: Path) -> None:
    log.write_bytes(b"".join(foreign(entity_id=f"t{n}") for n in range(300_000)) + b"nonsense\n")
    ours, theirs = os.openpty()
    process = subprocess.Popen([*COMMAND, str(log)], stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    told = b"".join(_received(ours)).decode()
    os.close(ours)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert printed.endswith(b"300,001 lines, 300,000 events, 300,000 entities: 1 problem\n")
    first, *_, last = told.split("\r\x1b[K")
    assert first == last == ""
    assert " lines, " in told
    assert " MB, 0 problems" in told
