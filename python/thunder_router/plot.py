"""Line charts as SVG: panels side by side, a legend, whiskers where a figure has an interval.

Theory of operation. A chart is drawn in pixels from the top left. A panel maps its lines' values
linearly to a box; its y axis begins at 0, both axes end at a round number, and their ticks are 1, 2
or 5 times a power of ten apart. Logarithmic axes have a tick at each power of ten instead. A name
has one colour and one marker in all panels, in the order in which names first come. Everything is
text: no font is measured, no library is needed, and the same figures give the same bytes, so that a
plot in a repository changes only where its figures do.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

__all__ = ["Line", "Panel", "Point", "svg"]

COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Told apart by those who see colours differently too. Source: Okabe and Ito (2008)."""
_WIDTH: Final = 340
_HEIGHT: Final = 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 34, 46
_TITLE: Final = 26
_LEGEND_LINE: Final = 20
_CHARACTER: Final = 7.2
"""Width that a character of the legend is given, pixels."""


@dataclass(frozen=True)
class Point:
    """One figure. `low` and `high` bound its interval, if it has one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Line:
    """Figures of one name, in the order in which they are joined."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Panel:
    """One pair of axes; `logarithmic`: both of them, and every value is above 0."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    logarithmic: bool = False


def svg(title: str, panels: Sequence[Panel], *, caption: str = "") -> str:
    """A whole SVG document.

    Args:
        title: Stands above the panels.
        panels: From left to right.
        caption: Stands below: where the figures come from.

    Raises:
        ValueError: there is no panel, a panel has no point, or a value is not finite or negative.
    """
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    if not names:
        raise ValueError("a chart needs a panel with a line")
    width = _WIDTH * len(panels)
    rows = _legend_rows(names, width)
    top = _TITLE + _LEGEND_LINE * len(rows)
    height = top + _HEIGHT + (_LEGEND_LINE if caption else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(width / 2, 18, title, anchor="middle", size=15),
    ]
    for row, entries in enumerate(rows):
        y = _TITLE + _LEGEND_LINE * row + 8
        for x, name in entries:
            parts.append(_stroke([(x, y), (x + 22, y)], names.index(name)))
            parts.append(_marker(x + 11, y, names.index(name)))
            parts.append(_text(x + 28, y + 4, name))
    for index, panel in enumerate(panels):
        parts.append(f'<g transform="translate({_WIDTH * index} {top})">')
        parts.extend(_panel(panel, names))
        parts.append("</g>")
    if caption:
        parts.append(_text(width / 2, height - 7, caption, anchor="middle", size=11))
    return "\n".join([*parts, "</svg>"]) + "\n"


def ticks(most: float, *, least: float = 0.0, wanted: int = 5) -> list[float]:
    """Round values from at most `least` to at least `most`, about `wanted` of them.

    Raises:
        ValueError: the ends are not finite, or not in order.
    """
    if not (math.isfinite(least) and math.isfinite(most) and least <= most):
        raise ValueError(f"no axis goes from {least} to {most}")
    if least == most:
        most = least + 1
    rough = (most - least) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(least / step + 1e-9), math.ceil(most / step - 1e-9)
    return [round(index * step, 10) for index in range(first, last + 1)]


def powers(least: float, most: float) -> list[float]:
    """Powers of ten from at most `least` to at least `most`, two or more.

    Raises:
        ValueError: a value is not above 0 or not finite, or they are not in order.
    """
    if not 0 < least <= most < math.inf:
        raise ValueError(f"no logarithmic axis goes from {least} to {most}")
    first = math.floor(math.log10(least) + 1e-9)
    last = max(math.ceil(math.log10(most) - 1e-9), first + 1)
    return [10.0**power for power in range(first, last + 1)]


def _panel(panel: Panel, names: Sequence[str]) -> Iterable[str]:
    points = [point for line in panel.lines for point in line.points]
    if not points:
        raise ValueError(f"panel {panel.title!r} has no point")
    highest = max(point.y if point.high is None else point.high for point in points)
    if not all(0 <= point.y < math.inf for point in points):
        raise ValueError(f"panel {panel.title!r} has a value that is negative or not finite")
    left, right = min(point.x for point in points), max(point.x for point in points)
    if panel.logarithmic:
        across, up = powers(left, right), powers(min(point.y for point in points), highest)
    else:
        across, up = ticks(right, least=left), ticks(highest)
    scale = math.log10 if panel.logarithmic else float

    def share(value: float, axis: Sequence[float]) -> float:
        """How far along an axis; what is above or below it is drawn at its end."""
        first, last = scale(axis[0]), scale(axis[-1])
        return (scale(min(max(value, axis[0]), axis[-1])) - first) / (last - first)

    def at(x: float, y: float) -> tuple[float, float]:
        """A value's pixel."""
        right, above = share(x, across), share(y, up)
        return (
            _LEFT + right * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - above * (_HEIGHT - _TOP - _BOTTOM),
        )

    yield _text(_WIDTH / 2, 20, panel.title, anchor="middle", size=13)
    for value in up:
        begin, y = at(across[0], value)
        end, _ = at(across[-1], value)
        yield f'<path d="M{_px(begin)} {_px(y)}H{_px(end)}" stroke="#dddddd"/>'
        yield _text(begin - 6, y + 4, _number(value), anchor="end")
    for value in across:
        x, bottom = at(value, up[0])
        yield f'<path d="M{_px(x)} {_px(bottom)}v4" stroke="#444444"/>'
        yield _text(x, bottom + 17, _number(value), anchor="middle")
    yield _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, panel.x_label, anchor="middle")
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    yield (
        f'<text transform="translate(14 {_px(middle)}) rotate(-90)" text-anchor="middle">'
        f"{escape(panel.y_label)}</text>"
    )
    for line in panel.lines:
        index = names.index(line.name)
        for point in line.points:
            if point.low is not None and point.high is not None:
                x, low = at(point.x, point.low)
                _, high = at(point.x, point.high)
                d = f"M{_px(x)} {_px(low)}V{_px(high)}m-3 0h6M{_px(x - 3)} {_px(low)}h6"
                yield f'<path d="{d}" stroke="{_colour(index)}" fill="none"/>'
        yield _stroke([at(point.x, point.y) for point in line.points], index)
        for point in line.points:
            yield _marker(*at(point.x, point.y), index)


