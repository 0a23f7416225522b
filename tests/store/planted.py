"""An inconsistency for each rule of `check`. A victim's first column is the entity that is to be named."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plant:
    """A raw change that one rule must notice, and what its evidence speaks of."""

    rule: str
    victim: str
    sql: str
    evidence: str = ""


TASK = "t.run || '/' || t.name"
OPEN_WORK = "x.ended IS NULL AND x.purpose = 'work' AND x.worker IS NOT NULL AND x.fenced = 0"
RUN = "SELECT CAST(w.number AS TEXT), w.number FROM runs AS w WHERE"
OF_TASK = f"SELECT {TASK}, t.run, t.number FROM tasks AS t WHERE"
THIS_RUN = "WHERE number = ?1"
THIS_TASK = "WHERE run = ?1 AND number = ?2"
LIVE = (
    f"SELECT {TASK}, t.run, t.number, x.attempt FROM tasks AS t JOIN attempts AS x"
    f" ON x.run = t.run AND x.task = t.number WHERE {OPEN_WORK}"
)
WORKER = (
    "SELECT 'worker ' || h.worker, h.worker FROM worker_regions AS h WHERE h.machine = 'orchestration.worker'"
)
BREAKER = "SELECT 'breaker ' || b.tool, b.tool FROM breakers AS b WHERE 1"
SUB = (
    "SELECT x.run || '.' || x.task || '.' || x.attempt, x.run, x.task, x.attempt, x.sub_run"
    " FROM attempts AS x WHERE x.sub_run IS NOT NULL"
)
RECOVERY = (
    "FROM recoveries AS c JOIN audit AS a ON a.seq = c.seq LEFT JOIN tasks AS t"
    " ON t.run = a.run AND t.number = a.task WHERE a.name IS NULL AND a.task > 0"
)
NEEDY = (
    f"SELECT {TASK}, t.run, t.number FROM tasks AS t JOIN runs AS w ON w.number = t.run"
    " JOIN workflow_versions AS v ON v.id = w.workflow WHERE w.ended IS NULL AND t.state = 'pending'"
    " AND t.machine = 'orchestration.task'"
    " AND json_array_length(v.plan, '$.tasks[' || (t.number - 1) || '].needs') > 0 AND NOT EXISTS"
    " (SELECT 1 FROM tasks AS o WHERE o.run = t.run AND (o.state = 'completed' OR o.pardon IS NOT NULL))"
)
NEW_TIMER = "INSERT INTO timers VALUES"
GAP = (
    "SELECT {} FROM audit AS a JOIN arrows AS r ON r.id = a.arrow {}"
    " WHERE a.version = 3 AND r.from_state IS NOT NULL"
)

PLANTS = (
    Plant(
        "state_without_history",
        f"{RUN} w.machine = 'execution' AND w.state = 'success'",
        f"UPDATE runs SET state = 'failed' {THIS_RUN}",
        "the trail says success",
    ),
    Plant(
        "state_without_history",
        f"{OF_TASK} t.state = 'COMPLETED'",
        f"UPDATE tasks SET version = version + 5 {THIS_TASK}",
        "the trail says nothing",
    ),
    Plant(
        "state_without_history",
        f"{WORKER} AND h.state = 'shutdown'",
        "UPDATE worker_regions SET state = 'idle' WHERE worker = ?1 AND state = 'shutdown'",
        "shutdown",
    ),
    Plant(
        "state_without_history",
        f"{BREAKER} AND b.state = 'CLOSED'",
        "UPDATE breakers SET state = 'OPEN' WHERE tool = ?1",
        "the trail says CLOSED",
    ),
    Plant(
        "history_with_gap",
        GAP.format(f"{TASK}, a.seq", "JOIN tasks AS t ON t.run = a.run AND t.number = a.task"),
        "UPDATE audit SET version = 77 WHERE seq = ?1",
        "version 77, and nothing took it there",
    ),
    Plant(
        "history_with_gap",
        GAP.format(
            "CASE WHEN r.machine LIKE '%breaker' THEN 'breaker ' ELSE 'worker ' END || a.name, a.seq", ""
        )
        + " AND a.name IS NOT NULL",
        "UPDATE audit SET version = 77 WHERE seq = ?1",
        "nothing took it there",
    ),
    Plant(
        "terminal_state_left",
        f"SELECT {TASK}, a.seq FROM audit AS a JOIN tasks AS t ON t.run = a.run"
        " AND t.number = a.task WHERE t.machine = 'orchestration.task'",
        "UPDATE audit SET arrow = 9999 WHERE seq = ?1; INSERT INTO arrows VALUES"
        " (9999, 'orchestration.task', 'completed', 'again', 'running', 'retired', NULL)",
        "from completed to running by again",
    ),
    Plant(
        "success_with_failed_tasks",
        "SELECT CAST(t.run AS TEXT), t.run, t.number FROM tasks AS t JOIN runs AS w ON w.number = t.run"
        " WHERE lower(w.state) IN ('success', 's_success', 'completed') AND t.pardon IS NULL",
        "UPDATE tasks SET state = CASE machine WHEN 'toolchain.task' THEN 'CANCELLED'"
        f" WHEN 'pipeline.step' THEN 'S_FAILED' ELSE 'failed' END {THIS_TASK}",
        " is in ",
    ),
    Plant(
        "terminal_with_timers",
        f"{RUN} w.ended IS NOT NULL",
        f"{NEW_TIMER} ('run', CAST(?1 AS TEXT), 'timeout', 5)",
        "timer timeout is due at 1970-01-01T00:00:00.000005Z",
    ),
    Plant(
        "terminal_with_timers",
        f"{OF_TASK} t.ended IS NOT NULL",
        f"{NEW_TIMER} ('task', ?1 || '/' || ?2, 'retry', 5)",
        "timer retry",
    ),
    Plant(
        "terminal_with_timers",
        f"{WORKER} AND h.state = 'shutdown'",
        f"{NEW_TIMER} ('worker', ?1, 'give_up', 5)",
    ),
    Plant(
        "over_with_open_attempts",
        f"{RUN} w.ended IS NOT NULL AND EXISTS (SELECT 1 FROM attempts AS x WHERE x.run = w.number)",
        "UPDATE attempts SET ended = NULL, outcome = NULL, fenced = 0 WHERE run = ?1",
    ),
    Plant(
        "over_with_open_attempts",
        f"{OF_TASK} t.ended IS NOT NULL AND EXISTS (SELECT 1 FROM attempts AS x"
        " WHERE x.run = t.run AND x.task = t.number)",
        "UPDATE attempts SET ended = NULL, outcome = NULL, fenced = 0 WHERE run = ?1 AND task = ?2",
        "is open",
    ),
    Plant(
        "worker_outside_running",
        f"{LIVE} AND t.machine = 'toolchain.task'",
        f"UPDATE tasks SET state = 'RETRYING' {THIS_TASK}",
        "it is in RETRYING and attempt",
    ),
    Plant(
        "two_live_attempts",
        LIVE,
        "INSERT INTO attempts (run, task, attempt, purpose, round, sent)"
        " VALUES (?1, ?2, ?3 + 1, 'work', 0, 1)",
        "2 attempts are open",
    ),
    Plant(
        "times_out_of_order",
        f"{RUN} w.started IS NOT NULL",
        f"UPDATE runs SET started = created - 1 {THIS_RUN}",
    ),
    Plant(
        "times_out_of_order",
        f"{OF_TASK} t.ended IS NOT NULL AND t.started > t.created",
        f"UPDATE tasks SET ended = started - 1 {THIS_TASK}",
    ),
    Plant("times_out_of_order", f"{OF_TASK} 1", f"UPDATE tasks SET entered = updated + 1 {THIS_TASK}"),
    Plant(
        "times_out_of_order",
        "SELECT x.run || '.' || x.task || '.' || x.attempt, x.run, x.task, x.attempt"
        " FROM attempts AS x WHERE x.purpose = 'work' AND x.started IS NOT NULL",
        "UPDATE attempts SET started = sent - 1 WHERE run = ?1 AND task = ?2 AND attempt = ?3",
        "sent",
    ),
    Plant("times_out_of_order", WORKER, "UPDATE worker_regions SET entered = updated + 1 WHERE worker = ?1"),
    Plant("times_out_of_order", BREAKER, "UPDATE breakers SET entered = updated + 1 WHERE tool = ?1"),
    Plant(
        "ended_and_not_over",
        f"{RUN} w.ended IS NOT NULL",
        f"UPDATE runs SET ended = NULL {THIS_RUN}",
        "ended never",
    ),
    Plant("ended_and_not_over", f"{RUN} w.ended IS NULL", f"UPDATE runs SET ended = updated {THIS_RUN}"),
    Plant(
        "ended_and_not_over", f"{OF_TASK} t.ended IS NOT NULL", f"UPDATE tasks SET ended = NULL {THIS_TASK}"
    ),
    Plant(
        "ended_and_not_over", f"{OF_TASK} t.ended IS NULL", f"UPDATE tasks SET ended = updated {THIS_TASK}"
    ),
    Plant(
        "at_work_and_never_started",
        f"{RUN} w.state = 'running'",
        f"UPDATE runs SET started = NULL {THIS_RUN}",
    ),
    Plant(
        "at_work_and_never_started",
        f"{OF_TASK} t.state = 'IN_PROGRESS'",
        f"UPDATE tasks SET started = NULL {THIS_TASK}",
        "it is in IN_PROGRESS",
    ),
    Plant(
        "rests_in_a_moment",
        f"{OF_TASK} t.machine = 'toolchain.task'",
        f"UPDATE tasks SET state = 'TIMEOUT' {THIS_TASK}",
        "it is in TIMEOUT",
    ),
    Plant(
        "open_attempt_of_nobody",
        LIVE.replace(TASK, "x.run || '.' || x.task || '.' || x.attempt"),
        f"UPDATE tasks SET live = NULL {THIS_TASK}",
        "its entity has live none",
    ),
    Plant(
        "live_attempt_missing",
        f"{OF_TASK} t.live IS NULL AND t.ended IS NOT NULL",
        f"UPDATE tasks SET live = '1.1.1' {THIS_TASK}",
        "live 1.1.1",
    ),
    Plant(
        "live_attempt_missing", f"{RUN} w.live IS NULL", f"UPDATE runs SET live = '1.0.1+check1' {THIS_RUN}"
    ),
    Plant(
        "worker_over_capacity",
        f"SELECT 'worker ' || x.worker, x.worker FROM attempts AS x WHERE {OPEN_WORK}",
        "UPDATE workers SET slots = 0 WHERE id = ?1",
        "in 0 slots",
    ),
    Plant(
        "worker_busy_or_idle",
        f"{WORKER} AND h.state = 'busy'",
        "UPDATE attempts SET worker = NULL WHERE worker = ?1",
        "it is busy with 0 attempts",
    ),
    Plant(
        "worker_busy_or_idle",
        f"{WORKER} AND h.state = 'busy'",
        "UPDATE worker_regions SET state = 'idle' WHERE worker = ?1 AND state = 'busy'",
        "it is idle with",
    ),
    Plant(
        "worker_gone_with_attempts",
        f"{WORKER} AND h.state = 'busy'",
        "UPDATE worker_regions SET state = 'shutdown' WHERE worker = ?1 AND state = 'busy';"
        " UPDATE attempts SET doubt = 0 WHERE worker = ?1",
        "it is in shutdown, and",
    ),
    Plant(
        "worker_regions_disagree",
        f"{WORKER} AND h.state = 'shutdown'",
        "UPDATE worker_regions SET state = 'RUNNING' WHERE worker = ?1 AND machine = 'supervision.worker'",
        "it is in shutdown and in RUNNING",
    ),
    Plant(
        "probe_of_a_breaker_that_is_not_half_open",
        f"{BREAKER} AND b.state = 'CLOSED'",
        "UPDATE breakers SET probe = '1.1.1' WHERE tool = ?1",
        "1.1.1 is its probe",
    ),
    Plant(
        "depth_differs",
        f"{RUN} w.parent_run IS NULL",
        f"UPDATE runs SET depth = 3 {THIS_RUN}",
        "its depth is 3",
    ),
    Plant(
        "depth_differs",
        f"{RUN} w.parent_run IS NOT NULL",
        f"UPDATE runs SET depth = 0 {THIS_RUN}",
        "that of run",
    ),
    Plant(
        "sub_run_differs", SUB, "UPDATE runs SET parent_task = 99 WHERE number = ?4", "does not belong to it"
    ),
    Plant(
        "sub_run_differs",
        f"{SUB} AND x.ended IS NOT NULL",
        "UPDATE attempts SET ended = NULL, outcome = NULL WHERE run = ?1 AND task = ?2 AND attempt = ?3",
        "is over",
    ),
    Plant(
        "recovery_without_record", f"SELECT {TASK}, c.seq {RECOVERY}", "DELETE FROM recoveries WHERE seq = ?1"
    ),
    Plant(
        "record_without_history",
        f"SELECT 'row ' || c.seq, c.seq {RECOVERY}",
        "UPDATE recoveries SET actor = 'mallory' WHERE seq = ?1",
        "by mallory",
    ),
    Plant(
        "record_without_history",
        f"SELECT 'row ' || c.seq, c.seq {RECOVERY}",
        "UPDATE recoveries SET evidence = '{}' WHERE seq = ?1",
    ),
    Plant(
        "record_without_history",
        "SELECT 'row ' || d.seq, d.seq FROM decisions AS d",
        "UPDATE decisions SET actor = 'mallory' WHERE seq = ?1",
        "mallory has",
    ),
    Plant(
        "record_without_history",
        "SELECT 'row ' || d.seq, d.seq FROM decisions AS d WHERE d.verdict = 'approved'",
        "UPDATE decisions SET verdict = 'rejected' WHERE seq = ?1",
        "rejected",
    ),
    Plant("orphan", f"{OF_TASK} 1", "DELETE FROM runs WHERE number = ?1", "a task without its run"),
    Plant("orphan", f"{RUN} 1", "DELETE FROM tasks WHERE run = ?1 AND number = 1", "are there"),
    Plant(
        "orphan",
        f"{RUN} 1",
        f"DELETE FROM workflow_versions WHERE id = (SELECT workflow FROM runs {THIS_RUN})",
        "without its workflow version",
    ),
    Plant(
        "orphan",
        f"{RUN} w.parent_run IS NOT NULL",
        f"UPDATE runs SET parent_run = 999 {THIS_RUN}",
        "its parent 999",
    ),
    Plant("orphan", f"{RUN} 1", f"UPDATE runs SET resumed_by = 999 {THIS_RUN}", "resumed by run 999"),
    Plant("orphan", f"{RUN} 1", f"UPDATE runs SET origin_run = 999 {THIS_RUN}", "its origin 999"),
    Plant(
        "orphan",
        "SELECT x.run || '.99.1', x.run FROM attempts AS x",
        "INSERT INTO attempts (run, task, attempt,"
        " purpose, round, sent, fenced) VALUES (?1, 99, 1, 'work', 0, 1, 1)",
        "an attempt without its task",
    ),
    Plant(
        "orphan",
        "SELECT x.run || '.1.99', x.run FROM attempts AS x",
        "INSERT INTO check_results VALUES (?1, 1, 99, 'check', 1, 1, 'lint', 1, 1, 0, NULL)",
        "check lint of no attempt",
    ),
    Plant(
        "orphan",
        WORKER,
        "DELETE FROM worker_regions WHERE worker = ?1 AND machine = 'supervision.worker'",
        "a worker with 1 regions",
    ),
    Plant("orphan", "SELECT 'row 5', 5", "UPDATE audit SET arrow = 9999 WHERE seq = ?1", "unknown arrow"),
    Plant("orphan", "SELECT 'run 999'", f"{NEW_TIMER} ('run', '999', 'timeout', 5)", "of nobody"),
    Plant("orphan", "SELECT 'task 1/999'", f"{NEW_TIMER} ('task', '1/999', 'retry', 5)", "of nobody"),
    Plant("orphan", "SELECT 'worker x'", f"{NEW_TIMER} ('worker', 'x', 'give_up', 5)", "of nobody"),
    Plant("orphan", "SELECT 'breaker x'", f"{NEW_TIMER} ('breaker', 'x', 'cooldown', 5)", "of nobody"),
    Plant(
        "held_without_hold",
        f"{RUN} w.state = 'held'",
        "DELETE FROM holds WHERE run = ?1 AND task = 0",
        "held",
    ),
    Plant(
        "held_without_hold", f"{OF_TASK} t.state = 'held'", "DELETE FROM holds WHERE run = ?1 AND task = ?2"
    ),
    Plant(
        "cannot_be_read",
        "SELECT 'store', w.number FROM runs AS w WHERE w.ended IS NULL",
        f"UPDATE runs SET params = 'nonsense' {THIS_RUN}",
        "JSONDecodeError",
    ),
    Plant(
        "cannot_be_read",
        "SELECT 'store', t.run, t.number FROM tasks AS t JOIN runs AS w ON w.number = t.run"
        " WHERE w.ended IS NULL",
        f"UPDATE tasks SET pardon = 'because' {THIS_TASK}",
        "because",
    ),
    Plant(
        "derived_state_differs",
        f"{RUN} w.machine = 'orchestration.workstream' AND w.state = 'executing'"
        " AND w.ending IS NULL AND EXISTS (SELECT 1 FROM workflow_versions AS v WHERE v.id = w.workflow"
        " AND json_extract(v.plan, '$.on_failure') IS NOT 'continue')",
        f"UPDATE runs SET state = 'planned' {THIS_RUN}",
        "it is planned, and its tasks say",
    ),
    Plant(
        "queued_before_its_needs",
        NEEDY,
        f"UPDATE tasks SET state = 'queued' {THIS_TASK}",
        "of its needs are not met",
    ),
    Plant(
        "too_many_retries",
        f"{OF_TASK} EXISTS (SELECT 1 FROM runs AS w JOIN workflow_versions AS v"
        " ON v.id = w.workflow WHERE w.number = t.run AND json_extract(v.plan,"
        " '$.tasks[' || (t.number - 1) || '].retry.max_attempts') IS NOT NULL)",
        f"UPDATE tasks SET retries = 50 {THIS_TASK}",
        "it was retried 50 times",
    ),
    Plant(
        "workflow_edited",
        "SELECT 'workflow ' || v.name, v.id FROM workflow_versions AS v",
        "UPDATE workflow_versions SET plan = replace(plan, '\"tasks\"', '\"taskS\"') WHERE id = ?1",
        "not the one",
    ),
    Plant(
        "workflow_edited",
        "SELECT 'workflow mine', v.id FROM workflow_versions AS v",
        "UPDATE workflow_versions SET name = 'mine' WHERE id = ?1",
    ),
    Plant("interlock_altered", "SELECT 'store'", "DROP VIEW history", "triggers, views or arrows"),
    Plant(
        "interlock_altered",
        "SELECT 'store'",
        "UPDATE arrows SET kind = 'normal' WHERE kind = 'recovery'",
        "triggers, views or arrows",
    ),
    Plant(
        "interlock_altered",
        "SELECT 'store', r.id FROM arrows AS r WHERE r.kind = 'fact'",
        "UPDATE arrows SET kind = 'retired' WHERE id = ?1",
        "is stored as retired",
    ),
    Plant(
        "record_differs_from_history",
        f"{OF_TASK} t.retries > 0",
        f"UPDATE tasks SET retries = 0 {THIS_TASK}",
        "retries is 0, and the trail tells",
    ),
    Plant(
        "record_differs_from_history",
        f"{OF_TASK} EXISTS (SELECT 1 FROM holds AS h WHERE h.run = t.run"
        " AND h.task = t.number AND h.met = 0)",
        "UPDATE holds SET met = 1 WHERE run = ?1 AND task = ?2",
        "hold: met is 1",
    ),
    Plant(
        "record_differs_from_history",
        f"{RUN} EXISTS (SELECT 1 FROM decisions AS d JOIN holds AS h ON h.run = d.run"
        " AND h.task = d.task WHERE d.run = w.number AND d.task = 0 AND d.verdict = 'approved')",
        "DELETE FROM decisions WHERE run = ?1 AND task = 0",
        "hold: votes is []",
    ),
    Plant("record_differs_from_history", f"{RUN} 1", "DELETE FROM runs WHERE number = ?1", "it is not there"),
    Plant(
        "record_differs_from_history",
        WORKER,
        "UPDATE workers SET workspace = 'elsewhere' WHERE id = ?1",
        "workspace is elsewhere",
    ),
    Plant(
        "record_differs_from_history", BREAKER, "UPDATE breakers SET failures = failures + 1 WHERE tool = ?1"
    ),
    Plant(
        "record_differs_from_history",
        "SELECT x.run || '.' || x.task || '.' || x.attempt, x.run, x.task, x.attempt"
        " FROM attempts AS x WHERE x.ended IS NOT NULL AND x.purpose = 'work'",
        "UPDATE attempts SET outcome = 'better' WHERE run = ?1 AND task = ?2 AND attempt = ?3",
        "outcome is better",
    ),
    Plant(
        "record_differs_from_history",
        f"SELECT {TASK}, a.seq FROM audit AS a JOIN tasks AS t ON t.run = a.run AND t.number = a.task",
        "UPDATE audit SET metadata = 'nonsense' WHERE seq = ?1",
        "cannot be read",
    ),
)
