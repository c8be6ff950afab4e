"""A small coverage-guided mutator: inputs that reach new lines of fedwise are kept and mutated further.

Atheris and AFL need instrumented builds; the readers are a few hundred lines of Python, for which
`sys.settrace` on those files alone is enough. Everything is seeded, so a find can be repeated.
"""

from __future__ import annotations

import copy
import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import fedwise

_ROOT = str(Path(fedwise.__file__).parent)

#: Fragments that break readers, as text.
TOKENS: tuple[bytes, ...] = (
    *(
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"-1e999",
        b"1e-999",
        b"-0",
        b"0x" + b"f" * 5000,
        b"1" * 5000,
    ),
    *(b"9" * 400, b"18446744073709551616", b"9223372036854775808", b"-9223372036854775809", b"1.5", b"true"),
    *(
        b"null",
        b"[]",
        b"{}",
        b'""',
        b'"\\ud800"',
        b'"\\u0000"',
        b'"\\u001b[2J"',
        b"\xef\xbb\xbf",
        b"\xff\xfe",
    ),
    *(
        b"\x00",
        b"\xc0\x80",
        b"\xf4\x90\x80\x80",
        b"[" * 3000,
        b'{"a":' * 3000,
        b"{a=" * 2000,
        b"a." * 4000,
        b",",
    ),
    *(
        b"'''",
        b'"""',
        b"#",
        b"\n",
        b"\r\n",
        b"]]",
        b"[[",
        b"=",
        b"1979-05-27T07:32:00Z",
        b"0001-01-01",
        b"inf",
    ),
    *(
        b"nan",
        b"0o7",
        b"0b1",
        b"1_000",
        b'"' + b"x" * 100_000 + b'"',
        b"../../../etc/x",
        b"/dev/zero",
        b"\\u202e",
    ),
)
#: Values that break readers, as a parser gives them.
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        0.5,
        -0.0,
        1e-320,
        1e-5,
        1e308,
        -1e308,
        2**31,
        2**53 + 1,
        2**63,
        -(2**63) - 1,
    ),
    *(
        2**50,
        2**50 + 1,
        10**30,
        10**400,
        float("nan"),
        float("inf"),
        "",
        " ",
        "inf",
        "nan",
        "x" * 5000,
        "\x1b[2J",
    ),
    *(
        "../../up",
        "/etc/passwd",
        "a/b",
        "..",
        ".hidden",
        "a\x00b",
        "\u202eb",
        "é" * 60,
        "\U0001f642",
        "other",
        "AGE",
    ),
    *(
        "AGE > 16",
        "A > 1e999",
        "A " * 400,
        "SEX",
        "target",
        "feature",
        "rdp",
        "uniform",
        "x\n",
        "name",
        "\ud800",
    ),
    *([], {}, [[]], [1, 2], [2, 1], ["a", "a"], [0, 0], [None], {"a": 1}, list(range(300)), [[[[[[]]]]]]),
)


class Lines:
    """Which lines of fedwise have been run so far."""

    def __init__(self) -> None:
        self.seen: set[tuple[CodeType, int]] = set()
        self._fresh = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Trace what runs inside; `take_news` then says whether any line was new."""
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)

    def take_news(self) -> bool:
        """Whether a line was seen for the first time since the last call."""
        fresh, self._fresh = self._fresh, False
        return fresh

    def _call(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        return self._line if frame.f_code.co_filename.startswith(_ROOT) else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        if event == "line":
            place = (frame.f_code, frame.f_lineno)
            if place not in self.seen:
                self.seen.add(place)
                self._fresh = True
        return self._line


def mutate_bytes(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """One to four changes that know nothing of the format."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(found) + 1)
        end = min(len(found), at + rng.choice((1, 2, 8, 64, 1000)))
        match rng.randrange(9):
            case 0 if found:
                found[at % len(found)] ^= 1 << rng.randrange(8)
            case 1 if found:
                found[at % len(found)] = rng.choice(
                    (0, 1, 0x22, 0x2C, 0x5B, 0x7B, 0x7F, 0x80, 0xFF, rng.randrange(256))
                )
            case 2:
                del found[at:end]
            case 3:
                found[at:at] = found[at:end] * rng.choice((1, 2, 50))
            case 4:
                found[at:at] = rng.choice(TOKENS)
            case 5:
                found[at:end] = rng.choice(TOKENS)
            case 6:
                other = rng.choice(others)
                cut = rng.randrange(len(other) + 1)
                found[at:] = other[cut:]
            case 7:
                del found[at:]
            case _:
                found[at:at] = rng.randbytes(rng.choice((1, 4, 100)))
    return bytes(found)


def mutate_tree(tree: Any, rng: random.Random) -> Any:
    """One to three changes that keep the text well formed: values, keys, lengths, nesting, order. In place."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(tree))
        if not places:
            return rng.choice(VALUES)
        inside, key = rng.choice(places)
        if rng.random() < 0.3:
            # A small change to a number: the file stays plausible, and the reader gets further.
            numbers = [
                (i, k) for i, k in places if isinstance(i[k], int | float) and not isinstance(i[k], bool)
            ]
            if numbers:
                inside, key = rng.choice(numbers)
                inside[key] = _nudge(inside[key], rng)
                continue
        value = inside[key]
        match rng.randrange(9):
            case 0 | 1 | 2:
                inside[key] = copy.deepcopy(rng.choice(VALUES))
            case 3 if isinstance(value, int | float) and not isinstance(value, bool):
                inside[key] = _nudge(value, rng)
            case 4 if isinstance(value, list) and value:
                inside[key] = value * rng.choice((2, 3, 200)) if len(value) < 100 else value[:1]
            case 5:
                del inside[key]
            case 6 if isinstance(inside, dict):
                inside[str(rng.choice(VALUES))] = inside.pop(key)
            case 7:
                other, name = rng.choice(places)
                # Whoever gets a part that holds it would be endless: a copy.
                inside[key] = copy.deepcopy(other[name])
            case _:
                for _ in range(rng.choice((1, 3, 60))):
                    value = [value] if rng.random() < 0.7 else {"a": value}
                inside[key] = value
    return tree


def write_json(tree: Any, rng: random.Random) -> bytes:
    """JSON text of a tree, now and then with a key that appears twice."""
    data = json.dumps(tree, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.1 and data.startswith(b"{"):
        body = {str(key): rng.choice(VALUES) for key in list(tree)[: rng.randrange(4)]}
        again = json.dumps(body).encode()[1:-1]
        data = data[:-1] + (b", " if again else b"") + again + b"}"
    return data


def write_toml(tree: Any) -> bytes:
    """TOML text of a tree: top-level keys, with tables written inline."""
    if not isinstance(tree, dict):
        return _toml(tree).encode("utf-8", "surrogatepass")
    lines = [f"{_toml(str(key))} = {_toml(value)}" for key, value in tree.items()]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(str(key))} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return repr(value) if isinstance(value, int | float) else str(value)


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a tree, as the container and the key or position in it."""
    waiting = [tree]
    while waiting:
        inside = waiting.pop()
        keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        for key in keys[:200]:
            yield inside, key
            if isinstance(inside[key], dict | list):
                waiting.append(inside[key])


def _nudge(value: float, rng: random.Random) -> float:
    try:
        return rng.choice(
            (value + 1, value - 1, -value, value * 2, value / 2, value * 1e9, value * (1 + 1e-9), int(value))
        )
    except (OverflowError, ValueError):
        return 0
