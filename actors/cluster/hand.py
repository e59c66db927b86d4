"""A hand on a node of the cluster: sends signals to its processes"""

import os


class Hand:
    """Sends signals to processes of the node that it is on."""

    def signal(self, pid: int, number: int) -> bool:
        """Send it; False if the process is not there."""
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True
