"""Networks over sequences: a transformer's decoder, and long short-term memory"""

from d5ray.checks import check_count
from d5ray.networks.layers.layers import (
    CausalSelfAttention,
    Dropout,
    Embedding,
    Gelu,
    ImageRows,
    Last,
    LayerNorm,
    Layers,
    Linear,
    Lstm,
    Positions,
    Residual,
)


def transformer(
    classes: int,
    *,
    width: int = 64,
    heads: int = 4,
    depth: int = 2,
    context: int | None = None,
    dropout: float = 0.0,
) -> Layers:
    """A decoder like GPT-2's: tokens (length,) become scores (length, classes).

    context: the longest sequence that it takes, by default the length of the samples. dropout: the share
    behind the embedding and at the end of every branch; none within the attention. It has
    depth (12 width² + 13 width) + (2 classes + context + 2) width + classes parameters.

    Vaswani et al., arXiv:1706.03762; normalized before each branch, with learned positions and GELU, as in
    Radford et al., Language models are unsupervised multitask learners, 2019. Unlike theirs the scores have
    weights of their own, not the embedding's, and GELU is exact.
    """
    check_count("depth", depth, 1)
    rest: Layers = (Dropout(dropout),) if dropout else ()
    block: Layers = (
        Residual((LayerNorm(), CausalSelfAttention(heads), *rest)),
        Residual((LayerNorm(), Linear(4 * width), Gelu(), Linear(width), *rest)),
    )
    return (
        Embedding(classes, width),
        Positions(context),
        *rest,
        *(depth * block),
        LayerNorm(),
        Linear(classes),
    )


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
