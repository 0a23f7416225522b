"""The transitions as they happen, as lines of `transitions.jsonl`: each exactly once, across restarts.

The file itself says how far it is: after a crash the exporter goes on behind its last whole line. It
reads what is committed and has a thread of its own, so the gate never waits for it.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import closing

from engine.store.connections import connect_reader
from engine.store.errors import StoreError
from engine.store.files import Place
from engine.store.gate import AuditRow
from engine.store.loading import transitions_after
from engine.store.transition_log import TransitionLog
from engine.store.trouble import explained

PAGE = 1000
PATIENCE = 5.0
"""Seconds after which it tries again where the file could not be written."""

log = logging.getLogger(__name__)


def transitions(place: Place, after: int) -> Iterator[AuditRow]:
    """Every transition behind a row of the trail, oldest first."""
    with closing(connect_reader(place)) as db, explained():
        while rows := transitions_after(db, after, PAGE):
            yield from rows
            after = rows[-1].seq


def export(place: Place, file: TransitionLog) -> int:
    """Write the transitions that the file has not got yet; how many rows were written."""
    written = 0
    with closing(connect_reader(place)) as db, explained():
        while rows := transitions_after(db, file.last, PAGE):
            file.append(rows)
            written += len(rows)
    return written


class Exporter:
    """Keeps `transitions.jsonl` up to date while a store is open. Give `notice` to `Store.listen`."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._news = threading.Event()
        self._news.set()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="interlock-exporter", daemon=True)
        self._thread.start()

    def notice(self, seq: int) -> None:
        """There was a commit. For any thread."""
        self._news.set()

    def close(self) -> None:
        """Write what is committed, and end."""
        self._ended = True
        self._news.set()
        self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            self._news.wait()
            self._news.clear()
            ended = self._ended
            try:
                with TransitionLog(self._place.transitions) as file:
                    export(self._place, file)
            except (OSError, StoreError) as error:
                log.warning("transitions.jsonl could not be written, and will be later: %s", error)
                if not ended:
                    self._news.wait(PATIENCE)
                    self._news.set()
