"""A Ray that asks for a token: d5ray trains on it with the token, and says what is missing without it"""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Finished, d5ray, free_port, wait_until
from tests.docs.page import DOCS
from tests.patience import patience

RECIPE = '''"""Three steps of the digits."""
import d5ray as d5

FIXED = {"model": "mlp", "dataset": "digits", "epochs": 1, "batch_size": 512}
MUTABLE = {"optimizer": d5.optimizers.SGD(0.1), "agents": 2, "cpus_per_agent": 0.5, "seed": 1}
METRICS = [d5.metrics.TestAccuracy() >= 0.0]
'''
LESSON = (DOCS / "lessons" / "cluster.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Guarded:
    """A head that asks for its token."""

    address: str
    dashboard: str
    token: str


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    """`ray start --head` with RAY_AUTH_MODE=token; ended by its process id."""
    port, dashboard, token = free_port(), free_port(), secrets.token_hex(32)
    folder = tempfile.mkdtemp(prefix="d5t-", dir="/tmp")
    command = [
        sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}",
        "--node-ip-address=127.0.0.1", f"--dashboard-port={dashboard}", "--dashboard-agent-listen-port=0",
        f"--ray-client-server-port={free_port()}", "--num-cpus=2", "--object-store-memory=200000000",
        "--disable-usage-stats", f"--temp-dir={folder}",
    ]  # fmt: skip
    log = Path(folder) / "head.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, start_new_session=True,
            env=os.environ | {"TMPDIR": folder, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token},
        )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{dashboard}"
        wait_until(lambda: asks(f"{url}/api/version", token) and process.poll() is None, 60, log.read_text)
        yield Guarded(f"127.0.0.1:{port}", url, token)
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=patience(20))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def asks(url: str, token: str) -> bool:
    """True where a page is refused without the token and given with it."""
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(asked, timeout=5) as answer:
            given = answer.status == 200
    except OSError:
        return False
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError as error:
        return given and error.code == 401
    return False


def doctor(guarded: Guarded, home: Path, own: Mapping[str, str]) -> Finished:
    """`d5ray doctor` of a user with this home and these variables."""
    return d5ray("doctor", "--address", guarded.address, env={"HOME": str(home), **own})


@pytest.mark.full
@pytest.mark.parametrize(
    ("own", "told"),
    [
        ({"RAY_AUTH_MODE": "disabled"}, "asks for a token, and RAY_AUTH_MODE is not 'token' here"),
        ({"RAY_AUTH_MODE": "token"}, "asks for a token, and there is none here"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}, "refuses the token of RAY_AUTH_TOKEN"),
    ],
    ids=["disabled", "none", "wrong"],
)
def test_what_is_missing_is_said_at_once(
    guarded: Guarded, tmp_path: Path, own: dict[str, str], told: str
) -> None:
    """In d5ray's own words, which stand in the lesson too, instead of Ray's that there is no cluster."""
    done = doctor(guarded, tmp_path, own)
    assert done.code == 3 and told in " ".join(done.out.split()), done
    assert told.partition(" of RAY")[0] in LESSON


@pytest.mark.full
def test_with_its_token_agents_train_on_it(guarded: Guarded, tmp_path: Path) -> None:
    """By the variable, and by the file that `ray get-auth-token` makes."""
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": guarded.token}
    (tmp_path / "tiny.py").write_text(RECIPE)
    ran = d5ray("run", str(tmp_path / "tiny.py"), "--address", guarded.address, "--json", env=own)
    assert (ran.code, ran.json["status"], ran.json["verdict"]) == (0, "completed", "PASS"), ran
    kept = tmp_path / ".ray" / "auth_token"
    kept.parent.mkdir()
    kept.write_text(guarded.token)
    done = doctor(guarded, tmp_path, {"RAY_AUTH_MODE": "token"})
    assert done.code == 0 and "answers: 1 nodes, 2 CPUs" in done.out, done


@pytest.mark.full
def test_ray_itself_says_what_the_lesson_quotes(guarded: Guarded, tmp_path: Path) -> None:
    """`ray job list` without the token, and with a wrong one."""
    for own, told in (
        ({"RAY_AUTH_MODE": "disabled"}, "Unauthorized: Missing authentication token"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}, "Forbidden: Invalid authentication token"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "ray.scripts.scripts", "job", "list", "--address", guarded.dashboard],
            env=os.environ | {"HOME": str(tmp_path)} | own, capture_output=True, text=True, check=False,
            timeout=patience(60),
        )  # fmt: skip
        assert done.returncode != 0 and told in done.stdout + done.stderr, done
        assert told in LESSON
