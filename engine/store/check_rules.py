"""The rules of `interlock check` that a query can tell: each is the wrong rows, in the words of its document.

A rule answers with the entity and the evidence. A run is called `182`, what is in it `182/build` or
`182.1.2`; everything else says what it is (`worker w1`, `row 17`), so that nothing is taken for a run.
Between two transactions all of them hold, whatever is running, so a single row is a finding.
"""

from collections.abc import Callable
from dataclasses import dataclass

from engine.machines import MACHINES, Phase, State

DONE = (Phase.SUCCEEDED, Phase.SKIPPED)
AT_WORK = (Phase.ACTIVE, Phase.RECOVERING, Phase.CANCELLING)


@dataclass(frozen=True, slots=True)
class Rule:
    """What must never be, and the query that finds it."""

    name: str
    document: str
    sentence: str
    sql: str


def standing(alias: str, *phases: Phase) -> str:
    """A condition: the entity is in one of these phases, whatever its machine calls them."""
    return _states(alias, "state", lambda state: state.phase in phases)


def terminal(alias: str, column: str = "state") -> str:
    return _states(alias, column, lambda state: state.terminal)


def _states(alias: str, column: str, wanted: Callable[[State], bool]) -> str:
    clauses = []
    for machine in MACHINES.values():
        names = ", ".join(f"'{state.name}'" for state in machine.states if wanted(state))
        if names:
            clauses.append(f"{alias}.machine = '{machine.name}' AND {alias}.{column} IN ({names})")
    return f"({' OR '.join(clauses)})"


def when(column: str) -> str:
    """A moment for people, to the microsecond; a dash where there is none."""
    return (
        f"coalesce(strftime('%Y-%m-%dT%H:%M:%S', {column} / 1000000, 'unixepoch')"
        f" || printf('.%06dZ', {column} % 1000000), '-')"
    )


def _moments(alias: str, *names: str) -> str:
    return " || ', ' || ".join(f"'{name} ' || {when(f'{alias}.{name}')}" for name in names)


def _ended(alias: str) -> str:
    return f"CASE WHEN {alias}.ended IS NULL THEN 'never' ELSE {when(f'{alias}.ended')} END"


_TIMES = ("created", "started", "ended", "entered", "updated")
_TASK = "t.run || '/' || t.name"
_ATTEMPT = (
    "x.run || '.' || x.task || '.' || x.attempt"
    " || CASE x.purpose WHEN 'work' THEN '' ELSE '+' || x.purpose || x.round END"
)
_OF_ROW = (
    "CASE WHEN a.name IS NOT NULL"
    " THEN CASE r.machine WHEN 'pipeline.breaker' THEN 'breaker ' ELSE 'worker ' END || a.name"
    " WHEN a.task = 0 THEN CAST(a.run AS TEXT) ELSE a.run || '/' || coalesce("
    "(SELECT t.name FROM tasks AS t WHERE t.run = a.run AND t.number = a.task), a.task) END"
)
"""Whom a row of the trail tells of."""
_ENTITIES = (
    ("runs", "CAST(e.number AS TEXT)", "a.run = e.number AND a.task = 0"),
    ("tasks", "e.run || '/' || e.name", "a.run = e.run AND a.task = e.number"),
    ("worker_regions", "'worker ' || e.worker", "a.name = e.worker"),
    ("breakers", "'breaker ' || e.tool", "a.name = e.tool"),
)


def _trail_rules() -> list[Rule]:
    rules = []
    for table, label, match in _ENTITIES:
        last = (
            f"SELECT r.to_state FROM audit AS a CROSS JOIN arrows AS r WHERE r.id = a.arrow AND {match}"
            " AND a.version = e.version AND r.machine = e.machine AND r.to_state IS NOT NULL"
        )
        rules.append(
            Rule(
                "state_without_history", "000",
                "the trail does not tell of the state that the entity is in",
                f"SELECT {label}, e.machine || ' is in ' || e.state || ', version ' || e.version"
                f" || '; the trail says ' || coalesce(({last}), 'nothing')"
                f" FROM {table} AS e WHERE e.state IS NOT ({last})",
            )
        )  # fmt: skip
    for same in ("b.run = a.run AND b.task = a.task", "b.name = a.name"):
        own = "a.name IS NULL" if "run" in same else "a.name IS NOT NULL"
        rules.append(
            Rule(
                "history_with_gap", "000",
                "the trail takes an entity on from a state that it was not in",
                f"SELECT {_OF_ROW}, 'row ' || a.seq || ' takes it from ' || r.from_state || ' to '"
                " || r.to_state || ', version ' || a.version || ', and nothing took it there'"
                f" FROM audit AS a CROSS JOIN arrows AS r WHERE r.id = a.arrow AND {own}"
                " AND r.from_state IS NOT NULL AND NOT EXISTS"
                f" (SELECT 1 FROM audit AS b CROSS JOIN arrows AS q WHERE q.id = b.arrow AND {same}"
                " AND b.version = a.version - 1 AND q.machine = r.machine AND q.to_state = r.from_state)",
            )
        )  # fmt: skip
    return rules


