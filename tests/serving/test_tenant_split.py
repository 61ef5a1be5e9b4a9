"""A service's cost by tenant: shares computed by hand, and sums that are exact."""

from decimal import Decimal

import pytest
from costprobe.core.money import total_of
from costprobe.core.schema import UNATTRIBUTED
from costprobe.serving.cost import ServedCost, TokenShares, tenant_split
from costprobe.serving.meter import Counts, ServedWindow
from fakes.cases import check_all
from hypothesis import given
from hypothesis import strategies as st


def counted(tenants, **more):
    models = {name: Counts(**counts) for name, counts in tenants.items()}
    return ServedWindow("chat", "litellm", 0, 300, models, **more)


def service(cost="1", tokens=None, **counts):
    return ServedCost("", Counts(**counts), Decimal(cost), Decimal(0), None, tokens=tokens)


# Half of the cost is that of 1,000 tokens in, half that of 100 tokens out: one of these costs 10 times
# as much.
HALVES = TokenShares("weights", 0.5, 0.5)
CHAT = service("0.8", HALVES, tokens_in=1000.0, tokens_out=100.0, requests=10.0)
NO_TOKENS = service("0.8", None, requests=10.0)
IDLE = service("0.8", None, tokens_in=0.0, tokens_out=0.0, requests=0.0)


def tokens(tokens_in, tokens_out):
    return {"tokens_in": float(tokens_in), "tokens_out": float(tokens_out)}


REST = UNATTRIBUTED
# What a service costs, the counts of its tenants, the cost of each, and the share that is counted.
SPLITS = (
    # 0.5 * 400/1000 + 0.5 * 80/100 = 0.6, and 0.3 + 0.1 = 0.4.
    (
        CHAT,
        {"a": tokens(400, 80), "b": tokens(600, 20)},
        {"a": "0.48", "b": "0.32", REST: "0"},
        1.0,
    ),
    # 0.5 * 0.4 + 0.5 * 0.2 = 0.3 of 0.8.
    (CHAT, {"a": tokens(400, 20)}, {"a": "0.24", REST: "0.56"}, 0.3),
    # 1.2 + 0.4 = 1.6 times the service: 0.8 * 1.2 / 1.6.
    (
        CHAT,
        {"a": tokens(1200, 120), "b": tokens(400, 40)},
        {"a": "0.6", "b": "0.2", REST: "0"},
        1.6,
    ),
    # Requests without a tenant remain, and what is unexplained is added: 0.1 + 0.5.
    (CHAT, {"a": tokens(400, 40), REST: tokens(100, 10)}, {"a": "0.32", REST: "0.48"}, 0.5),
    # Only tokens out are counted by tenant: 25 of 100.
    (CHAT, {"a": {"tokens_out": 25.0}}, {"a": "0.2", REST: "0.6"}, 0.25),
    (NO_TOKENS, {"a": {"requests": 4.0}}, {"a": "0.32", REST: "0.48"}, 0.4),
    (IDLE, {"a": tokens(0, 0)}, {"a": "0", REST: "0.8"}, None),
    # No tenant yet.
    (CHAT, {"": tokens(0, 0)}, {REST: "0.8"}, None),
)


def test_cost_follows_weighted_tokens_by_hand():
    def check(total, tenants, expected, share):
        split = tenant_split(total, counted(tenants))
        costs = {part.tenant: part.cost for part in split.tenants}
        assert costs == {key: Decimal(text) for key, text in expected.items()}
        assert (split.problems, split.counted_share) == ((), share and pytest.approx(share))

    check_all(check, SPLITS)


def test_a_tenant_pays_for_its_cached_tokens_what_they_weigh():
    # 4,700 computed tokens of weight 1, 6,300 cached ones, 1,100 tokens out of weight 4.39.
    read, write = 4700, 1100 * 4.39
    shares = TokenShares("weights", read / (read + write), write / (read + write))
    counts = {"tokens_in": 11_000.0, "cached_tokens": 6300.0, "tokens_out": 1100.0}
    hits, none = {**tokens(7000, 700), "cached_tokens": 6300.0}, tokens(4000, 400)

    def paid(of_none, shares=shares):
        split = tenant_split(
            service("0.1429", shares, **counts), counted({"hits": hits, "none": of_none})
        )
        assert total_of([part.cost for part in split.tenants]) == Decimal("0.1429")
        return [(round(part.cost, 4), part.cache_saved) for part in split.tenants]

    # 700 + 700 x 4.39 and 4,000 + 400 x 4.39 of 9,529; the whole saving is that of the tenant with hits.
    fresh = 0.1429 / 9529
    none["cached_tokens"] = 0.0
    expected = [(Decimal("0.0863"), 0.0), (Decimal("0.0566"), pytest.approx(fresh * 6300))]
    assert paid(none)[:2] == expected
    # With 0.1 for a cached token: 700 + 630 + 3,073 of 10,159.
    whole = read + write + 630
    tenth = TokenShares("calibrated", (read + 630) / whole, write / whole, 630 / whole)
    costs = [cost for cost, _ in paid(none, tenth)]
    assert costs == [Decimal("0.0810"), Decimal("0.0619"), 0]

    # A gateway that counts none of the hits: one price of all tokens in, and nobody's saving.
    hits, none = tokens(7000, 700), tokens(4000, 400)
    (first, _), (second, _), (rest, saved) = paid(none)
    assert (first, second, rest) == (Decimal("0.0909"), Decimal("0.0520"), 0)
    assert saved == pytest.approx(fresh * 6300)


def test_unknown_counts_leave_the_whole_cost_unattributed_with_the_reason():
    tenants = {"search": tokens(400, 20)}
    table = [
        (CHAT, counted(tenants, problems=("no answer",)), "no answer"),
        (CHAT, counted(tenants, missing=("litellm_output_tokens_metric",)), "litellm_output"),
        (IDLE, counted(tenants), "the service counts none"),
    ]
    for total, window, reason in table:
        split = tenant_split(total, window)
        assert [(part.tenant, part.cost) for part in split.tenants] == [(UNATTRIBUTED, total.cost)]
        assert (split.counted_share, split.problems[0][: len(reason)]) == (None, reason)


def test_unattributed_has_the_counts_that_no_tenant_has():
    split = tenant_split(CHAT, counted({"search": tokens(400, 120), UNATTRIBUTED: tokens(9, 9)}))
    (rest,) = [part.counts for part in split.tenants if part.tenant == UNATTRIBUTED]
    assert rest == Counts(tokens_in=600.0, tokens_out=0.0, requests=10.0)


COUNT = st.one_of(st.none(), st.integers(0, 10**9).map(float), st.floats(0, 1e12))
KINDS = ("tokens_in", "cached_tokens", "tokens_out", "requests")
COUNTS = st.fixed_dictionaries(dict.fromkeys(KINDS, COUNT))


@given(
    st.decimals(0, 10**6, places=9),
    COUNTS,
    st.one_of(st.none(), st.tuples(st.floats(0, 1), st.floats(0, 1))),
    st.dictionaries(st.sampled_from(["a", "b", "c", "other", UNATTRIBUTED, ""]), COUNTS),
)
def test_parts_add_up_to_the_cost_exactly(cost, counts, share, tenants):
    shares = share and TokenShares("weights", share[0], 1 - share[0], share[0] * share[1])
    split = tenant_split(service(str(cost), shares, **counts), counted(tenants))
    assert total_of([part.cost for part in split.tenants]) == cost
    assert sum(part.share for part in split.tenants) == pytest.approx(1)
    assert split.tenants[-1].tenant == UNATTRIBUTED
