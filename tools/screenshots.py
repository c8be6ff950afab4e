"""Make docs/images/report.png and docs/images/explorer.png: python tools/screenshots.py

Shows fifty synthetic states at epsilon 1. Needs Chromium and the extras 'explore' and 'test'. Colours are
reduced to a palette, so that each picture stays small.
"""

from __future__ import annotations

import shutil
import struct
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

import fedwise as fw
from fedwise.data import synthetic
from fedwise.explore import Explorer
from fedwise.reporting import Report
from fedwise.search import select

IMAGES = Path(__file__).parents[1] / "docs" / "images"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync")
#: Largest picture, in bytes.
MOST = 150_000


def main() -> None:
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        sys.exit("needs Chromium: apt-get install chromium")
    pool = make_pool()
    IMAGES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as play, tempfile.TemporaryDirectory() as folder:
        browser = play.chromium.launch(executable_path=path, args=list(FLAGS))
        take_report(browser, pool, Path(folder))
        take_explorer(browser, pool)
        browser.close()


def make_pool() -> fw.Pool:
    """Fifty synthetic states with real noise, each charged to a ledger of its own."""
    plan = fw.plan(synthetic.schema(), 1.0)
    states = synthetic.states(scale=0.25)
    with tempfile.TemporaryDirectory() as folder:
        return fw.Pool.of(
            fw.release(
                plan, frame, client=name, ledger=fw.Ledger(Path(folder) / f"{name}.db", 1.0, plan.delta)
            )
            for name, frame in states.items()
        )


def take_report(browser: Any, pool: fw.Pool, folder: Path) -> None:
    report = Report.of(pool, select(pool, 5, method="annealing"), frontier=False, forecast=False)
    report.save(folder / "report.html")
    page = browser.new_page(viewport={"width": 880, "height": 760}, color_scheme="light")
    page.goto((folder / "report.html").as_uri())
    # The subject and the verdict tell the story on one screen; the rest is folded away.
    page.evaluate(
        """() => {
          const folded = "nav, details, .fw > section:not(#clients), #clients > p, #clients figure:first-of-type";
          for (const part of document.querySelectorAll(folded)) part.remove();
          document.querySelector(".fw").style.paddingTop = "2.4rem";
        }"""
    )
    save(page.screenshot(clip={"x": 60, "y": 0, "width": 760, "height": 1072}, full_page=True), "report.png")


def take_explorer(browser: Any, pool: fw.Pool) -> None:
    with Explorer(pool, releases="releases/") as explorer:
        page = browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme="light")
        page.goto(explorer.url + "#k=6&alpha=2&beta=0.8889&gamma=0.1111&lam=1.3333&in=CA&out=WY")
        page.wait_for_selector("#federation[data-searched]", timeout=120_000)
        page.wait_for_selector("#now .forecast", timeout=120_000)
        page.wait_for_selector("#frontier:not(.waiting) svg", timeout=60_000)
        page.wait_for_timeout(500)
        save(page.screenshot(), "explorer.png")
        page.goto("about:blank")


def save(png: bytes, name: str) -> None:
    """Write a picture with at most 256 colours."""
    small = reduce(png)
    smaller = min(small, png, key=len)
    if len(smaller) > MOST:
        sys.exit(f"{name} is {len(smaller)} bytes, more than {MOST}")
    (IMAGES / name).write_bytes(smaller)
    print(f"{IMAGES / name}: {len(smaller) / 1000:.0f} kB")


def reduce(png: bytes) -> bytes:
    """The PNG with a palette of its 256 most frequent colours, the others moved to the nearest of them."""
    pixels = decode(png)
    flat = pixels.reshape(-1, 3).astype(np.int32)
    colours, which, counts = np.unique(flat, axis=0, return_inverse=True, return_counts=True)
    kept = colours[np.argsort(-counts)[:256]]
    nearest = np.array([np.argmin(((kept - colour) ** 2).sum(axis=1)) for colour in colours], dtype=np.uint8)
    index = nearest[which.reshape(-1)].reshape(pixels.shape[:2])
    height, width = index.shape
    lines = b"".join(b"\0" + line.tobytes() for line in index)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = (
        (b"IHDR", header),
        (b"PLTE", kept.astype(np.uint8).tobytes()),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, body) for kind, body in parts)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def decode(png: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Pixels (rows, columns, 3) of a plain 8-bit RGB or RGBA picture, as browsers write them."""
    at, data, width, height, depth = 8, b"", 0, 0, 3
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, _, colour = struct.unpack(">IIBB", body[:10])
            depth = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            data += body
        at += 12 + size
    raw = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + width * depth)
    out = np.zeros((height, width, depth), np.uint8)
    above = np.zeros((width, depth), np.int32)
    for row in range(height):
        line = raw[row, 1:].reshape(width, depth).astype(np.int32)
        above = unfilter(int(raw[row, 0]), line, above)
        out[row] = above
    return out[:, :, :3]


def unfilter(kind: int, line: np.ndarray[Any, Any], above: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """One line of a PNG before its filter (None, Sub, Up, Average, Paeth)."""
    if kind == 0:
        return line
    if kind == 1:
        return np.cumsum(line, axis=0) & 255
    if kind == 2:
        return (line + above) & 255
    done = np.zeros_like(line)
    left = np.zeros(line.shape[1], np.int32)
    corner = np.zeros(line.shape[1], np.int32)
    for x in range(len(line)):
        up = above[x]
        if kind == 3:
            guess = (left + up) // 2
        else:
            base = left + up - corner
            far = np.abs(base - left), np.abs(base - up), np.abs(base - corner)
            guess = np.where(
                (far[0] <= far[1]) & (far[0] <= far[2]), left, np.where(far[1] <= far[2], up, corner)
            )
        done[x] = left = (line[x] + guess) & 255
        corner = up
    return done


if __name__ == "__main__":
    main()
