"""Optimizer comparison: who reaches several workloads' targets soonest, a performance profile as AlgoPerf's

    d5ray run optimizer_comparison        or        python -m d5ray.recipes.optimizer_comparison
    d5ray run optimizer_comparison --set "optimizers={'mine': 'AdamW(0.005)', 'Muon': 'Muon(0.02)'}"

Every optimizer trains every workload with one setting of its own for all of them, as in AlgoPerf's
self-tuning ruleset (Dahl et al., arXiv:2306.07179), with several seeds, each in a process of its own. What
counts is the median over the seeds of the steps to the target; a target that is missed within the steps of
the workload has taken infinitely many. The time counts training alone, without the evaluations.

With r the steps over those of the best optimizer, ρ(τ) is the share of workloads with r ≤ τ, and the score
∫₁⁴ ρ dτ / 3. It is relative: who is added or left out can change everybody's. `d5ray report RUN` draws
the profile.
"""

import d5ray as d5
from d5ray.kits.laboratory.jobs.contest import Contest
from d5ray.kits.laboratory.jobs.workloads import Workload
from d5ray.kits.laboratory.metrics.performance_profiles import PerformanceScore
from d5ray.recipes.engine.command import main

LISTED = ("compare", "23 minutes")  # by `d5ray list`; on two cores

# Fixed components: whoever competes keeps them
FIXED = {
    "job": Contest,
    "workloads": {
        "lenet": Workload(
            model="lenet", dataset="digits", target=d5.metrics.TestAccuracy() >= 0.97, steps=800, every=10
        ),
        "mlp": Workload(
            model="mlp", dataset="digits", target=d5.metrics.TestAccuracy() >= 0.96, steps=400, every=10
        ),
        "resnet8": Workload(
            model="resnet8",
            model_kwargs={"width": 8},
            dataset="digits",
            target=d5.metrics.TestAccuracy() >= 0.98,
            steps=400,
            every=10,
        ),
        "transformer": Workload(
            model="transformer",
            model_kwargs={"width": 32, "heads": 2, "depth": 2},
            dataset="text",
            dataset_kwargs={"length": 64},
            target=d5.metrics.TestLoss() <= 2.1,  # nats a byte
            steps=800,
            every=20,
        ),
    },
}

# Mutable components: who competes, and how often. The rates are the best of three or four on one seed.
MUTABLE = {
    "optimizers": {
        "Momentum": d5.optimizers.Momentum(0.05, 0.9),
        "Nesterov": d5.optimizers.Nesterov(0.05, 0.9),
        "RMSProp": d5.optimizers.RMSProp(0.002),
        "AdamW": d5.optimizers.AdamW(0.005),
        "NAdam": d5.optimizers.NAdam(0.005),
        "Lion": d5.optimizers.Lion(0.001),
        "Muon": d5.optimizers.Muon(0.02, vector_rate=0.005),
        "Shampoo": d5.optimizers.Shampoo(0.03, momentum=0.9, epsilon=0.01, period=5),
    },
    "pairs": 3,  # seeds
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    PerformanceScore("Muon") >= 0.5,
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
