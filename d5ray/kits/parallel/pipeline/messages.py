"""Messages between a pipeline's stages: which tensor of which micro-batch, and in which order"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

from d5ray.kits.parallel.pipeline.actions import Action, Actions, Backward, Forward
from d5ray.kits.parallel.stages.piece import Piece

TIED = -1  # in the place of a micro-batch: the gradient of a parameter that several stages hold


@final
@dataclass(frozen=True, order=True)
class Message:
    """A tensor of a micro-batch from a stage to another one; or its gradient, the other way.

    piece: which made it; of a gradient the piece that has read the tensor.
    """

    source: int
    target: int
    tensor: str
    micro: int
    piece: int
    is_gradient: bool


@final
@dataclass(frozen=True)
class Turn:
    """An action of a stage, what it needs of other stages before, and what it sends to them after."""

    action: Action
    needed: tuple[Message, ...]
    sent: tuple[Message, ...]


@final
class Route:
    """The messages between a stage and the others, by the pieces that it holds, which are its chunks."""

    def __init__(self, pieces: Sequence[Piece], stage: int, stages: int) -> None:
        self.pieces = tuple(pieces)
        self.stage = stage
        self.stages = stages
        self.tied: dict[str, tuple[int, ...]] = {}  # parameter -> the stages that hold it, where others do
        for piece in self.pieces:
            for name, holders in piece.tied.items():
                where = tuple(sorted({self.stage_of(holder) for holder in holders}))
                if len(where) > 1:
                    self.tied[name] = where

    def stage_of(self, piece: int) -> int:
        """The stage that holds a piece of the network."""
        return piece % self.stages

    def turns(self, actions: Actions, withheld: Iterable[str] = ()) -> tuple[Turn, ...]:
        """This stage's actions with their messages. withheld: tensors that this kind of pass leaves out."""
        absent = frozenset(withheld)
        return tuple(
            Turn(
                action,
                tuple(each for each in self._needed(action) if each.tensor not in absent),
                tuple(each for each in self._sent(action) if each.tensor not in absent),
            )
            for action in actions[self.stage]
        )

    def readers_here(self, tensor: str) -> int:
        """The number of this stage's pieces that read a tensor which another piece makes."""
        return sum(tensor in piece.incoming for piece in self.pieces)

    def ties(self) -> tuple[Message, ...]:
        """The messages that this stage sends when the gradients of its own pieces are complete."""
        return tuple(
            Message(self.stage, other, name, TIED, self.stage, True)
            for name, holders in sorted(self.tied.items())
            for other in holders
            if other != self.stage
        )

    def pairs(self) -> set[tuple[int, int]]:
        """The pairs of stages, with this one in them, between which a message ever travels: (from, to)."""
        found: set[tuple[int, int]] = set()
        for piece in self.pieces:
            others = [(maker, name in piece.differentiated) for name, maker in piece.incoming.items()]
            for maker, returns in others:
                found.add((self.stage_of(maker), self.stage))
                if returns:
                    found.add((self.stage, self.stage_of(maker)))
            for name, readers in piece.outgoing.items():
                for reader in readers:
                    found.add((self.stage, self.stage_of(reader)))
                    if name in piece.differentiated:
                        found.add((self.stage_of(reader), self.stage))
        for holders in self.tied.values():
            for other in holders:
                found |= {(self.stage, other), (other, self.stage)}
        return {pair for pair in found if pair[0] != pair[1]}

    def _needed(self, action: Action) -> list[Message]:
        piece = self.pieces[action.chunk]
        if isinstance(action, Forward):
            makers = [(maker, name) for name, maker in piece.incoming.items()]
            needed = [self._message(maker, name, action.micro, maker, False) for maker, name in makers]
        else:
            needed = [
                self._message(reader, name, action.micro, reader, True)
                for name, readers in piece.outgoing.items()
                if name in piece.differentiated
                for reader in readers
            ]
        return [each for each in needed if each.source != self.stage]

    def _message(self, sender: int, tensor: str, micro: int, piece: int, is_gradient: bool) -> Message:
        return Message(self.stage_of(sender), self.stage, tensor, micro, piece, is_gradient)

    def _sent(self, action: Action) -> list[Message]:
        """The messages of an action by name of the tensor, as the receiver expects it."""
        piece = self.pieces[action.chunk]
        found: list[Message] = []
        if isinstance(action, Forward):
            for name, readers in sorted(piece.outgoing.items()):
                for target in sorted({self.stage_of(reader) for reader in readers}):
                    found.append(Message(self.stage, target, name, action.micro, piece.index, False))
        else:
            for name, maker in sorted(piece.incoming.items()):
                if name in piece.differentiated:
                    target = self.stage_of(maker)
                    found.append(Message(self.stage, target, name, action.micro, piece.index, True))
        return [each for each in found if each.target != self.stage]


