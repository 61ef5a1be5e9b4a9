"""Model sources in a probe worker, with interpreters that have the libraries of a serving stack."""

import json
import shutil
from contextlib import closing

import pytest
from costprobe.adapters.probe_child.results import ProbeFault, ProbeResult
from fakes.kept_worker import KeptWorker
from fakes.probe_requests import probe_request
from fakes.serving_python import torch_alone, with_model_libraries

# The first test creates the environments and downloads their packages.
pytestmark = pytest.mark.timeout(900)

QUICK = {"batch": 2, "min_samples": 30, "sample_cap_s": 0.1, "threads": 1}


@pytest.fixture(scope="module")
def bare_python():
    return torch_alone()


@pytest.fixture(scope="module")
def models_python():
    return with_model_libraries()


@pytest.fixture(scope="module")
def programs_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    (folder / "exporting.py").write_text(EXPORTING)
    return folder


@pytest.fixture(scope="module")
def bare(bare_python, programs_folder):
    """A worker in an environment with torch only."""
    with closing(KeptWorker(bare_python, PYTHONPATH=str(programs_folder))) as worker:
        yield worker


@pytest.fixture(scope="module")
def torch_home(tmp_path_factory):
    """The download cache of the libraries."""
    return tmp_path_factory.mktemp("torch_home")


@pytest.fixture(scope="module")
def saved_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    (folder / "saving.py").write_text(SAVING)
    return folder


@pytest.fixture(scope="module")
def models(models_python, torch_home, saved_folder):
    """A worker with the libraries of a serving stack."""
    env = {"TORCH_HOME": str(torch_home), "PYTHONPATH": str(saved_folder)}
    with closing(KeptWorker(models_python, **env)) as worker:
        yield worker


def request_for(kind, model=None, **more):
    return probe_request(kind, model=model, **{"dtype": None, **QUICK, **more})


def run(worker, kind, model=None, **more):
    return worker.run(request_for(kind, model, **more))


def good(outcome):
    assert isinstance(outcome, ProbeResult), outcome
    assert outcome.samples >= 1
    return outcome


def refused(outcome, *words):
    assert isinstance(outcome, ProbeFault), outcome
    assert outcome.kind == "config", outcome
    for word in words:
        assert word in outcome.title
    return outcome


# A factory that writes files beside it: the same small model as a TorchScript file and as exported
# programs, one with other weights. It runs in the worker that has loaded torch already.
EXPORTING = """
import warnings
from pathlib import Path

import torch

folder = Path(__file__).parent


def net(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()


def export(name, seed, **options):
    program = torch.export.export(net(seed), (torch.ones(4, 8),), **options)
    torch.export.save(program, folder / name)


def make():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates torch.jit
        torch.jit.save(torch.jit.trace(net(3), torch.ones(2, 8)), folder / "net.pt")
    export("static.pt2", 3)
    export("other.pt2", 4)
    export("dynamic.pt2", 3, dynamic_shapes=({0: torch.export.Dim("batch", min=2, max=64)},))
    return torch.nn.ReLU(), torch.ones(1, 4)
"""


@pytest.fixture(scope="module")
def programs(bare, programs_folder):
    """The files of EXPORTING."""
    good(run(bare, "module", module="exporting:make"))
    return programs_folder


def model_folder(folder, **config):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def bert_folder(folder, architecture="BertForSequenceClassification"):
    sizes = {"vocab_size": 100, "hidden_size": 16, "max_position_embeddings": 40}
    layers = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return model_folder(folder, architectures=[architecture], model_type="bert", **sizes, **layers)


# A factory that writes weights of a model beside it, in the worker that has loaded the libraries already.
SAVING = """
from pathlib import Path

import torch
from transformers import AutoConfig, BertForSequenceClassification


def make():
    folder = Path(__file__).parent
    bert = BertForSequenceClassification(AutoConfig.from_pretrained(folder / "bert"))
    bert.save_pretrained(folder / "bert")
    return torch.nn.ReLU(), torch.ones(1, 4)
"""


@pytest.fixture(scope="module")
def saved(models, saved_folder):
    """The files of SAVING."""
    bert_folder(saved_folder / "bert")
    good(run(models, "module", module="saving:make"))
    return saved_folder


