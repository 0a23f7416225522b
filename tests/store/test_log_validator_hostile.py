"""The judge of logs before what no writer should have written: always a problem, never an exception."""

import io
import tracemalloc
from collections.abc import Iterator
from itertools import chain, cycle, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.records import Entity
from engine.machines import MACHINES
from engine.store.events import line_of
from engine.store.log_problems import Summary
from engine.store.log_validator import LONGEST_LINE, lines_of, validate
from tests.store.logs import foreign, found
from tests.store.trail import row

WORKER = Entity.WORKER

GOOD = foreign().rstrip(b"\n")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"", "empty"),
        (b"   \t", "empty"),
        (b"not json", "json"),
        (b'{"a":', "json"),
        (GOOD[:-1], "json"),
        (GOOD + GOOD, "json"),
        (GOOD + b" trailing", "json"),
        (b"[1, 2]", "schema"),
        (b"7", "schema"),
        (b"null", "schema"),
        (b'"text"', "schema"),
        (b"\0" * 100, "json"),
        (GOOD.replace(b"task-ulid", b"task\0ulid"), "json"),
        (GOOD.replace(b"task-ulid", b"task\xffulid"), "encoding"),
        (GOOD.decode().encode("utf-16"), "encoding"),
        (b"[" * 100_000, "json"),
        (b'{"a":' * 100_000, "json"),
        (GOOD.replace(b"{}", b'{"n": NaN}'), "json"),
        (GOOD.replace(b"{}", b'{"n": -Infinity}'), "json"),
        (GOOD.replace(b"{}", b'{"n": ' + b"9" * 5_000 + b"}"), "json"),
        (GOOD.replace(b"{}", b'{"a": 1, "a": 1}'), "duplicate_key"),
        (GOOD.replace(b'"severity"', b'"severity": "info", "severity"'), "duplicate_key"),
        (b"\xef\xbb\xbf" + GOOD, "encoding"),
        (GOOD + b"\r", "line_end"),
        (b'{"timestamp": "' + b"x" * LONGEST_LINE, "too_long"),
    ],
)
def test_a_line_that_cannot_be_read_is_a_problem_with_its_number(text: bytes, kind: str) -> None:
    before = foreign(entity_id="before")
    assert found([before, text + b"\n", foreign(entity_id="after")]) == [(2, kind)]


@pytest.mark.parametrize(
    "metadata",
    [
        b'{"n": ' + b"9" * 4_000 + b"}",
        b'{"n": 1e999}',
        b'{"s": "\\ud800"}',
        b'{"seq": 1e3}',
        b'{"version": []}',
    ],
)
def test_odd_values_are_no_trouble(metadata: bytes) -> None:
    for problem in validate([GOOD.replace(b"{}", metadata)]):
        assert problem.kind == "schema"


def test_crlf_is_told_once_for_the_whole_log() -> None:
    assert found([foreign(entity_id=f"t{n}")[:-1] + b"\r\n" for n in range(5)]) == [(1, "line_end")]


def test_spaces_around_an_event_and_a_missing_last_newline_are_no_problem() -> None:
    assert found([b"  " + GOOD + b"  \n", foreign(entity_id="other").rstrip(b"\n")]) == []


def test_a_sentence_never_quotes_more_than_a_reader_needs() -> None:
    long = "x" * 500_000
    hostile: list[dict[str, object]] = [
        {"from_state": long, "to_state": long, "trigger": long},
        {"event_type": long},
        {"severity": long},
        {"timestamp": long},
        {"metadata": {"machine": long}},
        {"metadata": {long: 1}},
        {"metadata": {"seq": 10**4000, "retry_count": 10**4000, "max_retries": 10**4000}},
        {"entity_id": long},
        {"entity_id": "y" * 1000, "severity": "error"},
    ]
    for changes in hostile:
        assert all(len(problem.sentence) < 500 for problem in validate([foreign(**changes)]))


