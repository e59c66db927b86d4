"""A network as data: the layers it is a chain of, with the shapes they give; each framework builds it."""

from dataclasses import dataclass

from d5ray.checks import check_share
from d5ray.errors import ConfigurationError
from d5ray.networks.layers.image_layers import BatchNorm as BatchNorm
from d5ray.networks.layers.image_layers import ChannelsLast as ChannelsLast
from d5ray.networks.layers.image_layers import Conv as Conv
from d5ray.networks.layers.image_layers import ConvTranspose as ConvTranspose
from d5ray.networks.layers.image_layers import GlobalAveragePool as GlobalAveragePool
from d5ray.networks.layers.image_layers import ImageRows as ImageRows
from d5ray.networks.layers.image_layers import MaxPool as MaxPool
from d5ray.networks.layers.layer_shapes import Shape as Shape
from d5ray.networks.layers.sequence_layers import CausalSelfAttention as CausalSelfAttention
from d5ray.networks.layers.sequence_layers import Embedding as Embedding
from d5ray.networks.layers.sequence_layers import Last as Last
from d5ray.networks.layers.sequence_layers import LayerNorm as LayerNorm
from d5ray.networks.layers.sequence_layers import Lstm as Lstm
from d5ray.networks.layers.sequence_layers import Positions as Positions


@dataclass(frozen=True)
class Relu:
    """max(0, x)."""

    def output_shape(self, shape: Shape) -> Shape:
        """The input's shape."""
        return shape


@dataclass(frozen=True)
class Gelu:
    """x Φ(x), Φ the normal distribution function (Hendrycks and Gimpel, arXiv:1606.08415)."""

    def output_shape(self, shape: Shape) -> Shape:
        """The input's shape."""
        return shape


@dataclass(frozen=True)
class Dropout:
    """Sets numbers to 0 with this probability in training, else divides by 1 − share (arXiv:1207.0580).

    The numbers are drawn anew at every step, by every agent for itself (`Executor.draw_from`).
    """

    share: float

    def __post_init__(self) -> None:
        check_share("share", self.share)

    def output_shape(self, shape: Shape) -> Shape:
        """The input's shape."""
        return shape


@dataclass(frozen=True)
class Flatten:
    """Every sample as one vector."""

    def output_shape(self, shape: Shape) -> Shape:
        """One axis with the product of the input's sizes, (size,)."""
        size = 1
        for extent in shape:
            size *= extent
        return (size,)


@dataclass(frozen=True)
class Linear:
    """W x + b with `features` outputs, along the last axis: for a sequence, at every position by itself."""

    features: int

    def output_shape(self, shape: Shape) -> Shape:
        """The input's shape with `features` as its last size."""
        return (*shape[:-1], self.features)


@dataclass(frozen=True)
class Residual:
    """body(x) + shortcut(x), two chains of layers; without layers the shortcut is x itself."""

    body: tuple["Layer", ...]
    shortcut: tuple["Layer", ...] = ()

    def output_shape(self, shape: Shape) -> Shape:
        """The shape that both chains make of a sample. Raises ConfigurationError where they differ."""
        after, beside = chain_shape(self.body, shape), chain_shape(self.shortcut, shape)
        if after != beside:
            raise ConfigurationError(
                f"a Residual cannot add what its body makes of samples of shape {shape}, {after}, to what "
                f"its shortcut makes of them, {beside}: give it a shortcut with the body's output shape"
            )
        return after


@dataclass(frozen=True)
class SkipConcatenation:
    """x, and behind its channels those of body(x): what an encoder saw, for its decoder."""

    body: tuple["Layer", ...]

    def output_shape(self, shape: Shape) -> Shape:
        """The input's shape with the body's channels added. Raises ConfigurationError where sides differ."""
        after = chain_shape(self.body, shape)
        if after[1:] != shape[1:]:
            raise ConfigurationError(
                "a SkipConcatenation cannot put what its body makes of samples of shape "
                f"{shape}, {after}, behind them: all sizes but the first must be equal; choose samples whose "
                "sides every pooling can halve"
            )
        return (shape[0] + after[0], *shape[1:])


Layer = (
    Conv | ConvTranspose | BatchNorm | MaxPool | GlobalAveragePool | ChannelsLast | ImageRows
    | Embedding | Positions | LayerNorm | CausalSelfAttention | Lstm | Last
    | Relu | Gelu | Dropout | Flatten | Linear | Residual | SkipConcatenation
)  # fmt: skip
Layers = tuple[Layer, ...]


def chain_shape(layers: Layers, shape: Shape) -> Shape:
    """The shape of one sample behind these layers; raises `ConfigurationError` where one does not fit.

    >>> chain_shape((Conv(8, kernel=3, padding=1, stride=2), GlobalAveragePool(), Flatten()), (3, 32, 32))
    (8,)
    """
    for layer in layers:
        shape = layer.output_shape(shape)
    return shape
