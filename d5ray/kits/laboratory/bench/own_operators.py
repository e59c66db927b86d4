"""OwnOperatorBench: operators of the user's own beside each other, at the shapes that are asked for"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, final

import numpy as np
import psutil

from d5ray.actors.executors.call_timer import random_values
from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.bench import user_objects
from d5ray.kits.laboratory.bench.bench import FrameworkBench, check_names
from d5ray.kits.laboratory.bench.own_operator import OwnOperator
from d5ray.kits.laboratory.bench.shapes import inputs_of, written
from d5ray.kits.laboratory.metrics.operator_calls import OPERATOR_TIME
from d5ray.operators.framework import FRAMEWORKS, Call, Framework, as_tuple, class_named
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.counting.measurable import MakeArray, described
from d5ray.ops.problem import BACKWARD_FLOPS, FORWARD, TRAINING, TRAINING_TENSORS

EXAMPLE: Final = "swish.py:Swish"
VALUES: Final = (-1.0, 1.0)
TRIED: Final = "what it is given, or gives,"
MEMORY_SHARE: Final = 0.5  # of what is free, for the inputs


@final
@dataclass(frozen=True)
class OwnProblem:
    """An operator at the shapes of its inputs; one whose outputs are not known yet has been tried nowhere.

    group   the shapes: what operators are compared at
    values  the lowest and the highest value of inputs
    flops   of the measured pass, 0 where nobody has counted them
    """

    operator: OwnOperator
    inputs: tuple[TensorDescriptor, ...]
    dtype: str
    of: str
    values: tuple[float, float] = VALUES
    outputs: tuple[TensorDescriptor, ...] = ()
    parameter_bytes: int = 0
    flops: int = 0

    metric: ClassVar[str] = OPERATOR_TIME
    level: ClassVar[int] = 0

    @property
    def group(self) -> str:
        """The shapes of the inputs."""
        return written(self.inputs, self.dtype)

    @property
    def name(self) -> str:
        """The operator's name with the shapes."""
        return f"{self.operator.name} {self.group}"

    @property
    def batch(self) -> int:
        """One: which axis has samples, if one has, the shapes do not say."""
        return 1

    @property
    def input_bytes(self) -> int:
        """The bytes of all inputs."""
        return sum(each.bytes for each in self.inputs)

    @property
    def moved_bytes(self) -> int:
        """The bytes that must come from memory or go there at least, every tensor once a pass."""
        read = self.input_bytes + self.parameter_bytes
        made = sum(each.bytes for each in self.outputs)
        return read + made if self.of == FORWARD else TRAINING_TENSORS * read + 2 * made

    @property
    def needed_bytes(self) -> int:
        """The memory of the tensors that are known, and as much again for what lies between them."""
        return 2 * self.moved_bytes

    def describe(self) -> dict[str, Any]:
        """The description of it for readers of a run's tables, as JSON data."""
        output = self.outputs[0].sizes if self.outputs else None
        return described(self, self.operator.name, self.inputs, self.of, output, self.inputs[0].sizes)

    def call(self, framework: Framework, array: MakeArray) -> Call:
        """A call of the operator on random inputs."""
        function = self.operator.usable(framework, training=self.of == TRAINING)
        inputs = [array(each, *self.values) for each in self.inputs]
        if self.of == FORWARD:
            return framework.inference(function, inputs)
        if hasattr(function, "trainable_variables"):
            function(*inputs)  # a layer makes its variables when it is first called
        return framework.training(function, inputs, array(self.outputs[0]))

    def tried(self, framework: Framework, flops: int | None) -> "OwnProblem":
        """The problem with its outputs, after a call here.

        flops: of a forward call; None to have the framework count them.

        Raises `ConfigurationError` for an operator that raises, gives no arrays, or numbers that are none.
        """
        random = np.random.default_rng(0)
        where = f"{self.operator.name} with {', '.join(map(str, self.inputs))} under {framework.name}"

        def array(descriptor: TensorDescriptor, low: float = -1.0, high: float = 1.0) -> Any:
            return framework.array(random_values(random, descriptor, low, high))

        with np.errstate(all="ignore"), user_objects.trying(where, TRIED):
            function = self.operator.usable(framework, training=self.of == TRAINING)
            given = [array(each, *self.values) for each in self.inputs]
            forward = framework.inference(function, given)
            outputs = as_tuple(forward())
            if not outputs or not all(hasattr(each, "shape") and hasattr(each, "dtype") for each in outputs):
                what = f"a {type(outputs[0]).__name__}" if outputs else "nothing"
                raise ConfigurationError(f"it gave {what}: return an array, or a tuple of arrays")
            found = [framework.numbers(each) for each in outputs]
            known = replace(
                self,
                outputs=tuple(TensorDescriptor(each.dtype, each.shape) for each in found),
                parameter_bytes=self.operator.parameter_bytes(function),
                flops=framework.counted_flops(forward) if flops is None else flops,
            )
            self._check_finite("output", found)
            if self.of == TRAINING:
                known = replace(known, flops=known.flops * (1 + BACKWARD_FLOPS))
                gradients = [each for each in as_tuple(known.call(framework, array)()) if each is not None]
                self._check_finite("gradient", [framework.numbers(each) for each in gradients])
            return known

    def _check_finite(self, what: str, found: Sequence[np.ndarray[Any, Any]]) -> None:
        for number, each in enumerate(found):
            numbers = each.astype(np.float32) if each.dtype.kind == "V" else each
            if numbers.dtype.kind not in "fc" or np.isfinite(numbers).all():
                continue
            at = tuple(int(index) for index in np.argwhere(~np.isfinite(numbers))[0])
            low, high = self.values
            raise ConfigurationError(
                f"its {what} {number} has {numbers[at]} at {list(at)}, for inputs from {low:g} to {high:g}: "
                "mend it, or say by --values LOW,HIGH what it is defined for"
            )


