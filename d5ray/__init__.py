"""d5ray: Deep500 reborn on Ray. The public names; none of them is imported before it is asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from d5ray.errors import nearest
from d5ray.names.deep500 import moved

if TYPE_CHECKING:
    from ml_dtypes import bfloat16 as bfloat16
    from numpy import float16 as float16
    from numpy import float32 as float32
    from numpy import float64 as float64
    from numpy import int8 as int8
    from numpy import int16 as int16
    from numpy import int32 as int32
    from numpy import int64 as int64
    from numpy import uint8 as uint8
    from numpy import uint16 as uint16
    from numpy import uint32 as uint32
    from numpy import uint64 as uint64

    from d5ray.actors.launch import launch as launch
    from d5ray.actors.running import running as running
    from d5ray.actors.session import shutdown as shutdown
    from d5ray.actors.spread import SpreadNetwork as SpreadNetwork
    from d5ray.actors.spread import spread as spread
    from d5ray.distributed.buffers import Averaged as Averaged
    from d5ray.distributed.buffers import FromRankZero as FromRankZero
    from d5ray.distributed.buffers import Kept as Kept
    from d5ray.distributed.buffers import Untrained as Untrained
    from d5ray.distributed.communicators.communicator import Communicator as Communicator
    from d5ray.distributed.compression.chain import Chain as Chain
    from d5ray.distributed.compression.compressor import Compressor as Compressor
    from d5ray.distributed.compression.feedback import ErrorFeedback as ErrorFeedback
    from d5ray.distributed.compression.power_sgd import PowerSGD as PowerSGD
    from d5ray.distributed.compression.precision import BFloat16 as BFloat16
    from d5ray.distributed.compression.precision import Float16 as Float16
    from d5ray.distributed.compression.precision import Identity as Identity
    from d5ray.distributed.compression.random_k import RandomK as RandomK
    from d5ray.distributed.compression.random_k import UnbiasedRandomK as UnbiasedRandomK
    from d5ray.distributed.compression.reductions import AllGather as AllGather
    from d5ray.distributed.compression.reductions import Allreduce as Allreduce
    from d5ray.distributed.compression.reductions import Reduction as Reduction
    from d5ray.distributed.compression.reductions import ScatterReduce as ScatterReduce
    from d5ray.distributed.compression.rows import NonZeroRows as NonZeroRows
    from d5ray.distributed.compression.signs import OneBit as OneBit
    from d5ray.distributed.compression.signs import ScaledSign as ScaledSign
    from d5ray.distributed.compression.sparse_allreduce import RecursiveDoubling as RecursiveDoubling
    from d5ray.distributed.compression.sparse_allreduce import SparseAllreduce as SparseAllreduce
    from d5ray.distributed.compression.sparse_allreduce import SplitAllGather as SplitAllGather
    from d5ray.distributed.compression.stochastic import QSGD as QSGD
    from d5ray.distributed.compression.stochastic import TernGrad as TernGrad
    from d5ray.distributed.compression.threshold import Threshold as Threshold
    from d5ray.distributed.compression.top_k import TopK as TopK
    from d5ray.distributed.group.late_agents import Late as Late
    from d5ray.distributed.mesh.mesh import Mesh as Mesh
    from d5ray.distributed.one_sided.peers import Letter as Letter
    from d5ray.distributed.one_sided.peers import Peers as Peers
    from d5ray.distributed.optimizers.ad_psgd import ADPSGD as ADPSGD
    from d5ray.distributed.optimizers.allreduce import AllreduceSGD as AllreduceSGD
    from d5ray.distributed.optimizers.asynchronous_local_sgd import AsynchronousDiLoCo as AsynchronousDiLoCo
    from d5ray.distributed.optimizers.asynchronous_local_sgd import (
        AsynchronousLocalSGD as AsynchronousLocalSGD,
    )
    from d5ray.distributed.optimizers.bmuf import BMUF as BMUF
    from d5ray.distributed.optimizers.choco_sgd import ChocoSGD as ChocoSGD
    from d5ray.distributed.optimizers.compressed_sgd import CompressedSGD as CompressedSGD
    from d5ray.distributed.optimizers.consistent_neighbors import ConsistentNeighbors as ConsistentNeighbors
    from d5ray.distributed.optimizers.diloco import DiLoCo as DiLoCo
    from d5ray.distributed.optimizers.dpsgd import DPSGD as DPSGD
    from d5ray.distributed.optimizers.dpsgd import AdaptThenCombine as AdaptThenCombine
    from d5ray.distributed.optimizers.elastic_averaging import EASGD as EASGD
    from d5ray.distributed.optimizers.elastic_averaging import SynchronousEASGD as SynchronousEASGD
    from d5ray.distributed.optimizers.exact_diffusion import ExactDiffusion as ExactDiffusion
    from d5ray.distributed.optimizers.gradient_push import (
        AsynchronousGradientPush as AsynchronousGradientPush,
    )
    from d5ray.distributed.optimizers.gradient_push import OverlapSGP as OverlapSGP
    from d5ray.distributed.optimizers.gradient_tracking import GradientTracking as GradientTracking
    from d5ray.distributed.optimizers.growing_batch import GrowingBatch as GrowingBatch
    from d5ray.distributed.optimizers.hierarchical_averaging import (
        HierarchicalAveraging as HierarchicalAveraging,
    )
    from d5ray.distributed.optimizers.hogwild import Hogwild as Hogwild
    from d5ray.distributed.optimizers.local_sgd import LocalSGD as LocalSGD
    from d5ray.distributed.optimizers.local_sgd import PostLocalSGD as PostLocalSGD
    from d5ray.distributed.optimizers.model_averaging import ModelAveraging as ModelAveraging
    from d5ray.distributed.optimizers.optimizer import DistributedOptimizer as DistributedOptimizer
    from d5ray.distributed.optimizers.overlapped_allreduce import (
        OverlappedAllreduceSGD as OverlappedAllreduceSGD,
    )
    from d5ray.distributed.optimizers.parameter_server_sgd import ASGD as ASGD
    from d5ray.distributed.optimizers.parameter_server_sgd import DelayCompensatedASGD as DelayCompensatedASGD
    from d5ray.distributed.optimizers.parameter_server_sgd import Downpour as Downpour
    from d5ray.distributed.optimizers.parameter_server_sgd import ParameterServerSGD as ParameterServerSGD
    from d5ray.distributed.optimizers.parameter_server_sgd import StalenessAwareSGD as StalenessAwareSGD
    from d5ray.distributed.optimizers.parameter_server_sgd import StaleSynchronousSGD as StaleSynchronousSGD
    from d5ray.distributed.optimizers.random_walk import RandomWalkGossip as RandomWalkGossip
    from d5ray.distributed.optimizers.sharded_allreduce import ShardedAllreduceSGD as ShardedAllreduceSGD
    from d5ray.distributed.optimizers.slowmo import SlowMo as SlowMo
    from d5ray.distributed.optimizers.stochastic_gradient_push import (
        StochasticGradientPush as StochasticGradientPush,
    )
    from d5ray.distributed.parameter_server.client import Server as Server
    from d5ray.distributed.parameter_server.consistency import Asynchronous as Asynchronous
    from d5ray.distributed.parameter_server.consistency import Consistency as Consistency
    from d5ray.distributed.parameter_server.consistency import Policy as Policy
    from d5ray.distributed.parameter_server.consistency import StaleSynchronous as StaleSynchronous
    from d5ray.distributed.parameter_server.consistency import Synchronous as Synchronous
    from d5ray.distributed.parameter_server.server_rules import DelayCompensated as DelayCompensated
    from d5ray.distributed.parameter_server.server_rules import DelayedNesterov as DelayedNesterov
    from d5ray.distributed.parameter_server.server_rules import Descend as Descend
    from d5ray.distributed.parameter_server.server_rules import Elastic as Elastic
    from d5ray.distributed.parameter_server.server_rules import ServerRule as ServerRule
    from d5ray.distributed.parameter_server.server_rules import StalenessAware as StalenessAware
    from d5ray.distributed.parameter_server.servers import Servers as Servers
    from d5ray.distributed.pipeline.actions import Backward as Backward
    from d5ray.distributed.pipeline.actions import Forward as Forward
    from d5ray.distributed.pipeline.executor import PipelineExecutor as PipelineExecutor
    from d5ray.distributed.pipeline.schedule import PipelineSchedule as PipelineSchedule
    from d5ray.distributed.pipeline.schedules import FillDrain as FillDrain
    from d5ray.distributed.pipeline.schedules import Interleaved as Interleaved
    from d5ray.distributed.pipeline.schedules import OneForwardOneBackward as OneForwardOneBackward
    from d5ray.distributed.pipeline.schedules import SequentialStages as SequentialStages
    from d5ray.distributed.simulation.compute import ComputeTime as ComputeTime
    from d5ray.distributed.simulation.compute import ConstantTime as ConstantTime
    from d5ray.distributed.simulation.compute import LogNormalTime as LogNormalTime
    from d5ray.distributed.simulation.compute import MeasuredTime as MeasuredTime
    from d5ray.distributed.simulation.failures import Failure as Failure
    from d5ray.distributed.simulation.links import GroupedLinks as GroupedLinks
    from d5ray.distributed.simulation.links import Links as Links
    from d5ray.distributed.simulation.links import UniformLinks as UniformLinks
    from d5ray.distributed.topologies.circulant import DirectedRing as DirectedRing
    from d5ray.distributed.topologies.circulant import Exponential as Exponential
    from d5ray.distributed.topologies.circulant import OnePeerExponential as OnePeerExponential
    from d5ray.distributed.topologies.custom import Custom as Custom
    from d5ray.distributed.topologies.mixing import ColumnStochastic as ColumnStochastic
    from d5ray.distributed.topologies.mixing import MetropolisHastings as MetropolisHastings
    from d5ray.distributed.topologies.mixing import Mixing as Mixing
    from d5ray.distributed.topologies.mixing import Uniform as Uniform
    from d5ray.distributed.topologies.random_regular import RandomRegular as RandomRegular
    from d5ray.distributed.topologies.requirements import ColumnStochasticWeights as ColumnStochasticWeights
    from d5ray.distributed.topologies.requirements import Connected as Connected
    from d5ray.distributed.topologies.requirements import DoublyStochastic as DoublyStochastic
    from d5ray.distributed.topologies.requirements import PositiveSpectralGap as PositiveSpectralGap
    from d5ray.distributed.topologies.requirements import Requirement as Requirement
    from d5ray.distributed.topologies.requirements import Static as Static
    from d5ray.distributed.topologies.requirements import Symmetric as Symmetric
    from d5ray.distributed.topologies.requirements import TwoSided as TwoSided
    from d5ray.distributed.topologies.requirements import Undirected as Undirected
    from d5ray.distributed.topologies.time_varying import TimeVarying as TimeVarying
    from d5ray.distributed.topologies.topology import Complete as Complete
    from d5ray.distributed.topologies.topology import Ring as Ring
    from d5ray.distributed.topologies.topology import Topology as Topology
    from d5ray.distributed.topologies.undirected import Bipartite as Bipartite
    from d5ray.distributed.topologies.undirected import Hypercube as Hypercube
    from d5ray.distributed.topologies.undirected import Star as Star
    from d5ray.distributed.topologies.undirected import Torus as Torus
    from d5ray.distributed.topologies.undirected import Tree as Tree
    from d5ray.errors import D5Error as D5Error
    from d5ray.errors import OperatorError as OperatorError
    from d5ray.errors import PeerLost as PeerLost
    from d5ray.errors import ValidationError as ValidationError
    from d5ray.experiment import Experiment as Experiment
    from d5ray.frameworks.tensorflow.optimizer import KerasOptimizer as KerasOptimizer
    from d5ray.frameworks.torch.optimizer import TorchOptimizer as TorchOptimizer
    from d5ray.metrics.definitions.asynchrony import AsynchronousThroughput as AsynchronousThroughput
    from d5ray.metrics.definitions.asynchrony import ClockGap as ClockGap
    from d5ray.metrics.definitions.asynchrony import ConsensusDistance as ConsensusDistance
    from d5ray.metrics.definitions.asynchrony import LoadBalance as LoadBalance
    from d5ray.metrics.definitions.asynchrony import PullRate as PullRate
    from d5ray.metrics.definitions.asynchrony import PushRate as PushRate
    from d5ray.metrics.definitions.asynchrony import ServerQueue as ServerQueue
    from d5ray.metrics.definitions.asynchrony import Staleness as Staleness
    from d5ray.metrics.definitions.balance import Imbalance as Imbalance
    from d5ray.metrics.definitions.bits_per_byte import BitsPerByte as BitsPerByte
    from d5ray.metrics.definitions.catalogue import BackwardTime as BackwardTime
    from d5ray.metrics.definitions.catalogue import BytesReceived as BytesReceived
    from d5ray.metrics.definitions.catalogue import BytesSent as BytesSent
    from d5ray.metrics.definitions.catalogue import DataTime as DataTime
    from d5ray.metrics.definitions.catalogue import EvaluationTime as EvaluationTime
    from d5ray.metrics.definitions.catalogue import ExchangeTime as ExchangeTime
    from d5ray.metrics.definitions.catalogue import ForwardTime as ForwardTime
    from d5ray.metrics.definitions.catalogue import MessagesSent as MessagesSent
    from d5ray.metrics.definitions.catalogue import Metric as Metric
    from d5ray.metrics.definitions.catalogue import RecordTime as RecordTime
    from d5ray.metrics.definitions.catalogue import SamplesSeen as SamplesSeen
    from d5ray.metrics.definitions.catalogue import StepTime as StepTime
    from d5ray.metrics.definitions.catalogue import TestAccuracy as TestAccuracy
    from d5ray.metrics.definitions.catalogue import TestLoss as TestLoss
    from d5ray.metrics.definitions.catalogue import Throughput as Throughput
    from d5ray.metrics.definitions.catalogue import UpdateTime as UpdateTime
    from d5ray.metrics.definitions.convergence import StepsToAccuracy as StepsToAccuracy
    from d5ray.metrics.definitions.convergence import TimeToAccuracy as TimeToAccuracy
    from d5ray.metrics.definitions.convergence import convergence_curve as convergence_curve
    from d5ray.metrics.definitions.families import LastEvaluation as LastEvaluation
    from d5ray.metrics.definitions.latency import InferenceLatency as InferenceLatency
    from d5ray.metrics.definitions.latency import InferenceTime as InferenceTime
    from d5ray.metrics.definitions.latency import StepLatency as StepLatency
    from d5ray.metrics.definitions.pipelines import BubbleFormula as BubbleFormula
    from d5ray.metrics.definitions.pipelines import BubbleShare as BubbleShare
    from d5ray.metrics.definitions.pipelines import PartBytesSent as PartBytesSent
    from d5ray.metrics.definitions.pipelines import StageBytesSent as StageBytesSent
    from d5ray.metrics.definitions.pipelines import StageComputeTime as StageComputeTime
    from d5ray.metrics.definitions.pipelines import StageSendTime as StageSendTime
    from d5ray.metrics.definitions.pipelines import StageWaitTime as StageWaitTime
    from d5ray.metrics.definitions.price import Cost as Cost
    from d5ray.metrics.definitions.price import PriceTable as PriceTable
    from d5ray.metrics.definitions.qualities import AreaUnderCurve as AreaUnderCurve
    from d5ray.metrics.definitions.qualities import AveragePrecision50 as AveragePrecision50
    from d5ray.metrics.definitions.qualities import MeanAveragePrecision as MeanAveragePrecision
    from d5ray.metrics.definitions.qualities import TestReturn as TestReturn
    from d5ray.metrics.definitions.resources import ControlGroupPeakMemory as ControlGroupPeakMemory
    from d5ray.metrics.definitions.resources import DeviceEnergy as DeviceEnergy
    from d5ray.metrics.definitions.resources import DevicePeakMemory as DevicePeakMemory
    from d5ray.metrics.definitions.resources import DeviceUtilisation as DeviceUtilisation
    from d5ray.metrics.definitions.resources import Energy as Energy
    from d5ray.metrics.definitions.resources import EnergyAboveIdle as EnergyAboveIdle
    from d5ray.metrics.definitions.resources import MemoryEnergy as MemoryEnergy
    from d5ray.metrics.definitions.resources import ProcessorEnergy as ProcessorEnergy
    from d5ray.metrics.definitions.resources import ProcessorUtilisation as ProcessorUtilisation
    from d5ray.metrics.definitions.resources import ProcessPeakMemory as ProcessPeakMemory
    from d5ray.metrics.definitions.resources import ProcessUtilisation as ProcessUtilisation
    from d5ray.metrics.definitions.scaling import StrongEfficiency as StrongEfficiency
    from d5ray.metrics.definitions.scaling import WeakEfficiency as WeakEfficiency
    from d5ray.metrics.exports.catalogue import export as export
    from d5ray.metrics.judge.series import Series as Series
    from d5ray.metrics.queries.notebook_table import Table as Table
    from d5ray.metrics.queries.sql import sql as sql
    from d5ray.metrics.record.store import Run as Run
    from d5ray.metrics.statistics.estimates import Rows as Rows
    from d5ray.metrics.statistics.intervals import Estimate as Estimate
    from d5ray.metrics.statistics.intervals import median_interval as median_interval
    from d5ray.metrics.statistics.intervals import median_log_ratio as median_log_ratio
    from d5ray.metrics.statistics.intervals import quantile_interval as quantile_interval
    from d5ray.metrics.statistics.sequential_stopping import Looks as Looks
    from d5ray.metrics.statistics.sequential_stopping import StoppingRule as StoppingRule
    from d5ray.networks.device import BestDevice as BestDevice
    from d5ray.networks.device import CPUDevice as CPUDevice
    from d5ray.networks.device import GPUDevice as GPUDevice
    from d5ray.networks.difference import compare_values as compare_values
    from d5ray.networks.difference import structural_difference as structural_difference
    from d5ray.networks.microbatch.executor import MicroBatched as MicroBatched
    from d5ray.networks.microbatch.freezing import frozen_statistics as frozen_statistics
    from d5ray.networks.microbatch.kernels import Kernel as Kernel
    from d5ray.networks.microbatch.kernels import LayerKernels as LayerKernels
    from d5ray.networks.microbatch.measuring import fastest_within as fastest_within
    from d5ray.networks.microbatch.measuring import layer_kernels as layer_kernels
    from d5ray.networks.microbatch.measuring import step_costs as step_costs
    from d5ray.networks.microbatch.reuse import WorkspaceReuse as WorkspaceReuse
    from d5ray.networks.microbatch.sizes import AllSizes as AllSizes
    from d5ray.networks.microbatch.sizes import PowersOfTwo as PowersOfTwo
    from d5ray.networks.microbatch.sizes import Undivided as Undivided
    from d5ray.networks.microbatch.transform import microbatched as microbatched
    from d5ray.networks.microbatch.workspace_division import WorkspaceDivision as WorkspaceDivision
    from d5ray.networks.network import Network as Network
    from d5ray.networks.splitting.divisions import ByColumns as ByColumns
    from d5ray.networks.splitting.divisions import ByHeads as ByHeads
    from d5ray.networks.splitting.divisions import ByInputChannels as ByInputChannels
    from d5ray.networks.splitting.divisions import ByOutputChannels as ByOutputChannels
    from d5ray.networks.splitting.divisions import ByRows as ByRows
    from d5ray.networks.splitting.divisions import BySamples as BySamples
    from d5ray.networks.splitting.plans import FullyConnectedSplit as FullyConnectedSplit
    from d5ray.networks.splitting.plans import TransformerSplit as TransformerSplit
    from d5ray.networks.splitting.splitting import Splitting as Splitting
    from d5ray.networks.splitting.splitting import split as split
    from d5ray.networks.splitting.traffic import exchange_table as exchange_table
    from d5ray.networks.splitting.traffic import parameter_table as parameter_table
    from d5ray.networks.stages.balanced import Balanced as Balanced
    from d5ray.networks.stages.costs import counted_costs as counted_costs
    from d5ray.networks.stages.costs import operator_costs as operator_costs
    from d5ray.networks.stages.cut import Cut as Cut
    from d5ray.networks.stages.cut_table import stage_table as stage_table
    from d5ray.networks.stages.cutting import pieces as pieces
    from d5ray.operators.collectives import Collectives as Collectives
    from d5ray.operators.custom.cpp.compiling import compile_custom_cppop as compile_custom_cppop
    from d5ray.operators.custom.cpp.custom_cpp import CustomCppOp as CustomCppOp
    from d5ray.operators.custom.custom_operator import CustomOp as CustomOp
    from d5ray.operators.custom.custom_python import CustomPythonOp as CustomPythonOp
    from d5ray.operators.custom.registry import register_operator as register_operator
    from d5ray.operators.loss import Loss as Loss
    from d5ray.operators.nodes.node import Node as Node
    from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor as TensorDescriptor
    from d5ray.operators.tensors.tensordesc import tensordesc as tensordesc
    from d5ray.operators.validation.validation import check_forward as check_forward
    from d5ray.operators.validation.validation import check_gradient as check_gradient
    from d5ray.operators.validation.validation import check_repeatability as check_repeatability
    from d5ray.ops.losses.actor_critic_loss import ActorCriticLoss as ActorCriticLoss
    from d5ray.ops.losses.default_boxes import DefaultBoxes as DefaultBoxes
    from d5ray.ops.losses.mean_squared_error_loss import MeanSquaredErrorLoss as MeanSquaredErrorLoss
    from d5ray.ops.losses.multi_box_loss import MultiBoxLoss as MultiBoxLoss
    from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss as SoftmaxCrossEntropyLoss
    from d5ray.recipes.engine.run_recipe import run_recipe as run_recipe
    from d5ray.replayer import replay as replay
    from d5ray.simulator import simulate as simulate
    from d5ray.training.batches.batch import Batch as Batch
    from d5ray.training.datasets import Dataset as Dataset
    from d5ray.training.datasets import ImageFolder as ImageFolder
    from d5ray.training.datasets import Parquet as Parquet
    from d5ray.training.datasets import Samples as Samples
    from d5ray.training.datasets import Split as Split
    from d5ray.training.datasets import Subset as Subset
    from d5ray.training.datasets import Synthetic as Synthetic
    from d5ray.training.datasets import load_dataset as load_dataset
    from d5ray.training.datasets.log_mel import LogMel as LogMel
    from d5ray.training.events.checkpoint import Checkpoint as Checkpoint
    from d5ray.training.events.curves import LearningCurves as LearningCurves
    from d5ray.training.events.detection import DetectionQuality as DetectionQuality
    from d5ray.training.events.event import Event as Event
    from d5ray.training.events.inference import MeasureInference as MeasureInference
    from d5ray.training.events.moment import Moment as Moment
    from d5ray.training.events.play import Play as Play
    from d5ray.training.events.quality import Quality as Quality
    from d5ray.training.events.quality import RankingQuality as RankingQuality
    from d5ray.training.events.stopping import StopAfterSeconds as StopAfterSeconds
    from d5ray.training.events.stopping import StopAfterSteps as StopAfterSteps
    from d5ray.training.events.stopping import StopAtAccuracy as StopAtAccuracy
    from d5ray.training.events.stopping import StopAtNaN as StopAtNaN
    from d5ray.training.events.stopping import StopAtPlateau as StopAtPlateau
    from d5ray.training.events.wrong_samples import SaveWrongSamples as SaveWrongSamples
    from d5ray.training.optimizers.accelegrad import AcceleGrad as AcceleGrad
    from d5ray.training.optimizers.adafactor import Adafactor as Adafactor
    from d5ray.training.optimizers.adagrad import AdaGrad as AdaGrad
    from d5ray.training.optimizers.adagrad import RMSProp as RMSProp
    from d5ray.training.optimizers.adam import Adam as Adam
    from d5ray.training.optimizers.adam import AdaMax as AdaMax
    from d5ray.training.optimizers.adam import AdamW as AdamW
    from d5ray.training.optimizers.adam import AMSGrad as AMSGrad
    from d5ray.training.optimizers.adam import NAdam as NAdam
    from d5ray.training.optimizers.deep500_rules import ThreeStepOptimizer as ThreeStepOptimizer
    from d5ray.training.optimizers.deep500_rules import UpdateRuleOptimizer as UpdateRuleOptimizer
    from d5ray.training.optimizers.gradient_descent import SGD as SGD
    from d5ray.training.optimizers.gradient_descent import Momentum as Momentum
    from d5ray.training.optimizers.gradient_descent import Nesterov as Nesterov
    from d5ray.training.optimizers.gradient_transformations import ClipNorm as ClipNorm
    from d5ray.training.optimizers.gradient_transformations import ClipValue as ClipValue
    from d5ray.training.optimizers.gradient_transformations import WeightDecay as WeightDecay
    from d5ray.training.optimizers.layerwise import LAMB as LAMB
    from d5ray.training.optimizers.layerwise import LARS as LARS
    from d5ray.training.optimizers.lbfgs import LBFGS as LBFGS
    from d5ray.training.optimizers.lion import Lion as Lion
    from d5ray.training.optimizers.muon import Muon as Muon
    from d5ray.training.optimizers.native import NativeOptimizer as NativeOptimizer
    from d5ray.training.optimizers.optimizer import Optimizer as Optimizer
    from d5ray.training.optimizers.scheduled import Scheduled as Scheduled
    from d5ray.training.optimizers.shampoo import Shampoo as Shampoo
    from d5ray.training.samplers import BlockShuffleSampler as BlockShuffleSampler
    from d5ray.training.samplers import BucketSampler as BucketSampler
    from d5ray.training.samplers import ChoiceSampler as ChoiceSampler
    from d5ray.training.samplers import LabelBias as LabelBias
    from d5ray.training.samplers import OrderedSampler as OrderedSampler
    from d5ray.training.samplers import Sampler as Sampler
    from d5ray.training.samplers import ShuffleSampler as ShuffleSampler
    from d5ray.training.samplers import check_sampler as check_sampler
    from d5ray.training.samplers import label_bias as label_bias
    from d5ray.training.schedules import Computed as Computed
    from d5ray.training.schedules import Cosine as Cosine
    from d5ray.training.schedules import InverseTo as InverseTo
    from d5ray.training.schedules import OneCycle as OneCycle
    from d5ray.training.schedules import Piecewise as Piecewise
    from d5ray.training.schedules import Polynomial as Polynomial
    from d5ray.training.schedules import Schedule as Schedule
    from d5ray.training.schedules import WarmUp as WarmUp
    from d5ray.training.stragglers import ExponentialSlowdown as ExponentialSlowdown
    from d5ray.training.stragglers import HeavyTailedSlowdown as HeavyTailedSlowdown
    from d5ray.training.stragglers import Slowdown as Slowdown
    from d5ray.training.transformations import CentreCrop as CentreCrop
    from d5ray.training.transformations import Crop as Crop
    from d5ray.training.transformations import Cutout as Cutout
    from d5ray.training.transformations import Normalize as Normalize
    from d5ray.training.transformations import RandomFlip as RandomFlip
    from d5ray.training.transformations import ReplicateBatch as ReplicateBatch
    from d5ray.training.transformations import Resize as Resize
    from d5ray.training.transformations import Sampled as Sampled
    from d5ray.training.transformations import Transformation as Transformation
    from d5ray.training.validation.validation import check_optimizer as check_optimizer
    from d5ray.training.validation.validation import check_training as check_training

_NAMES = {
    "Experiment": "d5ray.experiment",
    "launch": "d5ray.actors.launch",
    "simulate": "d5ray.simulator",
    "replay": "d5ray.replayer",
    "Servers": "d5ray.distributed.parameter_server.servers",
    "Server": "d5ray.distributed.parameter_server.client",
    "Consistency": "d5ray.distributed.parameter_server.consistency",
    "Policy": "d5ray.distributed.parameter_server.consistency",
    "Synchronous": "d5ray.distributed.parameter_server.consistency",
    "StaleSynchronous": "d5ray.distributed.parameter_server.consistency",
    "Asynchronous": "d5ray.distributed.parameter_server.consistency",
    "ServerRule": "d5ray.distributed.parameter_server.server_rules",
    "Descend": "d5ray.distributed.parameter_server.server_rules",
    "StalenessAware": "d5ray.distributed.parameter_server.server_rules",
    "DelayCompensated": "d5ray.distributed.parameter_server.server_rules",
    "Elastic": "d5ray.distributed.parameter_server.server_rules",
    "DelayedNesterov": "d5ray.distributed.parameter_server.server_rules",
    "Peers": "d5ray.distributed.one_sided.peers",
    "Letter": "d5ray.distributed.one_sided.peers",
    "PipelineSchedule": "d5ray.distributed.pipeline.schedule",
    "SequentialStages": "d5ray.distributed.pipeline.schedules",
    "Mesh": "d5ray.distributed.mesh.mesh",
    "BubbleFormula": "d5ray.metrics.definitions.pipelines",
    "BubbleShare": "d5ray.metrics.definitions.pipelines",
    "PartBytesSent": "d5ray.metrics.definitions.pipelines",
    "StageBytesSent": "d5ray.metrics.definitions.pipelines",
    "StageComputeTime": "d5ray.metrics.definitions.pipelines",
    "StageSendTime": "d5ray.metrics.definitions.pipelines",
    "StageWaitTime": "d5ray.metrics.definitions.pipelines",
    "FillDrain": "d5ray.distributed.pipeline.schedules",
    "OneForwardOneBackward": "d5ray.distributed.pipeline.schedules",
    "Interleaved": "d5ray.distributed.pipeline.schedules",
    "Forward": "d5ray.distributed.pipeline.actions",
    "Backward": "d5ray.distributed.pipeline.actions",
    "PipelineExecutor": "d5ray.distributed.pipeline.executor",
    "spread": "d5ray.actors.spread",
    "SpreadNetwork": "d5ray.actors.spread",
    "Hogwild": "d5ray.distributed.optimizers.hogwild",
    "ADPSGD": "d5ray.distributed.optimizers.ad_psgd",
    "AsynchronousGradientPush": "d5ray.distributed.optimizers.gradient_push",
    "OverlapSGP": "d5ray.distributed.optimizers.gradient_push",
    "RandomWalkGossip": "d5ray.distributed.optimizers.random_walk",
    "ParameterServerSGD": "d5ray.distributed.optimizers.parameter_server_sgd",
    "ASGD": "d5ray.distributed.optimizers.parameter_server_sgd",
    "StaleSynchronousSGD": "d5ray.distributed.optimizers.parameter_server_sgd",
    "StalenessAwareSGD": "d5ray.distributed.optimizers.parameter_server_sgd",
    "DelayCompensatedASGD": "d5ray.distributed.optimizers.parameter_server_sgd",
    "Downpour": "d5ray.distributed.optimizers.parameter_server_sgd",
    "EASGD": "d5ray.distributed.optimizers.elastic_averaging",
    "SynchronousEASGD": "d5ray.distributed.optimizers.elastic_averaging",
    "AsynchronousLocalSGD": "d5ray.distributed.optimizers.asynchronous_local_sgd",
    "AsynchronousDiLoCo": "d5ray.distributed.optimizers.asynchronous_local_sgd",
    "Failure": "d5ray.distributed.simulation.failures",
    "Links": "d5ray.distributed.simulation.links",
    "UniformLinks": "d5ray.distributed.simulation.links",
    "GroupedLinks": "d5ray.distributed.simulation.links",
    "ComputeTime": "d5ray.distributed.simulation.compute",
    "ConstantTime": "d5ray.distributed.simulation.compute",
    "LogNormalTime": "d5ray.distributed.simulation.compute",
    "MeasuredTime": "d5ray.distributed.simulation.compute",
    "Slowdown": "d5ray.training.stragglers",
    "Late": "d5ray.distributed.group.late_agents",
    "ExponentialSlowdown": "d5ray.training.stragglers",
    "HeavyTailedSlowdown": "d5ray.training.stragglers",
    "shutdown": "d5ray.actors.session",
    "DistributedOptimizer": "d5ray.distributed.optimizers.optimizer",
    "AllreduceSGD": "d5ray.distributed.optimizers.allreduce",
    "Topology": "d5ray.distributed.topologies.topology",
    "Complete": "d5ray.distributed.topologies.topology",
    "Ring": "d5ray.distributed.topologies.topology",
    "Optimizer": "d5ray.training.optimizers.optimizer",
    "SGD": "d5ray.training.optimizers.gradient_descent",
    "Momentum": "d5ray.training.optimizers.gradient_descent",
    "AdaGrad": "d5ray.training.optimizers.adagrad",
    "RMSProp": "d5ray.training.optimizers.adagrad",
    "Adam": "d5ray.training.optimizers.adam",
    "AdamW": "d5ray.training.optimizers.adam",
    "AMSGrad": "d5ray.training.optimizers.adam",
    "NAdam": "d5ray.training.optimizers.adam",
    "AdaMax": "d5ray.training.optimizers.adam",
    "Adafactor": "d5ray.training.optimizers.adafactor",
    "LARS": "d5ray.training.optimizers.layerwise",
    "LAMB": "d5ray.training.optimizers.layerwise",
    "Lion": "d5ray.training.optimizers.lion",
    "AcceleGrad": "d5ray.training.optimizers.accelegrad",
    "Muon": "d5ray.training.optimizers.muon",
    "Shampoo": "d5ray.training.optimizers.shampoo",
    "LBFGS": "d5ray.training.optimizers.lbfgs",
    "WeightDecay": "d5ray.training.optimizers.gradient_transformations",
    "ClipNorm": "d5ray.training.optimizers.gradient_transformations",
    "ClipValue": "d5ray.training.optimizers.gradient_transformations",
    "ThreeStepOptimizer": "d5ray.training.optimizers.deep500_rules",
    "UpdateRuleOptimizer": "d5ray.training.optimizers.deep500_rules",
    "NativeOptimizer": "d5ray.training.optimizers.native",
    "KerasOptimizer": "d5ray.frameworks.tensorflow.optimizer",
    "TorchOptimizer": "d5ray.frameworks.torch.optimizer",
    "Schedule": "d5ray.training.schedules",
    "Piecewise": "d5ray.training.schedules",
    "Cosine": "d5ray.training.schedules",
    "Polynomial": "d5ray.training.schedules",
    "OneCycle": "d5ray.training.schedules",
    "WarmUp": "d5ray.training.schedules",
    "Computed": "d5ray.training.schedules",
    "InverseTo": "d5ray.training.schedules",
    "Scheduled": "d5ray.training.optimizers.scheduled",
    "Event": "d5ray.training.events.event",
    "Moment": "d5ray.training.events.moment",
    "StopAtAccuracy": "d5ray.training.events.stopping",
    "StopAfterSeconds": "d5ray.training.events.stopping",
    "StopAfterSteps": "d5ray.training.events.stopping",
    "StopAtPlateau": "d5ray.training.events.stopping",
    "StopAtNaN": "d5ray.training.events.stopping",
    "Checkpoint": "d5ray.training.events.checkpoint",
    "LearningCurves": "d5ray.training.events.curves",
    "MeasureInference": "d5ray.training.events.inference",
    "SaveWrongSamples": "d5ray.training.events.wrong_samples",
    "check_forward": "d5ray.operators.validation.validation",
    "check_gradient": "d5ray.operators.validation.validation",
    "check_repeatability": "d5ray.operators.validation.validation",
    "check_optimizer": "d5ray.training.validation.validation",
    "check_training": "d5ray.training.validation.validation",
    "Batch": "d5ray.training.batches.batch",
    "Sampler": "d5ray.training.samplers",
    "OrderedSampler": "d5ray.training.samplers",
    "ShuffleSampler": "d5ray.training.samplers",
    "BlockShuffleSampler": "d5ray.training.samplers",
    "BucketSampler": "d5ray.training.samplers",
    "ChoiceSampler": "d5ray.training.samplers",
    "check_sampler": "d5ray.training.samplers",
    "label_bias": "d5ray.training.samplers",
    "LabelBias": "d5ray.training.samplers",
    "Transformation": "d5ray.training.transformations",
    "Sampled": "d5ray.training.transformations",
    "Crop": "d5ray.training.transformations",
    "CentreCrop": "d5ray.training.transformations",
    "RandomFlip": "d5ray.training.transformations",
    "Normalize": "d5ray.training.transformations",
    "Cutout": "d5ray.training.transformations",
    "Resize": "d5ray.training.transformations",
    "ReplicateBatch": "d5ray.training.transformations",
    "Dataset": "d5ray.training.datasets",
    "Split": "d5ray.training.datasets",
    "Samples": "d5ray.training.datasets",
    "Subset": "d5ray.training.datasets",
    "Synthetic": "d5ray.training.datasets",
    "ImageFolder": "d5ray.training.datasets",
    "Parquet": "d5ray.training.datasets",
    "load_dataset": "d5ray.training.datasets",
    "BestDevice": "d5ray.networks.device",
    "Network": "d5ray.networks.network",
    "Node": "d5ray.operators.nodes.node",
    "compare_values": "d5ray.networks.difference",
    "structural_difference": "d5ray.networks.difference",
    "CPUDevice": "d5ray.networks.device",
    "GPUDevice": "d5ray.networks.device",
    "MicroBatched": "d5ray.networks.microbatch.executor",
    "frozen_statistics": "d5ray.networks.microbatch.freezing",
    "Kernel": "d5ray.networks.microbatch.kernels",
    "LayerKernels": "d5ray.networks.microbatch.kernels",
    "fastest_within": "d5ray.networks.microbatch.measuring",
    "layer_kernels": "d5ray.networks.microbatch.measuring",
    "step_costs": "d5ray.networks.microbatch.measuring",
    "WorkspaceReuse": "d5ray.networks.microbatch.reuse",
    "AllSizes": "d5ray.networks.microbatch.sizes",
    "PowersOfTwo": "d5ray.networks.microbatch.sizes",
    "Undivided": "d5ray.networks.microbatch.sizes",
    "ByColumns": "d5ray.networks.splitting.divisions",
    "ByHeads": "d5ray.networks.splitting.divisions",
    "ByInputChannels": "d5ray.networks.splitting.divisions",
    "ByOutputChannels": "d5ray.networks.splitting.divisions",
    "ByRows": "d5ray.networks.splitting.divisions",
    "BySamples": "d5ray.networks.splitting.divisions",
    "FullyConnectedSplit": "d5ray.networks.splitting.plans",
    "TransformerSplit": "d5ray.networks.splitting.plans",
    "Splitting": "d5ray.networks.splitting.splitting",
    "split": "d5ray.networks.splitting.splitting",
    "exchange_table": "d5ray.networks.splitting.traffic",
    "parameter_table": "d5ray.networks.splitting.traffic",
    "Collectives": "d5ray.operators.collectives",
    "microbatched": "d5ray.networks.microbatch.transform",
    "Balanced": "d5ray.networks.stages.balanced",
    "Cut": "d5ray.networks.stages.cut",
    "counted_costs": "d5ray.networks.stages.costs",
    "operator_costs": "d5ray.networks.stages.costs",
    "pieces": "d5ray.networks.stages.cutting",
    "stage_table": "d5ray.networks.stages.cut_table",
    "WorkspaceDivision": "d5ray.networks.microbatch.workspace_division",
    "SoftmaxCrossEntropyLoss": "d5ray.ops.losses.softmax_cross_entropy_loss",
    "run_recipe": "d5ray.recipes.engine.run_recipe",
    "Metric": "d5ray.metrics.definitions.catalogue",
    "TestAccuracy": "d5ray.metrics.definitions.catalogue",
    "TestLoss": "d5ray.metrics.definitions.catalogue",
    "StepTime": "d5ray.metrics.definitions.catalogue",
    "Throughput": "d5ray.metrics.definitions.catalogue",
    "BytesSent": "d5ray.metrics.definitions.catalogue",
    "StepLatency": "d5ray.metrics.definitions.latency",
    "InferenceLatency": "d5ray.metrics.definitions.latency",
    "InferenceTime": "d5ray.metrics.definitions.latency",
    "TimeToAccuracy": "d5ray.metrics.definitions.convergence",
    "StepsToAccuracy": "d5ray.metrics.definitions.convergence",
    "convergence_curve": "d5ray.metrics.definitions.convergence",
    "Cost": "d5ray.metrics.definitions.price",
    "PriceTable": "d5ray.metrics.definitions.price",
    "ProcessorUtilisation": "d5ray.metrics.definitions.resources",
    "ProcessUtilisation": "d5ray.metrics.definitions.resources",
    "DeviceUtilisation": "d5ray.metrics.definitions.resources",
    "ProcessPeakMemory": "d5ray.metrics.definitions.resources",
    "DevicePeakMemory": "d5ray.metrics.definitions.resources",
    "ControlGroupPeakMemory": "d5ray.metrics.definitions.resources",
    "ProcessorEnergy": "d5ray.metrics.definitions.resources",
    "MemoryEnergy": "d5ray.metrics.definitions.resources",
    "DeviceEnergy": "d5ray.metrics.definitions.resources",
    "Energy": "d5ray.metrics.definitions.resources",
    "EnergyAboveIdle": "d5ray.metrics.definitions.resources",
    "StrongEfficiency": "d5ray.metrics.definitions.scaling",
    "WeakEfficiency": "d5ray.metrics.definitions.scaling",
    "StoppingRule": "d5ray.metrics.statistics.sequential_stopping",
    "Looks": "d5ray.metrics.statistics.sequential_stopping",
    "Imbalance": "d5ray.metrics.definitions.balance",
    "Estimate": "d5ray.metrics.statistics.intervals",
    "median_interval": "d5ray.metrics.statistics.intervals",
    "median_log_ratio": "d5ray.metrics.statistics.intervals",
    "quantile_interval": "d5ray.metrics.statistics.intervals",
    "Rows": "d5ray.metrics.statistics.estimates",
    "EvaluationTime": "d5ray.metrics.definitions.catalogue",
    "ExchangeTime": "d5ray.metrics.definitions.catalogue",
    "DataTime": "d5ray.metrics.definitions.catalogue",
    "ForwardTime": "d5ray.metrics.definitions.catalogue",
    "BackwardTime": "d5ray.metrics.definitions.catalogue",
    "UpdateTime": "d5ray.metrics.definitions.catalogue",
    "RecordTime": "d5ray.metrics.definitions.catalogue",
    "BytesReceived": "d5ray.metrics.definitions.catalogue",
    "MessagesSent": "d5ray.metrics.definitions.catalogue",
    "SamplesSeen": "d5ray.metrics.definitions.catalogue",
    "Staleness": "d5ray.metrics.definitions.asynchrony",
    "ClockGap": "d5ray.metrics.definitions.asynchrony",
    "ServerQueue": "d5ray.metrics.definitions.asynchrony",
    "PushRate": "d5ray.metrics.definitions.asynchrony",
    "PullRate": "d5ray.metrics.definitions.asynchrony",
    "ConsensusDistance": "d5ray.metrics.definitions.asynchrony",
    "LoadBalance": "d5ray.metrics.definitions.asynchrony",
    "AsynchronousThroughput": "d5ray.metrics.definitions.asynchrony",
    "running": "d5ray.actors.running",
    "Table": "d5ray.metrics.queries.notebook_table",
    "Run": "d5ray.metrics.record.store",
    "Series": "d5ray.metrics.judge.series",
    "export": "d5ray.metrics.exports.catalogue",
    "sql": "d5ray.metrics.queries.sql",
    "D5Error": "d5ray.errors",
    "Untrained": "d5ray.distributed.buffers",
    "Requirement": "d5ray.distributed.topologies.requirements",
    "Reduction": "d5ray.distributed.compression.reductions",
    "SplitAllGather": "d5ray.distributed.compression.sparse_allreduce",
    "RecursiveDoubling": "d5ray.distributed.compression.sparse_allreduce",
    "Torus": "d5ray.distributed.topologies.undirected",
    "Star": "d5ray.distributed.topologies.undirected",
    "Tree": "d5ray.distributed.topologies.undirected",
    "Hypercube": "d5ray.distributed.topologies.undirected",
    "Bipartite": "d5ray.distributed.topologies.undirected",
    "DirectedRing": "d5ray.distributed.topologies.circulant",
    "Exponential": "d5ray.distributed.topologies.circulant",
    "OnePeerExponential": "d5ray.distributed.topologies.circulant",
    "RandomRegular": "d5ray.distributed.topologies.random_regular",
    "Custom": "d5ray.distributed.topologies.custom",
    "TimeVarying": "d5ray.distributed.topologies.time_varying",
    "Mixing": "d5ray.distributed.topologies.mixing",
    "MetropolisHastings": "d5ray.distributed.topologies.mixing",
    "Uniform": "d5ray.distributed.topologies.mixing",
    "ColumnStochastic": "d5ray.distributed.topologies.mixing",
    "Connected": "d5ray.distributed.topologies.requirements",
    "Undirected": "d5ray.distributed.topologies.requirements",
    "DoublyStochastic": "d5ray.distributed.topologies.requirements",
    "ColumnStochasticWeights": "d5ray.distributed.topologies.requirements",
    "Symmetric": "d5ray.distributed.topologies.requirements",
    "Static": "d5ray.distributed.topologies.requirements",
    "PositiveSpectralGap": "d5ray.distributed.topologies.requirements",
    "TwoSided": "d5ray.distributed.topologies.requirements",
    "OverlappedAllreduceSGD": "d5ray.distributed.optimizers.overlapped_allreduce",
    "ShardedAllreduceSGD": "d5ray.distributed.optimizers.sharded_allreduce",
    "GrowingBatch": "d5ray.distributed.optimizers.growing_batch",
    "ModelAveraging": "d5ray.distributed.optimizers.model_averaging",
    "LocalSGD": "d5ray.distributed.optimizers.local_sgd",
    "PostLocalSGD": "d5ray.distributed.optimizers.local_sgd",
    "HierarchicalAveraging": "d5ray.distributed.optimizers.hierarchical_averaging",
    "DiLoCo": "d5ray.distributed.optimizers.diloco",
    "SlowMo": "d5ray.distributed.optimizers.slowmo",
    "BMUF": "d5ray.distributed.optimizers.bmuf",
    "DPSGD": "d5ray.distributed.optimizers.dpsgd",
    "AdaptThenCombine": "d5ray.distributed.optimizers.dpsgd",
    "ConsistentNeighbors": "d5ray.distributed.optimizers.consistent_neighbors",
    "GradientTracking": "d5ray.distributed.optimizers.gradient_tracking",
    "ExactDiffusion": "d5ray.distributed.optimizers.exact_diffusion",
    "StochasticGradientPush": "d5ray.distributed.optimizers.stochastic_gradient_push",
    "ChocoSGD": "d5ray.distributed.optimizers.choco_sgd",
    "Kept": "d5ray.distributed.buffers",
    "Averaged": "d5ray.distributed.buffers",
    "FromRankZero": "d5ray.distributed.buffers",
    "Nesterov": "d5ray.training.optimizers.gradient_descent",
    "Compressor": "d5ray.distributed.compression.compressor",
    "CompressedSGD": "d5ray.distributed.optimizers.compressed_sgd",
    "ErrorFeedback": "d5ray.distributed.compression.feedback",
    "TopK": "d5ray.distributed.compression.top_k",
    "RandomK": "d5ray.distributed.compression.random_k",
    "UnbiasedRandomK": "d5ray.distributed.compression.random_k",
    "Threshold": "d5ray.distributed.compression.threshold",
    "QSGD": "d5ray.distributed.compression.stochastic",
    "TernGrad": "d5ray.distributed.compression.stochastic",
    "OneBit": "d5ray.distributed.compression.signs",
    "ScaledSign": "d5ray.distributed.compression.signs",
    "Float16": "d5ray.distributed.compression.precision",
    "BFloat16": "d5ray.distributed.compression.precision",
    "Identity": "d5ray.distributed.compression.precision",
    "Chain": "d5ray.distributed.compression.chain",
    "PowerSGD": "d5ray.distributed.compression.power_sgd",
    "AllGather": "d5ray.distributed.compression.reductions",
    "Allreduce": "d5ray.distributed.compression.reductions",
    "ScatterReduce": "d5ray.distributed.compression.reductions",
    "SparseAllreduce": "d5ray.distributed.compression.sparse_allreduce",
    "Communicator": "d5ray.distributed.communicators.communicator",
    "PeerLost": "d5ray.errors",
    "ValidationError": "d5ray.errors",
    "OperatorError": "d5ray.errors",
    "TensorDescriptor": "d5ray.operators.tensors.tensor_descriptor",
    "tensordesc": "d5ray.operators.tensors.tensordesc",
    "CustomOp": "d5ray.operators.custom.custom_operator",
    "CustomPythonOp": "d5ray.operators.custom.custom_python",
    "CustomCppOp": "d5ray.operators.custom.cpp.custom_cpp",
    "compile_custom_cppop": "d5ray.operators.custom.cpp.compiling",
    "register_operator": "d5ray.operators.custom.registry",
    "float16": "numpy",
    "float32": "numpy",
    "float64": "numpy",
    "bfloat16": "ml_dtypes",
    "int8": "numpy",
    "int16": "numpy",
    "int32": "numpy",
    "int64": "numpy",
    "uint8": "numpy",
    "uint16": "numpy",
    "uint32": "numpy",
    "uint64": "numpy",
    "Loss": "d5ray.operators.loss",
    "MeanSquaredErrorLoss": "d5ray.ops.losses.mean_squared_error_loss",
    "DefaultBoxes": "d5ray.ops.losses.default_boxes",
    "MultiBoxLoss": "d5ray.ops.losses.multi_box_loss",
    "ActorCriticLoss": "d5ray.ops.losses.actor_critic_loss",
    "Quality": "d5ray.training.events.quality",
    "RankingQuality": "d5ray.training.events.quality",
    "DetectionQuality": "d5ray.training.events.detection",
    "Play": "d5ray.training.events.play",
    "NonZeroRows": "d5ray.distributed.compression.rows",
    "LastEvaluation": "d5ray.metrics.definitions.families",
    "BitsPerByte": "d5ray.metrics.definitions.bits_per_byte",
    "MeanAveragePrecision": "d5ray.metrics.definitions.qualities",
    "AveragePrecision50": "d5ray.metrics.definitions.qualities",
    "AreaUnderCurve": "d5ray.metrics.definitions.qualities",
    "TestReturn": "d5ray.metrics.definitions.qualities",
    "LogMel": "d5ray.training.datasets.log_mel",
}
__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    if name.startswith("_"):
        raise AttributeError(name)
    raise AttributeError(moved(name) or f"d5ray has no {name!r}: {nearest(name, _NAMES)}")


def __dir__() -> list[str]:
    return sorted([*_NAMES, "__doc__"])
