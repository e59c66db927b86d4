"""Every distributed optimizer that d5ray has, as tables: what it runs on, and how long it may take"""

from dataclasses import dataclass

import d5ray as d5

RING = d5.topologies.Ring(4)
MOMENTUM = d5.optimizers.Momentum(0.05, 0.9)


@dataclass(frozen=True)
class Entry:
    """An optimizer among four agents, and the epochs in which LeNet must have learnt the digits."""

    rule: d5.DistributedOptimizer
    topology: d5.Topology = RING
    base: d5.Optimizer = MOMENTUM
    epochs: int = 20


PLAIN = d5.optimizers.SGD(0.2)
GENTLE = d5.optimizers.Momentum(0.02, 0.9)
FEEDBACK = d5.compression.ErrorFeedback


def compressed(compression: d5.Compressor | d5.compression.Reduction) -> Entry:
    """With plain SGD, as the papers on compression have it."""
    return Entry(d5.optimizers.CompressedSGD(compression), base=PLAIN, epochs=30)


EVERY: dict[str, Entry] = {
    "allreduce": Entry(d5.optimizers.AllreduceSGD()),
    "overlapped allreduce": Entry(d5.optimizers.OverlappedAllreduceSGD(bucket_bytes=2**14)),
    "sharded allreduce": Entry(d5.optimizers.ShardedAllreduceSGD()),
    "growing batch": Entry(d5.optimizers.GrowingBatch(milestones=(60,), factor=2), epochs=20),
    "model averaging": Entry(d5.optimizers.ModelAveraging()),
    "local SGD": Entry(d5.optimizers.LocalSGD(period=4)),
    "post-local SGD": Entry(d5.optimizers.PostLocalSGD(synchronous_steps=20, period=4)),
    "hierarchical averaging": Entry(
        d5.optimizers.HierarchicalAveraging(group_size=2, period=2, global_period=4)
    ),
    "DiLoCo": Entry(
        d5.optimizers.DiLoCo(period=6, outer=d5.optimizers.Nesterov(0.7, 0.3)), base=GENTLE, epochs=30
    ),
    "SlowMo": Entry(d5.optimizers.SlowMo(period=6, slow_momentum=0.3), base=GENTLE, epochs=30),
    "BMUF": Entry(d5.optimizers.BMUF(period=6, block_momentum=0.3), base=GENTLE, epochs=30),
    "D-PSGD": Entry(d5.optimizers.DPSGD()),
    "D-PSGD on a one-peer graph": Entry(d5.optimizers.DPSGD(), topology=d5.topologies.OnePeerExponential(4)),
    "adapt, then combine": Entry(
        d5.optimizers.AdaptThenCombine(), d5.topologies.Torus(2, 2), base=GENTLE, epochs=30
    ),
    # On three agents its neighbourhood is everyone; on more it drifts apart and does not get there.
    "consistent neighbours": Entry(
        d5.optimizers.ConsistentNeighbors(), topology=d5.topologies.Ring(3), epochs=20
    ),
    "gradient tracking": Entry(d5.optimizers.GradientTracking(), base=GENTLE, epochs=30),
    "exact diffusion": Entry(d5.optimizers.ExactDiffusion(), base=GENTLE, epochs=30),
    "stochastic gradient push": Entry(
        d5.optimizers.StochasticGradientPush(), topology=d5.topologies.DirectedRing(4)
    ),
    "CHOCO-SGD": Entry(d5.optimizers.ChocoSGD(d5.compression.TopK(0.2), gamma=0.4), epochs=20),
    "top-k": compressed(FEEDBACK(d5.compression.TopK(16, bucket=512))),
    "sparse allreduce": compressed(FEEDBACK(d5.compression.SparseAllreduce(d5.compression.TopK(0.05)))),
    "top-k with 4 bits": compressed(
        FEEDBACK(d5.compression.Chain(d5.compression.TopK(16, bucket=512), d5.compression.QSGD(bits=4)))
    ),
    "QSGD": compressed(d5.compression.QSGD(bits=4)),
    "QSGD by parts": compressed(d5.compression.ScatterReduce(d5.compression.QSGD(bits=8))),
    "TernGrad": compressed(d5.compression.TernGrad()),
    "1-bit": compressed(FEEDBACK(d5.compression.OneBit())),
    "scaled sign": compressed(FEEDBACK(d5.compression.ScaledSign())),
    "random-k": compressed(FEEDBACK(d5.compression.RandomK(0.2))),
    "unbiased random-k": compressed(d5.compression.Allreduce(d5.compression.UnbiasedRandomK(0.5))),
    "threshold": compressed(FEEDBACK(d5.compression.Threshold(0.001))),
    "PowerSGD": compressed(FEEDBACK(d5.compression.PowerSGD(rank=2))),
    "float16": compressed(d5.compression.Float16()),
    "bfloat16": compressed(d5.compression.BFloat16()),
}

# With parameter servers, among four agents of which one may be four times as slow. Rates are smaller than
# those of an update by all four where each of them is an update of its own.
SERVERED: dict[str, Entry] = {
    "parameter server": Entry(d5.optimizers.ParameterServerSGD()),
    "ASGD": Entry(d5.optimizers.ASGD(), base=d5.optimizers.SGD(0.1)),
    "stale-synchronous": Entry(d5.optimizers.StaleSynchronousSGD(2), base=d5.optimizers.SGD(0.4)),
    "staleness-aware": Entry(d5.optimizers.StalenessAwareSGD(), base=PLAIN),
    "DC-ASGD": Entry(d5.optimizers.DelayCompensatedASGD(0.1), base=d5.optimizers.SGD(0.1)),
    "Downpour": Entry(d5.optimizers.Downpour(2, 2), base=d5.optimizers.SGD(0.08)),
    "EASGD": Entry(d5.optimizers.EASGD(0.2, 4), base=d5.optimizers.Nesterov(0.05, 0.9)),
    "synchronous EASGD": Entry(
        d5.optimizers.SynchronousEASGD(0.2, 2), base=d5.optimizers.Nesterov(0.05, 0.9)
    ),
    "asynchronous local SGD": Entry(d5.optimizers.AsynchronousLocalSGD(4, d5.optimizers.SGD(0.25))),
    "asynchronous DiLoCo": Entry(
        d5.optimizers.AsynchronousDiLoCo(6, d5.optimizers.Nesterov(0.5, 0.5), delay=4),
        base=d5.optimizers.Momentum(0.04, 0.9),
    ),
}

# One-sidedly: with windows, letters, and one array in common.
GOSSIP: dict[str, Entry] = {
    "AD-PSGD": Entry(d5.optimizers.ADPSGD()),
    "random walks": Entry(d5.optimizers.RandomWalkGossip()),
    "asynchronous push": Entry(
        d5.optimizers.AsynchronousGradientPush(), topology=d5.topologies.DirectedRing(4)
    ),
    "overlap SGP": Entry(d5.optimizers.OverlapSGP(1), topology=d5.topologies.DirectedRing(4)),
    "Hogwild": Entry(d5.optimizers.Hogwild()),
}
