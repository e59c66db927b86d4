"""A Ray that asks for a token: d5ray trains on it with the token, and says what is missing without it"""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Head, d5ray, started_head
from tests.docs.page import DOCS

RECIPE = '''"""Three steps of the digits."""
import d5ray as d5

FIXED = {"model": "mlp", "dataset": "digits", "epochs": 1, "batch_size": 512}
MUTABLE = {"optimizer": d5.optimizers.SGD(0.1), "agents": 2, "cpus_per_agent": 0.5, "seed": 1}
METRICS = [d5.metrics.TestAccuracy() >= 0.0]
'''
TOKEN = secrets.token_hex(32)
LESSON = (DOCS / "lessons" / "cluster.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def guarded() -> Iterator[Head]:
    """A head that asks for its token."""
    with started_head(token=TOKEN) as made:
        yield made


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
    guarded: Head, tmp_path: Path, own: dict[str, str], told: str
) -> None:
    """In d5ray's own words, which stand in the lesson too, instead of Ray's that there is no cluster."""
    done = d5ray("doctor", "--address", guarded.address, env={"HOME": str(tmp_path), **own})
    assert done.code == 3 and told in " ".join(done.out.split()), done
    assert told.partition(" of RAY")[0] in LESSON


@pytest.mark.full
def test_with_its_token_agents_train_on_it(guarded: Head, tmp_path: Path) -> None:
    """By the variable, and by the file that `ray get-auth-token` makes."""
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    (tmp_path / "tiny.py").write_text(RECIPE)
    ran = d5ray("run", str(tmp_path / "tiny.py"), "--address", guarded.address, "--json", env=own)
    assert (ran.code, ran.json["status"], ran.json["verdict"]) == (0, "completed", "PASS"), ran
    kept = tmp_path / ".ray" / "auth_token"
    kept.parent.mkdir()
    kept.write_text(TOKEN)
    own = {"HOME": str(tmp_path), "RAY_AUTH_MODE": "token"}
    done = d5ray("doctor", "--address", guarded.address, env=own)
    assert done.code == 0 and "answers: 1 nodes, 2 CPUs" in done.out, done
