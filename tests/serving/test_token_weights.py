"""Estimated weights of tokens, and the sizes of models that they depend on."""

import pytest
from costprobe.serving.meter import Counts
from costprobe.serving.settings import ModelSize, size_of
from costprobe.serving.tokens import (
    MAX_BATCH,
    TokenWeighing,
    Weights,
    estimated_weights,
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


def ratio(size="8B", batch=64.0, context=2125.0):
    weights = estimated_weights(size_of(size), batch, context)
    return weights.token_out / weights.token_in


def test_ratio_of_a_generated_to_a_prompt_token_follows_size_batch_and_context():
    # By hand, for 8B: 2 x 8e9 / 494.5e12 = 32.4 us for a prompt token; a step of 64 reads 16 GB and
    # 64 x 2125 x 131,072 bytes at 2.68e12 bytes/s: 12.6 ms, or 197 us for each token.
    assert ratio() == pytest.approx(197.2 / 32.36, rel=0.001)
    assert ratio(batch=1) > 20 * ratio()
    assert ratio(context=8000) > 2 * ratio()
    assert ratio("70B") < ratio("8B") < ratio("1B")
    # Few tokens of a batch share an expert: decode reads more for the same compute.
    assert ratio("30B-A3B") > 3 * ratio("3B")
    # A large batch with a short context is limited by compute: no token is cheaper than that.
    assert ratio(batch=MAX_BATCH, context=0) == pytest.approx(1.0)


def test_configured_weights_and_size_come_before_the_name():
    counts = Counts(requests=10, tokens_in=10_000, tokens_out=1000)
    assert TokenWeighing(Weights(1.0, 3.0)).weights("x-8B", counts) == Weights(1.0, 3.0)
    by_name = TokenWeighing(batch=8).weights("x-70B", counts)
    assert by_name == TokenWeighing(size=size_of("70B"), batch=8).weights("", counts)
    assert by_name != TokenWeighing(size=size_of("8B"), batch=8).weights("x-70B", counts)
