"""Supervised fine-tuning with TRL's SFTTrainer on made-up chats of many lengths. It knows nothing of the tuner."""

import random
import time

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, PreTrainedTokenizerFast, TrainerCallback
from trl import SFTConfig, SFTTrainer

WORDS = [f"w{index}" for index in range(500)]


def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: index for index, word in enumerate(["<pad>", "<eos>", "<unk>", *WORDS])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


class Clock(TrainerCallback):
    """Writes when each optimizer step ends, for whoever wants to compare."""

    def __init__(self, path: str) -> None:
        self.file = open(path, "w")

    def on_step_end(self, args, state, control, **kwargs) -> None:
        print(time.perf_counter(), file=self.file, flush=True)


def main() -> None:
    parser = HfArgumentParser(SFTConfig)
    parser.add_argument("--clock", default="")
    arguments, rest = parser.parse_args_into_dataclasses()
    chance = random.Random(0)
    texts = [" ".join(chance.choices(WORDS, k=chance.randint(20, 100))) for _ in range(2000)]
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=512, n_positions=128, n_embd=192, n_layer=3, n_head=4, bos_token_id=1, eos_token_id=1
    )
    trainer = SFTTrainer(
        model=GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=Dataset.from_dict({"text": texts}),
        processing_class=tokenizer(),
    )
    if rest.clock:
        trainer.add_callback(Clock(rest.clock))
    trainer.train()


if __name__ == "__main__":
    main()
