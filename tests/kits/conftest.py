"""Groups of members in threads, which the tests of a file share"""

from collections.abc import Iterator

import pytest

import d5ray.frameworks.torch as in_torch
from tests.distributed.forming import Former, former


@pytest.fixture(scope="module")
def groups() -> Iterator[Former]:
    in_torch.load()  # which may take longer than members wait for each other
    with former() as made:
        yield made
