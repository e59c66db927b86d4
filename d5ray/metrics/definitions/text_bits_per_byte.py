"""The loss of a network that predicts tokens of text, in bits a byte: alike whatever the tokens are"""

from typing import Final, final

from d5ray.metrics.definitions.families import LastEvaluation

TEXT_BITS: Final = "text_bits_per_byte"


@final
class TextBitsPerByte(LastEvaluation):
    """Bits that a byte of the test text takes, from the rows of `TextCompression`; guessing bytes takes 8.

    Networks with other tokens can be compared by it, those whose tokens are bytes included, where it is
    `BitsPerByte`.
    """

    name = TEXT_BITS
    direction = "min"
    description = "bits that a byte of the test text takes, whose tokens a network predicts"
