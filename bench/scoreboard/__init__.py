"""The scoreboard: policies side by side on public traces and on known troubles. `make scoreboard TRACES=DIR`.

cases       what is run: a scenario file of `scenarios/`, its traffic, its policies
menu        the policies: infscale's own, and grids of the others to tune them over
troubles    what a scaler sees while a replica is silent or the metrics are out
play        one policy on one case, and the oracle: all that is simulated
judge       the goal, case by case
table       text and Markdown
"""
