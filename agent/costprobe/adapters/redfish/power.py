"""The power and the energy counter of a Redfish resource, and its section [server_power].

Shapes, by mockups of DMTF (Redfish-Interface-Emulator, a rack PDU's `Metrics`) and programs that read
BMCs (libredfish2 0.3.0 for iLO, Kepler for Lenovo and iDRAC): EnvironmentMetrics of a Chassis,
PowerDistributionMetrics and Outlet of a PDU (`PowerWatts.Reading` in W, `EnergykWh.Reading` in kWh),
Power of a Chassis (`PowerControl[].PowerConsumedWatts`), and Sensor. Basic authentication and the
address of the host interface are those of NVIDIA's guide of the DGX H100.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from costprobe.adapters.host.redaction import outside_text
from costprobe.adapters.http.access import CaFile, Destination, ExchangeLimits, WithPassword, basic
from costprobe.adapters.http.client import HttpClient
from costprobe.adapters.http.errors import DeliveryError, Hints, raise_for_status
from costprobe.core.config.fields import IS_BARE_URL, Duration, key
from costprobe.core.outside import UnusableInputError, bounded_object

# A BMC may take seconds for a resource with many sensors.
TIMEOUT_S: Final = 20.0
MAX_BYTES: Final = 1 << 20
# A running server draws more, and a rack of today less: other figures are no server's power.
POWER_W_MIN: Final = 1.0
POWER_W_MAX: Final = 250_000.0
ENERGY_KWH_MAX: Final = 1e9
_ROOT: Final = "/redfish/v1/"
_EXAMPLE: Final = "https://169.254.0.17/redfish/v1/Chassis/1/Power"
_HINTS: Final = Hints(
    unauthorized="check user and password of [server_power]: the BMC's account needs the right to log in",
    not_found="check url of [server_power]: /redfish/v1/Chassis of the BMC lists its chassis",
    unexpected="check url of [server_power]",
)


def _resource(url: str) -> str:
    if len(urlsplit(url).path.strip("/")) <= len(_ROOT.strip("/")):
        raise ValueError(f'write the URL of the resource with the power, such as "{_EXAMPLE}"')
    return url


class ServerPowerConfig(WithPassword):
    """Energy of the whole server, from its BMC or from a PDU by Redfish."""

    url: Annotated[str, Field(max_length=500), IS_BARE_URL, AfterValidator(_resource)] = Field(
        description="Redfish resource with the power: `EnvironmentMetrics` or `Power` of the"
        " server's chassis, or the metrics or an outlet of a PDU.",
        examples=[_EXAMPLE],
    )
    every_s: Annotated[Duration, Field(ge=1, le=300)] = key(
        "every", 60.0, description="Time between two reads, 1 s to 5 minutes.", examples=["1m"]
    )
    ca_file: CaFile = None


class PowerError(Exception):
    """The power could not be read; the text states why and the fix, without secrets."""


class PowerReading(NamedTuple):
    """A reading of a server.

    Attributes:
        power_w: Present power in W.
        energy_kwh: Running total in kWh; None if the resource has none.
    """

    power_w: float
    energy_kwh: float | None = None


def read_power(config: ServerPowerConfig) -> PowerReading:
    """Read the power of a server.

    Raises:
        PowerError: The resource cannot be read within the limits, or has no possible power.
    """
    limits = ExchangeLimits(TIMEOUT_S, TIMEOUT_S, max_body_bytes=MAX_BYTES + 1)
    client = HttpClient(limits, ca_file=config.ca_file)
    try:
        destination = Destination.parse(config.url)
        login = {} if config.user is None else basic(config.user, config.password)
        response = client.request("GET", destination, {"Accept": "application/json", **login})
        raise_for_status(
            response,
            now_s=time.time(),
            hints=_HINTS,
            is_tls=destination.is_tls,
            name=destination.name,
        )
    except DeliveryError as error:
        raise PowerError(error.reason) from None
    finally:
        client.close()
    try:
        return parse_power(bounded_object(response.body, MAX_BYTES))
    except UnusableInputError as error:
        raise PowerError(f"{config.url}: {error}; check url of [server_power]") from None


def parse_power(document: Mapping[str, Any]) -> PowerReading:
    """Return the power, and the energy counter, of a Redfish resource.

    Args:
        document: EnvironmentMetrics, PowerDistributionMetrics, Outlet, Power or Sensor.

    Raises:
        UnusableInputError: It has no power, or an impossible one.
    """
    if "PowerControl" in document:
        power_w = _of_controls(document["PowerControl"])
    elif document.get("ReadingType") == "Power" and document.get("ReadingUnits", "W") == "W":
        power_w = _number(document, "Reading", POWER_W_MAX)
    else:
        power_w = _number(document.get("PowerWatts"), "Reading", POWER_W_MAX)
    if power_w is None:
        raise UnusableInputError(f"has no reading of power{_found_instead(document)}")
    if power_w < POWER_W_MIN:
        raise UnusableInputError(f"reports {power_w:g} W, which a running server exceeds")
    return PowerReading(power_w, _number(document.get("EnergykWh"), "Reading", ENERGY_KWH_MAX))


def _of_controls(controls: object) -> float | None:
    """Return the power of the server: of several figures the first, if it contains the others.

    BMCs of Lenovo list the server before its subsystems (CPU, memory). Figures of several power
    supplies, which would have to be added, look the same but for their size.
    """
    members = controls if isinstance(controls, list) else []
    named = [(member, _number(member, "PowerConsumedWatts", POWER_W_MAX)) for member in members]
    known = [(member, watts) for member, watts in named if watts is not None]
    first_w, *others_w = (watts for _, watts in known) if known else (None,)
    if first_w is not None and first_w < sum(others_w):
        names = ", ".join(outside_text(str(member.get("Name")), 40) for member, _ in known[:8])
        raise UnusableInputError(
            f"has several readings of power ({names}), none of which is the server's;"
            " use EnvironmentMetrics of the chassis"
        )
    return first_w


def _number(holder: object, name: str, largest: float) -> float | None:
    """Return a figure; None if there is none.

    Raises:
        UnusableInputError: It is no number from 0 to the largest possible one.
    """
    value = holder.get(name) if isinstance(holder, Mapping) else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= largest:
        shown = outside_text(repr(value), 40)
        raise UnusableInputError(f"{name} is {shown}, not a number from 0 to {largest:,.0f}")
    return float(value)


def _found_instead(document: Mapping[str, Any]) -> str:
    """Return where the power may be, if the resource is a chassis or a collection."""
    members = document.get("Members")
    holders: Sequence[object] = members if isinstance(members, list) else ()
    holders = [*(document.get(name) for name in ("EnvironmentMetrics", "Power")), *holders]
    links = [holder.get("@odata.id") for holder in holders if isinstance(holder, Mapping)]
    shown = [outside_text(link, 100) for link in links[:8] if isinstance(link, str)]
    return f"; it refers to {', '.join(shown)}" if shown else ""
