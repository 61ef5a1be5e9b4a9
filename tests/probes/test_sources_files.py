"""Readers of model sources, in this process: files, input descriptions and exported programs."""

import io
import json
import os
import pickle
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from costprobe_probes.wire import ProbeConfigError, Spec
from fakes.lazy import LazyModule

torch = LazyModule("torch")
files = LazyModule("costprobe_probes.sources.files")
inputs = LazyModule("costprobe_probes.sources.model_source")
workloads = LazyModule("costprobe_probes.model")


class Payload:
    """A malicious pickle, which creates a file when it is unpickled."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return (open, (str(self.place), "w"))


def load(spec):
    return workloads.load(spec, 0)


def masked():
    """A module that creates a tensor on a device, which its exported program then contains."""

    class Masked(torch.nn.Module):
        def forward(self, x):
            return x * torch.ones(x.shape[1], device=x.device)

    return Masked()


def scaled():
    """A module with two inputs."""

    class Scaled(torch.nn.Module):
        def forward(self, x, factor):
            return x * factor

    return Scaled()


def saved(path, module, args, **options):
    torch.export.save(torch.export.export(module.eval(), args, **options), path)
    return str(path)


def test_weights_of_either_format_are_loaded_and_truncated_ones_are_named(tmp_path):
    """Those in the memory-mappable format, and in that of torch before 1.6."""
    path = tmp_path / "net.pth"
    for is_mapped in (True, False):
        wanted, net = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
        torch.save(wanted.state_dict(), path, _use_new_zipfile_serialization=is_mapped)
        files.load_weights(net, str(path))
        assert torch.equal(net.weight, wanted.weight)
        assert torch.equal(net.bias, wanted.bias)
        whole = path.read_bytes()
        for share in (0.0, 0.3, 0.9):
            path.write_bytes(whole[: int(len(whole) * share)])
            with pytest.raises(ProbeConfigError, match=r"pth: (is damaged|not a weights file)"):
                files.load_weights(torch.nn.Linear(3, 2), str(path))


def test_pickled_weights_are_not_executed(tmp_path):
    path, place = tmp_path / "net.pth", tmp_path / "executed"
    torch.save({"layer": Payload(place)}, path)
    for content in (path.read_bytes(), pickle.dumps(Payload(place), 2)):
        path.write_bytes(content)
        place.unlink(missing_ok=True)
        with pytest.raises(ProbeConfigError, match=r"net\.pth: is damaged or contains objects"):
            files.load_weights(torch.nn.Linear(3, 2), str(path))
        assert not place.exists()


def test_weights_of_another_model_are_rejected(tmp_path):
    path = tmp_path / "net.pth"
    cases = (
        ({"weight": torch.ones(2, 3)}, "does not fit the model"),
        ({"weight": torch.ones(9, 9), "bias": torch.ones(2)}, "does not fit the model"),
        ({1: torch.ones(2)}, "does not fit the model"),
        ([torch.ones(2)], "contains no state dict"),
        (torch.ones(2), "contains no state dict"),
    )
    for content, words in cases:
        torch.save(content, path)
        with pytest.raises(ProbeConfigError, match=words):
            files.load_weights(torch.nn.Linear(3, 2), str(path))


def test_missing_weights_and_missing_packages_are_named(tmp_path):
    with pytest.raises(ProbeConfigError, match=r"none\.pth: the weights file cannot be read"):
        files.load_weights(torch.nn.Linear(3, 2), str(tmp_path / "none.pth"))
    path = tmp_path / "net.safetensors"
    path.write_bytes(b"no such thing")
    words = "not a safetensors file" if find_spec("safetensors") else "safetensors cannot be"
    with pytest.raises(ProbeConfigError, match=words):
        files.load_weights(torch.nn.Linear(3, 2), str(path))
    with pytest.raises(ProbeConfigError, match="set python in"):
        files.import_package("no_such_package_of_anyone", "no-such")


def test_digest_covers_contents_and_names_in_any_order(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(b"1")
    second.write_bytes(b"2")
    digest = files.digest_of([str(first), str(second)])
    assert digest == files.digest_of([str(second), str(first)])
    # The first 12 hex digits of sha256 of "a", NUL, "1", "b", NUL, "2".
    assert digest == "0e11826e1bf4"
    second.write_bytes(b"3")
    assert digest != files.digest_of([str(first), str(second)])


def test_inputs_match_their_description():
    torch.manual_seed(0)
    whole, half, mask = inputs.described(
        (
            {"shape": [50], "dtype": "int32", "below": 3},
            {"shape": [2, 2], "dtype": "bf16"},
            {"shape": [4], "dtype": "bool"},
        )
    )(5)
    assert (whole.shape, whole.dtype) == ((5, 50), torch.int32)
    assert set(whole.flatten().tolist()) == {0, 1, 2}
    assert (half.shape, half.dtype) == ((5, 2, 2), torch.bfloat16)
    assert (mask.shape, mask.dtype, bool(mask.all())) == ((5, 4), torch.bool, True)
    assert list(inputs.described(({"name": "x", "shape": [1]},))(2)) == ["x"]
    with pytest.raises(ProbeConfigError, match="name all of them"):
        inputs.described(({"name": "x", "shape": [1]}, {"shape": [1]}))


def test_batch_range_of_an_exported_program(tmp_path):
    cases = (
        (None, 3, 3),
        (torch.export.Dim("batch", min=2, max=9), 2, 9),
        (torch.export.Dim("batch"), 1, None),
        (torch.export.Dim.DYNAMIC, 2, None),
    )
    for dim, least, most in cases:
        path = saved(tmp_path / "a.pt2", masked(), (torch.ones(3, 4),), dynamic_shapes=({0: dim},))
        made = load(Spec("pt2", model=path))
        assert (made.min_batch, made.max_batch) == (least, most), dim
        assert len(made.forward_pass(made.inputs(least))()) == least, dim
        assert (made.weights, len(files.digest_of(made.files))) == ("file", 12), dim


def scripted(path):
    torch.jit.save(torch.jit.trace(torch.nn.Linear(8, 4).eval(), torch.ones(2, 8)), path)
    return str(path)


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_torchscript_program_runs_with_the_described_inputs(tmp_path):
    path = scripted(tmp_path / "net.pt")
    made = load(Spec("torchscript", model=path, inputs=({"shape": [8], "dtype": "fp32"},)))
    assert made.forward_pass(made.inputs(3))().shape == (3, 4)
    assert (made.weights, made.files) == ("file", (path,))
    with pytest.raises(ProbeConfigError, match=r"does not record its inputs.*set inputs"):
        load(Spec("torchscript", model=path))


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_invalid_program_file_is_named(tmp_path):
    whole = {
        "torchscript": scripted(tmp_path / "net.pt"),
        "pt2": saved(tmp_path / "net.pt2", masked(), (torch.ones(3, 4),)),
    }
    for kind, path in whole.items():
        content = Path(path).read_bytes()
        for wrong in (b"no program", content[: len(content) // 2], None):
            Path(path).write_bytes(wrong) if wrong else Path(path).unlink()
            words = f"{path}.*{'' if wrong else 'cannot be read'}"
            with pytest.raises(ProbeConfigError, match=words):
                load(Spec(kind, model=path, inputs=({"shape": [8]},)))


def test_exported_program_is_moved_with_its_embedded_devices(tmp_path):
    path = saved(tmp_path / "a.pt2", masked(), (torch.ones(3, 4),))
    made = load(Spec("pt2", model=path))
    assert made.on(torch.device("cpu")).forward_pass(made.inputs(3))().device.type == "cpu"
    moved = made.on(torch.device("meta"))
    there = made.inputs(3).map(lambda x: x.to("meta"))
    assert moved.forward_pass(there)().device.type == "meta"


def test_program_with_an_input_without_a_batch_is_rejected(tmp_path):
    x = torch.ones(3, 4)
    cases = (
        ((x, 2), {}, "example input 2 is 2 of type int"),
        ((x, torch.tensor(2.0)), {}, r"example input 2 has the shape \(\)"),
        ((x,), {"factor": torch.ones(3, 1)}, "has arguments by position and by keyword"),
    )
    for args, kwargs, words in cases:
        path = saved(tmp_path / "a.pt2", scaled(), args, kwargs=kwargs)
        with pytest.raises(ProbeConfigError, match=words):
            load(Spec("pt2", model=path))


def test_program_with_keyword_inputs_receives_them(tmp_path):
    kwargs = {"x": torch.ones(3, 4), "factor": torch.ones(3, 1)}
    made = load(Spec("pt2", model=saved(tmp_path / "a.pt2", scaled(), (), kwargs=kwargs)))
    assert made.forward_pass(made.inputs(3))().shape == (3, 4)


def hostile(path, place):
    """A copy of a program whose weights are declared as pickled and replaced by a payload."""
    buffer = io.BytesIO()
    torch.save(Payload(place), buffer)
    place.unlink(missing_ok=True)
    other = path.with_name("hostile.pt2")
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(other, "w") as copy:
        for name in whole.namelist():
            content = whole.read(name)
            if name.endswith("weights_config.json"):
                config = json.loads(content)
                for meta in config["config"].values():
                    meta["use_pickle"] = True
                content = json.dumps(config).encode()
            elif "/weights/weight_" in name:
                content = buffer.getvalue()
            copy.writestr(name, content)
    return str(other)


def test_pickle_in_an_exported_program_is_not_executed(tmp_path, monkeypatch):
    monkeypatch.delenv(files.TENSORS_ONLY, raising=False)
    path, place = tmp_path / "a.pt2", tmp_path / "executed"
    saved(path, torch.nn.Linear(4, 2), (torch.ones(3, 4),))
    bad = hostile(path, place)
    with pytest.raises(ProbeConfigError, match="Unpickling"):
        load(Spec("pt2", model=bad))
    assert not place.exists()
    assert files.TENSORS_ONLY not in os.environ
