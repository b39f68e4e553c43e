"""The simulator's commands, by the entry-point group `infscale.commands`; each is imported when it is run."""

from __future__ import annotations

from collections.abc import Mapping

from infscale.cli import Entry

COMMANDS: Mapping[str, Entry] = {
    "gpu": Entry("infscale_sim.cli.gpu:command", "What one replica of a hardware profile can do."),
    "simulate": Entry("infscale_sim.cli.simulate:command", "Run scaling policies on simulated replicas."),
    "tune": Entry("infscale_sim.cli.tune:command", "Search the cheapest policy within a budget of misses."),
    "sim-engine": Entry("infscale_sim.cli.sim_engine:command", "Serve like an engine, without a model."),
    "load": Entry("infscale_sim.cli.load:command", "Load an OpenAI-compatible server, measure it, find its target."),
    "demo": Entry("infscale_sim.cli.demo:command", "Watch the whole loop on this machine: engines, decisions, drains."),
}
