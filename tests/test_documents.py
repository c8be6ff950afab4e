"""Documents: links, files of the repository and names of the package that they mention exist."""

from __future__ import annotations

import ast
import importlib
import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"(?<!`)\]\(([^)\s]+)\)")
#: Files named in prose, as seen from the root of the repository or from the package.
#: Pages of the site that are made when it is built (tools/site.py).
MADE = {ROOT / "docs" / "reference" / name for name in ("commands.md", "api.md")}
_FILE = re.compile(r"`((?:src|tests|docs|tools|experiments|benchmarks)/[\w./-]+)`")


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path, text: str) -> list[str]:
    """Links and named files of a page that are not there."""
    out = []
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if target.resolve() in MADE:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            out.append(link)
    return out + [name for name in _FILE.findall(text) if not (ROOT / name).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_named_files_exist(page: Path) -> None:
    assert broken(page, page.read_text(encoding="utf-8")) == []


def test_the_check_sees_what_is_missing() -> None:
    text = "[a](docs/none.md) [b](docs/limits.md#none) [c](docs/limits.md#fairness) `src/none.py` `docs/limits.md`"
    assert broken(ROOT / "README.md", text) == ["docs/none.md", "docs/limits.md#none", "src/none.py"]


def unknown_names(text: str) -> list[str]:
    """Names of the package that Python examples use and that do not exist."""
    out = []
    for block in re.findall(r"^ *```python\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        for node in ast.walk(ast.parse(textwrap.dedent(block))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedwise"):
                module, names = node.module, [alias.name for alias in node.names]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module, names = {"fw": "fedwise", "fedwise": "fedwise"}.get(node.value.id), [node.attr]
            else:
                continue
            if module is not None:
                found = importlib.import_module(module)
                out += [f"{module}.{name}" for name in names if not hasattr(found, name)]
    return out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_parse_and_use_names_that_exist(page: Path) -> None:
    assert unknown_names(page.read_text(encoding="utf-8")) == []


def test_the_check_of_examples_sees_what_is_missing() -> None:
    text = "```python\nimport fedwise as fw\nfw.nothing(fw.Pool)\nfrom fedwise.pool.pool import Pool, Pond\n```\n"
    assert unknown_names(text) == ["fedwise.pool.pool.Pond", "fedwise.nothing"]


def in_navigation() -> list[str]:
    """Pages that mkdocs.yml lists, as seen from docs/."""
    _, _, nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")
    return re.findall(r"^ +- (?:[^:\n]+: )?([\w./-]+\.md)$", nav, re.MULTILINE)


def test_every_page_is_in_the_navigation() -> None:
    pages = {
        str(page.relative_to(ROOT / "docs")) for page in [*PAGES, *MADE] if ROOT / "docs" in page.parents
    }
    listed = in_navigation()
    assert sorted(pages - set(listed)) == [], "add these pages to nav in mkdocs.yml"
    assert sorted(set(listed) - pages) == [], "mkdocs.yml lists pages that do not exist"
    assert len(listed) == len(set(listed))
