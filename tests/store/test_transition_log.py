"""`transitions.jsonl` on a real disk: once each, whole lines only, through crashes and a full disk."""

import errno
import json
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.core.records import Entity
from engine.store.events import line_of
from engine.store.gate import AuditRow
from engine.store.log_validator import validate
from engine.store.transition_log import TransitionLog
from tests.store.trail import row

LIFE = ("initializing", "idle"), ("idle", "busy"), ("busy", "idle"), ("idle", "busy"), ("busy", "idle")
EVENTS = ("registration_complete", "task_assigned", "task_completed", "task_assigned", "task_completed")


def moves(first: int, last: int, reason: str | None = None) -> list[AuditRow]:
    made = []
    for seq in range(first, last + 1):
        place = seq - 1 if seq <= 3 else 1 + (seq - 2) % 2
        source, target = LIFE[place]
        made.append(
            row(Entity.WORKER, "orchestration.worker", source, EVENTS[place], target, seq=seq, reason=reason)
        )
    return made


def fact(seq: int) -> AuditRow:
    return row(Entity.WORKER, "orchestration.worker", None, "marked", None, seq=seq)


def sequence(path: Path) -> list[int]:
    data = path.read_bytes()
    assert data == b"" or data.endswith(b"\n")
    return [json.loads(line)["metadata"]["seq"] for line in data.splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "transitions.jsonl"


def test_a_new_log_is_private_and_empty(path: Path) -> None:
    with TransitionLog(path) as log:
        assert log.last == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == b""


def test_rows_become_lines_that_the_validator_accepts(path: Path) -> None:
    rows = moves(1, 5)
    with TransitionLog(path) as log:
        log.append(rows)
        assert log.last == 5
    assert path.read_text().splitlines() == [line_of(one) for one in rows]
    assert list(validate(path.read_bytes().splitlines())) == []


def test_a_restart_goes_on_where_the_file_ends(path: Path) -> None:
    with TransitionLog(path) as log:
        log.append(moves(1, 4))
    with TransitionLog(path) as log:
        assert log.last == 4
        log.append(moves(1, 6))
        log.append(moves(3, 7))
        assert log.last == 7
    assert sequence(path) == [1, 2, 3, 4, 5, 6, 7]


def test_facts_are_passed_over_and_hide_nothing_that_follows(path: Path) -> None:
    with TransitionLog(path) as log:
        log.append([*moves(1, 2), fact(3)])
        assert log.last == 2
        log.append([fact(3), *moves(4, 4), fact(5)])
    with TransitionLog(path) as log:
        assert log.last == 4
        log.append([fact(3), *moves(4, 4), fact(5), *moves(6, 6)])
    assert sequence(path) == [1, 2, 4, 6]


def test_rows_out_of_order_or_twice_in_a_batch_are_written_once_and_in_order(path: Path) -> None:
    with TransitionLog(path) as log:
        log.append(reversed(moves(1, 5) + moves(2, 3)))
    assert sequence(path) == [1, 2, 3, 4, 5]


def test_nothing_new_writes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with TransitionLog(path) as log:
        log.append(moves(1, 2))
        monkeypatch.setattr(os, "write", None)
        log.append([])
        log.append([*moves(1, 2), fact(3)])


def test_a_batch_is_one_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    write = os.write

    def counted(file: int, data: memoryview) -> int:
        writes.append(len(data))
        return write(file, data)

    monkeypatch.setattr(os, "write", counted)
    with TransitionLog(path) as log:
        log.append(moves(1, 500))
    assert writes == [path.stat().st_size]


def test_every_torn_end_is_cut_off_and_written_again(path: Path) -> None:
    rows = moves(1, 3)
    with TransitionLog(path) as log:
        log.append(rows)
    whole = path.read_bytes()
    second, third = (whole.index(b"\n") + 1, whole[:-1].rindex(b"\n") + 1)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with TransitionLog(path) as log:
            kept = 0 if length < second else 1 if length < third else 2
            assert log.last == kept
            assert sequence(path) == [1, 2, 3][:kept]
            log.append(rows)
        assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "garbage", [b"\0" * 4096, b"\0" * 200_000 + b"\n", b'{"timestamp":"20\n', b"\xff\xfe\n"]
)
def test_garbage_that_a_crash_left_as_the_last_line_is_cut_off(path: Path, garbage: bytes) -> None:
    with TransitionLog(path) as log:
        log.append(moves(1, 3))
    whole = path.read_bytes()
    path.write_bytes(whole + garbage)
    with TransitionLog(path) as log:
        assert log.last == 3
    assert path.read_bytes() == whole


