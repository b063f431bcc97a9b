"""A transformers Trainer as its documentation shows it, on a tiny model made from its configuration: no download.

`hf_train.py --steps N --out DIRECTORY`: resumes from the newest whole checkpoint in the directory.
"""

import argparse
import os
import time
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
parser.add_argument("--pace", type=float, default=0.0)
parser.add_argument("--out", type=Path)
arguments = parser.parse_args()


class Pace(TrainerCallback):
    def on_step_begin(self, *_args, **_kwargs):
        time.sleep(arguments.pace)


torch.manual_seed(0)
config = GPT2Config(
    vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
)
rows = torch.randint(0, 64, (256, 16), generator=torch.Generator().manual_seed(1)) // 2 * 2
trainer = Trainer(
    model=GPT2LMHeadModel(config),
    args=TrainingArguments(
        output_dir=str(arguments.out),
        max_steps=arguments.steps,
        # The same global batch whatever the number of ranks.
        per_device_train_batch_size=32 // int(os.environ.get("WORLD_SIZE", "1")),
        learning_rate=1e-2,
        save_steps=10,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=0,
    ),
    train_dataset=[{"input_ids": row, "labels": row} for row in rows],
    callbacks=[Pace()],
)
# The state is written last: a checkpoint without it was cut short by a kill.
whole = sorted(arguments.out.glob("checkpoint-*/trainer_state.json"), key=lambda path: int(path.parent.name[11:]))
trainer.train(resume_from_checkpoint=str(whole[-1].parent) if whole else None)
if trainer.is_world_process_zero():
    trainer.state.save_to_json(str(arguments.out / "final.json"))
