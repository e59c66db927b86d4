"""What an update costs: d5ray's rules on the flat buffer beside torch.optim's own on the tensors.

    d5ray run benchmarks/update_speed        or        python -m benchmarks.update_speed.recipe

LeNet on samples of 8 × 8 pixels and ResNet-18 on 32 × 32, random ones. In every fresh process each rule does
its updates, and whole training steps, in turn with torch.optim's class with PyTorch's defaults, which is
what a ratio is over; torch.optim's foreach and fused variants stand beside them in the times. Before anything
counts, both must have led the network to the same parameters. Rules that PyTorch has not (LARS, LAMB, Lion,
AcceleGrad, Shampoo), or not for all tensors of a network (Muon), have nobody to be compared with. L-BFGS
and Adafactor are no element-wise rules: theirs are whole steps alone.
"""

import d5ray as d5
from benchmarks.update_speed.baselines import RulePair
from benchmarks.update_speed.job import OnNetwork, RuleSpeeds
from benchmarks.update_speed.metrics import RuleStepTimeRatio, UpdateTimeRatio
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "10 minutes")  # by `d5ray list`; on two cores

NETWORKS = (OnNetwork("lenet", (1, 8, 8)), OnNetwork("resnet18", (3, 32, 32)))
LR = {"lr": 1e-3}
RULES = (
    RulePair(d5.optimizers.SGD(1e-3), "SGD", LR),
    RulePair(d5.optimizers.Momentum(1e-3, 0.9), "SGD", {**LR, "momentum": 0.9}),
    RulePair(d5.optimizers.Nesterov(1e-3, 0.9), "SGD", {**LR, "momentum": 0.9, "nesterov": True}),
    RulePair(d5.optimizers.AdaGrad(1e-3), "Adagrad", LR),
    RulePair(d5.optimizers.RMSProp(1e-3), "RMSprop", LR),
    RulePair(d5.optimizers.Adam(1e-3), "Adam", LR),
    RulePair(d5.optimizers.AdamW(1e-3), "AdamW", LR),
    RulePair(d5.optimizers.AMSGrad(1e-3), "Adam", {**LR, "amsgrad": True}),
    RulePair(d5.optimizers.NAdam(1e-3), "NAdam", LR),
    RulePair(d5.optimizers.AdaMax(1e-3), "Adamax", LR),
    RulePair(
        d5.optimizers.Adafactor(1e-3), "Adafactor", {**LR, "eps": (2e-19, 1e-3)}
    ),  # almost the paper's first ε
    RulePair(d5.optimizers.LBFGS(1.0, 10), "LBFGS", {"lr": 1.0, "max_iter": 1, "history_size": 10}),
)

# Fixed components: whoever competes keeps them
FIXED = {
    "job": RuleSpeeds,
    "comparisons": (NETWORKS,),
    "rules": RULES,
}

# Mutable components: how much is measured
MUTABLE = {
    "batch_size": 32,
    "threads": 1,
    "seconds": 1.0,  # of every rule's updates, and of its steps
    "pairs": 6,
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    *(
        UpdateTimeRatio(network.name, pair.name) <= 1.0
        for network in NETWORKS
        for pair in RULES
        if pair.rule.elementwise
    ),
    *(RuleStepTimeRatio(network.name, pair.name) <= 1.01 for network in NETWORKS for pair in RULES),
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
