"""Compression's gain on a slow network: gradients averaged as they are and compressed, over 100 Mbit/s.

    d5ray run compressed_exchange        or        python -m d5ray.recipes.compressed_exchange

Two and four agents on hosts of their own (network namespaces, whose links carry 100 Mbit/s; needs Linux and
root) average gradients over sockets, through what `CompressedSGD` calls: from every agent's own gradient to
the mean of all, compressing and decompressing included. The unit is a round of fresh process groups,
forwards and backwards in turn. Top-16 of 512 with 4 bits is SparCML's (arXiv:1802.08021), whose
communication was 4.53 times as fast on eight nodes of Piz Daint, and 22.97 times on EC2.
"""

from d5ray.distributed.compression.chain import Chain
from d5ray.distributed.compression.compressor import Compressor
from d5ray.distributed.compression.feedback import ErrorFeedback
from d5ray.distributed.compression.power_sgd import PowerSGD
from d5ray.distributed.compression.precision import Float16
from d5ray.distributed.compression.reductions import Reduction, ScatterReduce
from d5ray.distributed.compression.sparse_allreduce import SparseAllreduce
from d5ray.distributed.compression.stochastic import QSGD
from d5ray.distributed.compression.top_k import TopK
from d5ray.kits.laboratory.jobs.gradient_exchanges import MATRIX, Averaged, GradientExchanges
from d5ray.kits.laboratory.metrics.exchanges import GradientExchangeSpeedup
from d5ray.recipes.engine.command import main

LISTED = ("scale", "8 minutes")  # by `d5ray list`; on two cores

SPARCML = "top-16 of 512, 4 bit"
COMPRESSIONS: dict[str, Compressor | Reduction] = {
    "top-k 1 %": ErrorFeedback(SparseAllreduce(TopK(0.01))),
    SPARCML: ErrorFeedback(Chain(TopK(16, bucket=512), QSGD(bits=4))),
    "QSGD 4 bit": QSGD(bits=4),
    "QSGD 4 bit, by parts": ScatterReduce(QSGD(bits=4)),
    "float16": Float16(),
    "PowerSGD rank 4": ErrorFeedback(PowerSGD(rank=4)),
}
PLAIN = "dense, not encrypted"
AGENTS = (2, 4)
GRADIENTS = ("lenet", "resnet8", MATRIX)

# Fixed components: whoever competes keeps them
FIXED = {
    "job": GradientExchanges,
    "comparisons": tuple(
        (
            Averaged("dense", agents),
            Averaged(PLAIN, agents, encrypted=False),
            *(Averaged(word, agents, how) for word, how in COMPRESSIONS.items()),
        )
        for agents in AGENTS
    ),
    "megabits": 100.0,
}

# Mutable components: how much is measured
MUTABLE = {
    "gradients": GRADIENTS,
    "seconds": 0.3,  # of every gradient in every group
    "pairs": 6,
    "seed": 1,
}

# Acceptable metrics: TLS costs nothing; compression is worth it, SparCML's as on its authors' machine
METRICS = [
    *(
        GradientExchangeSpeedup(f"dense[{agents}]", f"{PLAIN}[{agents}]", gradient) >= 0.95
        for agents in AGENTS
        for gradient in GRADIENTS
    ),
    *(
        GradientExchangeSpeedup(f"{word}[{agents}]", f"dense[{agents}]", gradient)
        >= (4.53 if word == SPARCML else 1)
        for agents in AGENTS
        for word in COMPRESSIONS
        for gradient in GRADIENTS
    ),
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
