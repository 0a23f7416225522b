"""What can be derived, as views: the documents' tables under the documents' names, and the trail in words.

They are made anew with the interlock, so that a view never outlives the tables that it reads.
"""

_LAST = (
    "SELECT r.from_state FROM audit AS a JOIN arrows AS r ON r.id = a.arrow"
    " WHERE a.run = {run} AND a.task = {task} AND a.version = {row}.version AND r.to_state IS NOT NULL"
    " ORDER BY a.seq DESC LIMIT 1"
)
_FAILED = (
    "SELECT max(a.at) FROM audit AS a JOIN arrows AS r ON r.id = a.arrow"
    " WHERE a.run = {run} AND a.task = {task} AND r.to_phase IN ('failed', 'failing')"
)
_SPENT = (
    "SELECT sum(x.ended - x.started) / 1000 FROM attempts AS x"
    " WHERE x.run = t.run AND x.task = t.number AND x.purpose = '{purpose}' AND x.ended IS NOT NULL"
)

HISTORY = """CREATE VIEW history AS
SELECT a.seq, a.at,
  CASE WHEN a.name IS NULL THEN CASE WHEN a.task = 0 THEN 'run' ELSE 'task' END
       WHEN r.machine = 'pipeline.breaker' THEN 'breaker' ELSE 'worker' END AS entity_kind,
  CASE WHEN a.name IS NOT NULL THEN a.name WHEN a.task = 0 THEN CAST(a.run AS TEXT)
       ELSE a.run || '/' || coalesce(
         (SELECT t.name FROM tasks AS t WHERE t.run = a.run AND t.number = a.task), a.task)
  END AS entity_id,
  r.machine, a.version, r.from_state, r.event, r.to_state, r.kind, a.actor, a.source, a.reason,
  a.request_id, a.cause, a.since, a.metadata
FROM audit AS a JOIN arrows AS r ON r.id = a.arrow"""

TASK_STATES = f"""CREATE VIEW task_states AS
SELECT t.run || '/' || t.name AS task_id, t.run AS workstream_id, t.machine, t.state,
  ({_LAST.format(run="t.run", task="t.number", row="t")}) AS previous_state,
  t.attempt AS attempt_count,
  t.created AS created_at, t.started AS started_at, t.ended AS completed_at,
  ({_FAILED.format(run="t.run", task="t.number")}) AS failed_at, t.updated AS updated_at,
  t.error AS last_error, t.failures AS error_count,
  CASE t.state WHEN 'CIRCUIT_OPEN' THEN 'OPEN' WHEN 'HALF_OPEN' THEN 'HALF_OPEN' ELSE 'CLOSED' END
    AS circuit_state,
  ({_SPENT.format(purpose="work")}) AS execution_duration_ms,
  ({_SPENT.format(purpose="check")}) AS validation_duration_ms,
  (coalesce(t.ended, t.updated) - t.started) / 1000 AS total_duration_ms,
  (SELECT x.output_size FROM attempts AS x WHERE x.run = t.run AND x.task = t.number
     AND x.purpose = 'work' AND x.output_size IS NOT NULL ORDER BY x.attempt DESC LIMIT 1)
    AS output_size_bytes,
  t.exit_code,
  (SELECT x.worker FROM attempts AS x WHERE x.run = t.run AND x.task = t.number AND x.ended IS NULL
     AND x.purpose = 'work' AND x.fenced = 0 ORDER BY x.attempt DESC LIMIT 1) AS worker_id
FROM tasks AS t"""

JOBS = f"""CREATE VIEW jobs AS
SELECT j.number AS id, j.parent_run AS parent_job_id, j.depth, j.machine, j.state AS status,
  ({_LAST.format(run="j.number", task="0", row="j")}) AS previous_state,
  j.worker_count, j.created AS created_at, j.started AS started_at, j.ended AS completed_at,
  ({_FAILED.format(run="j.number", task="0")}) AS failed_at, j.updated AS updated_at,
  j.task_description,
  (SELECT coalesce(max(t.retries), 0) FROM tasks AS t WHERE t.run = j.number AND t.pardon IS NULL
     AND EXISTS (SELECT 1 FROM arrows AS r WHERE r.machine = t.machine AND r.to_state = t.state
       AND r.to_phase IN ('failed', 'failing', 'backoff', 'parked'))) AS retry_count
FROM runs AS j"""

STATE_TRANSITIONS = """CREATE VIEW state_transitions AS
SELECT seq AS transition_id, entity_kind, entity_id, machine, from_state, to_state, event AS trigger,
  at AS transitioned_at, reason, metadata
FROM history WHERE to_state IS NOT NULL"""

WORKER_STATES = """CREATE VIEW worker_states AS
SELECT w.id, w.workspace AS workspace_id, h.state AS health, c.state AS status, w.created AS created_at,
  max(w.updated, h.updated, c.updated) AS updated_at, w.metadata
FROM workers AS w
JOIN worker_regions AS h ON h.worker = w.id AND h.machine = 'orchestration.worker'
JOIN worker_regions AS c ON c.worker = w.id AND c.machine = 'supervision.worker'"""

TOOL_INVOCATIONS = """CREATE VIEW tool_invocations AS
SELECT tool, count(*) AS invocations FROM attempts INDEXED BY attempts_tool
WHERE tool IS NOT NULL AND purpose = 'work' GROUP BY tool"""


def views() -> dict[str, str]:
    """Every view by its name; one may read those before it."""
    made = (HISTORY, TASK_STATES, JOBS, STATE_TRANSITIONS, WORKER_STATES, TOOL_INVOCATIONS)
    return {sql.split(maxsplit=3)[2]: sql for sql in made}
