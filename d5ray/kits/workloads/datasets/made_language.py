"""A made language: sentences of a small English grammar, and the same in a tongue with other rules"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

import numpy as np

NOUNS: Final = (
    "dog", "cat", "bird", "horse", "child", "woman", "man", "teacher", "king", "river", "house", "tree",
    "stone", "boat", "road", "book", "lamp", "garden", "mountain", "bridge",
)  # fmt: skip
PLURALS: Final = {"child": "children", "woman": "women", "man": "men"}
ADJECTIVES: Final = ("old", "young", "red", "white", "small", "tall", "quiet", "strange")
VERBS: Final = {  # the stem, what follows "he", the past
    "see": ("sees", "saw"), "find": ("finds", "found"), "paint": ("paints", "painted"),
    "follow": ("follows", "followed"), "want": ("wants", "wanted"), "build": ("builds", "built"),
    "hear": ("hears", "heard"), "leave": ("leaves", "left"),
}  # fmt: skip
PLACES: Final = ("near", "behind", "under", "beyond")
TIMES: Final = ("today", "often", "never again", "in winter")
PRESENT, PAST, FUTURE = range(3)
TENSES: Final = ("", "ta", "mo")  # what the verb begins with, by tense
LEXICON: Final = 20_261  # the seed of the words that the other tongue has; its grammar is below


@final
@dataclass(frozen=True)
class Phrase:
    """A noun with what belongs to it: the red dogs."""

    noun: str
    plural: bool
    known: bool  # "the"
    adjective: str | None

    @property
    def english(self) -> str:
        """Article, adjective, noun."""
        noun = PLURALS.get(self.noun, f"{self.noun}s") if self.plural else self.noun
        first = self.adjective or noun
        article = "the" if self.known else "" if self.plural else "an" if first[0] in "aeiou" else "a"
        return " ".join(filter(None, (article, self.adjective, noun)))

    @property
    def translated(self) -> str:
        """Noun with its endings of number and article, then the adjective, which ends as the noun's kind."""
        kind = NOUNS.index(self.noun) % 2
        noun = word(self.noun) + ("ri" if self.plural else "") + ("-en" if self.known else "")
        return noun if self.adjective is None else f"{noun} {word(self.adjective)}{'ao'[kind]}"


@final
@dataclass(frozen=True)
class Sentence:
    """A sentence: who does what, perhaps where and when, in one of three tenses; or that it is not so."""

    subject: Phrase
    verb: str
    thing: Phrase
    tense: int
    negated: bool
    place: tuple[str, Phrase] | None
    time: str | None

    @property
    def english(self) -> str:
        """Subject, verb, object, place, time."""
        where = () if self.place is None else (self.place[0], self.place[1].english)
        words = (self.subject.english, self._english_verb(), self.thing.english, *where, self.time)
        return " ".join(filter(None, words)) + "."

    @property
    def translated(self) -> str:
        """Time, place with what stands before it behind it, subject, object, verb, and "not" at the end."""
        where = () if self.place is None else (self.place[1].translated, word(self.place[0]))
        verb = TENSES[self.tense] + word(self.verb) + ("n" if self.subject.plural else "s")
        time = None if self.time is None else word(self.time) + ","
        words = (time, *where, self.subject.translated, self.thing.translated, verb)
        return " ".join(filter(None, (*words, "ke" if self.negated else None))) + "."

    def _english_verb(self) -> str:
        third, past = VERBS[self.verb]
        if self.negated:
            helping = "do" if self.subject.plural else "does"
            return f"{(helping, 'did', 'will')[self.tense]} not {self.verb}"
        return (self.verb if self.subject.plural else third, past, f"will {self.verb}")[self.tense]


def word(english: str) -> str:
    """The other tongue's word; two or three syllables that are the same for ever, and no two alike.

    >>> word("dog") == word("dog") != word("cat")
    True
    """
    return _LEXICON[english]


def sentences(seed: int) -> Iterator[Sentence]:
    """Sentences without end, drawn from the seed; none comes twice."""
    rng = np.random.default_rng(seed)
    seen: set[Sentence] = set()
    while True:
        made = _drawn(rng)
        if made not in seen:
            seen.add(made)
            yield made


def _drawn(rng: np.random.Generator) -> Sentence:
    def one_of(words: tuple[str, ...]) -> str:
        return words[int(rng.integers(len(words)))]

    def phrase() -> Phrase:
        adjective = one_of(ADJECTIVES) if rng.random() < 0.5 else None
        return Phrase(one_of(NOUNS), bool(rng.random() < 0.3), bool(rng.random() < 0.6), adjective)

    return Sentence(
        subject=phrase(),
        verb=one_of(tuple(VERBS)),
        thing=phrase(),
        tense=int(rng.integers(3)),
        negated=bool(rng.random() < 0.2),
        place=(one_of(PLACES), phrase()) if rng.random() < 0.4 else None,
        time=one_of(TIMES) if rng.random() < 0.4 else None,
    )


def _lexicon() -> dict[str, str]:
    rng = np.random.default_rng(LEXICON)
    syllables = [consonant + vowel for consonant in "bdfghklmnprstvz" for vowel in "aeiou"]
    found: dict[str, str] = {}
    for english in (*NOUNS, *ADJECTIVES, *VERBS, *PLACES, *TIMES):
        while english not in found or list(found.values()).count(found[english]) > 1:
            found[english] = "".join(rng.choice(syllables, int(rng.integers(2, 4))))
    return found


_LEXICON: Final = _lexicon()
