"""A server that signs what it decides, by a policy whose option changes all that options change."""

import json

from tests.builders import policy
from tests.servers import Server, paper_snapshot
from webhook.model.job import DECISION
from webhook.model.signatures import SigningKey, SigningKeys
from webhook.state.snapshot import updated

KEYS = SigningKeys(keys=(SigningKey(id="a", made=1, secret=b"1" * 32),), signing="a", since=1)


def server(keys=KEYS, **state):
    options = (
        {"name": "gpu", "queue": "gpu-lq"},
        {
            "name": "cpu",
            "queue": "cpu-lq",
            "adaptation": {
                "accelerator": "Remove",
                "image": "stable-diffusion-cpu:1",
                "env": {"RUN_ENV": "cpu"},
                "perRemoved": {"cpu": "8000m"},
            },
        },
    )
    snapshot = paper_snapshot(**state)
    spec = snapshot.fallback.policies[0].spec.model_copy(
        update={"options": policy(*options).spec.options}
    )
    ours = (snapshot.fallback.policies[0].model_copy(update={"spec": spec}),)
    return Server(updated(snapshot, signing=keys, policies=ours))


def main_of(job):
    return job["spec"]["template"]["spec"]["containers"][0]


def decision_of(job):
    return json.loads(job["metadata"]["annotations"][DECISION])
