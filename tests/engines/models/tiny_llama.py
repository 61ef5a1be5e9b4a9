"""Write a tiny Llama with random weights as a folder of transformers: run by the engine's own interpreter.

Usage: python tiny_llama.py FOLDER [HIDDEN_SIZE LAYERS]
"""

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = (
    "{% for message in messages %}<s>{{ message['role'] }}:{{ message['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant:{% endif %}"
)


def main(folder, hidden_size=256, layers=4):
    """Write model and tokenizer: one token per byte of the text, and two marks."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = ["<s>", "</s>", *alphabet]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",  # noqa: S106 - no password
        eos_token="</s>",  # noqa: S106 - no password
        pad_token="</s>",  # noqa: S106 - no password
        chat_template=TEMPLATE,
    )
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(pieces),
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
        dtype="float32",
    )
    model = LlamaForCausalLM(config)
    # The likeliest token is a letter: an answer has the length that the client asks for, and is
    # text in each chunk of a stream.
    for token, piece in enumerate(pieces):
        if not (len(piece) == 1 and piece.isascii() and piece.isalpha()):
            model.lm_head.weight.data[token] = 0.0
    model.save_pretrained(folder)
    fast.save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
