"""A day of Jobs, as large as they come: names and decisions that hardly compress."""

import json
import random
from datetime import UTC, datetime

from tests.controller.journals import ENDED, TEMPLATE, past
from webhook.api.watch import WatchUpdate
from webhook.controller import unreviewed
from webhook.decide.decision_record import VERSION
from webhook.jobs import JOB
from webhook.model.job import DECISION, OPTION_LABEL, QUEUE_LABEL, REASON

JOBS = unreviewed.followed(JOB)
TEMPLATES = 200
"""Different ones, each of a team's own making."""


class Day:
    """*jobs* Jobs that end one after the other within *seconds* before ENDED."""

    def __init__(self, jobs, seconds=86_000):
        self.jobs, self.seconds = jobs, seconds
        self._draw = random.Random(1)

    def finished(self, number):
        return ENDED - self.seconds + number * self.seconds // self.jobs

    def known(self, number):
        """What the follower of Jobs tells of one."""
        return WatchUpdate(
            kind="jobs",
            at=0.0,
            event=("ADDED", JOBS.read("jobs", {"metadata": self._metadata(number)})),
        )

    def past(self, number):
        spec = {**TEMPLATE["spec"], "nodeSelector": {"pool": f"{number % TEMPLATES}"}}
        return past(
            f"w-{self._hex(32)}",
            finished=self.finished(number),
            job_uid=f"{number:036x}",
            job=f"train-{number % TEMPLATES}-{number:05x}",
            job_class=f"{number % TEMPLATES:016x}",
            coarse=f"~{number % TEMPLATES:016x}",
            pod_sets=json.dumps([{"name": "main", "count": 1, "template": {"spec": spec}}]),
        )

    def _metadata(self, number):
        created = datetime.fromtimestamp(self.finished(number) - 100, UTC)
        time = created.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "name": f"train-{number % TEMPLATES}-{number:05x}",
            "namespace": "team",
            "uid": f"{number:036x}",
            "creationTimestamp": time,
            "labels": {
                QUEUE_LABEL: "gpu-lq",
                OPTION_LABEL: "gpu",
                "example.org/run": self._hex(16),
            },
            "annotations": {DECISION: self._decision(time), REASON: self._hex(80)},
        }

    def _decision(self, time):
        options = [
            {
                "name": name,
                "queue": f"{name}-lq",
                "pending": self._draw.randrange(5000),
                "startsIn": self._seconds(),
                "runs": self._seconds(),
                "finishesIn": self._seconds(),
            }
            for name in ("gpu", "cpu", "spot", "elsewhere")
        ]
        found = {
            "version": VERSION,
            "id": self._hex(16),
            "time": time,
            "policy": "light-gpu",
            "mode": "Enforce",
        }
        found |= {"option": "gpu", "reason": self._hex(80), "options": options}
        found |= {"from": {"queue": "gpu-lq"}, "stateAge": 0.1, "original": {}}
        return json.dumps(found)

    def _seconds(self):
        return round(self._draw.uniform(0, 5000), 1)

    def _hex(self, characters):
        return f"{self._draw.getrandbits(4 * characters):0{characters}x}"
