"""The InfluxDB 2.x HTTP API that set-up uses: stores valid objects and rejects others."""

import json
from itertools import count
from urllib.parse import parse_qs, urlsplit

from fakes.servers import Scripted

TOKEN = "all-access-0123456789"  # noqa: S105 - of a server that lives for a test
ORG_ID = "0a0a0a0a0a0a0a0a"
_KEYS = {
    "buckets": "buckets",
    "dbrps": "content",
    "tasks": "tasks",
    "authorizations": "authorizations",
}
# Required keys of each kind, from the API reference.
_NEEDED = {
    "buckets": {"orgID", "name", "retentionRules"},
    "dbrps": {"orgID", "bucketID", "database", "retention_policy"},
    "tasks": {"orgID", "flux"},
    "authorizations": {"orgID", "permissions"},
}


class FakeInfluxV2(Scripted):
    """A server with one organization, `ml`.

    Attributes:
        kept: The created objects, by kind and id.
        changes: Requests that changed an object: (method, path, content).
    """

    def __init__(self):
        super().__init__(self._answer)
        self.kept = {kind: {} for kind in _KEYS}
        self.changes = []
        self._ids = (f"{number:016x}" for number in count(1))

    def all(self, kind):
        return list(self.kept[kind].values())

    def _answer(self, method, path, headers, body):
        status, content = self._judged(method, urlsplit(path), headers, body)
        return status, {"Content-Type": "application/json"}, json.dumps(content).encode()

    def _judged(self, method, address, headers, body):
        if headers.get("Authorization") != f"Token {TOKEN}":
            # Errors repeat the request, as some gateways do.
            return 401, {"message": f"unauthorized: {headers.get('Authorization')}"}
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        kind, _, one = address.path.removeprefix("/api/v2/").partition("/")
        if kind not in {"orgs", *_KEYS}:
            return 404, {"message": "path not found"}
        if method == "GET":
            return self._found(kind, query)
        return self._changed(method, address, json.loads(body), kind, one)

    def _found(self, kind, query):
        if kind != "orgs":
            return 200, {_KEYS[kind]: self._matching(kind, query)}
        if query.get("org") != "ml":
            return 404, {"message": "organization not found"}
        return 200, {"orgs": [{"id": ORG_ID, "name": "ml"}]}

    def _changed(self, method, address, content, kind, one):
        self.changes.append((method, address.path, content))
        if method == "PATCH" and one in self.kept[kind]:
            self.kept[kind][one] |= content
            return 200, self.kept[kind][one]
        if method == "POST" and _NEEDED[kind] <= content.keys() and content["orgID"] == ORG_ID:
            return 201, self._made(kind, content)
        return 400, {"message": f"{method} {address.path}: bad request"}

    def _matching(self, kind, query):
        wanted = {"name": query.get("name"), "database": query.get("db")}
        return [
            one
            for one in self.kept[kind].values()
            if all(value is None or one.get(name) == value for name, value in wanted.items())
        ]

    def _made(self, kind, content):
        made = {"id": next(self._ids), **content}
        if kind == "tasks":
            made["name"] = content["flux"].partition('name: "')[2].partition('"')[0]
        if kind == "authorizations":
            made["token"] = f"write-only-{made['id']}"
        self.kept[kind][made["id"]] = made
        return made
