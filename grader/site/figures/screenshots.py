"""Take screenshots of the figures with a Chromium that makes no background connections."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Iterator
from pathlib import Path

from grader.site.figures.figure import FOLDER, load

PICTURES = FOLDER / "screenshots"
WIDTH, HEIGHT, SCALE = 1000, 300, 1.5  # CSS pixels; a full-page screenshot is higher
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
MISSING = (
    "Chromium is missing: install it (Debian: apt-get install chromium), or let Playwright fetch its own: "
    ".venv/bin/python -m playwright install --with-deps chromium"
)


class NoBrowserError(Exception):
    """No browser is available; the message says what to install."""


@contextlib.contextmanager
def chromium() -> Iterator:
    """Yield a headless Chromium, the system's or Playwright's; NoBrowserError if there is neither."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        raise NoBrowserError("Playwright is missing; install it with: make setup EXTRA=browser") from None
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=program, args=list(_QUIET))
        except Error as error:
            raise NoBrowserError(f"{MISSING}\n{error.message.strip().splitlines()[0]}") from None
        try:
            yield browser
        finally:
            browser.close()


def take(names: list[str], pages: Path) -> list[Path]:
    """Take screenshots of these figures in both themes, each at its screenshot step; return their paths."""
    PICTURES.mkdir(exist_ok=True)
    taken = []
    with chromium() as browser:
        for theme in ("light", "dark"):
            window = browser.new_context(
                viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE,
                color_scheme=theme, reduced_motion="reduce",
            )  # fmt: skip
            for name in names:
                path = PICTURES / f"{name}-{theme}.png"
                tab = window.new_page()
                tab.goto((pages / f"{name}.html").as_uri())
                for _ in range(load(name).screenshot_step):
                    tab.keyboard.press("ArrowRight")
                _keep(tab.screenshot(full_page=True), path)
                tab.close()
                taken.append(path)
    return taken


def _keep(picture: bytes, path: Path) -> None:
    """Write a picture with a palette; figures have few colours, so the file shrinks to a third."""
    from PIL import Image

    with Image.open(io.BytesIO(picture)) as image:
        flat = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        flat.save(path, optimize=True)
