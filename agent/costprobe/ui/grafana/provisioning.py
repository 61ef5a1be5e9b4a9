"""Files from which Grafana provisions its data source and dashboards at start.

Source: Grafana's documentation on provisioning, and on InfluxDB as a data source. A secret is
never written: Grafana replaces `$__file{...}` by the content of that file when it starts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from costprobe.core.outside import bounded_object
from costprobe.ui.grafana.silent_agents import alert_rules

SOURCE = "costprobe"
_HEAD = "# Written by `costprobe grafana provision`; the same command again replaces it.\n"
# Grafana expands variables after a dollar sign; a double dollar sign is escaped.
_LITERAL_DOLLAR = "$$"


@dataclass(frozen=True, slots=True)
class Source:
    """The InfluxDB that Grafana queries.

    Attributes:
        api: "v1" for user and password, "v2" for a token (2.x and 3.x); both are queried in InfluxQL.
        url: URL on Grafana's host.
        database: Database (1.x, 3.x), or the name that a DBRP mapping gives the bucket (2.x).
        user: User (v1); None if the server requires none.
        secret_file: File on Grafana's host with the password or a read token; None if none is
            required.
        ca: Certificates to trust instead of the system's, in PEM.
    """

    api: Literal["v1", "v2"]
    url: str
    database: str
    user: str | None = None
    secret_file: PurePosixPath | None = None
    ca: str | None = None


def sources_file(sources: Mapping[str, Source]) -> str:
    """Return the text of `datasources/costprobe.yaml`.

    Args:
        sources: Data sources by name, which is also their permanent identity in Grafana.
    """
    entries = [_entry(name, source) for name, source in sources.items()]
    return _HEAD + _yaml({"apiVersion": 1, "datasources": entries})


def _entry(name: str, source: Source) -> dict[str, object]:
    settings: dict[str, object] = {"dbName": source.database, "httpMode": "POST"}
    secrets: dict[str, str] = {}
    secret = "" if source.secret_file is None else f"$__file{{{source.secret_file}}}"
    if source.api == "v2" and secret:
        settings["httpHeaderName1"] = "Authorization"
        secrets["httpHeaderValue1"] = f"Token {secret}"
    elif source.user is not None and secret:
        secrets["password"] = secret
    if source.ca is not None:
        settings["tlsAuthWithCACert"] = True
        secrets["tlsCACert"] = _plain(source.ca)
    entry: dict[str, object] = {
        "name": name,
        "uid": name,
        "type": "influxdb",
        "access": "proxy",
        "url": _plain(source.url),
    }
    if source.user is not None:
        entry["user"] = _plain(source.user)
    entry["jsonData"] = {
        key: _plain(value) if isinstance(value, str) else value for key, value in settings.items()
    }
    if secrets:
        entry["secureJsonData"] = secrets
    return entry


def provider_file(folder: PurePosixPath) -> str:
    """Return the text of `dashboards/costprobe.yaml`.

    Args:
        folder: Folder of the dashboards on Grafana's host.
    """
    provider = {
        "name": "costprobe",
        "folder": "costprobe",
        "type": "file",
        "allowUiUpdates": False,
        "updateIntervalSeconds": 60,
        "options": {"path": _plain(str(folder))},
    }
    return _HEAD + _yaml({"apiVersion": 1, "providers": [provider]})


def alerts_file(source: str) -> str:
    """Return the text of `alerting/costprobe.yaml`.

    Args:
        source: Name of the data source.
    """
    return _HEAD + _yaml(alert_rules(source))


def provisioned(board: str, source: str) -> str:
    """Return a dashboard's JSON with its data source selected.

    Grafana selects the first source of a type if a dashboard names none, which may be another database.

    Args:
        board: The dashboard.
        source: Name of the data source.
    """
    document = bounded_object(board)
    for variable in document["templating"]["list"]:
        if variable["type"] == "datasource":
            variable["current"] = {"selected": True, "text": source, "value": source}
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _plain(text: str) -> str:
    return text.replace("$", _LITERAL_DOLLAR)


def _yaml(value: object, indent: str = "") -> str:
    """Format as YAML: block style for mappings and lists, JSON scalars for the rest."""
    if isinstance(value, Mapping):
        return "".join(f"{indent}{name}:{_below(inner, indent)}" for name, inner in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = (_item(item, f"{indent}  ") for item in value)
        return "".join(f"{indent}- {item}" for item in items)
    raise TypeError(f"no YAML for {type(value).__name__}")


def _item(value: object, indent: str) -> str:
    if isinstance(value, Mapping):
        return _yaml(value, indent)[len(indent) :]
    return f"{json.dumps(value, ensure_ascii=False)}\n"


def _below(value: object, indent: str) -> str:
    if isinstance(value, Mapping | list):
        return f"\n{_yaml(value, f'{indent}  ')}"
    return f" {json.dumps(value, ensure_ascii=False)}\n"
