"""`verify`, `check`, `doctor`, `metrics` and `log export` over real stores."""

import io
import json
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unicodedata import category
from unittest import mock

import pytest

from console.cli import main
from engine.core.decide import decide
from engine.core.model import Model
from engine.core.plan import Plan, Settings, TaskPlan
from engine.core.signals import Submit
from engine.store.exporter import Exporter
from engine.store.files import Place
from engine.store.store import Store
from engine.store.verify import verify
from tests.store.worlds import attacked, copied, lived

COMMAND = [str(Path(sys.executable).with_name("interlock"))]
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name not in ("COLUMNS", "NO_COLOR", "INTERLOCK_STORE")
}
COMMANDS = (("verify",), ("check",), ("doctor",), ("metrics",), ("log", "export"))
READERS = tuple(command for command in COMMANDS if command != ("doctor",))
SEED = 13
NASTY = "\x1b]0;owned\x07\n\x1b[31mred\u202e\x9b2J"

every_command = pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
every_reader = pytest.mark.parametrize("command", READERS, ids=" ".join)


def interlock(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command inside this process, which is much faster; what it must not share has its own below."""
    told, complained = io.StringIO(), io.StringIO()
    code: object = 0
    with (
        mock.patch.dict(os.environ, {**ENVIRONMENT, **environment}, clear=True),
        redirect_stdout(told),
        redirect_stderr(complained),
    ):
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code or 0
    assert isinstance(code, int)
    return subprocess.CompletedProcess(arguments, code, told.getvalue(), complained.getvalue())


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Place:
    path = tmp_path_factory.mktemp("clean") / "store.db"
    lived(path, SEED)
    return Place(path)


@pytest.fixture
def place(clean: Place, tmp_path: Path) -> Place:
    """A copy that a test may ruin."""
    path = tmp_path / "store.db"
    path.touch(0o600)
    return copied(clean, path)


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence of a command that could do nothing."""
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"interlock: [^\n]+\n", done.stderr), done.stderr
    return done.stderr


# ---- all of them


@every_command
def test_a_sound_store_gives_0_and_no_complaint(clean: Place, command: tuple[str, ...]) -> None:
    done = interlock(*command, "--store", str(clean.file))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("\n")


@every_command
def test_the_store_may_be_named_by_the_environment(clean: Place, command: tuple[str, ...]) -> None:
    done = interlock(*command, INTERLOCK_STORE=str(clean.file))
    given = interlock(*command, "--store", str(clean.file), INTERLOCK_STORE="/nowhere/store.db")
    assert (done.returncode, given.returncode) == (0, 0)
    assert _without_time(done.stdout) == _without_time(given.stdout)


def _without_time(text: str) -> str:
    return re.sub(r"\([\d.]+ s[^)]*\)|[\d.,]+ GB", "", text)


@every_reader
def test_what_is_no_store_is_refused_in_one_sentence(tmp_path: Path, command: tuple[str, ...]) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("these are my notes\n" * 100)
    (tmp_path / "empty.db").touch()
    for name, words in {
        "missing.db": "there is no store at",
        "missing/store.db": "there is no store at",
        "notes.txt": "is damaged or is not a store",
        "empty.db": "this store is empty",
        ".": "is not a file",
    }.items():
        assert words in refused(interlock(*command, "--store", str(tmp_path / name)))
    assert text.read_text() == "these are my notes\n" * 100


@every_reader
def test_an_unreadable_file_is_refused(place: Place, command: tuple[str, ...]) -> None:
    place.file.chmod(0)
    # Root, who often runs the tests, may read it all the same.
    with mock.patch("engine.store.files.os.access", return_value=False):
        assert "not yours to read" in refused(interlock(*command, "--store", str(place.file)))


@every_command
def test_a_reader_that_has_gone_ends_it_silently(clean: Place, command: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, *command, "--store", str(clean.file)], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@every_command
def test_no_command_changes_the_store_or_imports_the_screens(clean: Place, command: tuple[str, ...]) -> None:
    before = clean.file.read_bytes()
    imported = _imported(*command, "--store", str(clean.file))
    assert "engine.store.connections" in imported
    assert "textual" not in imported
    assert "screens" not in imported
    assert clean.file.read_bytes() == before


def test_help_imports_no_database(clean: Place) -> None:
    imported = _imported("--help")
    assert "console.cli" in imported
    assert imported & {"sqlalchemy", "sqlite3", "alembic", "textual", "prometheus_client", "rich.table"} <= {
        "rich.table"
    }


