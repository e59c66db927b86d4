"""Events: when each hook is called, that all agents end after the same step, and what the ready ones do"""

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import d5ray as d5
from d5ray.dashboards.report.building import built
from d5ray.dashboards.report.subject import subject_of
from d5ray.errors import AgentError, ConfigurationError
from d5ray.training.datasets.dataset import Dataset, Split
from d5ray.training.events.event import POINTS, Hooks

RNG = np.random.default_rng(11)
DIGITS = d5.datasets.load_dataset("digits")
TRAIN, TEST = 57, 20
LABELS = RNG.integers(0, 3, TRAIN + TEST)
INPUTS = (RNG.standard_normal((TRAIN + TEST, 1, 2, 2)) + LABELS[:, None, None, None]).astype(np.float32)
DATA = Dataset(
    "lines", Split(INPUTS[:TRAIN], LABELS[:TRAIN]), Split(INPUTS[TRAIN:], LABELS[TRAIN:]), tuple("abc")
)


def experiment(*events: d5.Event, **changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": "mlp", "model_kwargs": {"hidden": (8,)}, "dataset": DATA,
        "optimizer": d5.optimizers.SGD(0.1),
        "agents": 2, "batch_size": 10, "epochs": 3, "seed": 2, "events": events,
    }  # fmt: skip
    return d5.Experiment(**(values | changes))


def rows(group: Any, metric: str, rank: int = 0) -> list[float]:
    found = [r for r in group.metrics().to_pylist() if r["metric"] == metric and r["rank"] == rank]
    return [row["value"] for row in sorted(found, key=lambda row: row["seq"])]


class Diary(d5.Event):
    """Writes down every hook that is called."""

    def __init__(self) -> None:
        self.entries: list[tuple[Any, ...]] = []

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in POINTS:
            return found
        return lambda moment: self.entries.append(
            (name, moment.step, moment.epoch, None if moment.batch is None else len(moment.batch.labels))
        )


for point in POINTS:  # so that every one is overridden
    setattr(Diary, point, lambda self, moment: None)


def test_the_hooks_are_called_in_their_order() -> None:
    """57 samples, 20 a step: three steps an epoch, the last with 9 samples for the first of two agents."""
    with d5.simulate(experiment(Diary())) as group:
        group.train(4, progress=False)
        entries = group.agents[0].events._events[0].entries  # type: ignore[attr-defined]
    step = ["before_sampling", "after_sampling", "before_step", "after_step"]
    test = ["before_test", "after_test"]
    assert [entry[0] for entry in entries] == [
        "before_run", "before_epoch", *step, *step, *step, *test, "after_epoch",
        "before_epoch", *step, *test, "after_run",
    ]  # fmt: skip
    after_steps = [entry[1:] for entry in entries if entry[0] == "after_step"]
    assert after_steps == [(1, 0, 10), (2, 0, 10), (3, 0, 9), (4, 1, 10)]
    assert [entry[1:3] for entry in entries if entry[0] == "before_step"] == [(0, 0), (1, 0), (2, 0), (3, 1)]
    assert [entry[1:3] for entry in entries if entry[0] == "before_epoch"] == [(0, 0), (3, 0)]


def test_an_event_without_hooks_is_not_called() -> None:
    hooks = Hooks((d5.Event(), d5.events.StopAfterSteps(3)))
    assert {point: len(getattr(hooks, point)) for point in POINTS if getattr(hooks, point)} == {
        "after_step": 1
    }


def test_every_agent_has_a_copy_of_its_own() -> None:
    given = Diary()
    with d5.simulate(experiment(given)) as group:
        group.train(1, progress=False)
        assert given.entries == []
        assert len({id(agent.events._events[0]) for agent in group.agents}) == 2


def test_events_do_not_change_the_numbers() -> None:
    events = (
        d5.events.LearningCurves(10),
        d5.events.SaveWrongSamples(),
        d5.events.StopAfterSteps(100),
        d5.events.StopAtNaN(1),
    )
    found = []
    for given in ((), events):
        with d5.simulate(experiment(*given)) as group:
            group.train(progress=False)
            found.append(group.agents[1].parameters_sha256())
    assert found[0] == found[1]


