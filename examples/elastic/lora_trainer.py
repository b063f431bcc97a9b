"""Fine-tune a language model by LoRA with transformers' Trainer, on the text of a file, letter by letter."""

import argparse
import os
from pathlib import Path

import sklearn
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, TrainingArguments

from offcut.torch.transformers import Trainer

parser = argparse.ArgumentParser(description="Fine-tune a language model by LoRA.")
parser.add_argument("--epochs", type=float, default=5)
parser.add_argument("--batch", type=int, default=32, help="texts per update, of all processes together")
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--out", type=Path, default=Path("lora"), help="folder for checkpoints and the trained adapter")
arguments = parser.parse_args()

LENGTH = 64
torch.manual_seed(0)
text = torch.tensor(list((Path(sklearn.__file__).parent / "__init__.py").read_bytes())) % 128
texts = [{"input_ids": piece, "labels": piece} for piece in text.unfold(0, LENGTH, 16)]
held_out = [texts.pop(i) for i in range(len(texts) - 1, 0, -10)]

# In earnest this is GPT2LMHeadModel.from_pretrained(...).
base = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=128,
        n_positions=LENGTH,
        n_embd=64,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        tie_word_embeddings=False,
    )
)
layers = ["wte", "c_attn", "c_proj", "c_fc", "lm_head"]
lora = LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=32, lora_dropout=0.0, target_modules=layers)
model = get_peft_model(base, lora)
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir=str(arguments.out),
        num_train_epochs=arguments.epochs,
        per_device_train_batch_size=arguments.batch // int(os.environ.get("WORLD_SIZE", "1")),
        learning_rate=arguments.lr,
        lr_scheduler_type="cosine",
        warmup_steps=5,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        logging_steps=5,
        report_to=[],
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    ),
    train_dataset=texts,
    eval_dataset=held_out,
)
trainer.remove_callback(PrinterCallback)
trainer.train()
trainer.save_model(str(arguments.out / "adapter"))
if trainer.is_world_process_zero():
    print(f"loss {trainer.state.best_metric:.4f} on the held-out texts after {trainer.state.global_step} steps")
