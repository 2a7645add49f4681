"""The server's side of claims: what it knows of groups of pods, and its questions to the observer.

An answer is waited for, as the pod under review must not be admitted without it; how long is
bounded, and after a question without an answer in time none is asked for some seconds.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from webhook.model.pod_groups import GroupAgreed, GroupAsked, GroupClaim

_KNOWN_SECONDS = 30.0
_MOST_KNOWN = 4096
_MOST_ASKED = 64
_PAUSE_SECONDS = 2.0


class NotAgreedError(Exception):
    """What all pods of a group follow is not known, so this one must not be admitted now."""


class PodGroups:
    """Claims that were agreed lately, and the way to agree on new ones."""

    def __init__(
        self,
        ask: Callable[[GroupAsked], None],
        *,
        wait_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._wait_seconds = wait_seconds
        self._known: OrderedDict[tuple[str, str], tuple[GroupClaim, float]] = OrderedDict()
        self._changed = threading.Condition()
        self._asked: OrderedDict[int, GroupAsked] = OrderedDict()
        """Questions without an answer so far."""
        self._answers: dict[int, GroupAgreed] = {}
        self._number = 0
        self._paused_until = 0.0

    def known(self, namespace: str, group: str, unix: float) -> GroupClaim | None:
        """Return a claim that was agreed lately and is young; None: ask for it."""
        with self._changed:
            claim, until = self._known.get((namespace, group), (None, 0.0))
        if claim is None or self._clock() > until or unix - claim.unix > _KNOWN_SECONDS:
            return None
        return claim

    def agree(
        self, namespace: str, group: str, claim: GroupClaim, *, dry_run: bool = False
    ) -> GroupClaim:
        """Return the claim that counts: *claim*, or the one that was there before.

        Raises:
            NotAgreedError: there is no answer in time, or the API server refuses.

        """
        if self._clock() < self._paused_until:
            raise NotAgreedError("the last question of this kind had no answer in time")
        self._number += 1
        asked = GroupAsked(
            number=self._number, namespace=namespace, group=group, claim=claim, dry_run=dry_run
        )
        with self._changed:
            self._asked[asked.number] = asked
            while len(self._asked) > _MOST_ASKED:
                self._asked.popitem(last=False)
        self._ask(asked)
        agreed = self._answer(asked.number)
        if agreed.claim is None:
            raise NotAgreedError(agreed.problem)
        return agreed.claim

    def take(self, agreed: tuple[GroupAgreed, ...]) -> None:
        """Pass on the observer's answers; called from the thread that reads its updates."""
        if not agreed:
            return
        with self._changed:
            for answer in agreed:
                asked = self._asked.pop(answer.number, None)
                if asked is not None:
                    self._note(asked, answer)
            self._changed.notify_all()

    def _note(self, asked: GroupAsked, answer: GroupAgreed) -> None:
        # An answer that comes too late for its question serves the pod that is sent again.
        self._answers[asked.number] = answer
        if answer.claim is not None and not asked.dry_run:
            until = self._clock() + _KNOWN_SECONDS
            self._known[asked.namespace, asked.group] = answer.claim, until
            while len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)

    def _answer(self, number: int) -> GroupAgreed:
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._answers, self._wait_seconds):
                self._paused_until = self._clock() + _PAUSE_SECONDS
                raise NotAgreedError("the observer did not answer in time")
            answer = self._answers[number]
            self._answers.clear()
        return answer