class StopOne(d5.Event):
    """One agent alone asks for the end."""

    stops = True

    def __init__(self, rank: int, step: int) -> None:
        self.rank = rank
        self.step = step

    def after_step(self, moment: d5.events.Moment) -> None:
        if moment.rank == self.rank and moment.step == self.step:
            moment.stop(f"agent {self.rank} has seen enough")


@pytest.mark.parametrize(("step", "ends"), [(1, 3), (3, 3), (4, 6), (10, 10), (13, 15)])
def test_all_agents_end_after_the_same_step(step: int, ends: int) -> None:
    """At the end of the epoch (of three steps), or at the next tenth step, whichever is first."""
    with d5.simulate(experiment(StopOne(2, step), agents=3, batch_size=7)) as group:
        outcome = group.train(50, progress=False)
        assert (outcome.status, outcome.step) == ("completed", ends)
        assert outcome.reason == "agent 2 has seen enough"
        assert [agent.progress().step for agent in group.agents] == [ends] * 3
        assert len({agent.parameters_sha256() for agent in group.agents}) == 1
    assert d5.Run(group.folder).row["stop_reason"] == "agent 2 has seen enough"


def test_a_training_that_was_ended_can_go_on() -> None:
    with d5.simulate(experiment(d5.events.StopAfterSteps(3))) as group:
        assert group.train(9, progress=False).step == 3
        assert group.train(9, progress=False).step == 6  # to the end of the epoch, where the agents agree


def test_agents_that_do_not_wait_end_when_they_hear_of_it() -> None:
    with d5.simulate(
        experiment(
            StopOne(1, 5), distributed=d5.optimizers.ADPSGD(), topology=d5.topologies.Ring(4), agents=None
        )
    ) as group:
        outcome = group.train(200, progress=False)
        assert (outcome.status, outcome.reason) == ("completed", "agent 1 has seen enough")
        assert max(agent.progress().step for agent in group.agents) < 20
        assert rows(group, "test_accuracy", rank=3)  # they are evaluated all the same
        assert group.train(5, progress=False).reason == ""  # and may go on
        assert {agent.progress().step for agent in group.agents} != {outcome.step}
        assert max(agent.progress().step for agent in group.agents) >= outcome.step + 5


def test_stop_without_saying_so_is_an_error() -> None:
    class Secret(d5.Event):
        def after_step(self, moment: d5.events.Moment) -> None:
            moment.stop("now")

    with (
        pytest.raises(AgentError, match="write `stops = True` in its class"),
        d5.simulate(experiment(Secret())) as g,
    ):
        g.train(2, progress=False)


def test_an_error_in_a_hook_names_its_line() -> None:
    class Broken(d5.Event):
        def after_epoch(self, moment: d5.events.Moment) -> None:
            raise RuntimeError("the user's mistake")

    with (
        pytest.raises(AgentError, match=r"(?s)failed at step 3.*in after_epoch.*the user's mistake"),
        d5.simulate(experiment(Broken())) as group,
    ):
        group.train(5, progress=False)


# -- the ready ones ------------------------------------------------------------------------------------


@pytest.mark.full
def test_stop_at_accuracy_ends_at_the_first_evaluation_that_reaches_it() -> None:
    wanted: dict[str, Any] = {"dataset": DIGITS, "model": "mlp", "model_kwargs": {}, "batch_size": 64}
    with d5.simulate(experiment(**wanted)) as group:
        group.train(epochs=6, progress=False)
        whole = rows(group, "test_accuracy")
        per_epoch = group.built.steps_per_epoch
    target = whole[2]
    first = next(at for at, value in enumerate(whole) if value >= target)
    with d5.simulate(experiment(d5.events.StopAtAccuracy(target), **wanted)) as group:
        outcome = group.train(epochs=6, progress=False)
        assert rows(group, "test_accuracy") == whole[: first + 1]
    assert outcome.step == (first + 1) * per_epoch
    assert outcome.reason == f"test_accuracy {target:.4f} reached {target:g}"


