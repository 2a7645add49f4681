"""Who else scales a service: what is kept of HorizontalPodAutoscalers."""

from tests.state.feeds import RESOURCES
from webhook.api import resources as kinds
from webhook.model.costs.service import Autoscaler
from webhook.state.readers import READERS
from webhook.state.watched import autoscalers


def source(**changes):
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"}
    metadata = {"name": "chat-hpa", "namespace": "research", **changes}
    return {"metadata": metadata, "spec": {"scaleTargetRef": target, "maxReplicas": 8}}


def test_only_its_target_and_its_bounds_are_kept():
    read = READERS[kinds.AUTOSCALERS](source())

    assert read == ("deployment/chat", Autoscaler(name="chat-hpa", least=1, most=8))


def test_one_of_our_own_owns_no_replicas():
    ours = {"kueue-fallback.dev/autoscaled-by": "serving"}

    assert READERS[kinds.AUTOSCALERS](source(annotations=ours)) is None


def test_they_are_watched_only_where_services_are_decided():
    assert kinds.AUTOSCALERS not in {each.kind for each in RESOURCES}
    assert (autoscalers().kind, autoscalers().required) == (kinds.AUTOSCALERS, False)
