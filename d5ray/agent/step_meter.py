"""Measurement of an agent's steps: what each adds to the counters of its executor, rule and communicator"""

from typing import final

from d5ray.agent.connections import Connections
from d5ray.agent.records import AgentRecords
from d5ray.distributed.buffers import LocalBuffers
from d5ray.training.batches.batch import Batch

PROBE_STEPS = 20  # between two looks at how far the agents are apart
LINKS_NS = 2 * 10**9  # between two times that an agent tells what went over each of its links


@final
class StepMeter:
    """Records every step of one call of `train`: `begin` right before the rule's step, `end` after it.

    now: the time in ns at which the first step begins.
    """

    def __init__(self, records: AgentRecords, connections: Connections, now: int) -> None:
        communication, rule = connections.communication, connections.optimizer
        assert records.steps is not None and communication is not None
        self._records, self._connections = records, connections
        self._append, self._network = records.steps.append, records.network
        self._executor, self._passes = connections.executor, records.passes
        self._rule, self._traffic = rule, communication.traffic
        self._one_sided = connections.server is not None or connections.peers is not None
        self._counts = connections.place == 0  # of a replica's agents the one that counts samples
        differ = rule.asynchronous or rule.buffer_policy == LocalBuffers()
        self._probes = self._counts and communication.size > 1 and differ
        self._links_at = now + LINKS_NS

    def begin(self) -> None:
        """Read the counters before a step."""
        executor, traffic = self._executor, self._traffic
        self._before = (
            executor.forward_ns, executor.backward_ns, self._rule.update_ns, traffic.nanoseconds,
            traffic.bytes_sent, traffic.bytes_received, traffic.messages_sent, traffic.rounds,
        )  # fmt: skip
        if self._passes is not None:
            self._passes.begin()

    def end(
        self, step: int, batch: Batch, phase: str, now: int, step_ns: int, data_ns: int, record_ns: int
    ) -> None:
        """Record the step that is over.

        step_ns, data_ns: of the step, and in it of drawing the batch. record_ns: of recording the one before.
        """
        executor, rule, traffic = self._executor, self._rule, self._traffic
        forward_ns, backward_ns, update_ns, exchange_ns, sent, received, messages, rounds = self._before
        epoch, samples = batch.epoch, len(batch.labels)
        values: tuple[float | None, ...] = (
            rule.loss if samples else None,
            step_ns,
            data_ns,
            executor.forward_ns - forward_ns,
            executor.backward_ns - backward_ns,
            traffic.nanoseconds - exchange_ns,
            rule.update_ns - update_ns,
            record_ns,
            samples if self._counts else None,
            samples / step_ns if step_ns and self._counts else None,
            traffic.bytes_sent - sent,
            traffic.bytes_received - received,
            traffic.messages_sent - messages,
        )
        network = self._network
        if network is not None:
            values += (network.predict(traffic.rounds - rounds, traffic.bytes_received - received),)
        self._append(step, epoch, phase, values, now)
        if self._passes is not None and samples:
            self._passes.end(step, epoch, phase)
        if self._one_sided:
            self._records.operations(self._connections, step, epoch, phase)
            if now >= self._links_at:
                self._records.links(self._connections, step)
                self._links_at = now + LINKS_NS
        if self._probes and step % PROBE_STEPS == 0:
            self._records.probed(step, executor.parameters)
