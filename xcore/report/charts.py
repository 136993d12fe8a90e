"""Bars and lines as inline SVG: no library, no script, colours from the page's style."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xcore.report.html import Html, element, markup
from xcore.report.wording import count, number, percent

WIDTH, HEIGHT = 720, 270
LEFT, RIGHT, TOP, BOTTOM = 58, 24, 12, 58
LINE = 14
N_COLOURS = 4
Interval = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """What a direction of a chart shows, and from where to where.

    Attributes
    ----------
    title : what is measured.
    low, high : the ends; on a logarithmic axis both are above 0.
    log : whether equal steps are equal factors.
    share : whether values are shares, written in percent.
    """

    title: str
    low: float
    high: float
    log: bool = False
    share: bool = False

    def place(self, value: float) -> float:
        """Where a value lies: 0 at the low end, 1 at the high end, never beyond."""
        low, high, at = (math.log(each) if self.log else each for each in (self.low, self.high, self._inside(value)))
        return (at - low) / (high - low) if high > low else 0.0

    def ticks(self) -> list[float]:
        """Round values between the ends."""
        if self.log:
            return self._log_ticks()
        step = _round_step(self.high - self.low)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]

    def says(self, value: float) -> str:
        """A value as it stands beside the axis."""
        if self.share:
            return f"{100 * value:g}%" if 100 * value >= 1e-3 else f"{100 * value:.0f}%"
        return str(count(value) if abs(value) >= 1 and value == int(value) else number(value))

    def _log_ticks(self) -> list[float]:
        """Powers of ten, and over few of them also their double and fivefold; at least two ticks."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        factors = (1, 2, 5) if len(powers) <= 4 else (1,)
        found = [factor * 10.0**power for power in powers for factor in factors]
        inside = [tick for tick in found if self.low * (1 - 1e-9) <= tick <= self.high * (1 + 1e-9)]
        return inside if len(inside) > 1 else [self.low, self.high]  # a short axis may have none

    def _inside(self, value: float) -> float:
        return min(max(value, self.low), self.high)


def bars(
    title: str,
    categories: Sequence[str],
    series: Mapping[str, Sequence[float]],
    *,
    x: str,
    y: str,
    intervals: Mapping[str, Sequence[Interval | None]] | None = None,
) -> Html:
    """A group of bars for each category, one bar a series; values are shares. A NaN leaves its place empty.

    A newline in a category's name begins a second line.
    """
    ends = [value for values in series.values() for value in values]
    ends += [end[1] for each in (intervals or {}).values() for end in each if end is not None]
    axis = Axis(y, 0.0, _round_up(max([end for end in ends if math.isfinite(end)], default=1.0)), share=True)
    slot = (WIDTH - LEFT - RIGHT) / max(len(categories), 1)
    width = 0.8 * slot / max(len(series), 1)
    drawn = []
    for i, (name, values) in enumerate(series.items()):
        for place, value in enumerate(values):
            if math.isfinite(value):
                left = LEFT + slot * (place + 0.1) + width * i
                says = f"{name}, {_one_line(categories[place])}: {percent(value)}%"
                drawn.append(_bar(left, width, axis.place(value), i, says))
                interval = intervals[name][place] if intervals else None
                drawn.append(_whisker(left + width / 2, axis, interval))
    names = [_category(LEFT + slot * (place + 0.5), category) for place, category in enumerate(categories)]
    n_lines = max((category.count("\n") + 1 for category in categories), default=1)
    return _figure(title, list(series), n_lines, _y_axis(axis), drawn, names, _x_title(x, n_lines))


def lines(
    title: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x: Axis,
    y: Axis,
    diagonal: bool = False,
    intervals: Mapping[str, Sequence[Interval]] | None = None,
) -> Html:
    """A line through the points of each series, which are marked where they are few; `intervals` belong to points."""
    drawn: list[Html] = []
    if diagonal:
        ends = max(x.low, y.low), min(x.high, y.high)
        drawn.append(element("polyline", points=_points([(end, end) for end in ends], x, y), class_="diagonal"))
    for i, (name, points) in enumerate(series.items()):
        drawn.append(element("polyline", points=_points(points, x, y), class_=f"curve line{i % N_COLOURS}"))
        for (at, _), interval in zip(points, intervals[name] if intervals else (), strict=bool(intervals)):
            drawn.append(_whisker(_across(x, at), y, interval))
        for at, value in points if len(points) <= 30 else ():
            says = element("title", f"{name}: {x.says(at)}, {y.says(value)}")
            spot = {"cx": round(_across(x, at), 1), "cy": round(_up(y, value), 1)}
            drawn.append(element("g", element("circle", r=3.5, class_=f"fill{i % N_COLOURS}", **spot), says))
    names = [_category(_across(x, tick), x.says(tick)) for tick in x.ticks()]
    return _figure(title, list(series), 1, _y_axis(y), drawn, names, _x_title(x.title, 1))


