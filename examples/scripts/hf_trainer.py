"""Fine-tuning with the Hugging Face Trainer on made-up text. It knows nothing of the tuner.

Every option is TrainingArguments' own: ``python hf_trainer.py --per_device_train_batch_size 4 --bf16 True ...``.
"""

import time

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainerCallback, TrainingArguments

VOCABULARY, LENGTH = 1024, 64


class Text(Dataset):
    def __len__(self) -> int:
        return 8192

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(0, VOCABULARY, (LENGTH,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens, "attention_mask": torch.ones_like(tokens)}


class Clock(TrainerCallback):
    """Writes when each optimizer step ends, for whoever wants to compare."""

    def __init__(self, path: str) -> None:
        self.file = open(path, "w")

    def on_step_end(self, args, state, control, **kwargs) -> None:
        print(time.perf_counter(), file=self.file, flush=True)


def main() -> None:
    parser = HfArgumentParser(TrainingArguments)
    parser.add_argument("--clock", default="")
    arguments, rest = parser.parse_args_into_dataclasses()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=192, n_layer=3, n_head=4))
    trainer = Trainer(model=model, args=arguments, train_dataset=Text())
    if rest.clock:
        trainer.add_callback(Clock(rest.clock))
    trainer.train()


if __name__ == "__main__":
    main()
