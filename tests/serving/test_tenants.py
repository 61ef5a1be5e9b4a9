"""Counters of tenants: LiteLLM's real page by label, and the check that `doctor` makes of it."""

from pathlib import Path

from costprobe.adapters.engines.scrape import read_counters
from costprobe.serving.meter import tenants_endpoint, tenants_engine
from costprobe.ui.cli.support.checks import service_checks
from fakes.inference_server import InferenceServer
from fakes.services import service

LITELLM = (Path(__file__).parents[1] / "adapters/engines/exposition/litellm.txt").read_bytes()


def with_tenants(**tenants):
    keys = {"token": "file:/service-token", "models": ["llama"]}
    return service("chat", tenants=tenants, **keys)


def counts(**tenants):
    engine = tenants_engine(with_tenants(gateway="litellm", **tenants).tenants)
    reading = read_counters(LITELLM, engine)
    assert reading.missing == ()
    found = {}
    for measure, series in reading.measures.items():
        for value in series.series.values():
            place = measure, value.model
            found[place] = found.get(place, 0) + value.value
    return found


def test_page_of_litellm_is_counted_by_the_label_of_the_tenant():
    assert counts(label="hashed_api_key") == {
        ("tokens_in", "litellm_proxy_master_key"): 6100,
        ("cached_tokens", "litellm_proxy_master_key"): 4800,
        ("tokens_out", "litellm_proxy_master_key"): 260,
        ("requests", "litellm_proxy_master_key"): 8,
        ("requests", "915b"): 3,
        ("requests", "0462"): 2,
    }
    assert counts(label="team", models=["mock-basic"]) == {
        ("tokens_in", "None"): 100,
        ("tokens_out", "None"): 200,
        ("requests", "None"): 10,
    }


ENVOY = """\
# TYPE gen_ai_client_token_usage_token histogram
gen_ai_client_token_usage_token_sum{gen_ai_token_type="input",user_id="a"} 700
gen_ai_client_token_usage_token_count{gen_ai_token_type="input",user_id="a"} 7
gen_ai_client_token_usage_token_sum{gen_ai_token_type="output",user_id="a"} 70
gen_ai_client_token_usage_token_count{gen_ai_token_type="output",user_id="a"} 7
"""
HITS = """\
gen_ai_client_token_usage_token_sum{gen_ai_token_type="cached_input",user_id="a"} 600
gen_ai_client_token_usage_token_count{gen_ai_token_type="cached_input",user_id="a"} 7
"""


def test_cached_tokens_of_a_gateway_are_read_where_it_has_some():
    usage = 'gen_ai_client_token_usage_token_sum{gen_ai_token_type="%s"}'
    kinds = {"tokens_in": "input", "cached_tokens": "cached_input", "tokens_out": "output"}
    counters = {name: usage % kind for name, kind in kinds.items()}
    engine = tenants_engine(with_tenants(label="user_id", **counters).tenants)
    for page, cached in ((ENVOY, None), (ENVOY + HITS, 600)):
        reading = read_counters(page.encode(), engine)
        assert reading.missing == ()
        found = {
            measure: value.value
            for measure, series in reading.measures.items()
            for value in series.series.values()
        }
        expected = {"tokens_in": 700, "cached_tokens": cached, "tokens_out": 70}
        assert found == {name: value for name, value in expected.items() if value}


def test_credentials_of_the_service_are_not_sent_to_the_gateway():
    config = with_tenants(gateway="litellm", label="team", url="http://b:2")
    endpoint = tenants_endpoint(config, config.tenants)
    assert (endpoint.url, endpoint.token) == (("http://b:2/metrics/",), None)
    own = with_tenants(label="team", requests="r_total")
    same = tenants_endpoint(own, own.tenants)
    assert (same.url, same.token.place, same.models) == (own.url, "file:/service-token", None)


def test_doctor_reads_the_page_and_checks_the_label():
    def checked(**tenants):
        with InferenceServer(lambda call: call.whole(LITELLM)) as page:
            config = service("chat", url=page.url, engine="litellm", tenants=tenants)
            of_service, of_tenants = service_checks([config])
        assert of_service.state == "good"
        return of_tenants

    good = checked(gateway="litellm", label="team")
    assert (good.name, good.state) == ("tenants of chat", "good")
    assert "requests, tokens_in, tokens_out" in good.detail
    wrong = checked(gateway="litellm", label="group")
    assert "no counter has the label group" in wrong.detail
    assert "hashed_api_key" in wrong.fix
    missing = checked(label="team", tokens_in="other_total")
    assert (missing.state, "other_total" in missing.detail) == ("bad", True)
