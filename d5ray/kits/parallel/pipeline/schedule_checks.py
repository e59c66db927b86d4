"""Checks that a schedule can be executed: all there, each forward before its backward, none waits for ever"""

from collections.abc import Callable

from d5ray.errors import ConfigurationError
from d5ray.kits.parallel.pipeline.actions import Action, Actions, Backward, Forward, Step, needs


def check_actions(name: str, actions: Actions, stages: int, micro_batches: int, chunks: int) -> None:
    """Raise `ConfigurationError` with the stage and the action that are wrong.

    Every stage passes every micro-batch once forwards and once backwards through each of its chunks, forwards
    in the order of the micro-batches (running statistics follow it), and no two wait for one another.
    """
    if len(actions) != stages:
        raise ConfigurationError(
            f"{name} gives the actions of {len(actions)} stages, there are {stages}: give a list for each"
        )
    wanted = {
        kind(chunk, micro)
        for kind in (Forward, Backward)
        for chunk in range(chunks)
        for micro in range(micro_batches)
    }
    for stage, own in enumerate(actions):
        _check_stage(f"stage {stage} of {name}", own, wanted)
    execute(name, actions, chunks, lambda stage, action: None)


def execute(name: str, actions: Actions, chunks: int, do: Callable[[int, Action], None]) -> None:
    """Call do(stage, action) for all of them, each after what it needs, and stage by stage in their order.

    Raises `ConfigurationError` where the stages wait for one another.
    """
    stages = len(actions)
    done: set[Step] = set()
    next_of = [0] * stages
    moved = True
    while moved:
        moved = False
        for stage, own in enumerate(actions):
            while next_of[stage] < len(own):
                action = own[next_of[stage]]
                if not done.issuperset(needs(stage, action, stages, chunks)):
                    break
                do(stage, action)
                done.add((stage, action))
                next_of[stage] += 1
                moved = True
    waiting = [
        f"stage {stage} waits to begin {own[position]}"
        for stage, (own, position) in enumerate(zip(actions, next_of, strict=True))
        if position < len(own)
    ]
    if waiting:
        raise ConfigurationError(
            f"{name} cannot be executed, its stages wait for one another: {'; '.join(waiting)}"
        )


def _check_stage(where: str, own: tuple[Action, ...], wanted: set[Action]) -> None:
    seen: set[Action] = set()
    latest: dict[int, int] = {}  # micro-batch by chunk
    for action in own:
        if action not in wanted:
            raise ConfigurationError(f"{where} has {action}, and there is no such micro-batch or chunk")
        if action in seen:
            raise ConfigurationError(f"{where} has {action} twice")
        seen.add(action)
        if isinstance(action, Backward):
            if Forward(action.chunk, action.micro) not in seen:
                raise ConfigurationError(f"{where} has {action} before its forward pass")
        elif action.micro < latest.get(action.chunk, -1):
            raise ConfigurationError(
                f"{where} has {action} after that of micro-batch {latest[action.chunk]}: running statistics "
                "follow the order of the micro-batches"
            )
        else:
            latest[action.chunk] = action.micro
    if missing := wanted - seen:
        first = min(missing, key=lambda action: (action.micro, action.chunk, isinstance(action, Backward)))
        raise ConfigurationError(f"{where} lacks {first}")
