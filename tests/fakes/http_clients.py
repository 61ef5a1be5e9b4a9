"""The HTTP clients of the daemon and of its children, each as a call that sends a request."""

from contextlib import closing

from costprobe.adapters.clouds.source import SourceError, read_source
from costprobe.adapters.engines.exposition import ScrapeError
from costprobe.adapters.engines.scrape import MetricsFetcher
from costprobe.adapters.http.errors import DeliveryError
from costprobe.adapters.load_child.clients import EventStream
from costprobe.adapters.load_child.connection import (
    Failure,
    ServerConnection,
    parse_json,
    parse_target,
)
from costprobe.delivery.kinds import build_notifier
from costprobe.delivery.webhook import WebhookConfig
from costprobe.pricing.plans import SpotPlan, parse_spot
from costprobe.serving.meter import ServiceMeter
from costprobe.serving.settings import ServiceConfig
from fakes.incidents import incident
from fakes.sending import send, sink_of


def webhook(url, timeout_s, stack):
    config = WebhookConfig(name="n", kind="webhook", url=url, timeout=f"{timeout_s:g}s")
    sender = stack.enter_context(closing(build_notifier(config)))
    return lambda: sender.send([incident()], 1)


def sink(api, **options):
    def made(url, timeout_s, stack):
        built = sink_of(api=api, url=url, timeout_s=timeout_s, **options)
        stack.callback(built.close)
        return lambda: (send(built, b"m f=1 1"), built.check())

    return made


def spot_price(url, timeout_s, _):
    def read():
        text = read_source(SpotPlan(plan="spot", url=url), timeout_s)
        try:
            parse_spot(text, 1, "USD")
        except ValueError as error:
            raise SourceError(str(error)) from error

    return read


def scrape(url, _, __):
    service = ServiceConfig(name="s", engine="vllm", url=[f"{url}/metrics"], devices=["gpu0"])
    meter = ServiceMeter(service, MetricsFetcher(service), lambda: 1, lambda: 1)
    return meter.close_window


def served_probe(url, timeout_s, stack):
    connection = ServerConnection(parse_target(url, None, None), timeout_s)
    stack.callback(connection.close)

    def exchange():
        stream, received = EventStream(), bytearray()

        def consume(data, _):
            received.extend(data)
            for event in stream.feed(data):
                parse_json(event)
            return False

        connection.exchange("POST", "/v1/chat/completions", b"{}", consume)
        parse_json(bytes(received))

    return exchange


# Each takes a URL, a timeout in s and an ExitStack, and raises one kind of error.
CLIENTS = {
    "webhook": (webhook, DeliveryError),
    "InfluxDB 1": (sink("v1", database="d"), DeliveryError),
    "InfluxDB 2": (sink("v2", org="o", bucket="b"), DeliveryError),
    "OTLP": (sink("otlp"), DeliveryError),
    "spot price": (spot_price, SourceError),
    "scrape": (scrape, ScrapeError),
    "probe of a server": (served_probe, Failure),
}
