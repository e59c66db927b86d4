"""A topology as a notebook shows it: the picture, and what it is in numbers"""

from collections.abc import Callable

from d5ray.display import notebook_html
from d5ray.distributed.topologies.graph import CommunicationGraph
from d5ray.errors import D5Error

MOST_AGENTS = 512  # whose eigenvalues and edges are a matter of a moment


def described(topology: CommunicationGraph, spectral_gap: Callable[[], float], picture: str | None) -> str:
    """The picture, if there is one, and beside it size, degree, direction, rounds and spectral gap."""
    few = topology.agents <= MOST_AGENTS
    ranks = range(topology.agents if few else 1)
    turns = range(topology.period if few else 1)
    degrees = [len(topology.out_neighbors(rank, turn)) for rank in ranks for turn in turns]
    facts: list[tuple[str, object]] = [
        ("agents", topology.agents),
        ("degree", _between(degrees) if few else f"{degrees[0]} of agent 0"),
        ("edges", "directed" if few and topology.directed else "undirected" if few else "not looked at"),
        ("rounds in turn", topology.period),
        ("spectral gap", _gap(spectral_gap) if few else f"not computed beyond {MOST_AGENTS} agents"),
    ]
    drawn = f'<div style="max-width:480px;border-radius:6px;overflow:auto">{picture}</div>' if picture else ""
    return notebook_html.block(
        notebook_html.title(repr(topology)), notebook_html.Html(drawn), notebook_html.table(("", ""), facts)
    )


def _between(degrees: list[int]) -> str:
    low, high = min(degrees), max(degrees)
    return str(low) if low == high else f"{low} to {high}"


def _gap(spectral_gap: Callable[[], float]) -> str:
    try:
        return f"{spectral_gap():.3g}"
    except D5Error as error:
        return str(error)
