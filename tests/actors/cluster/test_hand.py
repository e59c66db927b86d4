"""Claims about hands: what they cut off leads nowhere for its time, and is mended whatever ends them"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.conftest import wait_until
from tests.hosts import Host, hosts

ADDRESS = "10.213.77.200"
SCRIPT = """
import sys
from d5ray.actors.cluster.hand import FaultInjector
hand = FaultInjector()
hand.cut([{address!r}], 0.0, {seconds})
print("cut", flush=True)
sys.stdin.read()
hand.mend()
print("mended", flush=True)
sys.stdin.close()
"""


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """A host of its own, whose routes are nobody else's."""
    with hosts(1) as (made,):
        yield made


def routes(host: Host) -> list[str]:
    """The addresses that lead nowhere."""
    command = ["ip", "-n", host.name, "route"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line.split()[1] for line in said.splitlines() if line.startswith("unreachable")]


def hand(host: Host, seconds: str) -> "subprocess.Popen[str]":
    """A program on the host that has cut it off the address, and mends that when its input ends."""
    before = len(routes(host))
    command = [sys.executable, "-c", SCRIPT.format(address=ADDRESS, seconds=seconds)]
    begun = subprocess.Popen(
        ["ip", "netns", "exec", host.name, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert begun.stdout is not None and begun.stdout.readline() == "cut\n"
    wait_until(lambda: routes(host) == [ADDRESS] * (before + 1), 5)
    return begun


def test_a_cut_lasts_its_seconds(host: Host) -> None:
    """From a cut of 0.6 s the host is back by itself, while who cut it lives, and has not asked for it."""
    with hand(host, "0.6") as begun:
        since = time.monotonic()
        wait_until(lambda: not routes(host), 5)
        assert time.monotonic() - since > 0.3
        assert begun.poll() is None


@pytest.mark.parametrize("how", ["mended", "SIGKILL", "SIGTERM to the group"])
def test_a_cut_for_ever_ends_with_who_made_it(host: Host, how: str) -> None:
    """It is mended when that is asked for, and within a second when the process has been killed."""
    with hand(host, "None") as begun:
        if how == "mended":
            out, _ = begun.communicate("")
            assert out == "mended\n"
            assert not routes(host)
        elif how == "SIGKILL":
            begun.kill()
        else:
            os.killpg(begun.pid, signal.SIGTERM)
        begun.wait()
        wait_until(lambda: not routes(host), 5)


def test_cuts_that_overlap_do_not_end_each_other(host: Host) -> None:
    """Two of the same address: when the shorter one ends, the other one is still there."""
    with hand(host, "2.0"), hand(host, "None") as longer:
        wait_until(lambda: len(routes(host)) == 1, 5)
        longer.communicate("")
        assert not routes(host)


@pytest.mark.parametrize(
    ("inside", "why"),
    [
        (["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"], "Operation not permitted"),
        (["env", "PATH=/nowhere"], ""),
    ],
)
def test_a_trial_says_what_is_missing(host: Host, inside: list[str], why: str) -> None:
    """Without the right to change routes it says so and leaves none; `ip` is found beside PATH."""
    script = (
        "from d5ray.actors.cluster.hand import FaultInjector\n"
        f"print(FaultInjector().try_to_cut([{ADDRESS!r}]))"
    )
    command = ["ip", "netns", "exec", host.name, *inside, sys.executable, "-c", script]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert why in said and bool(why) == bool(said)
    assert not routes(host)
