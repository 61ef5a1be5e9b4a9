"""Models, their inputs, and the fingerprint of both."""

import itertools
from collections import UserDict

import pytest
from costprobe_probes.wire import (
    DeviceError,
    ProbeConfigError,
    Spec,
    describe,
    fingerprint,
    kind_of,
)
from fakes.lazy import LazyModule
from record.record_files import check_outcomes

torch = LazyModule("torch")
builtin = LazyModule("costprobe_probes.sources.builtin")
sources = LazyModule("costprobe_probes.sources.model_source")
models = LazyModule("costprobe_probes.model")


def load(spec, seed=0):
    return models.load(spec, seed)


def test_every_built_in_model_runs_in_every_dtype():
    for kind, dtype in itertools.product(builtin.KINDS, ("fp32", "bf16", "fp16")):
        workload = load(Spec(kind, module=None, dtype=dtype))
        inputs = workload.inputs(3)
        with torch.inference_mode():
            out = workload.forward_pass(inputs)()
        assert len(out) == 3, (kind, dtype)
        assert out.dtype == inputs.args[0].dtype, (kind, dtype)
        assert torch.isfinite(out.float()).all(), (kind, dtype)


def test_a_seed_gives_the_same_weights_each_time():
    spec = Spec("cnn", module=None, dtype="fp32")
    first, again, other = (next(iter(load(spec, seed).module.parameters())) for seed in (1, 1, 2))
    assert (torch.equal(first, again), torch.equal(first, other)) == (True, False)


def test_memory_format_and_keys_of_example_inputs_are_kept():
    image = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    for batch in (1, 2, 3, 5):
        found = sources.repeat_rows(image, batch)
        assert found.is_contiguous(memory_format=torch.channels_last), batch
        assert torch.equal(found, image[torch.arange(batch) % 2])
    # The data of a tokenizer is a UserDict.
    encoding = UserDict(input_ids=torch.ones(1, 4, dtype=torch.int64))
    assert sources.checked_inputs("m", encoding).kwargs == dict(encoding)
    rows = models.SourcedModel(torch.nn.Identity(), lambda _: models.Inputs((image,), {}))
    plain = rows._replace(inputs=lambda _: models.Inputs((image.contiguous(),), {}))
    shown = [models.model_facts(each, name="m", dtype=None)["inputs"] for each in (rows, plain)]
    assert shown[0] == f"{shown[1]} strides {image.stride()}"


def test_entry_of_the_inputs_that_is_no_tensor_is_named():
    one = torch.ones(1, 2)
    for inputs, words in (
        ({"ids": one, "use_cache": False}, "m: example input use_cache is False of type bool"),
        (UserDict(ids=one, labels=None), "example input labels is None of type NoneType"),
        ((one, [1, 2]), "example input 2 is of type list, not a tensor"),
        ({"scale": torch.tensor(1.0)}, "example input scale has the shape ()"),
        ((torch.ones(0, 2),), "example input 1 has the shape (0, 2)"),
        ([], "not an empty list"),
        ({}, "not an empty dict"),
        ("abc", "returns such; not str"),
    ):
        with pytest.raises(ProbeConfigError) as caught:
            sources.checked_inputs("m", inputs)
        assert words in str(caught.value), inputs


def test_result_that_is_computed_as_it_is_read_is_read_in_the_pass():
    class Streaming(torch.nn.Module):
        def forward(self, x):
            for _ in range(3):
                done.append(1)
                yield x

    class Asynchronous(torch.nn.Module):
        async def forward(self, x):
            yield x

    done = []
    inputs = models.Inputs((torch.ones(1),), {})
    models.SourcedModel(Streaming(), lambda _: inputs).forward_pass(inputs)()
    assert done == [1, 1, 1]
    run = models.SourcedModel(Asynchronous(), lambda _: inputs).forward_pass(inputs)
    with pytest.raises(ProbeConfigError, match="returns async_generator, whose work is not done"):
        run()


