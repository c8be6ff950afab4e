"""Texts: descriptors of quality with public bins: length, words, language."""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from ..schema.schema import Column, Role

#: The commonest small words of a language; a text is of the one that has most of its words.
_COMMON = {
    "en": "the of and to in is that it was for on are with as his they be at this have from or had by not but what",
    "de": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden aus",
    "fr": "de la le et les des en un du une que est pour qui dans par plus pas au sur ne se ce il sont avec son",
    "es": "de la que el en y a los del se las por un para con no una su al lo como más pero sus le ya o este sí",
    "it": "di che e la il un a per in una mi sono ho non ma lo ha le si con da come io ti è cosa questo bene se",
    "pt": "de a o que e do da em um para com não uma os no se na por mais as dos como mas ao ele das à seu sua ou",
    "nl": "de van een het en in is dat op te zijn met voor niet aan er om ook als dan maar bij uit nog door naar",
}
_WORDS = {language: frozenset(words.split()) for language, words in _COMMON.items()}
#: Share of a text's words that must be common ones of a language.
_LEAST = 0.08

#: Columns for a schema. The bins are fixed: they come from no data.
TEXT_COLUMNS = (
    Column("text_length", Role.FEATURE, bins=(0, 1, 20, 80, 200, 500, 1000, 2000, 5000, 10000, 1e12)),
    Column("text_words", Role.FEATURE, bins=(0, 1, 5, 20, 50, 100, 200, 500, 1000, 1e12)),
    Column("text_language", Role.FEATURE, levels=(*_WORDS, "unknown")),
)


def describe_texts(texts: Sequence[str]) -> pl.DataFrame:
    """Quality of each text: ``text_length`` in characters, ``text_words``, and ``text_language``.

    The language is that of the commonest small words; ``unknown`` for short texts and other languages.
    """
    split = [re.findall(r"[^\W\d_]+", text.lower()) for text in texts]
    return pl.DataFrame(
        {
            "text_length": [len(text) for text in texts],
            "text_words": [len(words) for words in split],
            "text_language": [_language(words) for words in split],
        },
        schema={"text_length": pl.Int64, "text_words": pl.Int64, "text_language": pl.String},
    )


def _language(words: list[str]) -> str:
    if not words:
        return "unknown"
    shares = {name: sum(word in common for word in words) / len(words) for name, common in _WORDS.items()}
    best = max(shares, key=lambda name: shares[name])
    return best if shares[best] >= _LEAST else "unknown"
