"""Claims about folders whose names mean something to others: to a glob, SQL, an address, Hive's partitions"""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.metrics.views.view import RunView
from tests.training.events.test_user_records import DATA

NAMES = (
    "rank=0", "metric=loss/step=7", "[ab]", "a?b", "a*b", "**", "{a,b}", "it's", 'a"b', "a%20b", "a b", "~a",
    "a;b", "a#b", "a\nb", "ä", "[!a]*?",
)  # fmt: skip


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one run in it, in a folder whose name means nothing to anybody."""
    home = tmp_path_factory.mktemp("plain")
    experiment = d5.Experiment(
        model=torch.nn.Linear(4, 3), dataset=DATA, optimizer=d5.optimizers.SGD(0.1), agents=2, batch_size=3,
        epochs=2, recording=d5.metrics.Recording(monitor_seconds=0), events=(d5.events.Checkpoint(),),
    )  # fmt: skip
    with d5.simulate(experiment, root=home / "runs") as group:
        group.train(progress=False)
    return home


def told(home: Path) -> list[Any]:
    """What every reader makes of the home's run: its tables, SQL on it and on its folder, and a view."""
    (folder,) = (each for each in (home / "runs").iterdir() if each.is_dir())
    run = d5.Run(folder)
    counted = "select rank, metric, count(*) n, sum(value) from samples group by all order by all"
    found: list[Any] = [
        sorted(Counter((row["rank"], row["metric"], row["value"]) for row in rows.to_pylist()).items())
        for rows in (run.tables()["samples"], run.samples(metric="loss"))
    ]
    found += [run.sql(counted).to_pylist(), d5.Run(home / "runs").sql(counted).to_pylist()]
    found += [run.sql("select count(*) from events").to_pylist()]
    with RunView(run) as view:
        found += [view.ask(counted).to_pylist(), len(d5.load_model(run, trust=True).weight)]
    checkpoint = max((folder / "checkpoints").glob("step-*"))
    return [*found, len(d5.load_model(checkpoint, trust=True).weight)]


@pytest.mark.parametrize("name", NAMES)
def test_folder_is_a_folder(name: str, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers say of a run below such a folder, with look-alikes beside it, what they say of a plain one."""
    home = tmp_path / name
    shutil.copytree(plain, home)
    for decoy in ("a", "b", "aXb", "a b", "rank=1"):
        if decoy != name:
            shutil.copytree(plain, tmp_path / decoy)
    monkeypatch.setenv("D5RAY_HOME", str(home))
    assert told(home) == told(plain)
    assert len(d5.Run("last").samples(metric="loss", rank=0)) == 4


def test_home_of_nobody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A home that begins with the sign of another user's, whom nobody knows, is named."""
    monkeypatch.setenv("D5RAY_HOME", "~nobody-here/runs")
    with pytest.raises(ConfigurationError, match="D5RAY_HOME"):
        d5.Run("last")
