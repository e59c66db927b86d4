"""Calls something in a process in which nothing else ran before, and gives back what it returns"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from d5ray.errors import AgentError

Result = TypeVar("Result")
LAST_LINES = 12  # of what a process that failed has written
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")


def in_fresh_process(work: Callable[[], Result], seconds: float, threads: int | None = None) -> Result:
    """work(), which may be a function of a notebook or a script, in a process that ends with this call.

    threads: of numerical libraries; as this process's environment says, unless told otherwise. Raises
    `AgentError` with what the process wrote if it fails or takes longer than `seconds`.
    """
    import cloudpickle  # noqa: PLC0415 - takes a while

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    if threads is not None:
        environment |= dict.fromkeys(THREADS, str(threads))
    with TemporaryDirectory(prefix="d5ray-fresh-") as folder:
        call, answer = Path(folder, "call"), Path(folder, "answer")
        call.write_bytes(cloudpickle.dumps(work))
        command = [sys.executable, "-m", "d5ray.networks.microbatch.fresh_process", str(call), str(answer)]
        try:
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise AgentError(f"a measured process was not done within {seconds:g} s") from error
        if done.returncode or not answer.exists():
            wrote = "\n".join(done.stdout.decode(errors="replace").splitlines()[-LAST_LINES:])
            raise AgentError(f"a measured process ended with code {done.returncode}:\n{wrote}")
        found: Result = pickle.loads(answer.read_bytes())
        return found


if __name__ == "__main__":
    given, made = map(Path, sys.argv[1:])
    made.write_bytes(pickle.dumps(pickle.loads(given.read_bytes())()))
