"""Makes a Qwen3 model with random weights and a tokenizer of its own; nothing is downloaded.

    python make_model.py tiny|mid FOLDER

`tiny` (164 thousand parameters) prefills for free: what is reused and what is not shows in counts,
not in seconds. `mid` (25 million) prefills slowly enough on a CPU that recomputing hurts, as it
does on real hardware. Run with the engine's interpreter: it needs torch and transformers.
"""

import os
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

VOCABULARY = 1024
CONTEXT = 32_768
SPECIAL = [
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<think>", "</think>", "<tool_call>", "</tool_call>"),
]
CHAT = (
    "{%- for m in messages %}"
    "{{ '<|im_start|>' + m.role + '\n' }}"
    "{{ m.content if m.content is string else m.content | map(attribute='text') | join('') }}"
    "{{ '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
)
SHAPES = {
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
    },
    "mid": {
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
    },
}


def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE, trained on this interpreter's standard library."""
    bpe = Tokenizer(models.BPE(unk_token=None))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    sources = sorted(Path(os.__file__).parent.glob("*.py"))[:40]
    bpe.train([str(path) for path in sources], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        bos_token=None,
        model_max_length=CONTEXT,
    )
    fast.chat_template = CHAT
    return fast


def main(shape: str, folder: Path) -> None:
    """Writes the model and its tokenizer into `folder`."""
    words = tokenizer()
    words.save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=len(words),
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
        bos_token_id=None,
        **SHAPES[shape],
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
