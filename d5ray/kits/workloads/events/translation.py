"""The quality of a translator: it translates test sentences word by word, and BLEU says how well"""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count
from d5ray.errors import ConfigurationError
from d5ray.kits.workloads.datasets.tokens import token_bytes
from d5ray.kits.workloads.datasets.translation import BEGIN, END, PADDING, SOURCE, TARGET
from d5ray.kits.workloads.metrics.qualities import BLEU_SCORE
from d5ray.networks.executors.executor import Executor
from d5ray.training.batches.loader import pieces_to_test
from d5ray.training.datasets.samples import Subset
from d5ray.training.events.event import Event, check_evaluates
from d5ray.training.events.moment import Moment

Tokens = npt.NDArray[np.int64]


@final
class TranslationQuality(Event):
    """Translates test sentences after every `every`-th epoch, and at the training's end: rows for `BLEU`.

    The likeliest token at each place is taken, until <end> (greedy decoding). The data set is `translation`,
    or one whose samples and classes are alike. Needs `pip install 'd5ray[text]'`.

    sentences: that are translated, the first ones.
    """

    records = (BLEU_SCORE,)

    def __init__(self, every: int = 1, sentences: int = 200) -> None:
        check_count("every", every)
        check_count("sentences", sentences)
        self.every = every
        self.sentences = sentences

    def check(self, experiment: Any) -> None:
        check_evaluates(self, experiment)
        if find_spec("sacrebleu") is None:
            raise ConfigurationError(
                f"{self!r} needs sacrebleu, which is not installed: pip install 'd5ray[text]'"
            )
        known = getattr(experiment.dataset, "sample_shape", None)  # None: of a data set by name
        if known is not None:
            self._check_samples(known, experiment.dataset.name)

    def _check_samples(self, inputs: Any, dataset: str) -> None:
        if not isinstance(inputs, Mapping) or inputs.keys() != {SOURCE, TARGET}:
            raise ConfigurationError(
                f"{self!r} needs samples of a source and a target, and those of {dataset!r} have others: "
                "take the data set 'translation', or leave it out"
            )

    def before_run(self, moment: Moment) -> None:
        self._measured = -1

    def after_epoch(self, moment: Moment) -> None:
        if (moment.epoch + 1) % self.every == 0:
            self._measure(moment)

    def after_run(self, moment: Moment) -> None:
        if moment.completed and self._measured != moment.step:
            self._measure(moment)

    def _measure(self, moment: Moment) -> None:
        from sacrebleu import BLEU  # noqa: PLC0415 - an extra

        self._measured = moment.step
        samples = moment.evaluated
        indices = np.arange(min(self.sentences, len(samples)), dtype=np.int64)
        found: list[str] = []
        true: list[str] = []
        for inputs, labels in pieces_to_test(Subset(samples, indices), moment.transformations):
            self._check_samples(inputs, moment.dataset.name)
            made = translated(moment.executor, inputs[SOURCE], inputs[TARGET].shape[1])
            found += texts(made, moment.dataset.classes)
            true += texts(labels, moment.dataset.classes)
        score = BLEU().corpus_score(found, [true]).score
        moment.record(BLEU_SCORE, score, phase="test", step=moment.step - 1)


def translated(executor: Executor, sources: Tokens, length: int) -> Tokens:
    """Translations (n, length) of sentences (n, length), the likeliest token at a time; <end> ends them."""
    found = np.full((len(sources), length + 1), PADDING, np.int64)
    found[:, 0] = BEGIN
    going = np.arange(len(sources))  # the sentences that have no <end> yet
    for place in range(length):
        given: Any = {SOURCE: sources[going], TARGET: found[going, : place + 1]}
        scores = executor.inference(given)
        found[going, place + 1] = scores[:, place].argmax(axis=1)
        going = going[found[going, place + 1] != END]
        if not len(going):
            break
    return found[:, 1:]


def texts(tokens: Tokens, classes: tuple[str, ...]) -> list[str]:
    """The sentences of tokens (n, length), up to <end>."""
    known = token_bytes(classes)
    found = []
    for row in tokens:
        ends = np.flatnonzero(row == END)
        kept = row[: ends[0]] if len(ends) else row
        found.append(
            b"".join(known[token] for token in kept if token >= 0).decode("utf-8", "replace").strip()
        )
    return found