def in_order(messages: Iterable[Message], actions: Actions) -> list[Message]:
    """Messages from one source in the order in which it makes them, by the actions of all stages."""
    stages = len(actions)
    places = [{action: place for place, action in enumerate(own)} for own in actions]

    def key(message: Message) -> tuple[int, str]:
        if message.micro == TIED:
            return len(places[message.source]), message.tensor
        return places[message.source][made_by(message, stages)], message.tensor

    return sorted(set(messages), key=key)


def made_by(message: Message, stages: int) -> Action:
    """The action of the source that makes a message."""
    chunk = message.piece // stages
    return Backward(chunk, message.micro) if message.is_gradient else Forward(chunk, message.micro)


def by_source(messages: Iterable[Message], actions: Actions) -> Mapping[int, list[Message]]:
    """The messages that come from each other stage, in its order."""
    found: dict[int, set[Message]] = {}
    for message in messages:
        found.setdefault(message.source, set()).add(message)
    return {source: in_order(own, actions) for source, own in found.items()}


@final
@dataclass(frozen=True)
class PassMessages:
    """A kind of pass of one stage: its turns, and all its messages in the orders in which they travel.

    arrivals   what comes from each other stage, in the order in which that makes it
    in_common  what comes and goes, in an order in which all stages have theirs, and nothing is made from
               what comes after it
    limit      of messages to one stage that are under way, beyond which the sender waits
    """

    turns: tuple[Turn, ...]
    ties: tuple[Message, ...]
    arrivals: Mapping[int, tuple[Message, ...]]
    in_common: tuple[Message, ...]
    limit: int | None = None

    @cached_property
    def completing(self) -> frozenset[Action]:
        """The last backward pass of each chunk."""
        backward = [turn.action for turn in self.turns if isinstance(turn.action, Backward)]
        return frozenset({action.chunk: action for action in backward}.values())


def passage(
    route: Route, actions: Actions, made_at: Mapping[tuple[int, Action], float], withheld: Iterable[str] = ()
) -> PassMessages:
    """A pass of the route's stage. made_at: when each stage has done what, in an execution of the actions."""
    turns = route.turns(actions, withheld)
    trains = any(isinstance(turn.action, Backward) for turn in turns)
    ties = route.ties() if trains else ()
    back = {answered(tie) for tie in ties}
    needed = {message for turn in turns for message in turn.needed} | back
    everything = {*needed, *ties, *(message for turn in turns for message in turn.sent)}

    def key(message: Message) -> tuple[float, Message]:
        if message.micro == TIED:
            return math.inf, message
        return made_at[message.source, made_by(message, route.stages)], message

    return PassMessages(
        turns,
        ties,
        {source: tuple(own) for source, own in by_source(needed, actions).items()},
        tuple(sorted(everything, key=key)),
        None if trains else 2 * route.stages,
    )


def answered(tie: Message) -> Message:
    """The message that comes back for a gradient sent to another holder of its parameter."""
    return Message(tie.target, tie.source, tie.tensor, TIED, tie.target, True)
