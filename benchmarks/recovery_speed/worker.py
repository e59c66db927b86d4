"""One process of torchft or of hivemind that trains, as their users write it; and torchft's lighthouse"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.recovery_speed.job import MOMENTUM, RATE
from benchmarks.recovery_speed.marks import Marks
from d5ray.frameworks.torch import build
from d5ray.training.datasets.catalogue import load_dataset

dist: Any = torch.distributed
LOOK_SECONDS = 0.02


class LocalTraining:
    """The network, its optimizer and the samples of one process. given: what the driver wrote."""

    def __init__(self, given: dict[str, Any]) -> None:
        data = load_dataset(given["dataset"])
        self.module: nn.Module = build.module(
            given["model"], {}, data.sample_shape, len(data.classes), seed=given["seed"], threads=1
        )
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=RATE, momentum=MOMENTUM)
        self._inputs = torch.from_numpy(np.asarray(data.train.inputs, np.float32))
        self._labels = torch.from_numpy(np.asarray(data.train.labels, np.int64))
        self._rng = np.random.default_rng([given["seed"], given["rank"]])
        self._size = given["batch_size"]
        self.marks = Marks(given["folder"], given["rank"])

    def loss(self, forward: Any) -> torch.Tensor:
        """The loss of a batch that is drawn anew."""
        chosen = torch.from_numpy(self._rng.integers(len(self._labels), size=self._size))
        return cross_entropy(forward(self._inputs[chosen]), self._labels[chosen])

    def end(self) -> None:
        """Note the parameters."""
        self.marks.end(np.concatenate([each.detach().numpy().ravel() for each in self.module.parameters()]))


def with_torchft(given: dict[str, Any], _: int) -> None:
    """A replica of one process, with its manager; it heals from another one where it comes later."""
    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo  # noqa: PLC0415

    training = LocalTraining(given)

    def state() -> dict[str, Any]:
        return {"module": training.module.state_dict(), "optimizer": training.optimizer.state_dict()}

    def load(state: dict[str, Any]) -> None:
        training.module.load_state_dict(state["module"])
        training.optimizer.load_state_dict(state["optimizer"])

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(),
        load_state_dict=load,
        state_dict=state,
        min_replica_size=given["processes"] - 1,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=given["lighthouse"],
        replica_id=f"replica_{given['rank']}_",
    )
    forward = DistributedDataParallel(manager, training.module)
    optimizer = Optimizer(manager, training.optimizer)
    over = False
    while not over:
        optimizer.zero_grad()
        training.loss(forward).backward()  # type: ignore[no-untyped-call]
        before = manager.current_step()
        optimizer.step()
        if manager.current_step() > before:
            over = training.marks.committed(manager.current_step())
    training.end()
    manager.shutdown(wait=False)


def with_hivemind(given: dict[str, Any], _: int) -> None:
    """A peer, which averages gradients with those that the DHT lets it find."""
    import hivemind  # noqa: PLC0415

    training = LocalTraining(given)
    dht = hivemind.DHT(initial_peers=given["peers"], start=True, host_maddrs=["/ip4/127.0.0.1/tcp/0"])
    if not given["peers"]:
        _told(given, "peers", json.dumps([str(each) for each in dht.get_visible_maddrs()]))
    optimizer = hivemind.Optimizer(
        dht=dht,
        run_id="recovery",
        target_batch_size=given["batch_size"] * given["processes"],
        batch_size_per_step=given["batch_size"],
        optimizer=training.optimizer,
        matchmaking_time=0.5,
        averager_opts={"request_timeout": 0.3},  # less than that, as its documentation asks for
        averaging_timeout=10.0,
        allreduce_timeout=5.0,
        tracker_opts={"min_refresh_period": 0.1, "default_refresh_period": 0.2, "max_refresh_period": 1.0},
    )
    if given["late"]:
        optimizer.load_state_from_peers()
    else:  # a peer that begins alone is soon out of the others' reach
        _told(given, f"ready-{given['rank']}", "")
        while len(list(Path(given["folder"]).glob("ready-*.told"))) < given["processes"]:
            time.sleep(LOOK_SECONDS)
    over = False
    while not over:
        before = optimizer.local_epoch
        training.loss(training.module).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        if optimizer.local_epoch > before:
            over = training.marks.committed(optimizer.local_epoch)
    training.end()
    optimizer.shutdown()
    dht.shutdown()


def lighthouse(given: dict[str, Any], _: int) -> None:
    """The process that torchft's managers meet at, with the values of its README."""
    from torchft.coordination import LighthouseServer  # noqa: PLC0415

    server = LighthouseServer(
        bind="[::]:0", min_replicas=given["processes"] - 1, join_timeout_ms=10_000, quorum_tick_ms=100
    )
    _told(given, "lighthouse", f"http://127.0.0.1:{server.address().rpartition(':')[2]}")
    while True:  # until the driver ends it
        time.sleep(LOOK_SECONDS)


def _told(given: dict[str, Any], name: str, text: str) -> None:
    """Let the driver read a text."""
    part = Path(given["folder"]) / f"{name}.part"
    part.write_text(text)
    part.rename(part.with_suffix(".told"))
