"""A controller with its elector and followers played."""

from functools import partial

from webhook.api.lease import Leadership
from webhook.controller import look_back_process
from webhook.controller.controller import Controller


class Elector:
    """Leads in the term that a test says; the thread that asks has nothing to do."""

    heard_at = float("-inf")
    trouble = ""

    def __init__(self):
        self.said = 0
        self.steps = 0

    def term(self):
        return self.said

    def step(self):
        self.steps += 1
        return 60.0

    def resign(self):
        self.said = 0


class AtOnce:
    """A thread that has run when it is started."""

    def __init__(self, *, target, **_):
        self.start = target


class Followed(Controller):
    """Its watches are the messages of a test, and it looks back in the test's process."""

    def __init__(self, settings, client, *, elector, log, **rest):
        looking_back = partial(look_back_process.saved, transport=client)
        super().__init__(settings, client, elector=elector, log=log, look_back=looking_back, **rest)
        # Without chance: that of another thread disturbs tests that draw.
        self.leadership = Leadership(
            elector, on_change=lambda: self.put(None), log=log, uniform=max
        )

    def has_messages(self):
        return not self._messages.empty()

    def _follow(self, resource, client):
        pass
