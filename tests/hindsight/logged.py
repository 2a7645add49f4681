"""Lines of the decision log."""

import json

from tests.hindsight import journals
from webhook.decide import match
from webhook.model import job_manifest

RUNS = {"heavy": {"gpu-lq": 32.0}, "light": {"gpu-lq": 20.0, "cpu-lq": 70.0}}


def lines(given, *, runs=RUNS):
    """What the server would have logged of a scenario's Jobs."""
    named = match.named_by(given.policies)
    for submission in given.submissions:
        job = journals.KIND.read(given.manifest(submission))
        options = [
            {"name": queue, "queue": queue, "runs": seconds}
            for queue, seconds in runs.get(submission.template, {}).items()
        ]
        yield json.dumps(
            {
                "ts": journals.BEGAN + submission.at,
                "msg": "decided",
                "operation": "CREATE",
                "dry_run": False,
                "decision": {"options": options},
                "job": job_manifest.manifest(job, submission.template, named),
            }
        )
