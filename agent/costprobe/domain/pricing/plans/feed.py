"""Plans whose price is read from a source: options that they share."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from costprobe.core.config.fields import Name, matching
from costprobe.core.records import NS_PER_S
from costprobe.domain.pricing.aws_locations import AWS_LOCATIONS
from costprobe.domain.pricing.plans.plan import Plan
from costprobe.domain.pricing.price_lists import PriceQuery
from costprobe.domain.pricing.rate import Quote
from costprobe.domain.pricing.source import SourceConfig
from costprobe.domain.pricing.spot_prices import NO_SPOTS, Spots

PriceApi = Literal["aws", "azure", "gcp", "catalogue"]
# Keys that an API requires, beside those that it may have.
_REQUIRED: dict[str, tuple[str, ...]] = {
    "aws": ("instance", "region"),
    "azure": ("instance", "region"),
    "gcp": ("skus", "key_file"),
    "catalogue": ("instance", "region"),
}
# No quotation mark: it would end the name in Azure's filter.
_IS_NAME = matching(
    r"[^'\r\n]+", "write a name as in the cloud's price list, without quotation marks"
)
_API_KEYS = ("instance", "region", "skus", "key_file")


class FeedPlan(Plan, SourceConfig):
    """A price that is read from a file, a command, an HTTP endpoint or a cloud's price list."""

    name: Name = Field("feed", description="Name under which the price history is stored.")
    api: PriceApi | None = Field(
        None,
        description=(
            "Price list to read: aws (on demand, Linux), azure (retail prices), gcp (Cloud Billing"
            " Catalog), or catalogue (a table as of `costprobe price update`, at `url` or `file`)."
        ),
        examples=["azure"],
    )
    instance: Annotated[str, Field(max_length=100), _IS_NAME] | None = Field(
        None,
        description="Instance type in the price list (aws, azure, catalogue).",
        examples=["Standard_NC24ads_A100_v4"],
    )
    region: Annotated[str, Field(max_length=40), _IS_NAME] | None = Field(
        None,
        description="Region in the price list (aws, azure, catalogue).",
        examples=["westeurope"],
    )
    skus: dict[str, Annotated[Decimal, Field(gt=0, le=100_000)]] = Field(
        default_factory=dict,
        max_length=16,
        description=(
            "SKU identifiers of the instance's cores, memory and GPUs with their numbers, whose"
            " prices are added (gcp)."
        ),
        examples=[{"2E27-4F75-95CD": Decimal(4)}],
    )
    key_file: Path | None = Field(
        None,
        description="File with the API key (gcp).",
        examples=["/etc/costprobe/google.key"],
    )

    @model_validator(mode="after")
    def _has_one_source(self) -> FeedPlan:
        if self.api is None:
            given = [key for key in _API_KEYS if getattr(self, key)]
            if given:
                raise ValueError(f"{given[0]} belongs to a price list; add api")
            if self.sources != 1:
                raise ValueError("give one of file, command, url and api")
            return self
        if self.api == "aws":
            self._check_aws()
        missing = [key for key in _REQUIRED[self.api] if not getattr(self, key)]
        if missing:
            raise ValueError(f'api = "{self.api}" needs {" and ".join(missing)}; add them')
        if self.api == "catalogue" and (self.sources != 1 or self.command is not None):
            raise ValueError('api = "catalogue" needs a table; give url or file')
        if self.api != "catalogue" and (self.file is not None or self.command is not None):
            raise ValueError(f'api = "{self.api}" is its own source; remove file and command')
        return self

    def _check_aws(self) -> None:
        if self.plan == "spot":
            raise ValueError(
                'api = "aws" has no spot prices; use command with'
                " `aws ec2 describe-spot-price-history`"
            )
        if self.currency != "USD":
            raise ValueError('api = "aws" has prices in USD; remove currency')
        if self.region is not None and self.region not in AWS_LOCATIONS:
            raise ValueError(f"{self.region} is no region of AWS, such as us-east-1")

    @property
    def query(self) -> PriceQuery | None:
        """The price in a cloud's price list; None if it has another source."""
        if self.api is None or self.api == "catalogue":
            return None
        return PriceQuery(
            self.api,
            self.currency,
            self.instance or "",
            self.region or "",
            self.url,
            self.plan == "spot",
            self.skus,
            self.key_file,
        )

    def quote(self, time_ns: int, spots: Spots = NO_SPOTS) -> Quote | None:
        """Return the last known price; None before the first."""
        prices = spots.get(self.name)
        price = None if prices is None else prices.at(time_ns)
        if prices is None or price is None:
            return None
        is_stale = prices.is_stale(time_ns, self.stale_after_s)
        since = datetime.fromtimestamp(price.time_ns // NS_PER_S, tz=UTC)
        note = f"price of {since:%Y-%m-%d %H:%M} UTC{', stale' if is_stale else ''}"
        origin = f"{self.plan} price {self.name}"
        return Quote(self.plan, (("rent", price.value),), note, is_stale, (origin,))