def _legend_rows(names: Sequence[str], width: float) -> list[list[tuple[float, str]]]:
    """Where each name of the legend begins, row by row."""
    rows: list[list[tuple[float, str]]] = [[]]
    x = 12.0
    for name in names:
        wide = 28 + _CHARACTER * len(name) + 14
        if rows[-1] and x + wide > width:
            rows.append([])
            x = 12.0
        rows[-1].append((x, name))
        x += wide
    return rows


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _stroke(points: Sequence[tuple[float, float]], index: int) -> str:
    joined = " ".join(f"{_px(x)},{_px(y)}" for x, y in points)
    dash = ' stroke-dasharray="6 3"' if index // len(COLOURS) % 2 else ""
    colour = _colour(index)
    return f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'


def _marker(x: float, y: float, index: int) -> str:
    """A shape of its own for each name, for those who print in grey."""
    colour = _colour(index)
    match index % 4:
        case 0:
            return f'<circle cx="{_px(x)}" cy="{_px(y)}" r="3.5" fill="{colour}"/>'
        case 1:
            return f'<rect x="{_px(x - 3)}" y="{_px(y - 3)}" width="6" height="6" fill="{colour}"/>'
        case 2:
            return f'<path d="M{_px(x)} {_px(y - 4)}l4 7h-8z" fill="{colour}"/>'
        case _:
            return (
                f'<path d="M{_px(x)} {_px(y - 4.5)}l4.5 4.5l-4.5 4.5l-4.5-4.5z" fill="{colour}"/>'
            )


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    return (
        f'<text x="{_px(x)}" y="{_px(y)}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(text)}</text>"
    )


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _number(value: float) -> str:
    return f"{value:,.10g}"
