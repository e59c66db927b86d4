"""A hand on a node of the cluster: sends signals to its processes, and cuts it off other nodes"""

import os
import subprocess
import sys
from collections.abc import Sequence

from d5ray.actors.cluster import cut_off


class FaultInjector:
    """Sends signals to processes of the node that it is on, and changes its routes.

    What it has cut is mended when its process ends, whatever ends it.
    """

    def __init__(self) -> None:
        self._cuts: list[subprocess.Popen[str]] = []

    def signal(self, pid: int, number: int) -> bool:
        """Send it; False if the process is not there."""
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True

    def try_to_cut(self, addresses: Sequence[str]) -> str:
        """Cut this node off these addresses, and mend it at once; why that cannot be done, or nothing."""
        trial = _begun(addresses, 0.0, 0.0)
        said, _ = trial.communicate()
        return said.strip()

    def cut(self, addresses: Sequence[str], after: float, seconds: float | None) -> None:
        """Cut this node off these addresses, from so many seconds after this call on; None: until it ends."""
        begun = _begun(addresses, after, float("inf") if seconds is None else seconds)
        assert begun.stdout is not None
        begun.stdout.readline()
        self._cuts.append(begun)

    def mend(self) -> None:
        """Undo all cuts, and return when that is done."""
        cuts, self._cuts = self._cuts, []
        for each in cuts:
            each.communicate()


def _begun(addresses: Sequence[str], after: float, seconds: float) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-S", "-E", cut_off.__file__, str(after), str(seconds), *addresses],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
