"""BLEU: how much of the true translations' words and phrases a translation has"""

from typing import Final, final

from d5ray.metrics.definitions.families import LastEvaluation

BLEU_SCORE: Final = "bleu"


@final
class BLEU(LastEvaluation):
    """Corpus BLEU from 0 to 100, as sacreBLEU computes it, from the rows of `TranslationQuality`.

    (Papineni et al., doi 10.3115/1073083.1073135; Post, arXiv:1804.08771.)
    """

    name = BLEU_SCORE
    direction = "max"
    description = "corpus BLEU of the test sentences' translations, 0 to 100, as sacreBLEU computes it"
