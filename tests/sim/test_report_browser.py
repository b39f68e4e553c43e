"""The report in a real browser: drawn, legible and usable, at two widths, light and dark."""

from __future__ import annotations

import pytest

from infscale_sim.report import html_page, report_of, svg_picture
from infscale_sim.scenario import load_scenario
from infscale_sim.simulate import run

CHARTS = 4
"""Of each policy."""

DRAWN = """
[...document.querySelectorAll("section.run")].filter((run) => !run.hidden).map((run) => [
  run.querySelector("h2").textContent,
  [...run.querySelectorAll("svg.chart")].map((chart) =>
    [...chart.querySelectorAll("path.line")].some((line) => line.getBoundingClientRect().width > 150)),
])
"""
"""By policy, whether each of its charts has a line over most of its width."""

FAINT = """
(() => {
  const light = (text) => {
    const parts = text.match(/[0-9.]+/g).map(Number).slice(0, 3).map((part) => part / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const page = light(getComputedStyle(document.body).backgroundColor);
  const contrast = (text) => {
    const [low, high] = [light(text), page].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const faint = [];
  for (const text of document.querySelectorAll("svg text, tspan")) {
    if (contrast(getComputedStyle(text).fill) < 4.5) faint.push(text.textContent);
  }
  for (const text of document.querySelectorAll("h1, h2, p, th, td, a, label, legend, output")) {
    if (contrast(getComputedStyle(text).color) < 4.5) faint.push(text.textContent);
  }
  for (const line of document.querySelectorAll("path.line")) {
    if (contrast(getComputedStyle(line).stroke) < 3) faint.push(line.getAttribute("class"));
  }
  return faint;
})()
"""
"""Texts with a contrast to the page of less than 4.5, and lines with less than 3 (WCAG 2.2, 1.4.3 and 1.4.11)."""


@pytest.fixture(scope="module")
def report():
    """The default scenario."""
    scenario = load_scenario("default")
    requests = scenario.requests()
    results = (run(scenario, policy, requests) for policy in scenario.policies)
    return report_of("the default", scenario, requests, results)


@pytest.fixture(scope="module")
def page(report, tmp_path_factory):
    """Its page, in a file."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(html_page(report), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_page_is_drawn_and_legible(browser, page, report, width, dark):
    """Every policy has its charts, nothing is faint or wider than the window, no complaint, no request elsewhere."""
    browser.open(page, width=width, dark=dark)

    assert browser.run(DRAWN) == [[one.policy, [True] * CHARTS] for one in report.policies]
    assert browser.run(FAINT) == []
    assert browser.run("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    assert browser.complaints == []
    assert [url for url in browser.requested if not url.startswith("data:")] == [page.as_uri()]


def test_light_and_dark_differ(browser, page):
    """The page follows the reader's scheme."""
    colours = []
    for dark in (False, True):
        browser.open(page, width=1280, dark=dark)
        colours.append(browser.run("getComputedStyle(document.body).backgroundColor"))

    assert colours == ["rgb(255, 255, 255)", "rgb(22, 24, 28)"]


def test_pointer_shows_the_values_of_its_time(browser, page, report):
    """Over the middle of one chart, every chart says its values of then."""
    browser.open(page, width=1280, dark=False)
    x, y = browser.run(
        "(() => { const grid = document.querySelector('#p2 .grid'); grid.scrollIntoView({block: 'center'});"
        "const box = grid.getBoundingClientRect(); return [box.left + box.width / 2, box.top - 5]; })()"
    )
    browser.point(x, y)
    shown = browser.run("[...document.querySelectorAll('#p2 .value, #p5 .value')].map((value) => value.textContent)")

    assert browser.run("document.querySelector('.clock output').textContent") == "at 12 min 30 s"
    assert shown[:3] == [f"{report.policies[2].ready.at(750.0)}", "1", f"{report.policies[2].recommended.at(750.0)}"]
    assert shown[10] == "2"
    assert all(shown)
    assert browser.complaints == []


def test_slider_needs_no_pointer(browser, page):
    """The time can be chosen by keyboard, and is said in words."""
    browser.open(page, width=390, dark=False)
    browser.run("document.getElementById('time').focus()")
    for kind in ("rawKeyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="End", code="End", windowsVirtualKeyCode=35)

    assert browser.run("document.getElementById('time').getAttribute('aria-valuetext')") == "25 min 0 s"


def test_box_hides_a_policy(browser, page, report):
    """Its charts and its row go, and come back."""
    browser.open(page, width=1280, dark=False)
    for left in (report.policies[1:], report.policies):
        browser.run("document.querySelector('fieldset input').click()")
        rows = "[...document.querySelectorAll('tbody tr')].filter((row) => !row.hidden).length"

        assert [name for name, _ in browser.run(DRAWN)] == [one.policy for one in left]
        assert browser.run(rows) == len(left)


def test_page_reads_without_its_script(browser, page, report):
    """Without script all is drawn, and what needs the script is not shown."""
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page, width=1280, dark=False)

        assert browser.run(DRAWN) == [[one.policy, [True] * CHARTS] for one in report.policies]
        assert browser.run("document.querySelector('.clock').hidden && document.querySelector('fieldset').hidden")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_picture_is_drawn(browser, report, tmp_path):
    """The SVG stands on its own; no text goes over its edge."""
    path = tmp_path / "report.svg"
    path.write_text(svg_picture(report), encoding="utf-8")
    browser.open(path, width=1400, dark=False)
    edges = browser.run(
        "[Math.max(...[...document.querySelectorAll('text')].map((text) => text.getBoundingClientRect().right)),"
        "document.documentElement.viewBox.baseVal.width, document.querySelectorAll('g[role=img]').length]"
    )

    assert edges[0] <= edges[1]
    assert edges[2] == 1 + CHARTS * len(report.policies)
    assert browser.complaints == []