def test_an_endless_line_is_read_in_pieces_and_skipped() -> None:
    class Endless(io.RawIOBase):
        """A hundred megabytes without a newline, between two good lines."""

        def __init__(self) -> None:
            self.pieces = iter([foreign(), *[b"x" * 65_536] * 1_600, b"\n", foreign(entity_id="after")])
            self.left = b""

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: object) -> int:
            assert isinstance(buffer, memoryview)
            self.left = self.left or next(self.pieces, b"")
            taken = self.left[: len(buffer)]
            buffer[: len(taken)] = taken
            self.left = self.left[len(taken) :]
            return len(taken)

    tracemalloc.start()
    problems = found(lines_of(io.BufferedReader(Endless())))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert problems == [(2, "too_long")]
    assert peak < 8 * LONGEST_LINE


@pytest.mark.parametrize("length", [LONGEST_LINE - 1, LONGEST_LINE, LONGEST_LINE + 1, 2 * LONGEST_LINE + 2])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_lines_around_the_limit_keep_their_numbers(length: int, end: bytes) -> None:
    text = b"x" * (length - len(end)) + end
    after = b"" if not end else foreign()
    kinds = found(lines_of(io.BytesIO(text + after)))
    assert kinds == [(1, "too_long" if length > LONGEST_LINE else "json")]


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_no_bytes_make_it_raise(log: list[bytes]) -> None:
    list(validate(log))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
KEYS = ("timestamp", "event_type", "severity", "entity_id", "from_state", "to_state", "trigger", "metadata")
INNER = ("machine", "seq", "version", "retry_count", "max_retries")


@given(
    st.dictionaries(st.sampled_from(KEYS), JUNK, max_size=3),
    st.dictionaries(st.sampled_from(INNER), JUNK | st.sampled_from(list(MACHINES)), max_size=3),
)
def test_no_values_make_it_raise(changes: dict[str, object], metadata: dict[str, object]) -> None:
    log = [foreign(**{"metadata": metadata, **changes}), foreign(metadata=metadata), foreign()]
    list(validate(log))
    list(validate(log, partial=True))


@given(st.lists(st.datetimes(timezones=st.timezones()).map(lambda moment: moment.isoformat()), max_size=4))
def test_no_timestamps_make_it_raise(stamps: list[str]) -> None:
    list(validate([foreign(timestamp=stamp) for stamp in stamps], partial=True))


def tasks_without_end(entities: int) -> Iterator[bytes]:
    """Workers that get tasks and end them, one after the other."""
    seq = 0
    ways = chain(
        [("initializing", "registration_complete", "idle")],
        cycle([("idle", "task_assigned", "busy"), ("busy", "task_completed", "idle")]),
    )
    for version, way in enumerate(ways, 2):
        text = line_of(row(WORKER, "orchestration.worker", *way, version=version, label="NAME"))
        assert text is not None
        for n in range(entities):
            seq += 1
            yield text.replace("NAME", f"w{n}").replace('"seq":1,', f'"seq":{seq},').encode()


@pytest.mark.slow
def test_memory_grows_with_entities_and_not_with_lines() -> None:
    """Of a million lines, what the middle ones leave behind is looked at closely."""
    kept = None

    def watched() -> Iterator[bytes]:
        nonlocal kept
        for number, text in enumerate(islice(tasks_without_end(100), 1_000_000)):
            if number == 500_000:
                tracemalloc.start()
            elif number == 520_000:
                kept = tracemalloc.get_traced_memory()[0]
                tracemalloc.stop()
            yield text

    summary = Summary()
    assert list(validate(watched(), summary)) == []
    assert summary == Summary(lines=1_000_000, events=1_000_000, entities=100)
    assert kept is not None
    assert kept < 50_000


def test_problems_are_told_while_the_log_is_read() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"nonsense\n"

    summary = Summary()
    assert len(list(islice(validate(endless(), summary), 1000))) == 1000
    assert summary.lines == 1000