def test_stop_after_seconds_goes_by_the_agents_clock() -> None:
    """Steps of a virtual millisecond, on one agent, which agrees with itself at every step."""
    with d5.simulate(experiment(d5.events.StopAfterSeconds(0.0145), agents=1)) as group:
        assert group.train(100, progress=False).step == 15


def reference_plateau(losses: list[float], patience: int, least_change: float) -> int | None:
    """After how many epochs patience is over, by looking at all that came before."""
    best, since = math.inf, 0
    for at, loss in enumerate(losses):
        improved = loss < best - least_change
        best, since = (loss, 0) if improved else (best, since + 1)
        if since == patience:
            return at + 1
    return None


@pytest.mark.full
@pytest.mark.parametrize("of", ["test_loss", "test_accuracy", "loss"])
def test_stop_at_plateau_ends_when_patience_is_over(of: str) -> None:
    changes: dict[str, Any] = {"agents": 1, "optimizer": d5.optimizers.SGD(0.9), "batch_size": 57}
    with d5.simulate(experiment(**changes)) as group:
        group.train(epochs=40, progress=False)
        found = rows(group, of)
    values = [-value for value in found] if of == "test_accuracy" else found
    expected = reference_plateau(values, 3, 0.01)
    assert expected is not None and expected < 40
    with d5.simulate(
        experiment(d5.events.StopAtPlateau(of, patience=3, least_change=0.01), **changes)
    ) as group:
        outcome = group.train(epochs=40, progress=False)
    assert outcome.step == expected
    assert outcome.reason.startswith(f"{of} has not become better than")


class Overflowing(nn.Module):
    """The gradient of `unused` overflows in the third step, which the loss does not show."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(4, 3)
        self.unused = nn.Parameter(torch.ones(2))
        self.calls = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += self.training
        scores: torch.Tensor = self.used(inputs.flatten(1))
        hidden = self.unused * (math.inf if self.calls == 3 else 0.0)
        return scores + (hidden - hidden.detach()).nan_to_num(0.0).sum() if self.calls == 3 else scores


def test_stop_at_nan_names_the_parameter() -> None:
    with d5.simulate(
        experiment(d5.events.StopAtNaN(every_steps=1), model=Overflowing, model_kwargs={}, agents=1)
    ) as group:
        outcome = group.train(9, progress=False)
    assert outcome.step == 3
    assert outcome.reason == "the parameter unused is not finite after step 3"


def test_learning_curves_are_those_of_the_samples() -> None:
    with d5.simulate(experiment(d5.events.LearningCurves(samples=19))) as group:
        group.train(progress=False)
        agent = group.agents[0]
        some = np.linspace(0, TRAIN - 1, 19).round().astype(int)
        expected = agent.executor.evaluate(DATA.train.inputs[some], DATA.train.labels[some])
        for metric, value in (("training_loss", expected.loss), ("training_accuracy", expected.accuracy)):
            assert len(rows(group, metric)) == 3
            assert rows(group, metric)[-1] == value
    subject = subject_of([str(group.folder)])
    drawn = {figure.name: figure.draw().axes[0] for figure in built(subject).figures}
    for metric, scale in (("training_loss", 1), ("training_accuracy", 100)):
        line = drawn[f"{metric}-over-steps"].lines[-1]
        assert line.get_ydata() == pytest.approx(scale * np.array(rows(group, metric)))
    subject.close()


def test_wrong_samples_are_the_surest_mistakes_first() -> None:
    with d5.simulate(experiment(d5.events.SaveWrongSamples(most=4))) as group:
        group.train(progress=False)
        scores = group.agents[0].executor.inference(DATA.test.inputs)
    wrong = [at for at in range(TEST) if scores[at].argmax() != DATA.test.labels[at]]
    wrong.sort(key=lambda at: scores[at][DATA.test.labels[at]] - scores[at].max())
    kept = pq.read_table(group.folder / "wrong_samples.parquet").to_pylist()
    assert len(wrong) >= 4
    assert [row["index"] for row in kept] == wrong[:4]
    for row in kept:
        assert (
            row["label"]
            == DATA.test.labels[row["index"]]
            != row["predicted"]
            == scores[row["index"]].argmax()
        )
        assert row["shape"] == [1, 2, 2]
        assert np.array_equal(row["input"], DATA.test.inputs[row["index"]].ravel())


class OfTwoParts(nn.Module):
    """Three scores of a sample's parts a (n, 2) and b (n, 1, 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(5, 3)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> Any:
        return self.scores(torch.cat([a, b[:, 0]], 1))


