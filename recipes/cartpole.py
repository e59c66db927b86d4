"""A pole is balanced on a cart: two agents act and learn, each at its own pace, by a parameter server (A3C)

    d5ray run cartpole        or        python -m d5ray.recipes.cartpole

Needs gymnasium: pip install 'd5ray[rl]'. Every agent plays with its own copy of the policy, and pushes the
gradient of what it has played; nobody waits for anybody (Mnih et al., arXiv:1602.01783). An episode returns
how many steps the pole stood, 500 at most; a random policy comes to about 20. With
`--set distributed=AllreduceSGD` the agents wait for each other: A2C.
"""

import d5ray as d5

# Using PyTorch as the framework
import d5ray.frameworks.torch as d5fw
from d5ray.recipes.engine.command import main
from d5ray.recipes.models import ActorCritic

LISTED = ("learn", "1 minute")  # by `d5ray list`; on two cores

# Fixed components: whoever competes keeps them
FIXED = {
    "model": ActorCritic,
    "model_kwargs": {"observations": 4, "actions": 2},
    "dataset": "environment",
    "dataset_kwargs": {"environment": "CartPole-v1", "steps": 30_720},
    "epochs": 10,
}

# Mutable components: what may be changed to do better
MUTABLE = {
    "agents": 2,
    "batch_size": 64,  # steps of the environment that an agent plays for a gradient
    "events": (d5.events.Play("CartPole-v1", worlds=8, discount=0.99, decay=1.0),),
    "loss": d5.operators.ActorCriticLoss(),
    "executor": d5fw.from_model,
    "executor_kwargs": {"device": d5.CPUDevice()},
    "optimizer": d5.optimizers.Scheduled,
    "optimizer_args": (d5.optimizers.Adam(0.001),),
    "optimizer_kwargs": {"learning_rate": d5.schedules.Cosine(0.001, 10)},
    "distributed": d5.optimizers.ASGD,
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    d5.metrics.TestReturn() >= 300,  # of 500, the worse agent's mean
    d5.metrics.AsynchronousThroughput() >= 1000,  # steps of the environment a second, of both agents
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
