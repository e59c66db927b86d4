"""How soon a training goes on after one of four processes was killed: d5ray beside its peers.

    d5ray run benchmarks/recovery_speed        or        python -m benchmarks.recovery_speed.recipe

The peers are measured where the environment has them: `pip install torchft==0.2.0 hivemind 'ray[train]'`,
best in one of its own; who is absent is unavailable, with the reason.

Four processes train LeNet on the digits, 16 samples a process and step, with momentum. When all have done 50
steps, one gets SIGKILL. Every process notes every committed step at once, by the machine's monotonic clock:
  recovery time  from the kill to the end of the survivors' longest pause, the slowest of them; where
                 nobody survives, to the first step of the processes that take their place
  newcomer time  from the kill to the first step of a process that was started afterwards
  undone steps   steps that had been committed and are done again
  equal          1 where all processes have the same parameters at the end, to the last bit
`start[1]` is what a newcomer needs, whoever starts it: an actor of Ray that imports PyTorch.

d5ray goes on without the dead agent ("continue"), takes another one in when it has started ("replace"), or
waits for it ("restart"). torchft has a lighthouse with the values of its README, and a manager for each
process; the process that was killed is started again at once, as its launchers do. Ray Train starts all
workers again (`max_failures`) from a checkpoint, written every tenth step. hivemind's peers meet over its
DHT for every step. Time-outs are the peers' own, but for hivemind's times to find each other, which are 15
s and more for peers around the world. The unit is a round of fresh processes, forwards and backwards in
turn. A peer that fails in a round has no figures, but the reason and how often; the others keep theirs.
"""

from benchmarks.recovery_speed.baselines import Hivemind, RayTrainAgain, Start, TorchFT
from benchmarks.recovery_speed.job import AgentsAgain, Recoveries
from benchmarks.recovery_speed.metrics import (
    EqualAtTheEnd,
    NewcomerTime,
    RecoveryTime,
    RecoveryTimeRatio,
    StartTime,
    UndoneSteps,
)
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "40 minutes")  # by `d5ray list`; on two cores

OURS = ("d5ray continue[4]", "d5ray replace[4]", "d5ray restart[4]")
PEERS = ("torchft[4]", "ray.train[4]", "hivemind[4]")

# Fixed components: whoever competes keeps them
FIXED = {
    "job": Recoveries,
    "comparisons": (
        (
            AgentsAgain(4, "continue"),
            AgentsAgain(4, "replace"),
            AgentsAgain(4, "restart"),
            TorchFT(4),
            RayTrainAgain(4),
            Hivemind(4),
            Start(),
        ),
    ),
    "model": "lenet",
    "dataset": "digits",
}

# Mutable components: how much is measured
MUTABLE = {
    "batch_size": 16,  # of one process
    "steps": 50,  # before the kill
    "seconds": 400.0,  # for a training, at most
    "pairs": 6,
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    *(RecoveryTime(ours) <= 1.0 for ours in OURS[:2]),
    *(RecoveryTimeRatio(OURS[0], peer) <= 0.5 for peer in PEERS),
    *(EqualAtTheEnd(ours) >= 1 for ours in OURS),
    *(UndoneSteps(ours) <= 1 for ours in OURS),
    *(RecoveryTime(other) <= 60.0 for other in (OURS[2], *PEERS)),
    *(NewcomerTime(other) <= 60.0 for other in (*OURS[1:], *PEERS)),
    *(UndoneSteps(peer) <= 20 for peer in PEERS),
    StartTime("start[1]") <= 60.0,
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
