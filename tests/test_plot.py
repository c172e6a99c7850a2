"""Charts, by the values that stand in them."""

import math
from xml.etree import ElementTree

import pytest

from thunder_router.plot import COLOURS, Line, Panel, Point, svg, ticks

SVG = "{http://www.w3.org/2000/svg}"


def chart(
    *lines: Line, title: str = "steps", caption: str = "", logarithmic: bool = False
) -> ElementTree.Element:
    panel = Panel("one worker", "programs", "steps/min", lines, logarithmic)
    return ElementTree.fromstring(svg(title, [panel], caption=caption))


def texts(root: ElementTree.Element) -> list[str]:
    return [node.text or "" for node in root.iter(f"{SVG}text")]


def polylines(root: ElementTree.Element) -> list[list[tuple[float, float]]]:
    """Those of the panel, the legend's left out."""
    drawn = [node for group in root.iter(f"{SVG}g") for node in group.iter(f"{SVG}polyline")]
    return [
        [
            (float(x), float(y))
            for x, y in (pair.split(",") for pair in node.attrib["points"].split())
        ]
        for node in drawn
    ]


@pytest.mark.parametrize(
    ("least", "most", "expected"),
    [
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (0, 718, [0, 200, 400, 600, 800]),
        (0, 0.97, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (24, 96, [20, 40, 60, 80, 100]),
        (0, 0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (7, 7, [7, 7.2, 7.4, 7.6, 7.8, 8]),
    ],
)
def test_ticks_are_round_and_hold_both_ends(
    least: float, most: float, expected: list[float]
) -> None:
    assert ticks(most, least=least) == expected


@pytest.mark.parametrize(("least", "most"), [(0, math.nan), (0, math.inf), (5, 1)])
def test_an_axis_without_ends_is_refused(least: float, most: float) -> None:
    with pytest.raises(ValueError, match="no axis"):
        ticks(most, least=least)


def test_a_value_stands_where_its_axis_says() -> None:
    root = chart(Line("adaptive", [Point(0, 0), Point(50, 100), Point(100, 50)]))

    # The axes go from 0 to 100: the box is 264 pixels wide and 170 high, from (62, 204) on.
    assert polylines(root) == [[(62, 204), (194, 34), (326, 119)]]
    assert [text for text in texts(root) if text.isdigit()] == [
        "0",
        "20",
        "40",
        "60",
        "80",
        "100",
    ] * 2


def test_an_interval_has_a_whisker_and_the_axis_holds_it() -> None:
    root = chart(Line("adaptive", [Point(0, 90, low=80, high=190), Point(100, 90)]))

    # The axis ends at 200: 80 at 204 − 68, 190 at 204 − 161.5.
    paths = [node.attrib["d"] for node in root.iter(f"{SVG}path")]
    assert "M62 136V42.5m-3 0h6M59 136h6" in paths
    assert "200" in texts(root)


def test_a_name_keeps_its_colour_in_every_panel_and_stands_once_in_the_legend() -> None:
    one, two = Line("paper", [Point(1, 1)]), Line("adaptive", [Point(1, 2)])
    text = svg("both", [Panel("a", "x", "y", [one, two]), Panel("b", "x", "y", [two])])
    root = ElementTree.fromstring(text)

    strokes = [node.attrib["stroke"] for node in root.iter(f"{SVG}polyline")]
    assert strokes == [COLOURS[0], COLOURS[1], COLOURS[0], COLOURS[1], COLOURS[1]]
    assert texts(root).count("adaptive") == 1
    assert root.attrib["width"] == "680"


def test_a_long_legend_goes_on_in_the_next_row() -> None:
    few = chart(Line("a", [Point(1, 1)]))
    many = chart(*(Line(f"a router with a long name {n}", [Point(1, 1)]) for n in range(3)))

    assert float(many.attrib["height"]) - float(few.attrib["height"]) == 40


def test_logarithmic_axes_give_every_power_of_ten_the_same_room() -> None:
    line = Line("a", [Point(1_000, 2), Point(10_000, 20), Point(1_000_000, 40)])
    root = chart(line, logarithmic=True)

    assert {"1,000", "10,000", "100,000", "1,000,000", "1", "10", "100"} <= set(texts(root))
    (low, bottom), (middle, above), (right, _) = polylines(root)[0]
    assert right - middle == pytest.approx(2 * (middle - low), abs=0.2)
    height = 250 - 34 - 46
    assert bottom - above == pytest.approx(height / 2, abs=0.2)


def test_text_is_escaped_and_the_same_figures_give_the_same_bytes() -> None:
    line = Line('a<b & "c"', [Point(1, 1)])
    root = chart(line, title="1 < 2", caption="emulated & simulated")

    assert {"1 < 2", 'a<b & "c"', "emulated & simulated"} <= set(texts(root))
    panel = Panel("p", "x", "y", [line])
    assert svg("t", [panel]) == svg("t", [panel])


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([], "needs a panel"),
        ([Line("a", [])], "no point"),
        ([Line("a", [Point(1, -1)])], "negative"),
        ([Line("a", [Point(1, 1), Point(2, math.nan)])], "not finite"),
        ([Line("a", [Point(math.inf, 1)])], "no axis"),
    ],
)
def test_what_cannot_be_drawn_is_refused(lines: list[Line], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        chart(*lines)


def test_a_logarithmic_axis_has_no_zero() -> None:
    with pytest.raises(ValueError, match="no logarithmic axis"):
        chart(Line("a", [Point(1, 0)]), logarithmic=True)
