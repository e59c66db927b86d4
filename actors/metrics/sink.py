"""Sink of a process's rows to the aggregator, or to the one that is started in the place of a dead one"""

from contextlib import suppress
from typing import Any, final

import ray
from ray.exceptions import RayError, RayTaskError

from d5ray.actors.calls import cause_of
from d5ray.actors.session import session
from d5ray.errors import first_line
from d5ray.metrics.record.delivery import Away, Delivery


@final
class AggregatorSink:
    """Sends rows, events and files to the aggregator, and keeps them until it has acknowledged them.

    name, namespace: of the aggregator's actor, by which another is found after its death. seconds: without
    an acknowledgement until the sink gives up; see `Delivery`.
    """

    def __init__(self, aggregator: Any, name: str, namespace: str, seconds: float) -> None:
        self._delivery = Delivery(ToAggregator(aggregator, name, namespace), seconds)

    def samples(self, batch: Any) -> None:
        """Send a batch of rows of the table `metrics`."""
        self._delivery.put("append", batch)

    def frames(self, batch: Any) -> None:
        """Send a batch of rows in the compact form of a frame."""
        self._delivery.put("append_frames", batch)

    def events(self, batch: Any) -> None:
        """Send a batch of rows of the table `events`."""
        self._delivery.put("append_events", batch)

    def file(self, name: str, data: bytes) -> None:
        """Send a file for the run's folder."""
        self._delivery.put("keep_file", name, data)

    def drain(self) -> None:
        """Wait until the aggregator has acknowledged everything."""
        self._delivery.drain()


@final
class ToAggregator:
    """The way to the aggregator by calls of its actor."""

    def __init__(self, actor: Any, name: str, namespace: str) -> None:
        self._actor, self._name, self._namespace = actor, name, namespace

    def send(self, method: str, given: tuple[Any, ...]) -> Any:
        """Call a method of the actor; gives the reference to its answer."""
        return getattr(self._actor, method).remote(*given)

    def settled(self, sent: Any, seconds: float) -> bool:
        """True if the call has been answered; see `Taker`."""
        if not ray.wait([sent], timeout=seconds)[0]:
            return False
        try:
            ray.get(sent)
        except RayTaskError as error:
            raise cause_of(error) from None
        except RayError as error:
            session.check_alive()
            raise Away(f"the run's aggregator died: {first_line(error)}") from None
        return True

    def renew(self) -> None:
        """Look by name for the actor that stands in the place of one that died."""
        with suppress(ValueError, RayError):  # there is none yet
            self._actor = ray.get_actor(self._name, namespace=self._namespace)