@pytest.fixture
def factory(tmp_path, monkeypatch):
    """Writes an operator module with a unique name; returns its factory path."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(body):
        name = f"own_{tmp_path.name}"
        (tmp_path / f"{name}.py").write_text("import torch\n" + body)
        return f"{name}:make"

    return write


def test_example_inputs_are_repeated_and_those_of_a_function_of_the_batch_are_not(factory):
    path = factory(
        "def make(): return torch.nn.ReLU(), [torch.tensor([[1.], [2.]])]\n"
        "def pair(): return torch.nn.Bilinear(2, 3, 1), "
        "lambda batch: (torch.ones(batch, 2), torch.ones(batch, 3))\n"
    )
    inputs = load(Spec("module", module=path, dtype="fp32")).inputs
    assert inputs(1).args[0].flatten().tolist() == [1]
    assert inputs(5).args[0].flatten().tolist() == [1, 2, 1, 2, 1]
    workload = load(Spec("module", module=path.replace("make", "pair"), dtype="bf16"))
    inputs = workload.inputs(7)
    assert [tuple(x.shape) for x in inputs.args] == [(7, 2), (7, 3)]
    assert {x.dtype for x in inputs.args} == {torch.bfloat16}
    assert workload.forward_pass(inputs)().shape == (7, 1)


def test_dtype_applies_to_floats_if_it_is_set(factory):
    path = factory(
        "def make(): return torch.nn.Linear(2, 2).double(), "
        "{'input': torch.ones(1, 2, dtype=torch.float64)}\n"
        "def embed(): return torch.nn.Embedding(4, 2), torch.ones(1, 3, dtype=torch.int64)\n"
    )
    own = load(Spec("module", module=path, dtype=None))
    assert own.forward_pass(own.inputs(2))().dtype == torch.float64
    assert models.model_facts(own, name=path, dtype=None)["dtype"] == "as made"
    workload = load(Spec("module", module=path.replace("make", "embed"), dtype="bf16"))
    assert workload.inputs(1).args[0].dtype == torch.int64
    assert workload.forward_pass(workload.inputs(1))().dtype == torch.bfloat16


def odd_module(level):
    """Weights of the kinds for which a sum of floats fails."""

    class Odd(torch.nn.Module):
        def get_extra_state(self):
            return {"an": "object"}

    module = Odd()
    module.register_buffer("turns", torch.full((3,), level, dtype=torch.complex64))
    module.register_buffer("small", torch.full((3,), level).to(torch.float8_e4m3fn))
    module.register_buffer("flags", torch.tensor([True, False]))
    module.register_buffer("scalar", torch.tensor(7))
    module.register_buffer("hidden", torch.full((3,), level), persistent=False)
    module.register_buffer("empty", torch.ones(0))
    module.register_buffer("sparse", torch.eye(2).to_sparse())
    return module


def workload_of(module, *shape):
    inputs = models.Inputs
    return models.SourcedModel(module, lambda batch: inputs((torch.ones(batch, *shape),), {}))


def test_weights_of_any_kind_enter_the_fingerprint():
    workloads_of = (workload_of(odd_module(level), 1) for level in (1.0, 1.0, 2.0))
    found = [models.model_facts(each, name="odd", dtype=None)["weights"] for each in workloads_of]
    assert found[0] == found[1] != found[2]


def test_fingerprint_is_that_of_the_sorted_facts():
    # The first 12 hex digits of sha256 of '{"a": "1", "b": "2"}'.
    assert fingerprint({"b": "2", "a": "1"}) == "0e09eeab5bde"


def test_flags_that_change_speed_are_part_of_the_fingerprint():
    before = models.software(torch.device("cpu"))
    try:
        for precision in ("high", "medium"):
            torch.set_float32_matmul_precision(precision)
            assert models.software(torch.device("cpu")) != before, precision
    finally:
        torch.set_float32_matmul_precision("highest")


def test_processor_name_is_that_of_cpuinfo(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: AMD EPYC 7B13\nflags\t: sse\n")
    found = models.software(torch.device("cpu"), cpuinfo_file=str(cpuinfo))
    assert found["device_name"] == "AMD EPYC 7B13"


def test_software_of_an_amd_gpu_has_the_versions_of_rocm(tmp_path, monkeypatch):
    driver = tmp_path / "version"
    driver.write_text("6.14.14\n")
    monkeypatch.setattr(torch.version, "hip", "7.0.51831")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "AMD Instinct MI300X")
    found = models.software(torch.device("cuda"), amd_file=str(driver))
    assert (found["cuda"], found["driver"]) == ("HIP 7.0.51831", "6.14.14")
    found = models.software(torch.device("cuda"), amd_file=str(tmp_path / "none"))
    assert found["driver"].startswith("Linux ")


def test_errors_have_a_kind_and_a_one_line_description():
    """The record has what is made of errors of torch and of the libraries below it; see `record_files`."""

    def described(error):
        return [kind_of(error), describe(error, 8)]

    check_outcomes("torch_errors.json", lambda text: described(RuntimeError(text)))
    for error, kind, words in (
        (ProbeConfigError("no such"), "config", "no such"),
        (DeviceError("no CUDA"), "device", "no CUDA"),
        (MemoryError(), "oom", "memory_cap or a smaller batch"),
        (KeyError("boom"), "crash", "KeyError"),
    ):
        found, shown = described(error)
        assert (found, words in shown, "\n" in shown) == (kind, True, False), shown
