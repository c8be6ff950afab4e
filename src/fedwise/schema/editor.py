"""Editor: a JSON Schema of schema files, for editors that complete and check what people write."""

from __future__ import annotations

from typing import Any

from .column import MAX_RULES, WORDS

_RULE = {
    "type": "string",
    "minLength": 3,
    "maxLength": 1000,
    "description": "Such as AGE >= 18 and AGE < 65.",
}
_CODES = {
    "type": "array",
    "items": {"type": ["string", "integer"]},
    "maxItems": MAX_RULES,
    "description": "Codes that stand for a missing value, such as N, ? or -9.",
}


def json_schema() -> dict[str, Any]:
    """What a ``schema.toml`` may hold, as a JSON Schema (draft 2020-12)."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "fedwise schema",
        "description": "Public columns, domains and roles of the data that every client holds.",
        "type": "object",
        "required": ["columns"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 100},
            "where": {
                "type": "array",
                "items": _RULE,
                "maxItems": MAX_RULES,
                "description": "Rules that a row must satisfy to be counted.",
            },
            "null": _CODES,
            "decimal": {"enum": [".", ","], "description": "The mark inside numbers of text files."},
            "columns": {
                "type": "object",
                "minProperties": 2,
                "additionalProperties": {"$ref": "#/$defs/column"},
            },
        },
        "$defs": {"column": _column()},
    }


def _column() -> dict[str, Any]:
    text = {"type": "string", "maxLength": 200}
    kinds = ("levels", "bins", "rule", "cross")
    return {
        "type": "object",
        "required": ["role"],
        "additionalProperties": False,
        "oneOf": [{"required": [kind]} for kind in kinds],
        "properties": {
            "role": {"enum": [str(word) for word in WORDS["role"]]},
            "levels": {
                "description": "The categories: all whole numbers or all text.",
                "type": "array",
                "minItems": 1,
                "uniqueItems": True,
                "anyOf": [{"items": {"type": "integer"}}, {"items": {"type": "string"}}],
            },
            "bins": {
                "description": "Edges of the intervals [a, b), in increasing order.",
                "type": "array",
                "minItems": 2,
                "uniqueItems": True,
                "items": {"type": "number"},
            },
            "rule": _RULE,
            "cross": {
                "description": "Columns whose combinations are the levels.",
                "type": "array",
                "minItems": 2,
                "items": {"anyOf": [{"type": "string"}, {"type": "object"}]},
            },
            "source": {
                "description": "Names of the column in the data; the first one there is used.",
                "anyOf": [text, {"type": "array", "items": text, "maxItems": MAX_RULES}],
            },
            "missing": {"enum": list(WORDS["missing"])},
            "unknown": {"enum": list(WORDS["unknown"])},
            "model": {"enum": list(WORDS["model"]), "description": "How training sees the column."},
            "scale": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
            "null": _CODES,
        },
    }
