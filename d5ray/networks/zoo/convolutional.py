"""Convolutional networks without a paper of their own file: VGG, MobileNet, U-Net, wide residual networks"""

from d5ray.checks import check_count
from d5ray.errors import ConfigurationError
from d5ray.networks.layers.layers import (
    BatchNorm,
    ChannelsLast,
    Conv,
    ConvTranspose,
    Dropout,
    Flatten,
    GlobalAveragePool,
    Layers,
    Linear,
    MaxPool,
    Relu,
    Residual,
    SkipConcatenation,
)


def vgg11(
    classes: int, *, width: int = 64, hidden: tuple[int, ...] = (4096, 4096), dropout: float = 0.5
) -> Layers:
    """VGG-11: configuration A of Simonyan and Zisserman (arXiv:1409.1556), for images from 32 × 32 up.

    width: channels of its first convolution. hidden: the fully connected layers before the last one; on small
    images (512,) is common. dropout: behind each of them.
    """
    stages = ((1,), (2,), (4, 4), (8, 8), (8, 8))
    features = tuple(
        layer
        for stage in stages
        for layer in (*(each for times in stage for each in _rectified(times * width)), MaxPool(2))
    )
    rest: Layers = (Dropout(dropout),) if dropout else ()
    inner = tuple(layer for size in hidden for layer in (Linear(size), Relu(), *rest))
    return (*features, Flatten(), *inner, Linear(classes))


def mobilenet(classes: int, *, width: int = 32) -> Layers:
    """MobileNet: table 1 of Howard et al. (arXiv:1704.04861), of depthwise convolutions and 1 × 1 ones.

    width: channels of the first convolution; the paper's 32 times its multiplier.
    """
    blocks = ((2, 1), (4, 2), (4, 1), (8, 2), (8, 1), (16, 2), *(((16, 1),) * 5), (32, 2), (32, 1))
    before = (1, *(times for times, _ in blocks))
    body = tuple(
        layer
        for (times, stride), inputs in zip(blocks, before, strict=False)
        for layer in _separable(inputs * width, times * width, stride)
    )
    return (
        Conv(width, kernel=3, padding=1, stride=2, bias=False), BatchNorm(), Relu(),
        *body,
        GlobalAveragePool(), Flatten(), Linear(classes),
    )  # fmt: skip


def unet(classes: int, *, width: int = 64, depth: int = 4) -> Layers:
    """U-Net (Ronneberger et al., arXiv:1505.04597): scores (height, width, classes) for every pixel.

    width: channels at the top; depth: how often the image is halved, so that 2^depth divides its sides.
    Unlike the paper's, its convolutions are padded, so that the scores have the image's size.
    """
    check_count("depth", depth)
    return (*_around(width, depth), Conv(classes, kernel=1, padding=0), ChannelsLast())


def wide_resnet(classes: int, *, depth: int = 28, factor: int = 10, dropout: float = 0.0) -> Layers:
    """WRN-depth-factor of Zagoruyko and Komodakis (arXiv:1605.07146), for small images.

    depth: 6 n + 4, with n blocks in each of three stages; factor: times as many channels as 16, 32, 64.
    dropout: between the two convolutions of a block.
    """
    check_count("factor", factor)
    if not isinstance(depth, int) or isinstance(depth, bool) or depth < 10 or (depth - 4) % 6:
        raise ConfigurationError(
            f"depth is {depth!r}: a wide residual network has 6 n + 4 layers: take 10, 16, 22, 28, 34 or 40"
        )
    rest: Layers = (Dropout(dropout),) if dropout else ()
    blocks = tuple(
        layer
        for stage in range(3)
        for place in range((depth - 4) // 6)
        for layer in _wide_block(16 * factor * 2**stage, 2 if stage and not place else 1, not place, rest)
    )
    return (
        Conv(16, kernel=3, padding=1, bias=False),
        *blocks,
        BatchNorm(), Relu(), GlobalAveragePool(), Flatten(), Linear(classes),
    )  # fmt: skip


def _rectified(channels: int) -> Layers:
    return Conv(channels, kernel=3, padding=1), Relu()


def _separable(inputs: int, channels: int, stride: int) -> Layers:
    """Every channel by itself, then all of them pixel by pixel."""
    return (
        Conv(inputs, kernel=3, padding=1, stride=stride, bias=False, groups=inputs), BatchNorm(), Relu(),
        Conv(channels, kernel=1, padding=0, bias=False), BatchNorm(), Relu(),
    )  # fmt: skip


def _around(width: int, depth: int) -> Layers:
    """Two convolutions, beside what comes of the halved image, and two convolutions of both."""
    twice = (*_rectified(width), *_rectified(width))
    if depth == 0:
        return twice
    below = (MaxPool(2), *_around(2 * width, depth - 1), ConvTranspose(width, kernel=2, stride=2))
    return (*twice, SkipConcatenation(below), *twice)


def _wide_block(channels: int, stride: int, projects: bool, rest: Layers) -> Layers:
    """Normalized before each convolution; where it projects, before the shortcut as well."""
    before: Layers = (BatchNorm(), Relu())
    body: Layers = (
        Conv(channels, kernel=3, padding=1, stride=stride, bias=False), BatchNorm(), Relu(), *rest,
        Conv(channels, kernel=3, padding=1, bias=False),
    )  # fmt: skip
    if projects:
        shortcut = (Conv(channels, kernel=1, padding=0, stride=stride, bias=False),)
        return (*before, Residual(body, shortcut))
    return (Residual((*before, *body)),)