def test_wrong_samples_of_several_parts_have_each(tmp_path: Path) -> None:
    """Under the part's place, with its shape."""
    rng = np.random.default_rng(7)
    parts = {"a": rng.normal(size=(60, 2)), "b": rng.normal(size=(60, 1, 3))}
    data = d5.from_arrays(
        {name: part.astype(np.float32) for name, part in parts.items()}, rng.integers(0, 3, 60), test=0.5
    )
    wanted = experiment(d5.events.SaveWrongSamples(), model=OfTwoParts, model_kwargs={}, dataset=data)
    with d5.simulate(wanted, root=tmp_path) as group:
        group.train(1, progress=False)
    kept = pq.read_table(group.folder / "wrong_samples.parquet").to_pylist()
    assert kept
    for row in kept:
        for name, part in data.test.take(np.array([row["index"]]))[0].items():
            assert row[f"shape['{name}']"] == list(part.shape[1:])
            assert row[f"input['{name}']"] == part.ravel().tolist()


def test_in_sequences_every_label_can_be_wrong(tmp_path: Path) -> None:
    """With its position; 1,500 labels in pieces of at most 1,024."""
    tokens = np.random.default_rng(1).integers(0, 5, (250, 7))
    split = Split(tokens[:, :-1].copy(), tokens[:, 1:].copy())
    sequences = d5.Experiment(
        model="transformer", model_kwargs={"width": 8, "heads": 1, "depth": 1},
        optimizer=d5.optimizers.SGD(0.1),
        dataset=Dataset("tokens", split, split, tuple("abcde")), agents=1,
        events=d5.events.SaveWrongSamples(most=9),
    )  # fmt: skip
    with d5.simulate(sequences, root=tmp_path) as group:
        group.train(1, progress=False)
        scores = group.agents[0].executor.inference(split.inputs)
        events = group.tables()["events"].to_pylist()
    predicted = scores.argmax(axis=-1)
    wrong = [(index, position) for index, position in np.argwhere(predicted != split.labels).tolist()]
    wrong.sort(key=lambda at: scores[at][split.labels[at]] - scores[at].max())
    kept = pq.read_table(group.folder / "wrong_samples.parquet").to_pylist()
    assert [(row["index"], *row["position"]) for row in kept] == wrong[:9]
    assert all(row["predicted"] == predicted[at] for row, at in zip(kept, wrong, strict=False))
    assert all(row["input"] == split.inputs[row["index"]].tolist() for row in kept)
    assert f'"count": {len(wrong)}' in "".join(event["detail"] or "" for event in events)


def test_inferences_are_timed_at_the_end_and_judged() -> None:
    """20 test samples in batches of 8: every call has its row, on both agents, none of the warm-up's."""
    criterion = d5.metrics.InferenceLatency(0.5) <= 10.0
    with d5.simulate(experiment(d5.events.MeasureInference(batch_size=8, calls=400))) as group:
        group.train(1, progress=False)
        times = [rows(group, "inference_time", rank) for rank in range(2)]
        verdict = criterion.judge(group.tables())
        median = d5.metrics.InferenceTime().estimate(group.tables())
    assert [len(own) for own in times] == [400, 400]
    assert all(0 < seconds < 10 for own in times for seconds in own)
    slowest = np.maximum(times[0], times[1])
    assert verdict.value == pytest.approx(np.quantile(slowest, 0.5), rel=0.5)
    assert verdict.verdict == "PASS" or verdict.high is None  # on a busy machine
    assert (median.low is None) == bool(median.reason)


