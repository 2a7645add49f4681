"""A scripted API server: each call is answered by the next line of a script."""

from webhook.api.resources import Resource
from webhook.api.watch import Follower
from webhook.state.readers import read_by_kind

NAMESPACES = Resource(kind="namespaces", path="/api/v1/namespaces", read=read_by_kind)
COHORTS = Resource(kind="cohorts", path="/apis/kueue.x-k8s.io/{kueue}/cohorts", read=read_by_kind)


class Script:
    """A transport, a clock that sleeping moves on, and a record of all that was asked."""

    def __init__(self, *answers, version="v1beta2"):
        self.answers = list(answers)
        self.version = version
        self.asked, self.slept, self.messages, self.forgotten = [], [], [], 0
        self.now = 100.0

    def get(self, path, params=None):
        return self.answer(("list", path, dict(params or {})))

    def watch(self, path, params, *, read_seconds):
        events = self.answer(("watch", path, {**params, "read_seconds": read_seconds}))
        return self.play(events)

    def play(self, events):
        for event in events:
            if isinstance(event, Exception):
                raise event
            if isinstance(event, float):
                self.now += event
            else:
                yield event

    def answer(self, call):
        self.asked.append(call)
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def kueue_version(self):
        return self.version

    def forget_versions(self):
        self.forgotten += 1

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds

    def follow(self, resource=NAMESPACES):
        return Follower(
            resource,
            self,
            self.messages.append,
            clock=lambda: self.now,
            sleep=self.sleep,
            uniform=lambda low, high: high,
        )

    def steps(self, count, resource=NAMESPACES):
        follower = self.follow(resource)
        for _ in range(count):
            follower.step()
        assert self.answers == []
        return self

    def kinds_of_calls(self):
        return [call[0] for call in self.asked]