def test_a_log_that_is_all_zeros_after_a_crash_starts_anew(path: Path) -> None:
    path.write_bytes(b"\0" * 8192)
    with TransitionLog(path) as log:
        assert log.last == 0
        log.append(moves(1, 1))
    assert sequence(path) == [1]


@pytest.mark.parametrize(
    "content",
    [
        b"root:x:0:0\n",
        b"hello",
        b'{\n  "timestamp": 1\n}\n',
        b'{"a":1}',
        b'{"timestamp": 1,\n"b": 2,\n"c": 3}\n',
        b'{"timestamp": 1,\n"b": 2}',
    ],
)
def test_some_other_file_is_refused_and_left_as_it_is(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(OSError, match="not a transition log"):
        TransitionLog(path)
    assert path.read_bytes() == content


def test_lines_of_others_at_the_end_are_kept_and_do_not_hide_our_number(path: Path) -> None:
    with TransitionLog(path) as log:
        log.append(moves(1, 3))
    foreign = b'{"timestamp":"2024-01-15T10:30:00Z","metadata":{}}\n'
    path.write_bytes(path.read_bytes() + foreign * 2)
    with TransitionLog(path) as log:
        assert log.last == 3


def test_only_the_end_of_a_long_log_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with TransitionLog(path) as log:
        log.append(moves(1, 20_000))
    read: list[int] = []
    pread = os.pread

    def counted(file: int, size: int, place: int) -> bytes:
        read.append(size)
        return pread(file, size, place)

    monkeypatch.setattr(os, "pread", counted)
    with TransitionLog(path) as log:
        assert log.last == 20_000
    assert sum(read) < 200_000 < path.stat().st_size


def test_lines_longer_than_a_block_are_found_again(path: Path) -> None:
    with TransitionLog(path) as log:
        log.append(moves(1, 3, reason="x" * 150_000))
    with TransitionLog(path) as log:
        assert log.last == 3


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The system then writes what fits and refuses the rest, as on a disk that fills up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 100, 350, 700, 1200])
def test_when_no_more_fits_half_a_line_is_never_left(path: Path, room: int) -> None:
    rows = moves(1, 8)
    with TransitionLog(path) as log:
        log.append(rows[:2])
        size = path.stat().st_size
        with files_of_at_most(size + room), pytest.raises(OSError, match="File too large"):
            log.append(rows)
        kept = sequence(path)
        assert kept == list(range(1, len(kept) + 1))
        assert log.last == kept[-1]
        assert path.stat().st_size <= size + room
        log.append(rows)
    assert sequence(path) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_full_disk_in_the_middle_of_a_batch_is_raised_and_mended(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = moves(1, 5)
    write = os.write
    answers = [3, 500, None]

    def filling(file: int, data: memoryview) -> int:
        room = answers.pop(0)
        if room is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[:room])

    with TransitionLog(path) as log:
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", filling)
            with pytest.raises(OSError, match="No space left"):
                log.append(rows)
        assert sequence(path) == [1]
        assert log.last == 1
        log.append(rows)
    assert sequence(path) == [1, 2, 3, 4, 5]


def test_short_writes_are_continued(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:7]))
    with TransitionLog(path) as log:
        log.append(moves(1, 5))
    assert sequence(path) == [1, 2, 3, 4, 5]


def test_what_another_tore_while_it_was_open_is_cut_off_before_the_next_batch(path: Path) -> None:
    with TransitionLog(path) as log:
        log.append(moves(1, 2))
        with path.open("ab") as other:
            other.write(b'{"timest')
        log.append(moves(1, 4))
    assert sequence(path) == [1, 2, 3, 4]


def test_a_log_emptied_while_it_was_open_goes_on_with_what_is_new(path: Path) -> None:
    with TransitionLog(path) as log:
        log.append(moves(1, 2))
        os.truncate(path, 0)
        log.append(moves(1, 4))
    assert sequence(path) == [3, 4]


def test_a_symbolic_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        TransitionLog(path)
    assert not (tmp_path / "elsewhere").exists()


def test_what_is_no_ordinary_file_is_refused(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(OSError, match="ordinary file"):
        TransitionLog(path)
