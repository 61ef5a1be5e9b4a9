"""Estimated weights of tokens, and the sizes of models that they depend on."""

from costprobe.serving.meter import Counts
from costprobe.serving.settings import ModelSize, size_of
from costprobe.serving.tokens import (
    TokenWeighing,
    Weights,
)

SIZES = {
    "8B": ModelSize(8, 8),
    "meta-llama/Llama-3.1-8B-Instruct": ModelSize(8, 8),
    "Qwen/Qwen2.5-0.5B-Instruct-AWQ": ModelSize(0.5, 0.5),
    "google/gemma-3-270m-it": ModelSize(0.27, 0.27),
    "llama3:70b": ModelSize(70, 70),
    "mistralai/Mixtral-8x7B-Instruct-v0.1": ModelSize(56, 14),
    "Qwen/Qwen3-30B-A3B": ModelSize(30, 3),
    "unsloth/llama-bnb-4bit": None,
    "deepseek-v3": None,
    "gpt-4": None,
    "0b": None,
    "3B-A30B": None,
    "": None,
}


def test_size_is_read_from_a_name():
    wrong = {text: size_of(text) for text, size in SIZES.items() if size_of(text) != size}
    assert wrong == {}


def test_configured_weights_and_size_come_before_the_name():
    counts = Counts(requests=10, tokens_in=10_000, tokens_out=1000)
    assert TokenWeighing(Weights(1.0, 3.0)).weights("x-8B", counts) == Weights(1.0, 3.0)
    by_name = TokenWeighing(batch=8).weights("x-70B", counts)
    assert by_name == TokenWeighing(size=size_of("70B"), batch=8).weights("", counts)
    assert by_name != TokenWeighing(size=size_of("8B"), batch=8).weights("x-70B", counts)
