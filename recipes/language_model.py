"""A GPT learns text in byte pairs' tokens: of any size up to GPT-2's, two agents, AdamW, clipped, allreduce

    d5ray run language_model        or        python -m d5ray.recipes.language_model
    d5ray run language_model --set model.size=10M --set precision=bfloat16 --set accumulate=4
    d5ray run language_model --set dataset.text=book.txt
    d5ray run language_model --set 'distributed=DiLoCo(period=20)'

The text is modules of Python's standard library, unless `dataset.text` says otherwise: a file, a folder, a
pattern. Its last tenth is the test split. The tokens are made from the rest (byte pairs; needs
`pip install 'd5ray[text]'`). Judged are bits a byte of the test text, which do not depend on the tokens.
Another text, vocabulary or length is another contest: the run's hash is of the data too.

model.size is 1M, 3M, 10M, 25M, 50M or 124M; model.depth, model.width and model.heads say otherwise. With
dataset.vocabulary and model.vocabulary 50257, and dataset.length and model.context 1024, `124M` has GPT-2
small's 124,439,808 parameters.

Model FLOP utilisation (MFU) is what the model needs, 6 N + 12 L W T operations a token (PaLM,
arXiv:2204.02311), over what the agents reach in products of large matrices, measured by them in the same run.
"""

import d5ray as d5

# Using PyTorch as the framework
import d5ray.frameworks.torch as d5fw
from d5ray.recipes.engine.command import main
from d5ray.recipes.models import GPT, gpt_flops

LISTED = ("learn", "2 minutes")  # by `d5ray list`; on two cores

VOCABULARY, LENGTH, EPOCHS = 1024, 128, 6
RATE = d5.schedules.WarmUp(d5.schedules.Cosine(0.003, EPOCHS), 1, start=0.0003)

# Fixed components: whoever competes keeps them. Of the data `...` is open, and enters the run's hash.
FIXED = {
    "dataset": "tokens",
    "dataset.text": ...,
    "dataset.vocabulary": ...,
    "dataset.length": ...,
    "epochs": EPOCHS,
}

# Mutable components: what may be changed to do better
MUTABLE = {
    "agents": 2,
    "model": GPT,
    "model_kwargs": {"vocabulary": VOCABULARY, "size": "1M", "context": LENGTH},
    "batch_size": 8,  # windows of one agent, `accumulate` times
    "accumulate": 1,
    "precision": "float32",
    "train_sampler": d5.samplers.ShuffleSampler,
    "events": (d5.events.TextCompression(), d5.events.MeasureUtilisation(gpt_flops)),
    "executor": d5fw.from_model,
    "executor_kwargs": {"device": d5.CPUDevice()},
    "optimizer": d5.optimizers.ClipNorm(
        d5.optimizers.Scheduled(d5.optimizers.AdamW(0.003, weight_decay=0.1), learning_rate=RATE), 1.0
    ),
    "distributed": d5.optimizers.AllreduceSGD,
    "communicator": "auto",  # shared memory on one node
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    d5.metrics.TextBitsPerByte() <= 2.55,
    d5.metrics.TokensPerSecond() >= 1000,
    d5.metrics.ModelFlopUtilisation() >= 0.02,  # beside a load two cores reach 0.09 to 0.15
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
