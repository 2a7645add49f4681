"""A Job that says hello."""

from hack import paper


def hello_policy(names):
    policy = paper.policy(names)
    selector = policy["spec"]["match"]["namespaceSelector"]
    policy["spec"]["match"] = {"namespaceSelector": selector, "jobSelector": {}, "queues": [""]}
    policy["spec"]["options"] = [{"name": "cpu", "queue": names.cpu_queue}]
    policy["spec"]["strategy"] = {
        "type": "Threshold",
        "threshold": [{"option": "cpu", "orPendingBelow": 5}],
    }
    return policy