class Notes(d5.Event):
    """An event of the user's own with a metric and a file."""

    def after_epoch(self, moment: d5.events.Moment) -> None:
        moment.record("parameter_norm", float(moment.executor.parameters.norm()), unit="1")

    def after_run(self, moment: d5.events.Moment) -> None:
        if moment.rank == 0:
            moment.keep("notes.txt", b"done")
            moment.note("noted", words=1)


def test_an_event_of_the_users_own_records_and_keeps() -> None:
    with d5.simulate(experiment(Notes())) as group:
        group.train(progress=False)
        norm = float(group.agents[1].executor.parameters.norm())
        assert rows(group, "parameter_norm", rank=1)[-1] == norm
        (event,) = [e for e in group.tables()["events"].to_pylist() if e["name"] == "noted"]
    assert event["detail"] == '{"words": 1}'
    assert (group.folder / "notes.txt").read_bytes() == b"done"


@pytest.mark.parametrize("name", ["samples.parquet", "../up.txt", "checkpoints", ".hidden"])
def test_a_file_must_not_stand_in_the_way_of_the_runs_own(name: str) -> None:
    class Taker(d5.Event):
        def after_run(self, moment: d5.events.Moment) -> None:
            moment.keep(name, b"")

    with (
        pytest.raises(AgentError, match="cannot be called"),
        d5.simulate(experiment(Taker(), agents=1)) as group,
    ):
        group.train(1, progress=False)


# -- what does not fit ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: d5.events.StopAtAccuracy(1.5), "accuracy is 1.5: it must be"),
        (lambda: d5.events.StopAfterSeconds(0), "seconds is 0: it must be"),
        (lambda: d5.events.StopAfterSteps(2.5), "steps is 2.5: it must be"),  # type: ignore[arg-type]
        (lambda: d5.events.StopAtPlateau("accuracy"), "of is 'accuracy': it must be one of 'test_loss'"),
        (lambda: d5.events.StopAtPlateau(patience=0), "patience is 0"),
        (lambda: d5.events.Checkpoint(every_epochs=0), "every_epochs is 0"),
        (lambda: d5.events.Checkpoint(keep=-1), "keep is -1"),
        (lambda: d5.events.LearningCurves(0), "samples is 0"),
        (lambda: experiment("stop"), r"events is \('stop',\).*it must be Events such as"),  # type: ignore[arg-type]
        (
            lambda: experiment(d5.events.StopAtAccuracy(0.9), evaluate=False),
            "evaluations after epochs: set evaluate=True",
        ),
    ],
)
def test_what_is_wrong_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_a_single_event_needs_no_tuple_and_events_are_data() -> None:
    single = experiment(events=d5.events.StopAfterSteps(3))
    assert single.events == (d5.events.StopAfterSteps(3),)
    assert single == experiment(d5.events.StopAfterSteps(3)) != experiment(d5.events.StopAfterSteps(4))
    assert (
        repr(d5.events.StopAtPlateau("loss", 2)) == "StopAtPlateau(of='loss', patience=2, least_change=0.0)"
    )


def test_text_on_the_command_line_makes_events() -> None:
    from d5ray.recipes.engine.parsing import settings  # noqa: PLC0415 - imports Ray

    made = settings.built({"events": "(StopAtAccuracy(0.9), Checkpoint(every_epochs=2))"})["events"]
    assert made == (d5.events.StopAtAccuracy(0.9), d5.events.Checkpoint(every_epochs=2))
    with pytest.raises(ConfigurationError, match="has a Ring: it must be a Event"):
        settings.built({"events": "(Ring(4),)"})


def test_a_parquet_file_of_wrong_samples_is_empty_where_nothing_is_wrong() -> None:
    perfect = Dataset("one", Split(INPUTS[:9], LABELS[:9] * 0), Split(INPUTS[:9], LABELS[:9] * 0), ("a",))
    with d5.simulate(
        experiment(d5.events.SaveWrongSamples(), dataset=perfect, agents=1, batch_size=9)
    ) as group:
        group.train(1, progress=False)
    data = (group.folder / "wrong_samples.parquet").read_bytes()
    assert pq.read_table(io.BytesIO(data)).num_rows == 0
    assert Path(group.folder / "wrong_samples.parquet").exists()
