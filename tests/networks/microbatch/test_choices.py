"""Claims about choosing micro-batches: the paper's example, and optimality against all divisions there are"""

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d5ray.errors import ConfigurationError
from d5ray.networks.microbatch.fronts import pareto_front
from d5ray.networks.microbatch.kernels import Division, Kernel, LayerKernels
from d5ray.networks.microbatch.reuse import WorkspaceReuse
from d5ray.networks.microbatch.sizes import AllSizes, MicroBatchSizes, PowersOfTwo, Undivided
from d5ray.networks.microbatch.workspace_division import WorkspaceDivision

MIB = 2**20
SETS = (Undivided(), PowersOfTwo(), AllSizes())


def golden(limit: int) -> LayerKernels:
    """Of µ-cuDNN's test: for b samples a fast kernel of b MiB, a slow one of b bytes; those below a limit."""
    kernels = {
        size: (Kernel(0.1 * size + 0.01, size * MIB, "fast"), Kernel(10 * size + 0.1, size, "slow"))
        for size in PowersOfTwo().of(256)
    }
    return LayerKernels(
        "conv", {size: tuple(k for k in each if k.workspace_bytes < limit) for size, each in kernels.items()}
    )


def test_the_published_example_has_its_fifteen_points() -> None:
    """µ-cuDNN's test of its Pareto fronts: 256 samples, workspaces below 64 MiB, powers of two."""
    expected = [(25.6 + 0.01 * parts, 256 // parts * MIB, parts) for parts in (8, 16, 32, 64, 128, 256)]
    expected += [(2560 + 0.1 * parts, 256 // parts, parts) for parts in (1, 2, 4, 8, 16, 32, 64, 128, 256)]
    found = pareto_front(golden(64 * MIB), 256)
    assert len(found) == 15
    for division, (seconds, workspace, parts) in zip(found, expected, strict=True):
        assert division.seconds == pytest.approx(seconds, rel=1e-12)
        assert division.workspace_bytes == workspace
        assert division.sizes == (256 // parts,) * parts
    assert found[0].seconds == pytest.approx(25.68) and found[-1].seconds == pytest.approx(2585.60)


kernels = st.builds(Kernel, st.integers(0, 40).map(float), st.integers(0, 12))


@st.composite
def layers(draw: st.DrawFn, name: str = "conv") -> tuple[LayerKernels, int]:
    """A layer with any kernels, and a mini-batch; the whole of it can be computed."""
    batch = draw(st.integers(1, 7))
    found = draw(st.dictionaries(st.integers(1, batch), st.lists(kernels, max_size=2).map(tuple), max_size=7))
    found[batch] = (*found.get(batch, ()), draw(kernels))
    return LayerKernels(name, found), batch


def partitions(samples: int, largest: int) -> Iterator[tuple[int, ...]]:
    if samples == 0:
        yield ()
    for first in range(min(samples, largest), 0, -1):
        yield from ((first, *rest) for rest in partitions(samples - first, first))


def all_divisions(layer: LayerKernels, batch: int, sizes: MicroBatchSizes) -> list[tuple[float, int]]:
    """Seconds and workspace of every partition of the mini-batch, with every choice of kernels."""
    allowed = sizes.of(batch)
    return [
        (sum(each.seconds for each in chosen), max(each.workspace_bytes for each in chosen))
        for parts in partitions(batch, batch)
        if set(parts) <= set(allowed)
        for chosen in product(*(layer.kernels.get(part, ()) for part in parts))
    ]


def is_one_of(layer: LayerKernels, division: Division, batch: int) -> bool:
    return sum(division.sizes) == batch and all(
        part.kernel in layer.kernels[part.size] for part in division.parts
    )


@settings(max_examples=60, deadline=None)
@given(layers(), st.integers(0, 12), st.sampled_from(SETS))
def test_reuse_is_as_quick_as_the_quickest_of_all_divisions(
    made: tuple[LayerKernels, int], limit: int, sizes: MicroBatchSizes
) -> None:
    """Or there is none, and the error says how much the least is."""
    layer, batch = made
    every = all_divisions(layer, batch, sizes)
    fitting = [seconds for seconds, workspace in every if workspace <= limit]
    if not fitting:
        least = min(workspace for _, workspace in every)
        with pytest.raises(ConfigurationError, match=rf"'conv' cannot .* at least {least};"):
            WorkspaceReuse(limit, sizes).choose(layer, batch)
        return
    found = WorkspaceReuse(limit, sizes).choose(layer, batch)
    assert found.seconds == min(fitting)
    assert found.workspace_bytes <= limit
    assert is_one_of(layer, found, batch)


@settings(max_examples=60, deadline=None)
@given(layers(), st.sampled_from(SETS))
def test_a_front_is_what_no_division_beats(made: tuple[LayerKernels, int], sizes: MicroBatchSizes) -> None:
    layer, batch = made
    every = set(all_divisions(layer, batch, sizes))
    expected = {
        one for one in every if not any(o != one and o[0] <= one[0] and o[1] <= one[1] for o in every)
    }
    found = pareto_front(layer.of_sizes(sizes.of(batch)), batch)
    assert [(each.seconds, each.workspace_bytes) for each in found] == sorted(expected)
    assert all(is_one_of(layer, each, batch) for each in found)


@pytest.mark.full
@settings(max_examples=40, deadline=None)
@given(st.lists(layers(), min_size=1, max_size=3), st.integers(0, 30), st.sampled_from(SETS))
def test_division_is_as_quick_as_the_quickest_of_all_together(
    made: list[tuple[LayerKernels, int]], limit: int, sizes: MicroBatchSizes
) -> None:
    """Whatever divisions the layers have, among all products of them; or the error says how much it takes."""
    batch = min(size for _, size in made)
    own = [
        LayerKernels(
            f"conv{place}", {**layer.kernels, batch: (*layer.kernels.get(batch, ()), Kernel(9.0, 3))}
        )
        for place, (layer, _) in enumerate(made)
    ]
    every = [all_divisions(layer, batch, sizes) for layer in own]
    fitting = [
        sum(seconds for seconds, _ in chosen)
        for chosen in product(*map(set, every))
        if sum(workspace for _, workspace in chosen) <= limit
    ]
    if not fitting:
        least = sum(min(workspace for _, workspace in each) for each in every)
        with pytest.raises(ConfigurationError, match=rf"at least {least}, of which the layer 'conv"):
            WorkspaceDivision(limit, sizes).choose(own, batch)
        return
    found = WorkspaceDivision(limit, sizes).choose(own, batch)
    assert sum(each.seconds for each in found.values()) == pytest.approx(min(fitting))
    assert sum(each.workspace_bytes for each in found.values()) <= limit
    assert all(is_one_of(layer, found[layer.layer], batch) for layer in own)


def test_bytes_count_exactly_beside_gigabytes() -> None:
    """One byte less than both need: the solver's tolerance is larger than that, the limit is not."""
    layer = {size: (Kernel(1.0, 2**31), Kernel(3.0, 8)) for size in (4,)}
    own = [LayerKernels(name, layer) for name in ("a", "b")]
    enough = WorkspaceDivision(2**32).choose(own, 4)
    assert sum(each.seconds for each in enough.values()) == 2.0
    less = WorkspaceDivision(2**32 - 1).choose(own, 4)
    assert sum(each.seconds for each in less.values()) == 4.0


def test_sizes_that_do_not_add_up_are_named() -> None:
    layer = LayerKernels("conv", {4: (Kernel(1.0, 1),)})
    for choose in (WorkspaceReuse(9).choose, lambda each, size: WorkspaceDivision(9).choose([each], size)):
        with pytest.raises(ConfigurationError, match=r"'conv' .* micro-batches of 4, .* add up to 6 samples"):
            choose(layer, 6)


def test_layers_that_are_missing_or_twice_are_refused() -> None:
    layer = LayerKernels("conv", {1: (Kernel(1.0, 1),)})
    for wrong in ([], [layer, layer]):
        with pytest.raises(ConfigurationError, match="give at least one, and each once"):
            WorkspaceDivision(9).choose(wrong, 1)
