"""Qualities of workloads that are judged by other than accuracy: detection, ranking, text, acting"""

from typing import final

from d5ray.metrics.definitions.families import LastEvaluation

PRECISION, PRECISION_50 = "mean_average_precision", "average_precision_50"
AREA = "area_under_curve"
RETURN = "test_return"
ERROR_RATE = "label_error_rate"
BLEU_SCORE = "bleu"
TEXT_BITS = "text_bits_per_byte"


@final
class MeanAveragePrecision(LastEvaluation, name=PRECISION, direction="max"):
    """The mean average precision of detected boxes, over thresholds of overlap from 0.5 to 0.95.

    COCO's AP@[.5:.95], from the rows of `DetectionQuality`.
    """

    highest = 1.0


@final
class AveragePrecision50(LastEvaluation, name=PRECISION_50, direction="max"):
    """The mean average precision of detected boxes that overlap by half.

    COCO's AP@.5, from the rows of `DetectionQuality`.
    """

    highest = 1.0


@final
class AreaUnderCurve(LastEvaluation, name=AREA, direction="max"):
    """The share of pairs in which a positive test sample is scored above a negative one.

    The area under the receiver operating characteristic, from the rows of `RankingQuality`.
    """

    highest = 1.0


@final
class TestReturn(LastEvaluation, name=RETURN, direction="max"):
    """The mean return of episodes that are played for a test.

    From the rows of `Play`.
    """


@final
class LabelErrorRate(LastEvaluation, name=ERROR_RATE, direction="min"):
    """Edits from the sequences that were found to the true ones, over the number of true labels.

    From the rows of `SequenceErrors`. Where labels are words, it is the word error rate.
    """


@final
class BLEU(LastEvaluation, name=BLEU_SCORE, direction="max"):
    """Corpus BLEU of the test sentences' translations, 0 to 100, as sacreBLEU computes it.

    From the rows of `TranslationQuality`.
    (Papineni et al., doi 10.3115/1073083.1073135; Post, arXiv:1804.08771.)
    """

    highest = 100.0


@final
class TextBitsPerByte(LastEvaluation, name=TEXT_BITS, direction="min"):
    """Bits that a byte of the test text takes, whose tokens a network predicts.

    From the rows of `TextCompression`; guessing bytes takes 8. Networks with other tokens can be compared by
    it, those whose tokens are bytes included, where it is `BitsPerByte`.
    """
