"""What of a running daemon its metrics look at.  Spec: ``docs/thick.md``, "Metrics"."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from multus.adapters.event_queue import EventQueue
    from multus.adapters.kube_cache import KubeCache
    from multus.adapters.metrics import Metrics
    from multus.adapters.work_queue import WorkQueue
    from multus.core.intents import Replay


def watch(metrics: Metrics, queue: WorkQueue, cache: KubeCache, events: EventQueue, replay: Replay) -> None:
    """Show lengths, sizes and ages from now on; each is asked for when somebody looks."""
    metrics.watch("multus_queue_length", "Requests that wait for their turn", lambda: queue.lengths()[0])
    metrics.watch("multus_requests_running", "Requests that are served now", lambda: queue.lengths()[1])
    metrics.watch("multus_delegates_overdue", "In-process delegates that run for longer than delegateTimeout", queue.overdue)
    metrics.watch("multus_pending_intents", "DELs that shims left and that are not done yet", replay.pending)
    metrics.watch("multus_events_dropped", "Events that could not be sent", events.dropped)
    names = cache.sizes().keys()
    sizes, ages = ({name: _item(values, name) for name in names} for values in (cache.sizes, cache.ages))
    metrics.watch_each("multus_cache_objects", "Objects in a cache", "cache", sizes)
    metrics.watch_each("multus_cache_age_seconds", "Since a cache last heard of the API server", "cache", ages)


def _item(values: Callable[[], Mapping[str, float]], name: str) -> Callable[[], float]:
    return lambda: values()[name]
