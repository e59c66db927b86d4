"""Cast and CastLike"""

from collections.abc import Mapping

from torch import Tensor

from d5ray.operators.builder import Builder, Built
from d5ray.operators.site import Site
from d5ray.ops.torch.types import onnx_type


def cast(site: Site) -> Built:
    kind = onnx_type(site, "to")

    def cast(x: Tensor) -> Tensor:
        return x.to(kind)

    return cast


def cast_like(site: Site) -> Built:
    def cast_like(x: Tensor, like: Tensor) -> Tensor:
        return x.to(like.dtype)

    return cast_like


BUILDERS: Mapping[str, Builder] = {"Cast": cast, "CastLike": cast_like}
