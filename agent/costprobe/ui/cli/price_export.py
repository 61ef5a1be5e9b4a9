"""`costprobe price export`: what tokens measurably cost, as price files of gateways."""

from __future__ import annotations

import time

import click

from costprobe.core.money import money
from costprobe.core.periods import iso
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import SERVICE_FIELDS
from costprobe.core.units import percent
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.loaded_config import LoadedConfig, bad_input, reader_of
from costprobe.ui.cli.support.option_types import FiniteRange, Moment
from costprobe.ui.cli.support.output import echo, echo_file
from costprobe.ui.text import kind_prices
from costprobe.unit_costs.price_files import DOLLAR, PRICE_FILES, model_prices, token_prices

_REPORTED = (
    "cached tokens have a price of their own, so the server must report them in its answers (vLLM:"
    " --enable-prompt-tokens-details, SGLang: --enable-cache-report)"
)


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe price export --for litellm --usd 1.08  # at $1.08 for one unit of your currency",
        "costprobe price export --for openlit --since 30d --usd 1  # prices of the last month",
    ),
)
@click.option(
    "--for", "program", type=click.Choice(list(PRICE_FILES)), required=True, help="The program."
)
@click.option(
    "--since", "since_ns", type=Moment(), default="7d", show_default=True, help='"7d" or a date.'
)
@click.option("--until", "until_ns", type=Moment(), help='"1h" or a date (default: now).')
@click.option(
    "--usd",
    "usd",
    type=FiniteRange(min=0, min_open=True, max=1e6),
    help="US dollars for one unit of the services' currency; the programs reckon in dollars.",
)
@click.option(
    "--provider",
    default="openai",
    show_default=True,
    help="litellm's provider of the models, such as hosted_vllm.",
)
@click.pass_obj
def export(
    config: str | None,
    *,
    program: str,
    since_ns: int,
    until_ns: int | None,
    usd: float | None,
    provider: str,
) -> None:
    """Write what tokens measurably cost, idle time included, as a price file.

    The costs of the window are ratios of sums over it, as in `costprobe report`. Window, coverage and
    date are in the file if its format has a place for them, and printed to standard error.
    """
    loaded = LoadedConfig(config)
    until_ns = time.time_ns() if until_ns is None else until_ns
    if since_ns >= until_ns:
        raise bad_input("--since: must be before --until")
    with reader_of(loaded) as reader:
        tags = {"basis": "serving"}
        rows = reader.columns("cost", since_ns, until_ns, tags, fields=SERVICE_FIELDS)
        found = token_prices(rows, (until_ns - since_ns) / NS_PER_S)
    only = {
        service.name: service.model
        for service in loaded.config.service
        if service.model is not None
    }
    span = {"since": iso(since_ns), "until": iso(until_ns)}
    try:
        prices = model_prices(found, usd, only, span)
    except ValueError as error:
        raise bad_input(str(error)) from error
    if not prices:
        raise bad_input(
            f"no tokens with a cost since {iso(since_ns)}; choose another --since, or see"
            " `costprobe status` for the services' counters"
        )
    echo_file(PRICE_FILES[program](prices, provider, iso(until_ns)).splitlines())
    for price in prices:
        amounts = {
            "in": price.usd_per_million_tokens_in,
            "fresh": price.usd_per_million_tokens_in,
            "cached": price.usd_per_million_tokens_cached,
            "out": price.usd_per_million_tokens_out,
        }
        words = [
            f"{money(one.amount, DOLLAR)} {one.which}{one.way}" for one in kind_prices(amounts.get)
        ]
        covered = f"coverage {percent(float(price.origin['coverage']))}"
        line = f"{price.name}: {', '.join(words)} per million tokens, {span['since']} to {span['until']}"
        echo(f"{line}, {covered}", err=True)
    if any(price.usd_per_million_tokens_cached is not None for price in prices):
        echo(_REPORTED, err=True)
