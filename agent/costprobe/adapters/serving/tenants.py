"""The counters of a service's tenants: read as those of an engine whose "models" are tenants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from costprobe.adapters.serving.counters import Counter, Engine
from costprobe.adapters.serving.endpoint import CountersConfig
from costprobe.adapters.serving.engines import ENGINES
from costprobe.adapters.serving.model_names import ModelNames
from costprobe.adapters.serving.reading import generic_engine
from costprobe.adapters.serving.settings import ServiceConfig
from costprobe.adapters.serving.tenant_settings import TenantsConfig
from costprobe.core.serving_words import UNATTRIBUTED, Measure

_TOKENS: Final[tuple[Measure, ...]] = ("tokens_in", "tokens_out")
_COUNTED: Final[tuple[Measure, ...]] = (*_TOKENS, "requests")
# LiteLLM writes a request without a team, user or key with this value of the label.
_ABSENT: Final = frozenset({"", "None", UNATTRIBUTED})


def tenants_engine(config: TenantsConfig) -> Engine:
    """Return the counters of tenants; the label of the tenant stands for that of the model.

    A label's value is exposed with its first count, so that a new series counts from zero.
    """
    if config.gateway is None:
        counters = CountersConfig(
            tokens_in=config.tokens_in,
            tokens_out=config.tokens_out,
            requests=config.requests,
            model_label=config.label,
        )
        return replace(generic_engine(counters), counts_begin_at_zero=True)
    engine = ENGINES[config.gateway]
    only = {} if config.models is None else {engine.model_label: config.models}
    return replace(
        engine,
        counters={
            measure: tuple(_of_models(counter, only) for counter in engine.counters[measure])
            for measure in _COUNTED
        },
        required=_TOKENS,
        model_label=config.label,
    )


def tenants_endpoint(service: ServiceConfig, config: TenantsConfig) -> ServiceConfig:
    """Return the service with the address and the credentials of its tenants' counters."""
    every = {"models": None, "model": None}
    if config.url is None:
        return service.model_copy(update=every)
    own = {
        "url": config.url,
        "token_file": config.token_file,
        "token_credential": config.token_credential,
        "ca_file": config.ca_file,
    }
    return service.model_copy(update={**every, **own})


class TenantNames(ModelNames):
    """The tenants of one service: a bounded number of names, the rest as "other".

    Args:
        config: The number of names.
        utc_ns: UTC ns.
        known: Tenants that already have series, and UTC in ns at which they were last seen.
    """

    def __init__(
        self, config: TenantsConfig, utc_ns: Callable[[], int], known: Mapping[str, int]
    ) -> None:
        named = {name: at_ns for name, at_ns in known.items() if name not in _ABSENT}
        super().__init__(utc_ns, named, config.names)

    def name(self, model: str) -> str:
        """Return the name under which a tenant is counted; "unattributed" for none."""
        return UNATTRIBUTED if model in _ABSENT else super().name(model)


def _of_models(counter: Counter, only: Mapping[str, tuple[str, ...]]) -> Counter:
    return replace(counter, only={**counter.only, **only})
