"""Configuration of a service's tenants: the counters by which its cost is divided among them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from costprobe.adapters.net.settings import CaFile, TokenCredential, TokenFile
from costprobe.adapters.serving.setting_types import Selector, Urls
from costprobe.core.config.fields import Section, matching

MAX_TENANTS = 100


class TenantsConfig(Section):
    """Counters with a label that names the tenant: a team, a user or a key."""

    gateway: Literal["litellm"] | None = Field(
        None,
        description="Gateway whose counters are known; else name them below.",
        examples=["litellm"],
    )
    url: Urls | None = Field(
        None,
        description=(
            "Address of the metrics with these counters, of each replica; those of the service by"
            " default."
        ),
        examples=["http://127.0.0.1:4000"],
    )
    label: Annotated[
        str,
        Field(max_length=100),
        matching(r"[A-Za-z_]\w*", "a label has letters, digits and _"),
    ] = Field(
        description=(
            "Label with the tenant; of LiteLLM `team`, `team_alias`, `api_key_alias`, `end_user`"
            " or `user`."
        ),
        examples=["team"],
    )
    tokens_in: Selector | None = Field(
        None,
        description="Counter of prompt tokens by tenant.",
        examples=["gateway_prompt_tokens_total"],
    )
    tokens_out: Selector | None = Field(
        None,
        description="Counter of generated tokens by tenant.",
        examples=["gateway_generated_tokens_total"],
    )
    requests: Selector | None = Field(
        None,
        description="Counter of requests by tenant; divides the cost where tokens are not counted.",
        examples=['gateway_requests_total{code="200"}'],
    )
    models: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        max_length=64,
        description=(
            "With `gateway`: names under which clients request this service's models there; all"
            " by default."
        ),
        examples=[["llama"]],
    )
    names: int = Field(
        20,
        ge=1,
        le=MAX_TENANTS,
        description="Largest number of tenants with a name; further ones are together `other`.",
    )
    token_file: TokenFile = None
    token_credential: TokenCredential = None
    ca_file: CaFile = None

    @model_validator(mode="after")
    def _counters_are_known(self) -> TenantsConfig:
        counters = [self.tokens_in, self.tokens_out, self.requests]
        if self.gateway is None and not any(counters):
            raise ValueError(
                'name the counters, such as tokens_in = "gateway_prompt_tokens_total", or set'
                ' gateway = "litellm"'
            )
        if self.gateway is not None and any(counters):
            raise ValueError(
                f'the counters of gateway = "{self.gateway}" are known: remove tokens_in,'
                " tokens_out and requests, or gateway"
            )
        if self.gateway is None and self.models is not None:
            raise ValueError(
                "models is for a gateway; write the model as a label of each counter:"
                " tokens_in = 'gateway_prompt_tokens_total{model=\"llama\"}'"
            )
        if self.url is None and (self.token_file or self.token_credential or self.ca_file):
            raise ValueError(
                "token_file, token_credential and ca_file are for an own url: remove them, or write"
                " the url; without one, those of the service apply"
            )
        if self.token_file and self.token_credential:
            raise ValueError("give token_file or token_credential, not both")
        return self