def _imported(*arguments: str) -> set[str]:
    code = (
        "import sys\nfrom console.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
    return set(done.stderr.split())


@every_command
def test_hostile_names_never_reach_the_terminal_as_they_are(tmp_path: Path, command: tuple[str, ...]) -> None:
    plan = Plan(NASTY, (TaskPlan(NASTY, tool=NASTY), TaskPlan("build")))
    decision = decide(Model(Settings()), Submit(id=1, actor=NASTY, plan=plan), 1, 0.5)
    with Store(tmp_path / "store.db") as store:
        store.call(lambda gate: gate.apply([decision])).result()
        store.call(lambda gate: gate.refused(NASTY, NASTY, NASTY)).result()
    with attacked(store.place) as db:
        db.execute("UPDATE tasks SET started = created - 1, error = ?", (NASTY,))
        db.execute(
            "INSERT INTO attempts (run, task, attempt, purpose, round, worker, tool, sent)"
            " VALUES (1, 1, 1, 'work', 0, ?, ?, 1)",
            (NASTY, NASTY),
        )
    for form in ((), ("--json",)) if command != ("log", "export") else ((),):
        done = interlock(*command, "--store", str(store.place.file), *form)
        assert done.returncode in (0, 1)
        # What log export writes is JSON for programs: nothing in it moves a cursor.
        foreign = [char for char in done.stdout.replace("\n", "") if not char.isprintable()]
        assert [char for char in foreign if command != ("log", "export") or category(char) == "Cc"] == []
        assert "Traceback" not in done.stderr


# ---- verify


def test_verify_tells_the_first_broken_row_and_exits_with_1(place: Place) -> None:
    with attacked(place) as db:
        db.execute("UPDATE audit SET actor = 'mallory' WHERE seq IN (50, 60)")
    done = interlock("verify", "--store", str(place.file))
    assert (done.returncode, done.stderr) == (1, "")
    first, *others = done.stdout.splitlines()
    assert re.fullmatch(r"BROKEN at row 50 \(\w+ \S+, \S+Z\): the row was edited, .* not its own\.", first)
    assert others == [
        "Sound before it: 49 rows.",
        "Copy the store and its folder as they are, before an engine opens it again.",
    ]
    told = json.loads(interlock("verify", "--store", str(place.file), "--json").stdout)
    assert (told["sound"], told["rows"], told["broken"]["seq"]) == (False, 49, 50)


def test_verify_as_json_has_its_keys(clean: Place) -> None:
    told = json.loads(interlock("verify", "--store", str(clean.file), "--json").stdout)
    assert told.keys() == {"sound", "rows", "head", "broken", "anchored", "seconds"}
    head = verify(clean).head
    assert told["head"] == {"seq": head.seq, "hash": head.hash.hex()}
    assert (told["sound"], told["rows"], told["broken"]) == (True, head.seq, None)


def test_an_anchor_is_written_and_holds_against_a_trail_that_was_cut(place: Place, tmp_path: Path) -> None:
    anchor = tmp_path / "anchor"
    store = ("--store", str(place.file))
    done = interlock("verify", *store, "--write-anchor", str(anchor))
    assert done.returncode == 0
    assert f"{anchor} holds it now" in done.stdout
    assert anchor.read_text() == f"{verify(place).head}\n"
    for given in (str(anchor), anchor.read_text().strip()):
        done = interlock("verify", *store, "--anchor", given)
        assert done.returncode == 0
        assert "and hold what the anchor saw" in done.stdout
    with attacked(place) as db:
        db.execute("DELETE FROM audit WHERE seq > 100")
    done = interlock("verify", *store, "--anchor", str(anchor), "--write-anchor", str(anchor))
    assert done.returncode == 1
    assert "BROKEN at row 101: the trail ends at row 100, and the anchor saw row" in done.stdout
    assert "No anchor was written." in done.stdout
    assert [path.name for path in tmp_path.glob("anchor*")] == ["anchor"]


@pytest.mark.parametrize(
    "given",
    ["", "nonsense", "5", "5:", ":", "5:abc", "x:" + "0" * 64, "5:" + "g" * 64, "5:" + "0" * 66, "/", "é"],
)
def test_what_is_no_anchor_is_refused(clean: Place, given: str) -> None:
    told = refused(interlock("verify", "--store", str(clean.file), "--anchor", given))
    assert "an anchor is a row number, a colon and 64 hexadecimal digits" in told


def test_a_file_that_holds_no_anchor_is_refused_and_one_far_ahead_is_not(
    clean: Place, tmp_path: Path
) -> None:
    for content in (b"", b"\xff\xfe\x00", b"1:\n2:\n"):
        (tmp_path / "anchor").write_bytes(content)
        refused(interlock("verify", "--store", str(clean.file), "--anchor", str(tmp_path / "anchor")))
    done = interlock("verify", "--store", str(clean.file), "--anchor", f"{10**30}:{'0' * 64}")
    assert (done.returncode, done.stderr) == (1, "")


def test_an_anchor_that_cannot_be_written_is_refused(clean: Place, tmp_path: Path) -> None:
    for path in (tmp_path / "missing" / "anchor", tmp_path):
        told = refused(interlock("verify", "--store", str(clean.file), "--write-anchor", str(path)))
        assert "the anchor could not be written to" in told


# ---- check, doctor, metrics, log export


def test_check_groups_counts_and_limits_its_findings(place: Place) -> None:
    with attacked(place) as db:
        db.execute("UPDATE tasks SET started = created - 1")
        (tasks,) = db.execute("SELECT count(*) FROM tasks").fetchone()
    done = interlock("check", "--store", str(place.file))
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"times_out_of_order ({tasks}): created, started and completed are not in")
    assert lines[11] == f"  ... and {tasks - 10} more; --all shows every one"
    assert re.fullmatch(r"\d+ findings by 3 rules\. Copy the store before anything is mended\.", lines[-1])
    everything = interlock("check", "--store", str(place.file), "--all").stdout
    assert everything.count("started 20") == tasks
    assert "more;" not in everything
    told = json.loads(interlock("check", "--store", str(place.file), "--json").stdout)
    assert {frozenset(finding) for finding in told} == {
        frozenset(("rule", "document", "entity", "evidence", "sentence"))
    }
    assert len(told) > 2 * tasks


