"""Self-host or API: services beside hosted models, with values computed by hand."""

import pytest
from costprobe.core.columns import columns_of
from costprobe.core.records import Point
from costprobe.pricing.catalogue import HOSTED_COLUMNS, parse_hosted
from costprobe.pricing.catalogue_files import hosted_models
from costprobe.savings.hosted_apis import hosting_choices
from costprobe.savings.settings import ApiConfig
from costprobe.ui import hosted_apis
from fakes.cases import check_all
from fakes.cli import NOW_S, host, session
from fakes.rows import window_cost

HOUR_NS = 3600 * 10**9
TAGS = {"device": "gpu0", "service": "chat", "basis": "serving", "plan": "owned", "currency": "USD"}
# An hour of docs/comparison.md: 5.00, of which 1.00 for electricity, at 25 % utilization.
HOUR = {
    "cost_total_hardware": 4.0,
    "cost_total_energy": 1.0,
    "cost_idle": 3.75,
    "tokens_in": 500_000,
    "cached_tokens": 100_000,
    "tokens_out": 250_000,
    "inferences": 1000,
    "cost_tokens_in": 1.25,
    "cost_tokens_out": 3.75,
    "fresh_tokens": 400_000,
    "cost_tokens_fresh": 1.25,
    "cost_tokens_cached": 0.0,
    "cost_cache_saved": 0.3125,
}
PRICES = "($3.12 fresh in, $0 cached in (no weight measured), $15.0 out per million tokens)"
LARGE = {
    "model": "acme/large",
    "per_million_tokens_in": 5,
    "per_million_tokens_cached": 0.5,
    "per_million_tokens_out": 25,
}


def hour(at=1, tags=(), cost_total=5.0, **changed):
    sums = {name: value for name, value in {**HOUR, **changed}.items() if value is not None}
    return window_cost({**TAGS, **dict(tags)}, at * HOUR_NS, 3600, cost_total, **sums)


def chosen(*rows, **api):
    configured = ApiConfig.model_validate({**LARGE, **api})
    return hosting_choices(columns_of(rows), [configured], {})


IDLE = hour(2, tokens_in=0, cached_tokens=0, tokens_out=0, cost_idle=5.0, inferences=0)
UNKNOWN = hour(3, tokens_in=None, cached_tokens=None, tokens_out=None)
CHEAP = {"per_million_tokens_in": 1, "per_million_tokens_cached": 0.1}
# Rows, changes of the hosted model, its cost an hour, and the utilization at which owning breaks even.
BY_HAND = (
    # (400,000 x 5.00 + 100,000 x 0.50 + 250,000 x 25.00) / 1,000,000 = 8.30; 4.00 an hour against 33.20, less
    # 4.00 for electricity, at full utilization.
    ((hour(),), {}, 8.30, 4 / 29.2),
    # Half the tokens an hour at half the utilization: electricity of the idle hour follows the tokens.
    ((hour(), IDLE, UNKNOWN), {}, 4.15, 4 / ((4.15 - 1.00) / 0.125)),
    # 0.4 x 1 + 0.1 x 0.1 + 0.25 x 4 = 1.41 an hour: 4.00 / (5.64 - 4.00) = 244 %.
    ((hour(),), {**CHEAP, "per_million_tokens_out": 4}, 1.41, 4 / 1.64),
    # Below the electricity alone there is no break-even; nor is one known without the idle share.
    ((hour(),), {**CHEAP, "per_million_tokens_out": 1}, 0.66, None),
    ((hour(cost_idle=None),), {}, 8.30, None),
    ((hour(cost_idle=5.0),), {}, 8.30, None),
    # Without a price of cached tokens they cost as much as others: 2.5 + 6.25.
    ((hour(),), {"per_million_tokens_cached": None}, 8.75, 4 / 31),
)


