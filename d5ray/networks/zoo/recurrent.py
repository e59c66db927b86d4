"""Long short-term memory over sequences: a classifier of texts, and of images row by row"""

from d5ray.checks import check_count
from d5ray.networks.layers.layers import Embedding, ImageRows, Last, Layers, Linear, Lstm


def lstm(
    classes: int, *, features: int = 128, depth: int = 1, tokens: int | None = None, width: int = 64
) -> Layers:
    """Layers of LSTM over a sequence, and scores (classes,) from what the last one says at its end.

    Samples are images, which are read row by row, or sequences of vectors (length, width); with `tokens`
    sequences of that many different tokens (length,), each of which becomes a vector of `width`.
    """
    check_count("depth", depth)
    first: Layers = (ImageRows(),) if tokens is None else (Embedding(tokens, width),)
    return (*first, *(depth * (Lstm(features),)), Last(), Linear(classes))
