"""`interlock metrics`: document 002's figures, as Prometheus reads them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from console import output
from console.stores import Json, StoreOption, usable
from console.text import visible

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from engine.store.metrics import Metrics


def metrics(*, store: StoreOption = None, json: Json = False) -> None:
    """Count transitions by state pair, time in state, refused transitions and repeated requests.

    Parameters
    ----------
    json
        As JSON, for scripts; without it as Prometheus text.
    """
    from engine.store.files import Place
    from engine.store.metrics import measure

    with usable():
        found = measure(Place.of(store))
    if json:
        from dataclasses import asdict
        from json import dumps

        output.write(dumps({**asdict(found), "hit_rate": found.hit_rate}, indent=2) + "\n")
    else:
        output.write(_prometheus(found))


def _prometheus(found: "Metrics") -> str:
    from prometheus_client import CollectorRegistry, generate_latest

    class Collector:
        def collect(self) -> Iterator["Metric"]:
            yield from _families(found)

    registry = CollectorRegistry()
    registry.register(Collector())
    return generate_latest(registry).decode()


def _families(found: "Metrics") -> Iterator["Metric"]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    from engine.store.metrics import BUCKETS

    moves = CounterMetricFamily(
        "interlock_transitions", "Transitions by state pair", labels=["machine", "from", "to", "event"]
    )
    for pair in found.pairs:
        moves.add_metric([pair.machine, pair.from_state, pair.to_state, pair.event], pair.count)
    yield moves
    stays = HistogramMetricFamily(
        "interlock_time_in_state_seconds", "Time spent in a state that was left", labels=["machine", "state"]
    )
    for time in found.times:
        within = [(str(bound), float(count)) for bound, count in zip(BUCKETS, time.buckets, strict=True)]
        stays.add_metric([time.machine, time.state], [*within, ("+Inf", float(time.count))], time.seconds)
    yield stays
    now = GaugeMetricFamily("interlock_entities", "Entities in a state now", labels=["machine", "state"])
    for machine, state, count in found.standing:
        now.add_metric([machine, state], count)
    yield now
    refused = CounterMetricFamily(
        "interlock_refused_transitions", "Moves that no document has", labels=["machine", "state", "event"]
    )
    for one in found.refused:
        refused.add_metric([visible(one.machine), visible(one.state), visible(one.event)], one.count)
    yield refused
    requests = CounterMetricFamily(
        "interlock_idempotency_requests", "Requests with an id, by whether they came again", labels=["result"]
    )
    requests.add_metric(["hit"], found.hits)
    requests.add_metric(["miss"], found.misses)
    yield requests
    rate = GaugeMetricFamily("interlock_idempotency_hit_rate", "Repeated requests among those with an id")
    rate.add_metric([], found.hit_rate)
    yield rate
    tools = CounterMetricFamily("interlock_tool_invocations", "Executions of a tool", labels=["tool"])
    for tool, count in found.invocations:
        tools.add_metric([visible(tool)], count)
    yield tools
    rows = CounterMetricFamily("interlock_audit_rows", "Rows of the audit trail")
    rows.add_metric([], found.rows)
    yield rows
