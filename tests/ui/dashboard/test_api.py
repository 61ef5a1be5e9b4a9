"""The dashboard's JSON API returns the stored numbers and rejects invalid requests."""

import json
from urllib.parse import urlencode

import pytest
from contents import Recorded, value, words
from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from costprobe.core.records import NS_PER_S
from dashboard_samples import (
    BUDGETS,
    DEVICES,
    cost_rows,
    labelled_rows,
    many_rows,
    planned,
    row,
    served_rows,
    status_document,
    tenant_rows,
    write_status,
)
from fakes.command import called
from fakes.number_names import is_vocabulary, numbers_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from record.record_files import check_outcomes

POWER = "/api/trend?field=device.power_w"
COST = "/api/trend?field=cost.cost_per_inference"
VALUES = ["device.power_w", "cost.plan", "24h", "1h", "100", "gpu0", "0s", "model", "auto"]


# The parts of a map: telemetry of a device, and its age in s.
STATES = {
    "gpu0": ({"util_pct": 90.0}, 1),
    "gpu1": ({"util_pct": 0.9}, 1),
    "gpu2": ({"util_pct": 1.0}, 1),
    "gpu3": ({"power_w": 9.0}, 1),
    "gpu4": ({"util_pct": 50.0}, 121),
    **{f"gpu{number}": ({"util_pct": 50.0}, 1) for number in range(5, 16)},
}
# The window of each tenant costs a cent more than the one before.
TENANTS = {f"team-{number:02}": 0.01 * (number + 1) for number in range(23)}


def test_documents_of_the_page_are_as_recorded(page, store, clock):
    """Of each document the lines that none before it has; see `record_files`."""
    recorded = Recorded("page.txt")

    def record(name, *rows, **states):
        store.append(list(rows))
        write_status(store, clock.time_ns())
        for state, document in states.items():
            store.put_state(state, document)
        recorded.add(name, page.json)
        clock.move(61)

    now_ns = clock.time_ns()
    record("a probe on two devices")
    tenants = tenant_rows(now_ns, {**TENANTS, "unattributed": 0.5})
    served = [*served_rows(now_ns), *labelled_rows(now_ns), *tenants]
    record("a service with models, labels and tenants", *served)
    record("twelve devices with an outlier", *many_rows(now_ns))
    old_ns = now_ns - 40 * 86_400 * NS_PER_S
    own = {"device": "gpu7", "probe": "old", "basis": "probe", "currency": "EUR"}
    old = row("cost", old_ns, {"cost_per_inference": 1e-6}, **own)
    record("no row of the last month", *cost_rows("gpu1", 1, old_ns)[1:], old)
    at_ns = clock.time_ns()
    prices = [{"device": name, "plan": "assumed", "currency": "EUR"} for name in DEVICES]
    status = {**status_document(store.path, at_ns), "prices": prices}
    assumed = cost_rows("gpu0", 300, at_ns, plan="assumed")
    record("assumed prices", *assumed, status=status)
    at_ns = clock.time_ns()
    states = [
        row("device", at_ns - age_s * NS_PER_S, fields, device=name)
        for name, (fields, age_s) in STATES.items()
    ]
    record("sixteen devices", *states)
    idle = row("device", clock.time_ns(), {"util_pct": 0.0}, device="gpu0")
    record("a service that waits", idle, *served_rows(clock.time_ns()), alerts={})
    now_ns = clock.time_ns()
    record("windows of a service, of which a cost is the ratio of sums", *mixed_rows(now_ns))
    store.append(
        row("device", now_ns - at * 60 * NS_PER_S, {"power_w": 9.0}, device="gpu9")
        for at in range(1440)
    )
    store.settle(now_ns, limit=10**4)
    record("more rows than are read")
    recorded.check()


def test_power_is_that_of_boards_their_partitions_have_none(page, store, clock):
    partition = {"kind": "mig", "device": "gpu1.mig0", "model": "H200 MIG 1g.18gb"}
    store.append([row("device", clock.time_ns(), {"temp_c": 40.0}, **partition)])
    *_, tile = page.json("/api/now")["tiles"]
    assert "2 devices" in str(tile), tile


def mixed_rows(now_ns):
    """A busy window, one with few inferences, and an idle one, in turn: 15.00 for 1,010 inferences."""
    own = {"device": "gpu0", "service": "s", "basis": "serving", "currency": "EUR"}
    for number in range(600):
        count = (1000.0, 10.0, 0.0)[number % 3]
        cost = {"cost_per_inference": 5.0 / count} if count else {}
        fields = {"cost_total": 5.0, "inferences": count, **cost}
        yield row("cost", now_ns - (600 - number) * 60 * NS_PER_S, fields, **own)


def test_numbers_have_the_names_of_the_series(kept_page):
    offenders = [
        f"{path}: {'.'.join(names)}"
        for path in (f"{POWER}&since=2h", "/api/marks?since=24h")
        for names in numbers_of(kept_page.json(path))
        if not is_vocabulary(names)
    ]
    assert "\n".join(offenders) == ""


def test_budgets_are_those_of_the_command(page_on, today):
    clock = SystemClock()
    page = page_on(today.path, clock, budgets=planned(today, clock))
    found = json.loads(called(today.path.parent / "costprobe.toml", "budget", "--json").stdout)
    for own, card in zip(found, page.json("/api/budgets")["budgets"], strict=True):
        amounts = [known for _, fact, _ in card["facts"] if (known := value(fact)) is not None]
        # Page and command run some seconds apart.
        wanted = [own["spent"], own["forecast"], own["amount"]]
        assert amounts == [pytest.approx(amount, rel=1e-3) for amount in wanted]
        verdict = own["verdict"] or "within the budget"
        assert (card["name"], card["state"][1]) == (own["budget"], verdict)


def test_budgets_are_cached_and_follow_the_configuration(page, page_on, store, clock):
    def amounts():
        return [words(one["big"]).split(" of ")[1] for one in page.json("/api/budgets")["budgets"]]

    first = amounts()
    changed = BUDGETS.replace("amount = 100", "amount = 7")
    planned(store, clock, changed)
    assert amounts() == first
    # An invalid file leaves the previous budgets in force.
    for text in (changed, "[[budget]]\nname = 7"):
        planned(store, clock, text)
        clock.move(61)
        assert amounts() == ["€1", "€7"]
    assert page_on(store.path, clock).json("/api/budgets")["budgets"] == []


def test_invalid_parameters_are_rejected_with_an_error(kept_page):
    check_outcomes("page_refused.json", kept_page.error)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.sampled_from(["now", "trend", "marks", "incidents", "sweeps", "spend", "budgets"]),
    st.dictionaries(
        st.sampled_from(["field", "since", "until", "points", "device", "group", "scale", "x"]),
        st.sampled_from(VALUES) | st.text(max_size=20),
        max_size=5,
    ),
)
def test_any_query_is_answered_or_rejected(kept_page, name, query):
    status, _, body = kept_page.request(f"/api/{name}?{urlencode(query)}")
    assert status in {200, 400}
    assert ("error" in json.loads(body)) is (status == 400)


def test_missing_store_gives_503_until_it_is_created(page_on, clock, tmp_path):
    page = page_on(tmp_path / "later.db", clock)
    status, _, body = page.request("/api/now")
    assert (status, "costprobe run" in json.loads(body)["error"]) == (503, True)
    store = Store.open(tmp_path / "later.db", clock)
    store.append(cost_rows("gpu0", 0, clock.time_ns() - NS_PER_S))
    assert len(page.json("/api/now")["parts"]["rows"]) == 1
    store.close()