def test_torchscript_program_runs_with_the_described_inputs(bare, programs):
    inputs = ({"shape": [8], "dtype": "fp32"},)
    path = str(programs / "net.pt")
    result = good(run(bare, "torchscript", path, inputs=inputs))
    assert result.software["model"] == f"torchscript:{path}"
    assert result.software["weights_source"] == "file"
    assert len(result.software["file"]) == 12
    refused(run(bare, "torchscript", path), "does not record its inputs", "set inputs")


def test_exported_program_runs_at_its_exported_batches(bare, programs):
    static, dynamic = str(programs / "static.pt2"), str(programs / "dynamic.pt2")
    assert good(run(bare, "pt2", static, batch="auto")).batch == 4
    refused(run(bare, "pt2", static, batch=8), "exported for 4 to 4")
    searched = run(bare, "pt2", dynamic, batch="auto")
    assert good(searched).batch <= 64
    assert min(point["batch"] for point in searched.curve) == 2
    refused(run(bare, "pt2", dynamic, batch=1), "exported for 2 to 64")


def test_changed_file_changes_the_fingerprint(bare, programs):
    first = good(run(bare, "pt2", str(programs / "static.pt2"), batch=4))
    # The worker replaces its model by another one and loads it again.
    good(run(bare, "cnn"))
    again = good(run(bare, "pt2", str(programs / "static.pt2"), batch=4))
    changed = good(run(bare, "pt2", str(programs / "other.pt2"), batch=4))
    assert first.fingerprint == again.fingerprint != changed.fingerprint
    assert first.software["file"] != changed.software["file"]


def test_invalid_program_file_is_named_with_the_fix(bare, tmp_path, programs):
    inputs = ({"shape": [8]},)
    missing, text, half = (tmp_path / name for name in ("none.pt", "text.pt", "half.pt"))
    text.write_text("no program")
    for kind, valid in (("torchscript", "net.pt"), ("pt2", "static.pt2")):
        refused(run(bare, kind, str(missing), inputs=inputs), str(missing), "cannot be read")
        refused(run(bare, kind, str(text), inputs=inputs), str(text))
        whole = (programs / valid).read_bytes()
        half.write_bytes(whole[: len(whole) // 2])
        refused(run(bare, kind, str(half), inputs=inputs), str(half))


def test_torchvision_model_with_random_weights_is_tagged(models):
    result = good(run(models, "torchvision", "squeezenet1_1", batch=1))
    assert result.tags == {"weights": "random"}
    assert result.software["weights_source"] == "random"
    assert "(1, 3, 224, 224)" in result.software["inputs"]
    refused(run(models, "torchvision", "squeezenet1_2"), "squeezenet1_1")


def test_transformers_folder_runs_with_random_or_own_weights(models, saved, tmp_path):
    folder = bert_folder(tmp_path / "bert")
    random = good(run(models, "transformers", str(folder)))
    assert random.tags == {"weights": "random"}
    assert "input_ids" in random.software["inputs"]
    assert "(1, 40)" in random.software["inputs"]
    (weights,) = (saved / "bert").glob("*.safetensors")
    shutil.copy(weights, folder)
    # The worker keeps a model until another one is requested.
    good(run(models, "cnn"))
    own = good(run(models, "transformers", str(folder)))
    assert own.tags == {}
    assert own.fingerprint != random.fingerprint


def test_configuration_selects_model_classes_only(models, tmp_path):
    # HfArgumentParser would parse the program's arguments and raise.
    folder = bert_folder(tmp_path / "bert", architecture="HfArgumentParser")
    assert good(run(models, "transformers", str(folder))).tags == {"weights": "random"}


def test_code_and_pickles_of_a_transformers_folder_are_not_executed(models, tmp_path):
    place = tmp_path / "executed"
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    (hostile / "own.py").write_text(
        f"open({str(place)!r}, 'w')\nclass Config: pass\nclass Net: pass\n"
    )
    auto = {"AutoConfig": "own.Config", "AutoModel": "own.Net"}
    (hostile / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": auto}))
    refused(run(models, "transformers", str(hostile)), str(hostile))
    pickled = bert_folder(tmp_path / "pickled")
    (pickled / "pytorch_model.bin").write_bytes(b"")
    refused(run(models, "transformers", str(pickled)), "pickled weights", "safetensors")
    assert not place.exists()
    refused(run(models, "transformers", str(tmp_path)), "config.json", "cannot be read")
