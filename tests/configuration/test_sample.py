"""Sample configurations are generated from the typed fields, and every table in them is valid."""

import re
from pathlib import Path

import pytest
from costprobe.configuration import parse
from costprobe.core.config.load import ConfigError
from costprobe.core.config.model import SampleTable, render_table, toml_value
from costprobe.core.records import Device
from costprobe.pricing.assumed import AssumedPrices
from costprobe.pricing.catalogue_files import packaged
from costprobe.pricing.plans import OnDemandPlan
from costprobe.ui.cli.support.config_sample import host_sample
from pydantic import TypeAdapter

from scripts.reference.configuration import pages
from scripts.reference.samples import readme_sample, service_sample

ASSUMED = AssumedPrices(lambda _: packaged(), 8)
GPU = Device(name="gpu0", kind="gpu", model="NVIDIA L4", uuid="GPU-1")


def test_samples_are_valid_as_written():
    host = parse(host_sample([GPU], ASSUMED, 0), Path("host.toml"))
    assert (host.probe[0].name, host.probe[0].dtype) == ("transformer", "bf16")
    assert host.price[0].per_hour == ASSUMED.rate(GPU, 1, 0).per_hour
    assert host.store.path is None
    own = parse(host_sample([GPU], ASSUMED, 0, Path("/home/a/own.db")), Path("host.toml"))
    assert own.store.path == Path("/home/a/own.db")
    assert parse(service_sample(), Path("service.toml")).price == ()
    readme = parse(readme_sample(), Path("README.md"))
    assert readme.probe[0].latency_bound_s == 0.05
    assert readme.sink[0].bucket == "costprobe"


def test_each_table_of_a_sample_is_valid_when_uncommented():
    problems = []
    samples = (host_sample([GPU], ASSUMED, 0), service_sample())
    blocks = [block for sample in samples for block in sample.split("\n\n") if "[" in block]
    for block in blocks:
        text = re.sub(r"^# (?=(\[|[a-z0-9_]+ +=))", "", block, flags=re.MULTILINE)
        # A built-in kind has no module.
        text = text.replace("module =", "# module =") if 'kind = "transformer"' in text else text
        try:
            parse(text, Path("sample.toml"))
        except ConfigError as error:
            problems += [f"{problem} in\n{text}" for problem in error.problems]
    assert len(blocks) > 20
    assert not problems, "\n".join(problems)


def test_every_example_of_an_option_is_valid():
    problems = []
    for key in (key for page in pages() for key in page.keys):
        field = key.section.model_fields[key.field]
        for example in field.examples or ():
            try:
                TypeAdapter(field.rebuild_annotation()).validate_python(example)
            except ValueError as error:
                problems.append(f"{key.section.__name__}.{key.field}: {error}")
    assert not problems, "\n".join(problems)


def test_sample_table_has_descriptions_and_comments_out_inactive_keys():
    keys = ("plan", "per_hour")
    table = SampleTable("[[price]]", OnDemandPlan, keys, {"per_hour": 3}, note="A note.")
    assert render_table(table).splitlines() == [
        "# A note.",
        "# [[price]]",
        '# plan = "on_demand"            # Kind of plan.',
        "# per_hour = 3                  # Price per hour, by default of the whole host.",
    ]
    active = render_table(table._replace(active=frozenset({"plan"}))).splitlines()
    assert active[1:3] == ["[[price]]", 'plan = "on_demand"              # Kind of plan.']
    with pytest.raises(KeyError, match="no example"):
        render_table(table._replace(keys=("electricity_included",)))


def test_value_without_toml_type_is_an_error():
    with pytest.raises(TypeError, match="complex"):
        toml_value(1j)