def test_hosted_model_by_hand():
    def check(rows, api, per_h, break_even):
        (choice,) = chosen(*rows, **api)
        (hosted,) = choice.apis
        assert hosted.cost_per_month == pytest.approx(per_h * 730)
        assert hosted.saving_per_month == pytest.approx((per_h - 5.00) * 730)
        assert hosted.break_even_share == (break_even and pytest.approx(break_even))

    check_all(check, BY_HAND)
    (choice,) = chosen(hour(), IDLE, UNKNOWN)
    assert (choice.idle_share, choice.measured_h) == (0.875, 2.0)
    (choice,) = chosen(hour())
    assert choice.cost_per_month == pytest.approx(3650)
    assert choice.tokens_in_per_month == pytest.approx(365e6)
    assert choice.per_million == {"in": 2.5, "fresh": 3.125, "cached": 0.0, "out": 15.0}
    assert f"{PRICES}, from 1 h; 20 % of tokens in cached, saved $228 a month" in (
        hosted_apis.caption(choice)
    )
    (unpriced,) = chosen(hour(), per_million_tokens_cached=None)
    assert "acme/large: no price of cached tokens is known" in next(hosted_apis.remarks(unpriced))
    (foreign,) = chosen(hour(), currency="EUR")
    assert foreign.other_currencies == ["acme/large"]


def test_each_model_of_a_service_and_only_named_services():
    models = [
        hour(tags={"served_model": name}, cost_total=cost, cost_total_energy=0.0)
        for name, cost in (("base", 3.0), ("tuned", 2.0))
    ]
    choices = chosen(hour(), *models, hour(tags={"service": "other"}), services=["chat"])
    assert [(choice.name, choice.cost_per_month) for choice in choices] == [
        ("chat/base", pytest.approx(2190)),
        ("chat/tuned", pytest.approx(1460)),
    ]
    assert chosen(hour(tokens_in=None, tokens_out=None))[0].measured_h == 0
    assert not chosen(Point("cost", {**TAGS, "basis": "probe"}, HOUR, HOUR_NS))
    assert not hosting_choices(columns_of([hour()]), [], {})


def test_packaged_list_is_dated_and_has_a_source():
    prices = hosted_models().values()
    assert len(prices) >= 50
    assert not [price.model for price in prices if not price.as_of.startswith("2026-")]
    assert not [price.model for price in prices if "https://" not in price.source]
    head = ",".join(HOSTED_COLUMNS)
    for row, problem in (
        ("m,1,2,3,USD,2026-11,,page", "more than that of other input"),
        ("m,1,,,USD,2026-11,,page", "both kinds of tokens"),
        ("m,1,,20000,USD,2026-11,,page", "is not from"),
        ("m,1,,1,USD,2026-11,,page\nm,1,,1,USD,2026-11,,page", "line 3: model: occurs twice"),
    ):
        with pytest.raises(ValueError, match=problem):
            parse_hosted(f"{head}\n{row}\n")


@pytest.mark.usefixtures("stopped")
def test_compare_report_and_list_show_the_same_figures(costprobe):
    costprobe.write(host("hosted_apis"))
    costprobe.append(hour(NOW_S // 3600 - back) for back in range(6))
    session("hosted_apis", costprobe.config)
    (choice,) = costprobe.json("compare")["apis"]
    models = {api["model"]: api for api in choice["hosted_models"]}
    whole = costprobe.json("price", "list", "--apis")["hosted_models"]
    (listed,) = [price for price in whole if price["model"] == "openai/gpt-5-mini"]
    assert listed.items() <= models["openai/gpt-5-mini"].items()
    (reported,) = costprobe.json("report", "--since", "2d")["apis"]
    assert reported["hosted_models"] == choice["hosted_models"]
    for kind in ("md", "html"):
        shown = costprobe("report", "--since", "2d", "--format", kind)
        words = ("Self-host or API", "$2,410", "yours to evaluate")
        assert [one for one in words if one not in shown] == []
