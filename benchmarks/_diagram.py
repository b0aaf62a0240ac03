"""A reliability diagram as a picture: of results with a score, the share that was relevant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from marklight.eval.metrics import calibration_error, reliability

SIDE, LEFT, TOP, BOTTOM, LEGEND = 420, 64, 40, 96, 260
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a7a00", "#666666")
"""Okabe and Ito's, which also those see apart who see fewer colours."""

LEAST = 20
"""Results that a point stands for; fewer tell nothing."""

Results = Sequence[tuple[float, bool]]


def diagram(results: Mapping[str, Results]) -> str:
    """Each set as a line over its bins, all together as a thick one; the dashed line is honesty."""
    together = [each for some in results.values() for each in some]
    lines = [
        _line(some, colour, 1.5) for some, colour in zip(results.values(), COLOURS, strict=False)
    ]
    names = [f"{name}, {calibration_error(some):.3f}" for name, some in results.items()]
    entries = [
        *zip(names, COLOURS, strict=False),
        (f"all together, {calibration_error(together):.3f}", "#000000"),
    ]
    legend = [
        f'<g><rect x="{LEFT + SIDE + 24}" y="{TOP + 26 + 22 * at}" width="14" height="4" fill="{colour}"/>'
        f'<text x="{LEFT + SIDE + 46}" y="{TOP + 32 + 22 * at}">{escape(name)}</text></g>'
        for at, (name, colour) in enumerate(entries)
    ]
    head = f'<text x="{LEFT + SIDE + 24}" y="{TOP + 10}" font-weight="bold">Set, calibration error</text>'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + SIDE + LEGEND} {TOP + SIDE + BOTTOM}"'
            ' font-family="Helvetica, Arial, DejaVu Sans, sans-serif" font-size="13" fill="#000" role="img"'
            ' aria-label="Reliability diagram: share of relevant results by score">',
            f'<rect width="{LEFT + SIDE + LEGEND}" height="{TOP + SIDE + BOTTOM}" fill="#fff"/>',
            *_frame(),
            *lines,
            _line(together, "#000000", 3.5),
            head,
            *legend,
            *_counts(together),
            "</svg>\n",
        ]
    )


def _x(score: float) -> float:
    return LEFT + SIDE * score


def _y(share: float) -> float:
    return TOP + SIDE * (1 - share)


def _frame() -> list[str]:
    ticks = [tick / 5 for tick in range(6)]
    return [
        f'<rect x="{LEFT}" y="{TOP}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#999"/>',
        f'<path d="M{_x(0)} {_y(0)} L{_x(1)} {_y(1)}" stroke="#999" stroke-dasharray="6 5"/>',
        *(
            f'<text x="{_x(t):.0f}" y="{_y(0) + 18:.0f}" text-anchor="middle">{t:.1f}</text>'
            for t in ticks
        ),
        *(
            f'<text x="{LEFT - 8}" y="{_y(t) + 4:.0f}" text-anchor="end">{t:.1f}</text>'
            for t in ticks
        ),
        f'<text x="{_x(0.5):.0f}" y="{_y(0) + 38:.0f}" text-anchor="middle">score, with the number of results</text>',
        f'<text transform="translate(18 {_y(0.5):.0f}) rotate(-90)" text-anchor="middle">share that was relevant</text>',
    ]


def _line(results: Results, colour: str, width: float) -> str:
    held = [each for each in reliability(results) if each.count >= LEAST]
    points = " ".join(f"{_x(each.score):.1f},{_y(each.relevant):.1f}" for each in held)
    dots = "".join(
        f'<circle cx="{_x(each.score):.1f}" cy="{_y(each.relevant):.1f}" r="{width + 1}" fill="{colour}"/>'
        for each in held
    )
    return (
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"/>{dots}'
    )


def _counts(results: Results) -> list[str]:
    bins = reliability(results)
    return [
        f'<text x="{_x((at + 0.5) / len(bins)):.0f}" y="{_y(0) + 58:.0f}" text-anchor="middle" font-size="11">{each.count:,}</text>'
        for at, each in enumerate(bins)
    ]


def timeline(series: Mapping[str, tuple[str, Sequence[tuple[float, float]]]]) -> str:
    """Draw one panel for each series, by name with its unit: values over minutes."""
    width, height, gap = 560, 130, 56
    total = TOP + len(series) * (height + gap)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + width + 24} {total}"'
        ' font-family="Helvetica, Arial, DejaVu Sans, sans-serif" font-size="13" role="img" aria-label="Values over time">',
        f'<rect width="{LEFT + width + 24}" height="{total}" fill="#fff"/>',
    ]
    for row, (name, (unit, points)) in enumerate(series.items()):
        top, last = TOP + row * (height + gap), max(time for time, _ in points)
        most = max(value for _, value in points) or 1
        line = " ".join(
            f"{LEFT + width * time / last:.1f},{top + height * (1 - value / most):.1f}"
            for time, value in points
        )
        parts += [
            f'<text x="{LEFT}" y="{top - 8}" font-weight="bold">{escape(name)}</text>',
            f'<rect x="{LEFT}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#999"/>',
            f'<text x="{LEFT - 8}" y="{top + 10}" text-anchor="end">{most:,.0f} {escape(unit)}</text>',
            f'<text x="{LEFT - 8}" y="{top + height}" text-anchor="end">0</text>',
            f'<text x="{LEFT + width}" y="{top + height + 16}" text-anchor="end">{last:.0f} minutes</text>',
            f'<polyline points="{line}" fill="none" stroke="{COLOURS[row % len(COLOURS)]}" stroke-width="1.5"/>',
        ]
    return "\n".join([*parts, "</svg>\n"])
