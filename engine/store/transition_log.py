"""`transitions.jsonl`: every transition of the trail, once and in order, for other programs to read.

The file says by itself how far it got, so nothing else has to be remembered over a restart. It holds
whole lines only: what a crash or a full disk tore is cut off again.
"""

import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from engine.store.events import line_of
from engine.store.gate import AuditRow

_HEAD = b'{"timestamp"'
_BLOCK = 1 << 16
_LONGEST = 1 << 24
"""A line beyond this is not one of ours and is not read."""


class TransitionLog:
    """The open file. One process writes it; anyone may read it meanwhile."""

    last: int
    """The sequence number of the last transition in the file; 0 when there is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(self._file).st_mode):
                raise OSError(errno.EINVAL, "a transition log is an ordinary file", str(path))
            # Two that write at once would write every line twice; the second goes on where the first ended.
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._size = self._mend()
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> "TransitionLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closing twice is allowed."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def append(self, rows: Iterable[AuditRow]) -> None:
        """Write what the file does not have yet, in one write.

        When the disk is full, the lines that fit stay, half a line does not, and `OSError` is raised:
        the same rows can be passed again.
        """
        fresh: list[tuple[int, bytes]] = []
        seen = self.last
        for row in sorted(rows, key=lambda row: row.seq):
            if row.seq > seen and (line := line_of(row)) is not None:
                fresh.append((row.seq, line.encode() + b"\n"))
                seen = row.seq
        if not fresh:
            return
        if os.fstat(self._file).st_size != self._size:
            # Somebody else cut the file or tore a line; ours must not be glued to half of theirs.
            self._size = self._mend()
        self._write(fresh)

    def _write(self, fresh: list[tuple[int, bytes]]) -> None:
        data = memoryview(b"".join(line for _, line in fresh))
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        finally:
            whole = 0
            for seq, line in fresh:
                if whole + len(line) > written:
                    break
                whole += len(line)
                self.last = seq
            start, self._size = self._size, self._size + whole
            if whole < written:
                os.ftruncate(self._file, start + whole)

    def _mend(self) -> int:
        """Cut off a torn last line, learn the last sequence number, and tell the size that is left."""
        size = os.fstat(self._file).st_size
        head = os.pread(self._file, len(_HEAD), 0)
        if not _HEAD.startswith(head) and head.strip(b"\0"):
            raise self._foreign()
        whole = end = self._newline_before(size) + 1
        torn = whole < size
        while end:
            start = self._newline_before(end - 1) + 1
            event = self._read(start, end)
            if event is None:
                if torn or end != whole:
                    # A crash tears one line; where more do not parse, this is some other file.
                    raise self._foreign()
                torn, whole = True, start
            elif (seq := _seq(event)) is not None:
                self.last = max(self.last, seq)
                break
            end = start
        if whole < size:
            os.ftruncate(self._file, whole)
        return whole

    def _newline_before(self, end: int) -> int:
        """Where the last newline before that place is; -1 when there is none."""
        while end > 0:
            start = max(0, end - _BLOCK)
            found = os.pread(self._file, end - start, start).rfind(b"\n")
            if found >= 0:
                return start + found
            end = start
        return -1

    def _read(self, start: int, end: int) -> dict[str, object] | None:
        if end - start > _LONGEST:
            return None
        try:
            event = json.loads(os.pread(self._file, end - start, start))
        except (ValueError, RecursionError):
            return None
        return event if isinstance(event, dict) else None

    def _foreign(self) -> OSError:
        return OSError(
            errno.EINVAL, "it is not a transition log, and was left as it is; move it away", str(self.path)
        )


def _seq(event: dict[str, object]) -> int | None:
    metadata = event.get("metadata")
    seq = metadata.get("seq") if isinstance(metadata, dict) else None
    return seq if type(seq) is int else None
