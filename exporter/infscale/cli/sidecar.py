"""`infscale sidecar`: read the engine beside it and publish the normalised metric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from infscale.cli.config_file import config_file_option
from infscale.cli.engine_options import Chosen, chosen, engine_options, target
from infscale.cli.fleet_options import engine_pages_of, evaluator_of, fleet_options, source_of
from infscale.cli.options import SECONDS, URL, Amount, option
from infscale.cli.policy_options import policy_given, policy_options, policy_said
from infscale.cli.sidecar_drain import check_drain, drain_options, endpoint_of
from infscale.cli.sidecar_withdraw import check_token, pod_around, withdraw_endpoint_of, withdraw_options
from infscale.cli.web_options import check_web_config, web_options
from infscale.errors import UsageError

if TYPE_CHECKING:
    from infscale.config import Config
    from infscale.core.scaling import ScalePolicy
    from infscale.evaluator import Evaluator
    from infscale.fleet.engines import EngineSettings as PageSettings
    from infscale.fleet.source import Source
    from infscale.sidecar import EngineSettings, Sidecar

_EXAMPLES = """\b
Examples:
  infscale sidecar --engine-url http://127.0.0.1:8000/metrics
  infscale sidecar --engine-url http://127.0.0.1:8080/metrics --engine llama.cpp --engine.token-file /run/secrets/key
  infscale sidecar --engine-url http://127.0.0.1:8000/metrics --fleet.source dns:vllm-peers:10047 --policy queue:24
"""


@click.command("sidecar", epilog=_EXAMPLES)
@option("--engine-url", type=URL, multiple=True, required=True, metavar="URL", help="The engine's metrics page.")
@engine_options
@option("--engine.min-interval", type=SECONDS, metavar="SECONDS", help="Share a read for this long (1; llama.cpp 2).")
@option("--stale-after", type=SECONDS, default=120.0, metavar="SECONDS", help="No counter moved: the state is stale.")
@option("--model-name", default="", metavar="NAME", help="The model_name label, instead of the engine's own word.")
@option("--capacity", type=Amount(0, min_open=True), metavar="N", help="Slots, if the engine does not tell.")
@option("--cpu-request", type=Amount(0, min_open=True), metavar="CORES", help="The Pod's CPU request.")
@option("--collector.histograms/--no-collector.histograms", default=True, help="Pass the engine's histograms through.")
@drain_options
@withdraw_options
@fleet_options
@option("--fleet.self", metavar="NAME", help="This replica's name: dns: its IP; static: host:port. Else found.")
@option("--fleet.speakers", type=click.IntRange(1), default=3, metavar="N", help="How many of the sidecars evaluate.")
@policy_options
@web_options
@config_file_option()
@click.pass_context
def command(ctx: click.Context, /, config_file: Config, config_check: bool, **flags: Any) -> int:
    """Read the engine beside it and publish the normalised metric, requests in flight, for Prometheus.

    With --fleet.source and a policy it publishes the recommended replicas of its workload too.
    """
    from infscale.drain.mark import TerminationMark, open_socket
    from infscale.metrics.collectors import Settings
    from infscale.metrics.drains import DrainCounters
    from infscale.sidecar import Engine, Sidecar

    engines = chosen(config_file, flags["engine"], flags["engine_select"])
    settings = _engine_settings(flags, engines)
    targets = [target(url, **flags) for url in flags["engine_url"]]
    page = Settings(flags["model_name"], flags["capacity"], flags["collector_histograms"])
    check_web_config(flags["web_config_file"])
    check_drain(flags)
    mark, drains, pod = TerminationMark(), DrainCounters(), pod_around(flags)
    beside = [Engine(one, settings, terminating=mark.is_set) for one in targets]
    sidecar = Sidecar(beside, page, draining=mark.is_set, drains=drains, pod=pod)
    pages = engine_pages_of(flags, engines) if flags["fleet_source"] is not None else None
    workload = _workload(flags, pages, sidecar)
    if config_check:
        check_token(flags)
        click.echo(f"configuration is fine: {len(targets)} engine(s), {', '.join(t.url for t in targets)}")
        return 0
    from infscale.cli.reloading import reload_of
    from infscale.reload import Reloader
    from infscale.serving import serve

    drain = endpoint_of(beside, engines.profiles, flags, mark, drains)
    evaluator = None if workload is None else _evaluator(flags, *workload)
    marking = open_socket(flags["mark_socket"], mark, drain.wait_until_left)
    withdraw = withdraw_endpoint_of(flags, pod)

    def use_engines(new: Chosen) -> None:
        """Look for these engines from now on, on the page, beside it and in drains."""
        settings.profile, settings.profiles = new.told, new.profiles
        if pages is not None:
            pages.profile, pages.profiles = new.told, new.profiles
        drain.look_for(new.profiles)

    reloader = Reloader(reload_of(ctx, use_engines, evaluator))
    reloader.install()
    parts = [part for part in (withdraw, marking, evaluator, reloader) if part is not None]

    def start() -> None:
        """Begin what runs beside the listeners."""
        for part in parts:
            part.start()

    routes = sidecar.routes(evaluator, also=[reloader])
    withdraw.add_routes(routes)
    return serve(
        routes,
        flags,
        also=parts,
        add_kubelet_routes=drain.add_routes,
        once_listening=start,
        why_not_ready=pod.withdrawal.why_not_ready,
    )


def _engine_settings(flags: dict[str, Any], engines: Chosen) -> EngineSettings:
    """How the engines beside it are read; a reload changes the profiles."""
    from infscale.sidecar import EngineSettings

    return EngineSettings(
        profile=engines.told,
        profiles=engines.profiles,
        min_interval_s=flags["engine_min_interval"],
        stale_after_s=flags["stale_after"],
        cpu_request=flags["cpu_request"],
        histograms=flags["collector_histograms"],
    )


def _workload(flags: dict[str, Any], pages: PageSettings | None, sidecar: Sidecar) -> tuple[ScalePolicy, Source] | None:
    """What is to be evaluated, where the sidecar is told of a workload: there are `pages`."""
    if pages is None:
        if policy_given(flags):
            raise UsageError(
                "a policy without --fleet.source: say where the workload's replicas are (single: only here)"
            )
        return None
    policy = policy_said(flags)
    return policy, source_of(flags, policy, pages, reading=sidecar.reading)


def _evaluator(flags: dict[str, Any], policy: ScalePolicy, source: Source) -> Evaluator:
    """The workload's evaluator; of many sidecars a few evaluate."""
    from infscale.fleet.turn import Turn

    host, port = flags["web_listen_address"]
    turn = Turn(source.names, speakers=flags["fleet_speakers"], told=flags["fleet_self"], host=host, port=port)
    return evaluator_of(flags, policy, source, why_not=turn.why_not)
