"""Layers over sequences: of tokens (length,), and of vectors (length, width), as data"""

from dataclasses import dataclass

from d5ray.errors import ConfigurationError
from d5ray.networks.layers.layer_shapes import Shape, check_sequence, check_whole


@dataclass(frozen=True)
class Embedding:
    """A learned vector for each token, (length,) int64 from 0, as (length, width).

    The vectors begin as normal numbers with a standard deviation of 0.02 (Radford et al., 2019).
    """

    tokens: int
    width: int

    def __post_init__(self) -> None:
        check_whole(self, tokens=1, width=1)

    def output_shape(self, shape: Shape) -> Shape:
        """(length, width) for samples of tokens (length,)."""
        if len(shape) != 1:
            raise ConfigurationError(
                f"{self} needs samples of shape (length,), found {shape}: give it sequences of tokens, such "
                "as those of the data set 'text'"
            )
        return (shape[0], self.width)


@dataclass(frozen=True)
class Positions:
    """x + p, with a learned vector p for every position of the sequence; begins as an `Embedding` does.

    longest: the number of positions; by default as many as the samples that it is built for have.
    """

    longest: int | None = None

    def __post_init__(self) -> None:
        if self.longest is not None:
            check_whole(self, longest=1)

    def output_shape(self, shape: Shape) -> Shape:
        """The input's shape. Raises ConfigurationError where a sequence is longer than `longest`."""
        check_sequence(self, shape)
        if self.longest is not None and shape[0] > self.longest:
            raise ConfigurationError(
                f"{self} needs sequences of at most {self.longest}, found {shape[0]}: let the samples be "
                "shorter, or the model's context longer"
            )
        return shape


@dataclass(frozen=True)
class LayerNorm:
    """γ (x − mean) / √(variance + epsilon) + β over the last axis (Ba et al., arXiv:1607.06450)."""

    epsilon: float = 1e-5

    def output_shape(self, shape: Shape) -> Shape:
        """The input's shape. Raises ConfigurationError where a sample has no axis."""
        if not shape:
            raise ConfigurationError(f"{self} needs samples that are vectors, or made of them: found numbers")
        return shape


@dataclass(frozen=True)
class CausalSelfAttention:
    """W softmax(q kᵀ / √d, over the positions up to one's own) v, in `heads` heads side by side.

    q, k and v are linear in x (length, width), as many of each as x has; a head has d = width / heads of
    them (Vaswani et al., arXiv:1706.03762, with the mask of its decoder).
    """

    heads: int

    def __post_init__(self) -> None:
        check_whole(self, heads=1)

    def output_shape(self, shape: Shape) -> Shape:
        """The input's shape. Raises ConfigurationError where `heads` does not divide the width."""
        check_sequence(self, shape)
        if shape[1] % self.heads:
            raise ConfigurationError(
                f"{self} needs a width that its heads can share evenly, found {shape[1]}: choose a width of "
                f"{shape[1] // self.heads * self.heads or self.heads}, or another number of heads"
            )
        return shape


@dataclass(frozen=True)
class Lstm:
    """The outputs of one layer of long short-term memory at every position, (length, features).

    i, f, g, o = W x_t + b + U h_{t−1} + c, through σ, σ, tanh, σ;  c_t = f c_{t−1} + i g;  h_t = o tanh c_t,
    from h = c = 0 (Hochreiter and Schmidhuber, 1997, with the forget gate of Gers et al., 2000). b and c are
    two biases, as cuDNN has them.
    """

    features: int

    def __post_init__(self) -> None:
        check_whole(self, features=1)

    def output_shape(self, shape: Shape) -> Shape:
        """(length, features) for samples (length, width)."""
        check_sequence(self, shape)
        return (shape[0], self.features)


@dataclass(frozen=True)
class Last:
    """The vector at the last position of a sequence, (width,)."""

    def output_shape(self, shape: Shape) -> Shape:
        """(width,) for samples (length, width)."""
        check_sequence(self, shape)
        return shape[1:]
