"""Translation by an encoder and a decoder: a made language's sentences, two agents, Adam, judged by BLEU

    d5ray run translation        or        python -m d5ray.recipes.translation
    d5ray run translation --set dataset.source=train.de --set dataset.target=train.en \\
        --set dataset.test_source=test.de --set dataset.test_target=test.en \\
        --set dataset.vocabulary=8000 --set model.vocabulary=8000

The sentences are drawn from a small English grammar; the other language puts the verb last, adjectives behind
their nouns, and says number, article and tense by endings. No test sentence is among those to train on. Two
files, a sentence a line, take their place, such as WMT's. Tokens are byte pairs of both languages; padding
counts for nothing in the loss. The agents translate the test sentences by the likeliest token at a time, and
sacreBLEU (arXiv:1804.08771) compares. Needs `pip install 'd5ray[text]'`.
"""

import d5ray as d5

# Using PyTorch as the framework
import d5ray.frameworks.torch as d5fw
from d5ray.recipes.engine.command import main
from d5ray.recipes.models import Translator

LISTED = ("learn", "2 minutes")  # by `d5ray list`; on two cores

VOCABULARY, LENGTH, EPOCHS = 512, 32, 6

# Fixed components: whoever competes keeps them. Of the data `...` is open, and enters the run's hash.
FIXED = {
    "dataset": "translation",
    "dataset.source": ...,
    "dataset.target": ...,
    "dataset.test_source": ...,
    "dataset.test_target": ...,
    "dataset.vocabulary": ...,
    "dataset.length": ...,
    "epochs": EPOCHS,
}

# Mutable components: what may be changed to do better
MUTABLE = {
    "agents": 2,
    "model": Translator,
    "model_kwargs": {"vocabulary": VOCABULARY, "context": LENGTH},
    "loss": d5.operators.MaskedCrossEntropyLoss(),
    "batch_size": 16,  # pairs of one agent
    "train_sampler": d5.samplers.ShuffleSampler,
    "events": (d5.events.TranslationQuality(every=3),),
    "executor": d5fw.from_model,
    "executor_kwargs": {"device": d5.CPUDevice()},
    "optimizer": d5.optimizers.Scheduled(
        d5.optimizers.Adam(0.002),
        learning_rate=d5.schedules.WarmUp(d5.schedules.Cosine(0.002, EPOCHS), 1, start=0.0002),
    ),
    "distributed": d5.optimizers.AllreduceSGD,
    "communicator": "auto",  # shared memory on one node
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    d5.metrics.BLEU() >= 80,
    d5.metrics.StepTime() <= 0.5,  # s, the median over steps
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
