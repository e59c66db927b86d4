"""Names of Deep500 that are others in d5ray: which public name takes the place of each"""

from collections.abc import Mapping
from types import MappingProxyType

from d5ray.names.namespaces import places, shown

PAGE = "docs/guide/from_deep500.md"
NAMES: Mapping[str, str] = MappingProxyType(  # Deep500's name -> d5ray's, public or below the package
    {
        # level 0
        "CompilableOp": "CustomCppOp",
        "CompilationError": "OperatorError",
        "CustomCPPOp": "CustomCppOp",
        "DefaultOpMetrics": "check_forward",
        "DiffHeatmap": "check_forward",
        "L1Error": "check_forward",
        "L2Error": "check_forward",
        "MaxError": "check_forward",
        "NormDifference": "check_forward",
        "TestMetric": "Metric",
        "VarHeatmap": "check_repeatability",
        "WallclockTime": "StepTime",
        "compile_custom_cppop_inline": "compile_custom_cppop",
        "custom_op_from_native": "frameworks.torch.custom_op",
        "desc_from_tensor": "TensorDescriptor",
        "numerical_jacobian": "check_gradient",
        "tensor_t": "TensorDescriptor",
        "test_nativeop_forward": "check_forward",
        "test_nativeop_gradient": "check_gradient",
        "test_op_forward": "check_forward",
        "test_op_gradient": "check_gradient",
        # level 1
        "CrossEntropy": "SoftmaxCrossEntropyLoss",
        "DeviceType": "BestDevice",
        "EmptyOnnxBaseVisitor": "register_operator",
        "ExecutorEvent": "networks.GraphEvent",
        "GraphExecutor": "frameworks.torch.from_onnx",
        "MeanSquaredError": "MeanSquaredErrorLoss",
        "OnnxBaseVisitor": "register_operator",
        "OnnxModel": "Network",
        "OnnxTestParser": "check_forward",
        "PyTorchGraphExecutor": "frameworks.torch.from_onnx",
        "PyTorchNativeGraphExecutor": "frameworks.torch.from_native",
        "PyTorchNetwork": "Network",
        "ReferenceGraphExecutor": "frameworks.numpy.from_onnx",
        "ReferenceNetwork": "Network",
        "SoftmaxCrossEntropy": "SoftmaxCrossEntropyLoss",
        "TensorflowGraphExecutor": "frameworks.tensorflow.from_onnx",
        "TensorflowNativeGraphExecutor": "frameworks.tensorflow.from_native",
        "TensorflowNetwork": "Network",
        "create_model": "Experiment",
        "export_network": "Network.to_onnx",
        "load_and_parse_model": "Network.from_onnx",
        "parser": "Network.from_onnx",
        "test_executor_backprop": "compare_values",
        "test_executor_inference": "compare_values",
        # level 2
        "AccuracyAbortEvent": "StopAtAccuracy",
        "AdaGradOptimizer": "AdaGrad",
        "AdamOptimizer": "Adam",
        "BoxPlotGeneratorEvent": "LearningCurves",
        "CsvWriterEvent": "export",
        "DataAugmentation": "Transformation",
        "DatasetAccuracy": "TestAccuracy",
        "DatasetBias": "label_bias",
        "DefaultOptimizerMetrics": "check_optimizer",
        "DefaultTrainerEvents": "Event",
        "DefaultTrainingMetrics": "Metric",
        "EpochHPSchedule": "Scheduled",
        "EpochSummary": "convergence_curve",
        "FileListDataset": "ImageFolder",
        "FirstOrderOptimizer": "Optimizer",
        "GradientDescent": "SGD",
        "HyperparameterSchedule": "Scheduled",
        "LBFGSOptimizer": "LBFGS",
        "LossPlotGeneratorEvent": "LearningCurves",
        "MomentumOptimizer": "Momentum",
        "NumpyDataset": "Dataset",
        "OptimizerEvent": "Event",
        "PyTorchOptimizer": "TorchOptimizer",
        "RMSPropOptimizer": "RMSProp",
        "ReferenceOptimizer": "Optimizer",
        "RunnerEvent": "Event",
        "SamplerEvent": "Event",
        "SamplerEventMetric": "DataTime",
        "SaveWrongsEvent": "SaveWrongSamples",
        "SingleSampleAugmentation": "Transformation",
        "StepHPSchedule": "Scheduled",
        "StopTraining": "Moment.stop",
        "SummaryGeneratorEvent": "LearningCurves",
        "SummaryGeneratorInferenceEvent": "MeasureInference",
        "TFOptimizer": "KerasOptimizer",
        "TerminalBarEvent": "launch",
        "TimeAbortAfterTestEvent": "StopAfterSeconds",
        "TimeAbortImmediateEvent": "StopAfterSeconds",
        "Trainer": "Experiment",
        "TrainingAccuracy": "LearningCurves",
        "TrainingEvent": "Event",
        "TrainingStatistics": "Run",
        "load_cifar10": "load_dataset",
        "load_cifar100": "load_dataset",
        "load_fashion_mnist": "load_dataset",
        "load_imagenet": "load_dataset",
        "load_mnist": "load_dataset",
        "test_optimizer": "check_optimizer",
        "test_sampler": "check_sampler",
        "test_training": "check_training",
        "training_events": "Event",
        # level 3
        "Caffe2ConsistentDecentralized": "AllreduceSGD",
        "Caffe2ConsistentNeighbors": "ConsistentNeighbors",
        "Caffe2ConsistentParameterServer": "ParameterServerSGD",
        "CommunicationNetwork": "Communicator",
        "CommunicationVolume": "BytesSent",
        "ConsistentDecentralized": "AllreduceSGD",
        "ConsistentParameterServer": "ParameterServerSGD",
        "DistributedSampler": "Sampler",
        "HorovodDistributedOptimizer": "OverlappedAllreduceSGD",
        "InconsistentParameterServer": "ASGD",
        "MPIProfiling": "ExchangeTime",
        "ModelAverageDecentralized": "ModelAveraging",
        "PartitionedDistributedSampler": "Sampler",
        "mpi_end_barrier": "Communicator.barrier",
        "mpi_fork": "launch",
    }
)


def successor(name: str) -> str:
    """The public name that takes the place of Deep500's, as a program writes it.

    >>> successor("MomentumOptimizer"), successor("export_network")
    ('d5.optimizers.Momentum', 'd5.Network.to_onnx')
    """
    first, dot, rest = NAMES[name].partition(".")
    return f"{shown(first) if first in places() else f'd5ray.{first}'}{dot}{rest}"


def moved(name: str) -> str:
    """The sentence for a name that Deep500 has and d5ray has not; empty for any other name.

    >>> moved("ReferenceNetwork")
    "d5ray has no 'ReferenceNetwork': Deep500's is d5.Network here, see docs/guide/from_deep500.md"
    """
    if name not in NAMES:
        return ""
    return f"d5ray has no {name!r}: Deep500's is {successor(name)} here, see {PAGE}"
