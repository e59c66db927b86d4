"""The event that says how well a network of tokens would compress the test text, in bits a byte"""

import math
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.kits.workloads.datasets.tokens import lengths_of
from d5ray.kits.workloads.metrics.qualities import TEXT_BITS
from d5ray.training.events.event import Event, check_evaluates
from d5ray.training.events.moment import Moment


@final
class TextCompression(Event):
    """Records  L · labels / (bytes of the labels · ln 2)  at every evaluation; see `TextBitsPerByte`.

    L is the loss in nats a label. The data set's classes must be tokens by their bytes, as those of the data
    sets `tokens`, `text` and `stdlib` are.
    """

    records = (TEXT_BITS,)

    def check(self, experiment: Any) -> None:
        check_evaluates(self, experiment)

    def after_test(self, moment: Moment) -> None:
        labels = moment.evaluated.labels
        labels = labels[labels >= 0]
        text_bytes = int(lengths_of(moment.dataset.classes)[labels].sum())
        if not text_bytes:
            raise ConfigurationError(
                f"{self!r} needs classes that are tokens, named by their bytes such as \"b'the'\", and the "
                f"data set {moment.dataset.name!r} has others: take the data set 'tokens' or 'text', or "
                "leave it out"
            )
        assert moment.evaluation is not None
        bits = moment.evaluation.loss * labels.size / (text_bytes * math.log(2))
        moment.record(TEXT_BITS, bits, phase=moment.split, step=moment.step - 1)
