"""Model sources in a probe worker, with an interpreter that has the libraries of a serving stack."""

import json
import shutil
from contextlib import closing

import pytest
from costprobe.adapters.probe_child.results import ProbeFault, ProbeResult
from fakes.kept_worker import QUICK, KeptWorker
from fakes.probe_requests import probe_request
from fakes.serving_python import with_model_libraries

# The first test creates the environment and downloads its packages.
pytestmark = pytest.mark.timeout(900)

# A factory that writes weights of models beside it, in the worker that has loaded the libraries.
SAVING = """
from pathlib import Path

import torch, torchvision
from costprobe_probes.model import load
from costprobe_probes.wire import Spec
from transformers import AutoConfig, BertForSequenceClassification


def make():
    folder = Path(__file__).parent
    bert = BertForSequenceClassification(AutoConfig.from_pretrained(folder / "bert"))
    bert.save_pretrained(folder / "saved")
    torch.save(torchvision.models.squeezenet1_1().state_dict(), folder / "squeezenet.pth")
    # A language model has the head of its vocabulary, and no cache.
    made = load(Spec("transformers", model=str(folder / "gpt2")), 0)
    out = made.forward_pass(made.inputs(2))()
    assert (out.logits.shape, out.get("past_key_values")) == ((2, 24, 70), None)
    return torch.nn.ReLU(), torch.ones(1, 4)
"""
BERT = {"vocab_size": 100, "hidden_size": 16, "max_position_embeddings": 40}
BERT |= {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
GPT2 = {"vocab_size": 70, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 24}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of models, which the worker can import and uses as its download cache."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "saving.py").write_text(SAVING)
    model_folder(folder / "bert", "bert", "BertForSequenceClassification", BERT)
    model_folder(folder / "gpt2", "gpt2", "GPT2LMHeadModel", GPT2)
    return folder


@pytest.fixture(scope="module")
def models(folder):
    env = {"TORCH_HOME": str(folder / "downloads"), "PYTHONPATH": str(folder)}
    with closing(KeptWorker(with_model_libraries(), **env)) as worker:
        yield worker


def run(worker, kind, model=None, **more):
    return worker.run(probe_request(kind, model=model, **{**QUICK, "dtype": None, **more}))


def good(outcome):
    assert isinstance(outcome, ProbeResult), outcome
    assert outcome.samples >= 1
    return outcome


def refused(outcome, *words):
    assert isinstance(outcome, ProbeFault), outcome
    assert outcome.kind == "config", outcome
    for word in words:
        assert word in outcome.title


def model_folder(folder, model_type, architecture, sizes):
    folder.mkdir()
    config = {"model_type": model_type, "architectures": [architecture], **sizes}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_image_models_have_random_weights_or_those_of_a_file_and_download_nothing(models, folder):
    for kind, name, size in (("torchvision", "squeezenet1_1", 224), ("timm", "test_vit", 160)):
        result = good(run(models, kind, name, batch=1))
        assert result.tags == {"weights": "random"}
        assert result.software["weights_source"] == "random"
        assert f"(1, 3, {size}, {size})" in result.software["inputs"]
    refused(run(models, "torchvision", "squeezenet1_2"), "squeezenet1_1")
    refused(run(models, "timm", "test_vitt"), "no model 'test_vitt'")
    # A model with a backbone.
    inputs = ({"shape": [3, 64, 64]},)
    result = good(run(models, "torchvision", "lraspp_mobilenet_v3_large", inputs=inputs))
    assert result.tags == {"weights": "random"}
    good(run(models, "module", module="saving:make"))
    path = str(folder / "squeezenet.pth")
    result = good(run(models, "torchvision", "squeezenet1_1", weights=path, batch=1))
    assert (result.tags, result.software["weights_source"]) == ({}, "file")
    refused(run(models, "torchvision", "alexnet", weights=path), "does not fit")
    assert not (folder / "downloads").exists()


def test_transformers_folder_runs_with_random_or_own_weights(models, folder):
    bert = folder / "bert"
    random = good(run(models, "transformers", str(bert)))
    assert random.tags == {"weights": "random"}
    assert "input_ids" in random.software["inputs"]
    assert "(1, 40)" in random.software["inputs"]
    # The worker keeps a model until another one is requested.
    good(run(models, "module", module="saving:make"))
    (weights,) = (folder / "saved").glob("*.safetensors")
    shutil.copy(weights, bert)
    own = good(run(models, "transformers", str(bert)))
    assert own.tags == {}
    assert own.fingerprint != random.fingerprint


def test_code_and_pickles_of_a_transformers_folder_are_not_executed(models, tmp_path):
    place, hostile = tmp_path / "executed", tmp_path / "hostile"
    hostile.mkdir()
    (hostile / "own.py").write_text(
        f"open({str(place)!r}, 'w')\nclass Config: pass\nclass Net: pass\n"
    )
    auto = {"AutoConfig": "own.Config", "AutoModel": "own.Net"}
    (hostile / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": auto}))
    refused(run(models, "transformers", str(hostile)), str(hostile))
    pickled = model_folder(tmp_path / "pickled", "bert", "BertForSequenceClassification", BERT)
    (pickled / "pytorch_model.bin").write_bytes(b"")
    refused(run(models, "transformers", str(pickled)), "pickled weights", "safetensors")
    assert not place.exists()
    refused(run(models, "transformers", str(tmp_path)), "config.json", "cannot be read")
    # A class that is no model: it would parse the program's arguments and raise.
    named = model_folder(tmp_path / "bert", "bert", "HfArgumentParser", BERT)
    assert good(run(models, "transformers", str(named))).tags == {"weights": "random"}
