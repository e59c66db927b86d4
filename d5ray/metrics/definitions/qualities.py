"""Qualities of workloads that are judged by other than accuracy: detection, ranking, acting"""

from typing import ClassVar, final

from d5ray.metrics.definitions.families import LastEvaluation

PRECISION, PRECISION_50 = "mean_average_precision", "average_precision_50"
AREA = "area_under_curve"
RETURN = "test_return"


@final
class MeanAveragePrecision(LastEvaluation):
    """COCO's AP@[.5:.95], from the rows of `DetectionQuality`."""

    name = PRECISION
    direction = "max"
    description = "the mean average precision of detected boxes, over thresholds of overlap from 0.5 to 0.95"


@final
class AveragePrecision50(LastEvaluation):
    """COCO's AP@.5, from the rows of `DetectionQuality`."""

    name = PRECISION_50
    direction = "max"
    description = "the mean average precision of detected boxes that overlap by half"


@final
class AreaUnderCurve(LastEvaluation):
    """The area under the receiver operating characteristic, from the rows of `RankingQuality`."""

    name = AREA
    direction = "max"
    description = "how often a positive test sample is scored above a negative one"


@final
class TestReturn(LastEvaluation):
    """The mean return of test episodes, from the rows of `Play`."""

    __test__: ClassVar[bool] = False  # a metric, whatever the name makes pytest think
    name = RETURN
    direction = "max"
    description = "the mean return of episodes that are played for a test"
