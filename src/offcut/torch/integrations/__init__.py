"""Other people's trainers with the elastic parts. A script imports `offcut.torch.transformers` and the like.

- `world_of_one`: a framework that knows of no other process, with this member's rank
- `elastic_trainer`: transformers' Trainer; `trainer_progress`: what of it belongs to the training's state;
  `trainer_step`: the numbers that the members exchange in a step of it
- `shared_predictions`: an evaluation of the Trainer's that the members share out
- `elastic_accelerator`: accelerate's Accelerator
"""
