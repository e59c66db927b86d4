"""Bounds of waits: a member that is gone, a group that failed, and the time-out end them"""

import time
from collections.abc import Sequence
from typing import final

from d5ray.distributed.communicators.agreement.call_signature import Signature
from d5ray.distributed.group.membership import Membership
from d5ray.errors import D5Error


@final
class WaitGuard:
    """Ends a wait that can have no good end: somebody is gone, the group failed, or it takes too long."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._seconds = membership.group.timeout_seconds
        self.ended: D5Error | None = None  # why this member cannot go on
        self.waiting: tuple[Sequence[int], Signature] | None = None  # for whom, in what

    def end(self, error: D5Error) -> D5Error:
        """Fail the group, since this member cannot go on; gives the error back."""
        self.ended = self.ended or error
        return error

    def fail(self, error: D5Error) -> D5Error:
        """Tell all members that none can go on, and why; gives the cause, which is what failed first."""
        self._membership.fail(error)
        return self.end(self._membership.failure or error)

    def look(self, waiting_since: float, awaited: Sequence[int], call: Signature) -> None:
        """Raise why the members with these ranks are not waited for any longer, if so."""
        self.check()
        try:
            self._membership.check(*awaited)
        except D5Error as error:
            raise self.end(error) from None
        if time.monotonic() - waiting_since > self._seconds:
            raise self.fail(self._membership.silent(awaited, call))

    def check(self) -> None:
        """Raise why this member cannot go on, if so."""
        if self.ended is not None:
            raise self.ended.with_traceback(None)