RULES: tuple[Rule, ...] = (
    *_trail_rules(),
    Rule(
        "terminal_state_left", "001",
        "something that was over went on, and not by a recovery",
        f"SELECT {_OF_ROW}, 'row ' || a.seq || ' takes it from ' || r.from_state || ' to ' || r.to_state"
        " || ' by ' || r.event FROM arrows AS r CROSS JOIN audit AS a WHERE a.arrow = r.id"
        f" AND r.kind <> 'recovery' AND {terminal('r', 'from_state')}",
    ),
    Rule(
        "success_with_failed_tasks", "000",
        "a run is a success while one of its tasks is neither done nor waived",
        "SELECT CAST(w.number AS TEXT), 'it is in ' || w.state || ', and ' || t.name || ' is in ' || t.state"
        f" FROM runs AS w JOIN tasks AS t ON t.run = w.number WHERE {standing('w', Phase.SUCCEEDED)}"
        f" AND t.pardon IS NULL AND NOT {standing('t', *DONE)}",
    ),
    Rule(
        "terminal_with_timers", "000",
        "an entity that is over still has a timer",
        f"SELECT e.entity, 'timer ' || e.timer || ' is due at ' || {when('e.due')} FROM timers AS e"
        " JOIN runs AS w ON e.entity_kind = 'run' AND w.number = CAST(e.entity AS INTEGER)"
        f" AND {terminal('w')}"
        " UNION ALL "
        f"SELECT {_TASK}, 'timer ' || e.timer || ' is due at ' || {when('e.due')} FROM timers AS e"
        " JOIN tasks AS t ON e.entity_kind = 'task'"
        " AND t.run = CAST(substr(e.entity, 1, instr(e.entity, '/') - 1) AS INTEGER)"
        " AND t.number = CAST(substr(e.entity, instr(e.entity, '/') + 1) AS INTEGER)"
        f" AND {terminal('t')}"
        " UNION ALL "
        f"SELECT 'worker ' || h.worker, 'timer ' || e.timer || ' is due at ' || {when('e.due')}"
        " FROM timers AS e JOIN worker_regions AS h ON e.entity_kind = 'worker' AND h.worker = e.entity"
        f" AND h.machine = 'orchestration.worker' AND {terminal('h')}",
    ),
    Rule(
        "over_with_open_attempts", "001",
        "a run or a task is over, and an attempt of it is still open",
        "SELECT CAST(w.number AS TEXT), 'it is in ' || w.state || ', and ' || " + _ATTEMPT + " || ' is open'"
        " FROM attempts AS x JOIN runs AS w ON w.number = x.run"
        f" WHERE x.ended IS NULL AND x.fenced = 0 AND {terminal('w')}"
        " UNION ALL "
        f"SELECT {_TASK}, 'it is in ' || t.state || ', and ' || " + _ATTEMPT + " || ' is open'"
        " FROM attempts AS x JOIN tasks AS t ON t.run = x.run AND t.number = x.task"
        f" WHERE x.ended IS NULL AND x.fenced = 0 AND {terminal('t')}",
    ),
    Rule(
        "worker_outside_running", "001",
        "a worker is assigned to a task that is not running",
        f"SELECT {_TASK}, 'it is in ' || t.state || ' and attempt ' || x.attempt || ' is on ' || x.worker"
        " FROM attempts AS x JOIN tasks AS t ON t.run = x.run AND t.number = x.task"
        " WHERE x.ended IS NULL AND x.purpose = 'work' AND x.worker IS NOT NULL AND x.fenced = 0"
        f" AND NOT {standing('t', *AT_WORK)}",
    ),
    Rule(
        "two_live_attempts", "001",
        "a task has more than one live attempt",
        f"SELECT {_TASK}, count(*) || ' attempts are open and not fenced' FROM attempts AS x"
        " JOIN tasks AS t ON t.run = x.run AND t.number = x.task"
        " WHERE x.ended IS NULL AND x.fenced = 0 GROUP BY x.run, x.task HAVING count(*) > 1",
    ),
    Rule(
        "times_out_of_order", "001",
        "created, started and completed are not in this order",
        f"SELECT CAST(w.number AS TEXT), {_moments('w', *_TIMES)}"
        " FROM runs AS w WHERE w.started < w.created OR w.ended < w.created OR w.ended < w.started"
        " OR w.updated < w.created OR w.entered < w.created OR w.updated < w.entered"
        " UNION ALL "
        f"SELECT {_TASK}, {_moments('t', *_TIMES)}"
        " FROM tasks AS t WHERE t.started < t.created OR t.ended < t.created OR t.ended < t.started"
        " OR t.updated < t.created OR t.entered < t.created OR t.updated < t.entered"
        " UNION ALL "
        f"SELECT {_ATTEMPT}, {_moments('x', 'sent', 'started', 'ended')} FROM attempts AS x"
        " WHERE x.started < x.sent OR x.ended < x.sent OR x.ended < x.started"
        " UNION ALL "
        f"SELECT 'worker ' || e.worker, e.machine || ': ' || {_moments('e', 'entered', 'updated')}"
        " FROM worker_regions AS e WHERE e.updated < e.entered"
        " UNION ALL "
        f"SELECT 'breaker ' || e.tool, {_moments('e', 'entered', 'updated')}"
        " FROM breakers AS e WHERE e.updated < e.entered",
    ),
    Rule(
        "ended_and_not_over", "002",
        "an entity has an end and is not over, or is over and has none",
        f"SELECT CAST(w.number AS TEXT), 'it is in ' || w.state || ', ended ' || {_ended('w')}"
        f" FROM runs AS w WHERE (w.ended IS NULL) = {terminal('w')}"
        " UNION ALL "
        f"SELECT {_TASK}, 'it is in ' || t.state || ', ended ' || {_ended('t')}"
        f" FROM tasks AS t WHERE (t.ended IS NULL) = {terminal('t')}",
    ),
    Rule(
        "at_work_and_never_started", "002",
        "something is at work or was a success, and never started",
        "SELECT CAST(w.number AS TEXT), 'it is in ' || w.state FROM runs AS w WHERE w.started IS NULL"
        f" AND {standing('w', *AT_WORK, Phase.CHECKING, Phase.SUCCEEDED)}"
        " UNION ALL "
        f"SELECT {_TASK}, 'it is in ' || t.state FROM tasks AS t WHERE t.started IS NULL"
        f" AND {standing('t', *AT_WORK, Phase.CHECKING, Phase.SUCCEEDED)}",
    ),
    Rule(
        "rests_in_a_moment", "003",
        "a task rests in a state that is only a moment",
        f"SELECT {_TASK}, 'it is in ' || t.state FROM tasks AS t WHERE {standing('t', Phase.FAILING)}",
    ),
    Rule(
        "open_attempt_of_nobody", "001",
        "an attempt is open, not fenced, and its task or run does not know of it",
        f"SELECT {_ATTEMPT},"
        " 'its entity has live ' || coalesce(t.live, w.live, 'none')"
        " FROM attempts AS x LEFT JOIN tasks AS t ON t.run = x.run AND t.number = x.task"
        " LEFT JOIN runs AS w ON w.number = x.run AND x.task = 0"
        " WHERE x.ended IS NULL AND x.fenced = 0 AND coalesce(t.live, w.live) IS NULL",
    ),
    Rule(
        "live_attempt_missing", "001",
        "an entity believes in a live attempt that is not open",
        f"SELECT {_TASK}, 'live ' || t.live FROM tasks AS t WHERE t.live IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM attempts AS x WHERE x.run = t.run AND x.task = t.number AND x.ended IS NULL)"
        " UNION ALL "
        "SELECT CAST(w.number AS TEXT), 'live ' || w.live FROM runs AS w"
        " WHERE w.live IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM attempts AS x WHERE x.run = w.number AND x.task = 0 AND x.ended IS NULL)",
    ),
    Rule(
        "worker_over_capacity", "001",
        "a worker has more attempts than slots",
        "SELECT 'worker ' || k.id, count(*) || ' attempts in ' || k.slots || ' slots' FROM workers AS k"
        " JOIN attempts AS x ON x.worker = k.id AND x.ended IS NULL GROUP BY k.id HAVING count(*) > k.slots",
    ),
    Rule(
        "worker_busy_or_idle", "001",
        "a worker is busy with nothing, or idle with attempts",
        "SELECT 'worker ' || h.worker, 'it is ' || h.state || ' with ' || count(x.run) || ' attempts'"
        " FROM worker_regions AS h LEFT JOIN attempts AS x ON x.worker = h.worker AND x.ended IS NULL"
        " WHERE h.machine = 'orchestration.worker' GROUP BY h.worker"
        " HAVING h.state = 'busy' AND count(x.run) = 0 OR h.state = 'idle' AND count(x.run) > 0",
    ),
    Rule(
        "worker_gone_with_attempts", "001",
        "a worker is gone, and an attempt that nobody doubts is still on it",
        f"SELECT 'worker ' || h.worker, 'it is in ' || h.state || ', and ' || {_ATTEMPT} || ' is open'"
        " FROM worker_regions AS h JOIN attempts AS x ON x.worker = h.worker"
        f" WHERE h.machine = 'orchestration.worker' AND {terminal('h')}"
        " AND x.ended IS NULL AND x.fenced = 0 AND x.doubt = 0",
    ),
    Rule(
        "worker_regions_disagree", "002",
        "a worker is shut down, and its supervisor would still give it work",
        "SELECT 'worker ' || h.worker, 'it is in ' || h.state || ' and in ' || c.state"
        " FROM worker_regions AS h JOIN worker_regions AS c ON c.worker = h.worker"
        " WHERE h.machine = 'orchestration.worker' AND c.machine = 'supervision.worker'"
        f" AND {terminal('h')} AND NOT {terminal('c')}",
    ),
    Rule(
        "probe_of_a_breaker_that_is_not_half_open", "000",
        "a breaker counts on a probe and is not half open",
        "SELECT 'breaker ' || b.tool, 'it is ' || b.state || ', and ' || b.probe || ' is its probe'"
        " FROM breakers AS b WHERE b.probe IS NOT NULL AND b.state <> 'HALF_OPEN'",
    ),
    Rule(
        "depth_differs", "002",
        "a run is not one deeper than the run that it belongs to",
        "SELECT CAST(w.number AS TEXT), 'its depth is ' || w.depth || ', and '"
        " || coalesce('that of run ' || p.number || ' is ' || p.depth, 'it belongs to no run')"
        " FROM runs AS w LEFT JOIN runs AS p ON p.number = w.parent_run"
        " WHERE w.depth <> coalesce(p.depth + 1, 0)",
    ),
    Rule(
        "sub_run_differs", "001",
        "an attempt and the sub-run that it stands for do not agree",
        f"SELECT {_ATTEMPT}, CASE WHEN w.number IS NULL THEN 'run ' || x.sub_run || ' does not belong to it'"
        " WHEN x.ended IS NULL THEN 'it is open, and run ' || x.sub_run || ' is over'"
        " ELSE 'it is over, and run ' || x.sub_run || ' is not' END FROM attempts AS x"
        " LEFT JOIN runs AS w ON w.number = x.sub_run AND w.parent_run = x.run AND w.parent_task = x.task"
        f" WHERE x.sub_run IS NOT NULL AND (w.number IS NULL OR (x.ended IS NULL) = {terminal('w')})",
    ),
    Rule(
        "recovery_without_record", "000",
        "a recovery transition has no recovery record",
        f"SELECT {_OF_ROW}, 'row ' || a.seq || ': ' || r.from_state || ' to ' || r.to_state"
        " FROM arrows AS r CROSS JOIN audit AS a WHERE r.kind = 'recovery' AND a.arrow = r.id"
        " AND NOT EXISTS (SELECT 1 FROM recoveries AS c WHERE c.seq = a.seq)",
    ),
    Rule(
        "record_without_history", "000",
        "a recovery or a vote is on record, and the trail tells otherwise",
        "SELECT 'row ' || c.seq, 'the recovery ' || c.event || ' of ' || c.entity || ' by ' || c.actor"
        " FROM recoveries AS c LEFT JOIN audit AS a ON a.seq = c.seq LEFT JOIN arrows AS r ON r.id = a.arrow"
        " WHERE (r.kind, r.machine, r.event, a.actor, a.reason, a.metadata, a.at)"
        " IS NOT ('recovery', c.machine, c.event, c.actor, c.reason, c.evidence, c.at)"
        " UNION ALL "
        "SELECT 'row ' || d.seq, d.actor || ' has ' || d.verdict || ' ' || d.run || '/' || d.task"
        " FROM decisions AS d LEFT JOIN audit AS a ON a.seq = d.seq LEFT JOIN arrows AS r ON r.id = a.arrow"
        " WHERE (a.run, a.task, a.actor) IS NOT (d.run, d.task, d.actor)"
        " OR (d.verdict = 'rejected') IS NOT (r.event = 'REJECT')"
        " OR d.verdict = 'rejected' AND d.reason IS NOT a.reason",
    ),
    Rule(
        "orphan", "001",
        "something belongs to nothing",
        f"SELECT {_TASK}, 'a task without its run' FROM tasks AS t"
        " WHERE NOT EXISTS (SELECT 1 FROM runs AS w WHERE w.number = t.run)"
        " UNION ALL "
        "SELECT CAST(w.number AS TEXT), 'a run with ' || w.task_count || ' tasks, of which '"
        " || count(t.number) || ' are there' FROM runs AS w LEFT JOIN tasks AS t ON t.run = w.number"
        " GROUP BY w.number HAVING count(t.number) <> w.task_count"
        " UNION ALL "
        "SELECT CAST(w.number AS TEXT), 'a run without its workflow version ' || w.workflow FROM runs AS w"
        " WHERE NOT EXISTS (SELECT 1 FROM workflow_versions AS v WHERE v.id = w.workflow)"
        " UNION ALL "
        "SELECT CAST(w.number AS TEXT), 'a run without its parent ' || w.parent_run || '/' || w.parent_task"
        " FROM runs AS w WHERE w.parent_run IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM tasks AS t WHERE t.run = w.parent_run AND t.number = w.parent_task)"
        " UNION ALL "
        "SELECT CAST(w.number AS TEXT), 'it is said to be resumed by run ' || w.resumed_by FROM runs AS w"
        " WHERE w.resumed_by IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM runs AS o WHERE o.number = w.resumed_by AND o.origin_run = w.number)"
        " UNION ALL "
        "SELECT CAST(w.number AS TEXT), 'a run without its origin ' || w.origin_run FROM runs AS w"
        " WHERE w.origin_run IS NOT NULL AND NOT EXISTS (SELECT 1 FROM runs WHERE number = w.origin_run)"
        " UNION ALL "
        f"SELECT {_ATTEMPT}, 'an attempt without its task' FROM attempts AS x"
        " WHERE x.task > 0 AND NOT EXISTS"
        " (SELECT 1 FROM tasks AS t WHERE t.run = x.run AND t.number = x.task)"
        " UNION ALL "
        "SELECT x.run || '.' || x.task || '.' || x.attempt, 'check ' || x.name || ' of no attempt' FROM"
        " check_results AS x WHERE NOT EXISTS (SELECT 1 FROM attempts AS y WHERE y.run = x.run"
        " AND y.task = x.task AND y.attempt = x.attempt AND y.purpose = x.purpose AND y.round = x.round)"
        " UNION ALL "
        "SELECT 'worker ' || k.id, 'a worker with ' || count(h.machine) || ' regions' FROM workers AS k"
        " LEFT JOIN worker_regions AS h ON h.worker = k.id GROUP BY k.id HAVING count(h.machine) <> 2"
        " UNION ALL "
        "SELECT 'row ' || a.seq, 'a row of the trail that tells of an unknown arrow' FROM audit AS a"
        " WHERE a.arrow NOT IN (SELECT id FROM arrows)"
        " UNION ALL "
        "SELECT e.entity_kind || ' ' || e.entity, 'timer ' || e.timer || ' of nobody' FROM timers AS e WHERE"
        " CASE e.entity_kind"
        "  WHEN 'run' THEN NOT EXISTS (SELECT 1 FROM runs WHERE number = CAST(e.entity AS INTEGER))"
        "  WHEN 'worker' THEN NOT EXISTS (SELECT 1 FROM workers WHERE id = e.entity)"
        "  WHEN 'breaker' THEN NOT EXISTS (SELECT 1 FROM breakers WHERE tool = e.entity)"
        "  ELSE NOT EXISTS (SELECT 1 FROM tasks"
        "   WHERE run = CAST(substr(e.entity, 1, instr(e.entity, '/') - 1) AS INTEGER)"
        "   AND number = CAST(substr(e.entity, instr(e.entity, '/') + 1) AS INTEGER)) END",
    ),
    Rule(
        "held_without_hold", "004",
        "something is held and nobody knows for what",
        "SELECT CAST(w.number AS TEXT), 'it is in ' || w.state FROM runs AS w"
        f" WHERE {standing('w', Phase.HELD)}"
        " AND NOT EXISTS (SELECT 1 FROM holds AS h WHERE h.run = w.number AND h.task = 0)"
        " UNION ALL "
        f"SELECT {_TASK}, 'it is in ' || t.state FROM tasks AS t WHERE {standing('t', Phase.HELD)}"
        " AND NOT EXISTS (SELECT 1 FROM holds AS h WHERE h.run = t.run AND h.task = t.number)",
    ),
)  # fmt: skip