@final
@dataclass(frozen=True, kw_only=True)
class OwnOperatorBench(FrameworkBench):
    """Operators of the user's own; see `Bench` for the other values.

    operators  each under the frameworks that it can be called with
    asked      the frameworks that the user wants, () for each operator's own
    shapes     of the inputs of a call, such as "64x128,128x256"; of several calls several
    flops      of one forward call at each of the shapes, where the framework cannot count them; () otherwise
    values     the lowest and highest value of inputs
    """

    recipe: ClassVar[str] = "bench_operator"

    operators: tuple[OwnOperator, ...]
    asked: tuple[str, ...] = ()
    shapes: tuple[str, ...]
    training: bool = False
    flops: tuple[int, ...] = ()
    values: tuple[float, float] = VALUES
    frameworks: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        names = [each.name for each in self.operators]
        if not names or len(set(names)) < len(names):
            raise ConfigurationError(
                f"the operators are {', '.join(names) or 'none'}: name one or several, none twice"
            )
        for each in self.operators:
            each.check()
        if self.asked:
            check_names("frameworks", self.asked, FRAMEWORKS)
        wanted = [name for each in self.operators for name in each.frameworks(self.asked)]
        named = [name for name in dict.fromkeys([*self.asked, *wanted]) if name in wanted]
        object.__setattr__(self, "frameworks", tuple(named))
        super().__post_init__()
        if not self.shapes:
            raise ConfigurationError("no shapes are given: say by --shapes what inputs a call gets")
        if self.flops and len(self.flops) != len(self.shapes):
            raise ConfigurationError(
                f"{len(self.flops)} numbers of --flops are given for {len(self.shapes)} --shapes: give one "
                "each"
            )
        if any(each <= 0 for each in self.flops):
            raise ConfigurationError(f"--flops has {min(self.flops)}: give the operations of a call, above 0")
        low, high = self.values
        if not (np.isfinite([low, high]).all() and low <= high):
            raise ConfigurationError(
                f"--values are {low:g},{high:g}: give the lowest and the highest of inputs"
            )
        self._tried  # noqa: B018 - what cannot be measured is refused before anything starts

    def problems(self) -> Sequence[OwnProblem]:
        return tuple(self._tried.values())

    def does(self, contender: str, problem: str) -> bool:
        return contender in self._under[problem]

    @cached_property
    def _tried(self) -> dict[str, OwnProblem]:
        """The problems by name, after a call of each under each of its frameworks."""
        found: dict[str, OwnProblem] = {}
        of = TRAINING if self.training else FORWARD
        for place, text in enumerate(self.shapes):
            inputs = inputs_of(text, self.dtype)
            for operator in self.operators:
                problem = OwnProblem(operator, inputs, self.dtype, of, self.values)
                self._check_memory(problem)
                for name in operator.frameworks(self.asked):
                    given = self.flops[place] if self.flops else None
                    made = problem.tried(class_named(name).on(self.device), given)
                    known = found.get(problem.name)
                    found[problem.name] = made if known is None else self._agreeing(known, made, name)
        return found

    @cached_property
    def _under(self) -> dict[str, tuple[str, ...]]:
        names = {each.name: each.frameworks(self.asked) for each in self.operators}
        return {name: names[each.operator.name] for name, each in self._tried.items()}

    def _agreeing(self, known: OwnProblem, made: OwnProblem, framework: str) -> OwnProblem:
        """One problem of what two frameworks found; the operations are those of the one that counts."""
        shapes = [[each.sizes for each in one.outputs] for one in (known, made)]
        if shapes[0] != shapes[1]:
            raise ConfigurationError(
                f"{made.name} gives outputs of the shapes {shapes[0]}, and {shapes[1]} under {framework}: "
                "that is not the same work; leave one framework out"
            )
        return replace(known, flops=max(known.flops, made.flops))

    def _check_memory(self, problem: OwnProblem) -> None:
        free = MEMORY_SHARE * psutil.virtual_memory().available
        if problem.input_bytes > free:
            raise ConfigurationError(
                f"the inputs {problem.group} take {problem.input_bytes / 1e9:.3g} GB, and of the memory that "
                f"is free {free / 1e9:.3g} GB may be taken: give smaller shapes"
            )

    @property
    def title(self) -> str:
        names = ", ".join(each.name for each in self.operators)
        return f"bench operator {names}{' in training' if self.training else ''}"

    @property
    def fixed(self) -> dict[str, Any]:
        return {
            "operators": [each.name for each in self.operators],
            "shapes": list(self.shapes),
            "mode": "training" if self.training else "inference",
            "device": self.device,
            "dtype": self.dtype,
            "values": list(self.values),
        }


def named(texts: Sequence[str]) -> tuple[OwnOperator, ...]:
    """The operators of the user's own that these texts name, FILE:NAME, also FILE:NAME,NAME.

    Two of one name are told apart by their files. Raises `ConfigurationError` where there is none.
    """
    places = []
    for text in texts:
        place, colon, names = text.rpartition(":")
        places += [(place, name) for name in names.split(",")] if colon else [(place, text)]
    called = [name for _, name in places]
    made = []
    for place, name in places:
        text = f"{place}:{name}" if place else name
        shown = name if called.count(name) == 1 else f"{Path(place).stem}.{name}"
        made.append(OwnOperator(shown, user_objects.found(text, EXAMPLE)))
    return tuple(made)