def meter(share: float) -> Html:
    """A small bar for a table's cell, filled up to a share."""
    filled = round(100 * min(max(share, 0.0), 1.0), 2) if math.isfinite(share) else 0.0
    track = element("rect", class_="track", width=100, height=8)
    bar = element("rect", class_="fill0", width=filled, height=8)
    return element(
        "svg", track, bar, class_="meter", viewBox="0 0 100 8", preserveAspectRatio="none", aria_hidden="true"
    )


def _figure(title: str, names: Sequence[str], n_lines: int, *parts: Sequence[Html]) -> Html:
    """A drawing with its title and legend; `n_lines` is how many lines the names below it take."""
    box = f"0 0 {WIDTH} {HEIGHT - LINE * (2 - n_lines)}"
    drawing = element("svg", *parts, viewBox=box, role="img", aria_label=title, class_="chart")
    keys = [element("li", _swatch(i), name) for i, name in enumerate(names)]
    legend = element("ul", keys, class_="legend") if len(names) > 1 else None
    return element("figure", element("figcaption", title), legend, drawing)


def _swatch(i: int) -> Html:
    square = element("rect", width=10, height=10, class_=f"fill{i % N_COLOURS}")
    return element("svg", square, viewBox="0 0 10 10", class_="swatch", aria_hidden="true")


def _bar(left: float, width: float, height: float, i: int, says: str) -> Html:
    full = HEIGHT - TOP - BOTTOM
    box = {"x": round(left, 1), "y": round(TOP + full * (1 - height), 1), "height": round(full * height, 1)}
    drawn = element("rect", width=round(max(width - 1, 0.5), 1), class_=f"fill{i % N_COLOURS}", **box)
    return element("g", drawn, element("title", says))


def _whisker(at: float, axis: Axis, interval: Interval | None) -> Html:
    if interval is None or not all(math.isfinite(end) for end in interval):
        return Html("")
    low, high = (round(_up(axis, end), 1) for end in interval)
    return element("line", x1=round(at, 1), x2=round(at, 1), y1=low, y2=high, class_="whisker")


def _y_axis(axis: Axis) -> list[Html]:
    parts = []
    for tick in axis.ticks():
        height = round(_up(axis, tick), 1)
        parts.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=height, y2=height, class_="grid"))
        parts.append(element("text", axis.says(tick), x=LEFT - 6, y=height + 4, class_="end"))
    middle = TOP + (HEIGHT - TOP - BOTTOM) / 2
    turned = f"rotate(-90 14 {middle:.0f})"
    return [*parts, element("text", axis.title, x=14, y=round(middle), class_="middle name", transform=turned)]


def _x_title(title: str, n_lines: int) -> list[Html]:
    """The space below this many lines of names."""
    height = HEIGHT - BOTTOM + 22 + LINE * n_lines
    return [element("text", title, x=round((LEFT + WIDTH - RIGHT) / 2), y=height, class_="middle name")]


def _category(at: float, name: str) -> Html:
    texts = [
        element("text", part, x=round(at, 1), y=HEIGHT - BOTTOM + 16 + LINE * line, class_="middle")
        for line, part in enumerate(name.split("\n")[:2])
    ]
    return markup(texts)


def _points(points: Sequence[tuple[float, float]], x: Axis, y: Axis) -> str:
    return " ".join(f"{_across(x, at):.1f},{_up(y, value):.1f}" for at, value in points)


def _across(axis: Axis, value: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * axis.place(value)


def _up(axis: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * axis.place(value)


def _one_line(name: str) -> str:
    return name.replace("\n", ", ")


def _round_step(span: float) -> float:
    """A distance of 1, 2 or 5 times a power of ten that cuts a span into four to eight parts."""
    if span <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(span / 4))
    return next(factor * power for factor in (5, 2, 1) if span / (factor * power) >= 4)


def _round_up(value: float) -> float:
    """The next tick at or above a positive value."""
    if value <= 0:
        return 1.0
    step = _round_step(value)
    return step * math.ceil(value / step - 1e-9)