def test_check_of_a_clean_store_says_so(clean: Place) -> None:
    assert interlock("check", "--store", str(clean.file)).stdout == "Nothing is wrong.\n"
    assert interlock("check", "--store", str(clean.file), "--json").stdout == "[]\n"


def test_doctor_marks_what_needs_a_person(place: Place) -> None:
    with attacked(place):
        pass
    place.file.chmod(0o644)
    done = interlock("doctor", "--store", str(place.file))
    assert (done.returncode, done.stderr) == (1, "")
    marked = [line for line in done.stdout.splitlines() if line.startswith("!")]
    assert [line.split("  ")[0] for line in marked] == ["! mode of store.db", "! triggers"]
    assert "`chmod 600" in done.stdout
    assert done.stdout.endswith("2 of these need a person.\n")
    told = json.loads(interlock("doctor", "--store", str(place.file), "--json").stdout)
    assert {frozenset(symptom) for symptom in told} == {frozenset(("what", "found", "advice"))}
    assert sum(symptom["advice"] is not None for symptom in told) == 2


def test_doctor_fits_a_terminal_except_what_is_copied(clean: Place) -> None:
    done = interlock("doctor", "--store", str(clean.file))
    assert done.stdout.splitlines()[-1].startswith("All is well here")
    long = [line for line in done.stdout.splitlines() if len(line) > 80]
    assert all(line.startswith(("  end of the trail", "  store ")) for line in long)


def test_doctor_tells_of_a_store_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("these are my notes\n" * 100)
    for name, code in (("missing.db", 1), ("notes.txt", 1), (".", 1)):
        done = interlock("doctor", "--store", str(tmp_path / name))
        assert (done.returncode, done.stderr) == (code, "")
        assert "store" in done.stdout


def test_doctor_finds_a_table_that_is_gone(place: Place) -> None:
    with attacked(place) as db:
        db.execute("DROP TABLE timers")
    for command in ("doctor", "check", "verify"):
        done = interlock(command, "--store", str(place.file))
        assert done.returncode != 0
        assert "lacks a part of itself" in done.stdout + done.stderr


def test_an_anchor_is_not_replaced_by_a_trail_that_does_not_hold_it(place: Place, tmp_path: Path) -> None:
    anchor = tmp_path / "anchor"
    store = ("--store", str(place.file))
    assert interlock("verify", *store, "--write-anchor", str(anchor)).returncode == 0
    held = anchor.read_text()
    (tmp_path / "forged").write_text(f"{held.split(':')[0]}:{'ab' * 32}\n")
    done = interlock("verify", *store, "--write-anchor", str(tmp_path / "forged"))
    assert (done.returncode, (tmp_path / "forged").read_text().endswith("abab\n")) == (1, True)
    assert "No anchor was written" in done.stdout
    assert interlock("verify", *store, "--write-anchor", str(anchor)).returncode == 0
    assert anchor.read_text() == held


def test_metrics_are_prometheus_text_and_json(clean: Place) -> None:
    text = interlock("metrics", "--store", str(clean.file)).stdout
    told = json.loads(interlock("metrics", "--store", str(clean.file), "--json").stdout)
    assert told.keys() == {
        "pairs", "times", "standing", "refused", "hits", "misses", "invocations", "rows", "hit_rate",
    }  # fmt: skip
    total = sum(
        float(line.split()[-1]) for line in text.splitlines() if line.startswith("interlock_transitions_t")
    )
    assert total == sum(pair["count"] for pair in told["pairs"])
    assert f"interlock_audit_rows_total {told['rows']:.1f}\n" in text
    for line in text.splitlines():
        assert line.startswith("# ") or re.fullmatch(r'[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [-+.e\d]+', line), (
            line
        )


def test_an_export_is_what_the_exporter_writes(place: Place) -> None:
    place.make()
    Exporter(place).close()
    store = ("--store", str(place.file))
    done = interlock("log", "export", *store)
    assert done.stdout == place.transitions.read_text()
    assert interlock("log", "validate", str(place.transitions)).returncode == 0
    lines = done.stdout.splitlines(keepends=True)
    seq = json.loads(lines[9])["metadata"]["seq"]
    assert interlock("log", "export", *store, "--after", str(seq)).stdout == "".join(lines[10:])
    assert interlock("log", "export", *store, "--after", str(10**9)).stdout == ""
