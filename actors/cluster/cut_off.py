"""Cuts this host off others for a time, by routes that lead nowhere: a program that outlives its maker

    python cut_off.py AFTER SECONDS ADDRESS…

It is nobody's child, so that it is not ended with the process that started it. It says an empty line when it
is ready, and at the end what went wrong, if anything. When SECONDS are over, or its standard input is closed
since its maker is gone or does not want it any more, the routes are removed.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # `ip` is in neither of a user's folders
IP_SECONDS = 10.0


def closed_within(seconds: float) -> bool:
    """True as soon as nobody holds the other end of standard input; False when this time is over."""
    return bool(select.select([0], [], [], None if seconds == float("inf") else seconds)[0])


def ip(program: str, *arguments: str) -> str:
    """Run `ip`; gives its complaint, empty where it has none."""
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=IP_SECONDS, check=False
    )
    return "" if done.returncode == 0 else " ".join(done.stderr.split()) or f"exit code {done.returncode}"


def cut(addresses: list[str], seconds: float) -> str:
    """Lead nowhere what this host sends to these addresses, for a time; what went wrong, if anything."""
    program = shutil.which("ip", path=PATH)
    if program is None:
        return "it has no program `ip`: install iproute2"
    own, there = ("metric", str(os.getpid())), []  # a route of its own, whoever else cuts
    try:
        for address in addresses:
            if said := ip(program, "route", "add", "unreachable", address, *own):
                return f"`ip route add unreachable {address}` says: {said}"
            there.append(address)
        for address in addresses:
            if not ip(program, "route", "get", address):
                return f"another route to {address} comes before those that are added (`ip route show`)"
        closed_within(seconds)
    finally:
        for address in there:
            ip(program, "route", "del", "unreachable", address, *own)
    return ""


def main() -> None:
    """Cut, and undo it; also at SIGTERM."""
    if os.fork():
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    after, seconds, *addresses = sys.argv[1:]
    say("")
    if not closed_within(float(after)) or float(seconds) == 0:
        say(cut(addresses, float(seconds)))


def say(line: str) -> None:
    """Say a line to the maker, if it is still there."""
    with contextlib.suppress(OSError):
        os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main()
