"""An agent's share of the training data: the batch of every step, also when other agents leave"""

from dataclasses import replace
from typing import final

from d5ray.experiment import Experiment
from d5ray.training.batches.batch import Batch
from d5ray.training.batches.epochs import Epochs, Position
from d5ray.training.batches.loader import Loader
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.datasets.samples import IGNORED
from d5ray.training.samplers.shards import Shards, Sharing


def loader_of(experiment: Experiment, dataset: Dataset, ahead: int = 0) -> Loader:
    """The loader of batches to train on, of which `ahead` are prepared before they are needed."""
    loss = experiment.loss
    return Loader(
        dataset.train,
        experiment.pipeline,
        seed=experiment.seed,
        ahead=ahead,
        threads=int(experiment.cpus_per_agent),
        masked=loss.sees_output or loss.ignored == IGNORED,
    )


@final
class AgentData:
    """The batches of the index-th agent of those that share the samples; threads: whether some may prepare.

    dataset  the whole of it
    shards   how its samples are divided among the agents
    """

    def __init__(self, experiment: Experiment, dataset: Dataset, index: int, *, threads: bool) -> None:
        self.dataset = dataset
        self.shards = Shards(
            samples=len(dataset.train),
            agents=experiment.replicas,
            batch_size=experiment.step_batch_size,
            sampler=experiment.train_sampler,
            seed=experiment.seed,
            planned=experiment.replicas,
        )
        self._keeps_global = experiment.elastic.keep_batch == "global"
        self._loader = loader_of(experiment, dataset, ahead=experiment.prefetch if threads else 0)
        self._loader.start(self.shards.draws(index))
        self._next_share: tuple[int, int] | None = None  # from the next epoch on: agents, and which this is

    @property
    def epochs(self) -> Epochs:
        """The epochs, and how they are cut into steps."""
        return self.shards.epochs

    def draw(self, step: int) -> Batch:
        """The batch of this step."""
        return self._loader.next(step)

    def share_anew(self, epoch: int, step: int) -> bool:
        """True if the samples are shared as `reshard` said from this epoch on, which begins with the step."""
        share, self._next_share = self._next_share, None
        if share is not None:
            self.share_from(Position(epoch, 0, step, step), Sharing(*share))
        return share is not None

    def share_from(self, place: Position, sharing: Sharing) -> None:
        """Go on from a place in the data, whose rest is shared like this."""
        agents = self.shards.planned if self._keeps_global else sharing.pieces
        self.shards = replace(
            self.shards, agents=agents, pieces=sharing.pieces, taken=sharing.taken, since=place
        )
        self._loader.start(self.shards.draws(sharing.own, place.epoch, place.step - place.begin))

    def begin_at(self, step: int, agents: int, index: int) -> None:
        """Go on with this step's share of the data, as the index-th of that many agents."""
        self.shards = replace(self.shards, agents=agents)
        self._loader.start(self.shards.draws(index, first_step=step))

    def reshard(self, agents: int, index: int) -> None:
        """Be the index-th of that many agents from the next epoch on."""
        self._next_share = agents, index

    def close(self) -> None:
        """Prepare no more batches, until the next is drawn."""
        self._loader.close()
