"""Event: callbacks at hook points of a training"""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Protocol

from d5ray.checks import KnownKeywords, check_body
from d5ray.errors import ConfigurationError, nearest

if TYPE_CHECKING:
    from d5ray.training.events.moment import Moment

POINTS: Final = (
    "before_run", "after_run", "before_epoch", "after_epoch", "before_sampling", "after_sampling",
    "before_step", "after_step", "before_test", "after_test",
)  # fmt: skip
LIKE: Final = 0.8  # of two names, from which one is taken for the other misspelt


class Hook(Protocol):
    """A function that is called with the moment at a hook point."""

    def __call__(self, moment: Moment) -> object: ...


class Event(KnownKeywords):
    """Subclass it, override the hooks you need, and give it to an `Experiment` as one of its `events`.

    Every agent has its own copy. A hook that is not overridden costs nothing. In the order of a run:

      before_run       a call of `train` begins
      before_epoch     an epoch of the training set begins
      before_sampling  the batch is about to be fetched
      after_sampling   the batch is moment.batch; a hook may replace it for the step
      before_step      the distributed optimizer's step is about to begin
      after_step       the step is over: moment.loss; moment.step steps are done
      before_test      an evaluation begins, on moment.split, with the parameters to evaluate
      after_test       the evaluation is over: moment.evaluation
      after_epoch      the epoch is over, with its evaluation if there is one
      after_run        the call of `train` ends, at its last step, stopped, or by a loss that is NaN, but not
                       by an error; under asynchronous optimizers, after the evaluation at the end of all
                       agents

    An `__init__` argument, kept under its name, is a hyperparameter; make changing state in `before_run`.

    records: the metrics that it records, so that a recipe may have criteria on them.

    stops: whether it may call `moment.stop`. Then the agents agree periodically whether to continue, so that
    all end after the same step.
    """

    records: tuple[str, ...] = ()
    stops = False

    def before_run(self, moment: Moment) -> None:
        """A call of `train` begins."""

    def after_run(self, moment: Moment) -> None:
        """A call of `train` ends."""

    def before_epoch(self, moment: Moment) -> None:
        """Called when an epoch begins."""

    def after_epoch(self, moment: Moment) -> None:
        """Called when an epoch is over."""

    def before_sampling(self, moment: Moment) -> None:
        """A batch is about to be fetched."""

    def after_sampling(self, moment: Moment) -> None:
        """Called when the batch is there."""

    def before_step(self, moment: Moment) -> None:
        """A step is about to begin."""

    def after_step(self, moment: Moment) -> None:
        """Called when a step is over."""

    def before_test(self, moment: Moment) -> None:
        """Called when an evaluation begins."""

    def after_test(self, moment: Moment) -> None:
        """Called when an evaluation is over."""

    def check(self, experiment: Any) -> None:
        """Raise `ConfigurationError` if this cannot be an event of this `Experiment`."""

    def __repr__(self) -> str:
        own = ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if not k.startswith("_"))
        return f"{type(self).__name__}({own})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class Hooks:
    """The overridden methods of some events, by hook point; each is called in the order of the events."""

    before_run: tuple[Hook, ...]
    after_run: tuple[Hook, ...]
    before_epoch: tuple[Hook, ...]
    after_epoch: tuple[Hook, ...]
    before_sampling: tuple[Hook, ...]
    after_sampling: tuple[Hook, ...]
    before_step: tuple[Hook, ...]
    after_step: tuple[Hook, ...]
    before_test: tuple[Hook, ...]
    after_test: tuple[Hook, ...]

    def __init__(self, events: tuple[Event, ...]) -> None:
        for point in POINTS:
            overridden = [
                getattr(event, point)
                for event in events
                if getattr(type(event), point) is not getattr(Event, point)
            ]
            setattr(self, point, tuple(overridden))


def check_hooks(event: Event) -> None:
    """Raise `ConfigurationError` for a method that looks like a hook and is none that is called."""
    kind = type(event)
    for name in vars(event).keys() & set(POINTS):
        raise ConfigurationError(
            f"{name} was put on an object of {kind.__name__}, where no agent calls it: define it in the class"
        )
    for name in dir(kind):
        if name in POINTS:
            _check_hook(kind.__name__, name, getattr(event, name))
        elif not name.startswith("_") and not hasattr(Event, name) and callable(getattr(kind, name)):
            near = get_close_matches(name.lower(), POINTS, 1, LIKE)
            if near or name.startswith(("before_", "after_", "on_")):
                raise ConfigurationError(
                    f"{kind.__name__} has the method {name}, which is no hook, so that nobody calls it: "
                    f"{nearest(name, POINTS)} A method of your own is called _{name}."
                )


def _check_hook(kind: str, name: str, hook: Any) -> None:
    if not callable(hook):
        raise ConfigurationError(f"{kind}.{name} is {hook!r}: a hook is a method that takes the moment")
    check_body(f"{kind}.{name}", hook)
    try:
        inspect.signature(hook).bind(None)
    except TypeError as error:
        raise ConfigurationError(
            f"{kind}.{name} takes other arguments than the moment ({error}): def {name}(self, moment)"
        ) from error
    except ValueError:  # of a builtin that does not say what it takes
        return


def check_classifies(event: Event, experiment: Any) -> None:
    """Raise `ConfigurationError` unless the network's answers are right or wrong."""
    if not experiment.loss.classifies:
        raise ConfigurationError(
            f"{event!r} is about accuracy, which {experiment.loss!r} does not have: leave it out, or look at "
            "a `Quality`"
        )


def check_evaluates(event: Event, experiment: Any) -> None:
    """Raise `ConfigurationError` unless there are evaluations while the training goes on."""
    if not experiment.evaluate:
        raise ConfigurationError(f"{event!r} looks at evaluations after epochs: set evaluate=True")
