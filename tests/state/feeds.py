"""Feeds that have read a small cluster."""

from webhook.api.watch import WatchUpdate
from webhook.state.feed import Feed
from webhook.state.readers import read_by_kind
from webhook.state.watched import watched

RESOURCES = watched(namespace="ours", kueue_namespace="kueue-system")


REQUIRED = [resource.kind for resource in RESOURCES if resource.required or resource.awaited]


def listed(kind, *objects, at=1.0):
    return WatchUpdate(
        kind=kind, at=at, entries=tuple(read_by_kind(kind, source) for source in objects)
    )


def changed(kind, event_type, source, at=2.0):
    return WatchUpdate(kind=kind, at=at, event=(event_type, read_by_kind(kind, source)))


def synced_feed(**objects):
    feed = Feed(RESOURCES, now=0.0)
    for kind in REQUIRED:
        feed.take(listed(kind, *objects.get(kind, ())))
    return feed
