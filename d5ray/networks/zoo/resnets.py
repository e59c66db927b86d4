"""Residual networks of He, Zhang, Ren and Sun (arXiv:1512.03385): for small images, and for ImageNet"""

from collections.abc import Callable

from d5ray.errors import ConfigurationError
from d5ray.networks.layers.layers import (
    BatchNorm,
    Conv,
    Flatten,
    GlobalAveragePool,
    Layers,
    Linear,
    MaxPool,
    Relu,
    Residual,
)

Block = Callable[[int, int, bool], Layers]  # of (channels, stride, whether the shortcut projects)


def resnet8(classes: int, *, width: int = 16) -> Layers:
    """The residual network of eight layers for small images, as in the MLPerf Tiny benchmark; see `resnet20`.

    That benchmark's (Banbury et al., arXiv:2106.07597) has biases, and no normalization on its shortcuts.
    """
    return _for_small_images(classes, blocks=1, width=width)


def resnet20(classes: int, *, width: int = 16) -> Layers:
    """The residual network of 6n + 2 layers for small images, here with n = 3 blocks in each of three stages.

    Section 4.2 of the paper. Where a stage halves the image and doubles the channels, the shortcut is a
    normalized 1 × 1 convolution, the paper's option B; the paper's own networks for CIFAR-10 have option A,
    which pads with zeros.
    """
    return _for_small_images(classes, blocks=3, width=width)


def resnet32(classes: int, *, width: int = 16) -> Layers:
    """ResNet-32 for small images, n = 5; see `resnet20`."""
    return _for_small_images(classes, blocks=5, width=width)


def resnet44(classes: int, *, width: int = 16) -> Layers:
    """ResNet-44 for small images, n = 7; see `resnet20`."""
    return _for_small_images(classes, blocks=7, width=width)


def resnet56(classes: int, *, width: int = 16) -> Layers:
    """ResNet-56 for small images, n = 9; see `resnet20`."""
    return _for_small_images(classes, blocks=9, width=width)


def resnet110(classes: int, *, width: int = 16) -> Layers:
    """ResNet-110 for small images, n = 18; see `resnet20`."""
    return _for_small_images(classes, blocks=18, width=width)


def resnet18(classes: int, *, width: int = 64) -> Layers:
    """ResNet-18 for ImageNet: table 1 of the paper, with option B; width: channels of its first stage."""
    return _for_large_images(classes, (2, 2, 2, 2), _basic_block, width)


def resnet34(classes: int, *, width: int = 64) -> Layers:
    """ResNet-34; see `resnet18`."""
    return _for_large_images(classes, (3, 4, 6, 3), _basic_block, width)


def resnet50(classes: int, *, width: int = 64) -> Layers:
    """ResNet-50, of bottlenecks, whose 3 × 3 convolution has the stride, as everyone builds it today.

    In the paper the first 1 × 1 convolution has it; this form is Goyal et al.'s (arXiv:1706.02677).
    """
    return _for_large_images(classes, (3, 4, 6, 3), _bottleneck, width)


def resnet101(classes: int, *, width: int = 64) -> Layers:
    """ResNet-101; see `resnet50`."""
    return _for_large_images(classes, (3, 4, 23, 3), _bottleneck, width)


def resnet152(classes: int, *, width: int = 64) -> Layers:
    """ResNet-152; see `resnet50`."""
    return _for_large_images(classes, (3, 8, 36, 3), _bottleneck, width)


def resnet(classes: int, *, depth: int, width: int | None = None) -> Layers:
    """The residual network of this depth: 8, 20, 32, 44, 56, 110 for small images, 18, 34, 50, 101, 152."""
    if depth not in DEPTHS:
        known = ", ".join(map(str, sorted(DEPTHS)))
        raise ConfigurationError(f"there is no residual network of depth {depth!r}: take one of {known}")
    return DEPTHS[depth](classes) if width is None else DEPTHS[depth](classes, width=width)


DEPTHS: dict[int, Callable[..., Layers]] = {
    8: resnet8, 20: resnet20, 32: resnet32, 44: resnet44, 56: resnet56, 110: resnet110,
    18: resnet18, 34: resnet34, 50: resnet50, 101: resnet101, 152: resnet152,
}  # fmt: skip


def _for_small_images(classes: int, *, blocks: int, width: int) -> Layers:
    return (
        *_normalized_conv(width, kernel=3), Relu(),
        *_stages((blocks,) * 3, _basic_block, width, projects_first=False),
        GlobalAveragePool(), Flatten(), Linear(classes),
    )  # fmt: skip


def _for_large_images(classes: int, blocks: tuple[int, ...], block: Block, width: int) -> Layers:
    return (
        *_normalized_conv(width, kernel=7, stride=2), Relu(), MaxPool(3, stride=2, padding=1),
        *_stages(blocks, block, width, projects_first=block is _bottleneck),
        GlobalAveragePool(), Flatten(), Linear(classes),
    )  # fmt: skip


def _stages(blocks: tuple[int, ...], block: Block, width: int, *, projects_first: bool) -> Layers:
    """Each stage but the first halves the image and doubles the channels, in its first block."""
    return tuple(
        layer
        for stage, count in enumerate(blocks)
        for place in range(count)
        for layer in block(
            width * 2**stage,
            2 if stage and place == 0 else 1,
            place == 0 and (stage > 0 or projects_first),
        )
    )


def _basic_block(channels: int, stride: int, projects: bool) -> Layers:
    body = (
        *_normalized_conv(channels, kernel=3, stride=stride), Relu(),
        *_normalized_conv(channels, kernel=3),
    )  # fmt: skip
    shortcut = _normalized_conv(channels, kernel=1, stride=stride) if projects else ()
    return Residual(body, shortcut), Relu()


def _bottleneck(channels: int, stride: int, projects: bool) -> Layers:
    """Figure 5: narrow in the middle, four times as many channels at its end."""
    body = (
        *_normalized_conv(channels, kernel=1), Relu(),
        *_normalized_conv(channels, kernel=3, stride=stride), Relu(),
        *_normalized_conv(4 * channels, kernel=1),
    )  # fmt: skip
    shortcut = _normalized_conv(4 * channels, kernel=1, stride=stride) if projects else ()
    return Residual(body, shortcut), Relu()


def _normalized_conv(channels: int, *, kernel: int, stride: int = 1) -> Layers:
    """The normalization subtracts the mean, so that the convolution needs no bias."""
    return Conv(channels, kernel, padding=kernel // 2, stride=stride, bias=False), BatchNorm()
