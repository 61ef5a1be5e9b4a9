"""The checks that `doctor` makes of a service's metrics."""

import itertools

from costprobe.ui.cli.support.checks import service_checks
from fakes.inference_server import InferenceServer
from fakes.services import service
from fakes.serving_engine import ServingEngine
from record.record_files import check

OLD, NEW = b'{"build_info": "b10518-a", "is_sleeping": %s}', b'{"build_info": "b10519-a"}'
MODELS = b'{"data": [{"id": "o", "aliases": ["m"], "status": {"value": "%s"}}]}'
PAGE = [b"llamacpp:prompt_tokens_total 1\nllamacpp:tokens_predicted_total 1\n"]


def whole(*page):
    return lambda call: call.whole(*page)


def pages(**named):
    """Answer with pages by the end of their path; `probe` answers the probe header of Knative."""

    def answer(call):
        name = call.path.split("?")[0].rsplit("/", 1)[-1]
        if "K-Network-Probe" in call.headers and "probe" in named:
            call.whole(*named["probe"])
        else:
            call.whole(*named.get(name, [b"{}"]))

    return answer


def balanced(*, exposes_start):
    """A load balancer before two replicas."""
    replicas = [ServingEngine(at_s, exposes_start=exposes_start) for at_s in (500.0, 900.0)]
    for replica, requests in zip(replicas, (9000, 40), strict=True):
        replica.serve(requests=requests)
    turns = itertools.cycle(replicas)
    return lambda call: next(turns).answer(call)


def of_models(*names):
    engine = ServingEngine()
    for name in names:
        engine.serve(name)
    return engine.answer


THREE = of_models("llama-70B", "sql", "chat")
ROUTED = {"query": "?model=m"}
# The engine, its answers, and keys of the service.
CASES = {
    "an empty page of TorchServe": ("torchserve", whole(b"")),
    "an empty page of vLLM": ("vllm", whole(b"")),
    "a refused page": ("llamacpp", whole(b"no", 501)),
    # Knative's activator and queue-proxy answer their probe header; llama-server states that it sleeps.
    "activator": ("llamacpp", pages(probe=[b'unexpected probe header value: "queue"', 400])),
    "queue-proxy": ("llamacpp", pages(probe=[b"queue"])),
    "asleep": ("llamacpp", pages(props=[OLD % b"true"])),
    "unloaded": ("llamacpp", pages(props=[NEW], models=[MODELS % b"unloaded"]), ROUTED),
    "awake, old": ("llamacpp", pages(props=[OLD % b"false"], metrics=PAGE)),
    "awake, new": ("llamacpp", pages(props=[NEW], metrics=PAGE)),
    "loaded": ("llamacpp", pages(props=[NEW], models=[MODELS % b"loaded"], metrics=PAGE), ROUTED),
    "a load balancer": ("vllm", balanced(exposes_start=True)),
    "one without start times": ("vllm", balanced(exposes_start=False)),
    "models whose size is assumed": ("vllm", THREE),
    "a stated size": ("vllm", THREE, {"parameters": "70B"}),
    "one model": ("vllm", THREE, {"models": ["llama-70B"]}),
    "two of the same assumed size": ("vllm", THREE, {"models": ["sql", "chat"]}),
}


def test_checks_of_the_metrics_of_a_service():
    """The record has the check of each, and the pages that were read; see `record_files`."""
    lines = []
    for name, (engine, answer, *more) in CASES.items():
        keys = dict(*more)
        with InferenceServer(answer) as server:
            url = server.url + keys.pop("query", "")
            (found,) = service_checks([service("s", engine=engine, url=url, **keys)])
            read = dict.fromkeys(call.path.partition("?")[0] for call in server.calls)
        lines += [f"{name}: {found.state}, read {', '.join(read)}", f"  {found.detail}"]
        lines += [f"  {found.fix}"] * bool(found.fix)
        lines = [line.replace(server.url, "http://server") for line in lines]
    check("service_checks.txt", "\n".join([*lines, ""]))
