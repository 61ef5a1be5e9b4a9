"""The configuration of the guides is valid."""

from pathlib import Path

from costprobe.configuration import parse

ROOT = Path(__file__).parents[2]


def example(page):
    text = (ROOT / "docs" / page).read_text()
    return text.split("```toml\n", 1)[1].split("```", 1)[0]


def test_examples_of_the_guides_are_valid():
    config = parse(example("comparison.md"), Path("comparison.md"))
    assert config.probe[0].quality == 0.91
    assert config.service[0].quality == {"base": 0.88, "org/tuned": 0.91}
    named = '[[probe]]\nname = "llm"\n[[probe]]\nname = "ranker"\n[[probe]]\nname = "embedder"\n[[service]]\nname = "chat"\n'
    service = 'url = "http://127.0.0.1:8000"\nengine = "vllm"\ndevices = ["gpu0"]\n'
    config = parse(named + service + example("savings.md"), Path("savings.md"))
    profile = config.workload[2].profile()
    assert (profile[7], profile[8], profile[19], profile[20], profile[5 * 24 + 9]) == (
        2,
        40,
        40,
        2,
        2,
    )
