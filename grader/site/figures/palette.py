"""The colours of the figures for light and dark pages; no other file defines a colour."""

from __future__ import annotations

# name: (light, dark). A fill behind text is pale on a light page and deep on a dark page.
COLOURS = {
    "paper": ("#ffffff", "#14171c"),
    "panel": ("#f5f6f8", "#1d2128"),
    "raised": ("#ffffff", "#262b34"),
    "ink": ("#1a1e24", "#e9ecf1"),
    "quiet": ("#545d69", "#a9b2bf"),
    "line": ("#c9ced6", "#444c58"),
    "edge": ("#7b8491", "#828c9a"),  # the outline of controls
    "accent": ("#0b62c4", "#6db3ff"),  # the current position
    "accent-fill": ("#d8e8fb", "#12385f"),
    "load": ("#00705a", "#4fd1b0"),  # read
    "load-fill": ("#cdeee4", "#0d4538"),
    "store": ("#9a4a00", "#ffb163"),  # written
    "store-fill": ("#fde3c8", "#553008"),
    "compute": ("#6a35b8", "#c3a1ff"),  # computed
    "compute-fill": ("#e7dcfa", "#3b2465"),
    "off": ("#b3261e", "#ff9a90"),  # masked off, missed
    "off-fill": ("#fbdcd9", "#5a1d19"),
    "blank": ("#e6e9ee", "#2f3540"),  # not yet reached
}


def variables() -> str:
    """Return CSS of a page: the colours as variables, for the system's theme or the chosen one."""
    light, dark = (
        "".join(f"--{name}: {pair[which]}; " for name, pair in COLOURS.items()) for which in (0, 1)
    )
    return (
        f":root {{ color-scheme: light; {light}}}\n"
        f"@media (prefers-color-scheme: dark) {{\n"
        f"  :root:not([data-theme=light]) {{ color-scheme: dark; {dark}}}\n}}\n"
        f":root[data-theme=dark] {{ color-scheme: dark; {dark}}}\n" + classes(lambda name: f"var(--{name})")
    )


def classes(colour) -> str:
    """Return CSS classes for colours: `f-load` fills, `s-load` strokes; `colour` maps a name to CSS."""
    return "".join(
        f".f-{name} {{ fill: {colour(name)}; }}\n.s-{name} {{ stroke: {colour(name)}; }}\n"
        for name in COLOURS
    )


def static() -> str:
    """Return CSS of a self-contained picture: plain colours, for viewers without CSS variables."""
    light = classes(lambda name: COLOURS[name][0])
    dark = classes(lambda name: COLOURS[name][1])
    return f"{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n"
