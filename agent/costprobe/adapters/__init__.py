"""The outside world: each folder uses one thing outside the process.

Answers: how a driver, a child process, a serving engine, a cloud, Kubernetes, a database or an
HTTP server is asked, with limits on time and size, and what each error requires: retry, drop or
stop. An adapter knows no question of the product; what it needs of a room is passed to it.
Reads: drivers, /proc, sockets, files, the store.
Writes: the store, the log, requests.

`http` and `host` serve all other folders, which do not import each other. Open `store/ledger` for
the way of a row, `sensors/supervisor` for that of a reading, and `http/client` for a request.
Contracts: `sensors/child/sensor`, `databases/reader`, `engines/tables`, `load_child/clients`.
"""
