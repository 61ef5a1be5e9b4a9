"""The contract of model sources: one suite for every kind, and for the example of contributors."""

import json
import socket
import warnings
from importlib.util import find_spec

import pytest
from costprobe.probing.run import model_request
from costprobe.probing.settings import ProbeConfig
from costprobe_probes.sources.kinds import SOURCES, SourceKind, source_of
from costprobe_probes.wire import ProbeConfigError, Spec
from fakes.lazy import LazyModule
from fakes.probe_requests import CPU

torch = LazyModule("torch")
model_source = LazyModule("costprobe_probes.sources.model_source")
linear = LazyModule("contracts.examples.linear")

SEED = 3


def factory():
    return torch.nn.Linear(4, 2), torch.ones(1, 4)


def torchscript_file(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates torch.jit
        torch.jit.save(torch.jit.script(torch.nn.Linear(4, 2).eval()), folder / "net.pt")
    return str(folder / "net.pt")


def exported_file(folder):
    program = torch.export.export(torch.nn.Linear(4, 2).eval(), (torch.ones(3, 4),))
    torch.export.save(program, folder / "net.pt2")
    return str(folder / "net.pt2")


def bert_folder(folder):
    sizes = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = {"model_type": "bert", "intermediate_size": 8, "max_position_embeddings": 16, **sizes}
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


# The spec of a small model of each kind: a new kind is a line here.
EXAMPLES = {
    "transformer": lambda _: Spec("transformer"),
    "cnn": lambda _: Spec("cnn"),
    "decoder": lambda _: Spec("decoder", model="small/prefill", context_tokens=4),
    "module": lambda _: Spec("module", module=f"{__name__}:factory"),
    "torchscript": lambda folder: Spec(
        "torchscript", model=torchscript_file(folder), inputs=({"shape": [4]},)
    ),
    "pt2": lambda folder: Spec("pt2", model=exported_file(folder)),
    "torchvision": lambda _: Spec("torchvision", model="squeezenet1_1"),
    "timm": lambda _: Spec("timm", model="test_vit"),
    "transformers": lambda folder: Spec("transformers", model=bert_folder(folder)),
}
# Packages of the sources that need one; where it is missing, the error is the subject.
PACKAGES = {"torchvision": "torchvision", "timm": "timm", "transformers": "transformers"}


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a model source opened a connection")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def loaded(source, spec):
    torch.manual_seed(SEED)
    return source(spec)


def check(source, spec):
    """Every MUST of docs/contributing/kinds.md that a loaded model shows."""
    first, second = loaded(source, spec), loaded(source, spec)
    assert isinstance(first, model_source.SourcedModel)
    assert isinstance(first.module, torch.nn.Module)
    assert first.weights in {"", "file", "random"}
    cpu = torch.device("cpu")
    for model in (first, second):
        if model.move is not None and next(model.module.parameters()).is_meta:
            assert model.move(cpu) is model.module
    states = [model.module.state_dict() for model in (first, second)]
    assert all(tensor.device.type == "cpu" for tensor in states[0].values())
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())
    largest = first.min_batch if first.max_batch is not None else first.min_batch + 1
    for batch in (first.min_batch, largest):
        batches = []
        for model in (first, second):
            torch.manual_seed(SEED)
            batches.append(model_source.checked_inputs(spec.name, model.inputs(batch)))
        assert all(len(tensor) == batch for tensor in batches[0].tensors())
        pairs = zip(batches[0].tensors(), batches[1].tensors(), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)
        with torch.inference_mode():
            state = first.state(batch, cpu) if first.state is not None else ()
            first.module(*batches[0].args, *state, **batches[0].kwargs)


@pytest.mark.usefixtures("no_network")
def test_every_model_source_fulfils_the_contract(tmp_path):
    assert set(EXAMPLES) == set(SOURCES)
    for kind in SOURCES:
        folder = tmp_path / kind
        folder.mkdir()
        spec = EXAMPLES[kind](folder)
        package = PACKAGES.get(kind)
        if package is None or find_spec(package):
            check(source_of(kind), spec)
        else:
            with pytest.raises(ProbeConfigError, match=f"{package} cannot be imported.*install"):
                source_of(kind)(spec)


def test_every_model_source_names_a_model_that_does_not_exist():
    for kind in set(SOURCES) - {"transformer", "cnn"}:
        with pytest.raises(ProbeConfigError, match=r"\w"):
            source_of(kind)(Spec(kind, module="no.such:thing", model="/no/such/thing"))


@pytest.mark.usefixtures("no_network")
def test_example_passes_the_contract():
    check(linear.load_linear, Spec("linear", model="8"))
    with pytest.raises(ProbeConfigError, match="set linear:512"):
        linear.load_linear(Spec("linear", model="wide"))


def test_new_kind_needs_only_a_table_entry(monkeypatch):
    kind = SourceKind("contracts.examples.linear:load_linear", example="512")
    monkeypatch.setitem(SOURCES, "linear", kind)
    probe = ProbeConfig(name="p", kind="linear:8", inputs=[{"shape": [8]}])
    request = model_request(probe, CPU, {}, energy=False)
    check(source_of("linear"), Spec.of(request.document))
    for kind, problem in (("linear", "such as .linear:512."), ("quadratic", "linear:512")):
        with pytest.raises(ValueError, match=problem):
            ProbeConfig(name="p", kind=kind)
    with pytest.raises(ValueError, match="remove weights"):
        ProbeConfig(name="p", kind="linear:8", weights="/w.pt")
