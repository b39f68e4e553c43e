"""The Grafana dashboards of infscale as code: `python -m tools.dashboards` writes dashboards/ and its ConfigMaps.

One module for each dashboard, each with a pure function `build()`; `panels` and `builder` have the JSON, `series` the
selectors and queries that several share, `files` says what is written where.
"""
