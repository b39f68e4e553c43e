"""A comparison as a picture: `report_of` makes a `Report` of results, `html_page` and `svg_picture` draw it.

`infscale simulate --html FILE` and `--svg FILE` call these. The same report gives the same bytes.
"""

from infscale_sim.report.adapt import report_of
from infscale_sim.report.drawn import Drawn, Line, Report, Totals, Traffic
from infscale_sim.report.page import html_page
from infscale_sim.report.picture import svg_picture

__all__ = ["Drawn", "Line", "Report", "Totals", "Traffic", "html_page", "report_of", "svg_picture"]
