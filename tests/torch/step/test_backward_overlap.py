"""When buckets are started, and when all members sum again; the group is a stand-in that sums nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from offcut.torch.membership.process_group import Abandoned, Pending
from offcut.torch.step import gradient_buckets
from offcut.torch.step.backward_overlap import BackwardOverlap
from offcut.torch.step.gradient_buckets import bucketed, gradient_bytes


class Group:
    """Notes what is started; every sum is done at once."""

    def __init__(self, world: int = 2) -> None:
        self.world = world
        self.started: list[torch.Tensor] = []
        self.broken = False

    def begin_data(self) -> None:
        pass

    def start_bucket(self, bucket: torch.Tensor) -> Pending:
        if self.broken:
            raise Abandoned("a peer has died")
        self.started.append(bucket)
        return Pending()

    def wait(self, pending: Pending) -> None:
        pass


class Layers(nn.Module):
    """Three layers in three buckets, of which a forward pass may leave some out."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4, bias=False) for _ in range(3))
        self.group: Any = Group()
        self.overlap = BackwardOverlap(
            bucketed([(0, p) for p in self.parameters()]), lambda point: False, lambda: False
        )

    def backward(self, *used: int) -> int:
        """Return how many buckets were started meanwhile."""
        before, x = len(self.group.started), torch.ones(1, 4)
        for i in used or (0, 1, 2):
            x = self.layers[i](x)
        x.sum().backward()
        return len(self.group.started) - before

    def begin(self) -> None:
        self.overlap.begin(self.group, lambda: 0.5)

    def finish(self) -> bool:
        """Return whether this member asked all to sum again, which they do."""
        sums = self.overlap.start(self.group, [0], 0.5)
        sums.finish(again=sums.changed)
        return sums.changed

    def whole_step(self) -> int:
        self.begin()
        self.zero_grad()
        started = self.backward()
        assert not self.finish()
        return started


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_buckets, "BUCKET_BYTES", 64)


def test_after_the_first_step_of_a_generation_buckets_start_in_the_backward_pass() -> None:
    model = Layers()
    assert [model.whole_step() for _ in range(3)] == [0, 3, 3]
    last_layer_first = [bucket[:16] for bucket in model.group.started[-3:]]
    for layer, bucket in zip(reversed(model.layers), last_layer_first, strict=True):
        assert layer.weight.grad.data_ptr() == bucket.data_ptr()
    model.group = Group()
    assert [model.whole_step() for _ in range(2)] == [0, 3]


def test_gradients_are_added_to_in_another_backward_pass() -> None:
    model = Layers()
    model.whole_step()
    model.begin()
    model.zero_grad()
    assert model.backward() == 3
    assert model.backward() == 0
    assert model.finish(), "what was sent is half of the gradient"
    once = torch.ones(1, 4)
    expected = torch.autograd.grad(
        model.layers[2](model.layers[1](model.layers[0](once))).sum(), model.layers[2].weight
    )
    assert torch.allclose(model.layers[2].weight.grad, expected[0] * 2 * 0.5)
    # Then buckets wait for the second pass; the step after a repetition has none.
    for started in ([0, 0], [0, 3]):
        model.begin()
        model.zero_grad()
        assert [model.backward(), model.backward()] == started
        assert not model.finish()


def test_a_gradient_that_the_script_changes_after_its_bucket_was_started_is_summed_again() -> None:
    model = Layers()
    model.whole_step()
    model.begin()
    model.zero_grad()
    model.backward()
    model.layers[0].weight.grad.mul_(2.0)
    assert model.finish()


def test_gradients_that_are_set_to_zero_in_their_buckets_stay_until_all_have_the_sum() -> None:
    model = Layers()
    model.whole_step()
    model.begin()
    model.zero_grad(set_to_none=False)
    assert model.backward() == 3
    own = model.layers[2].weight.grad.clone()
    for bucket in model.group.started[-3:]:
        bucket.fill_(7.0)
    assert torch.equal(model.layers[2].weight.grad, own)
    assert not model.finish()
    assert model.layers[2].weight.grad.unique().tolist() == [7.0]


def test_a_bucket_does_not_wait_for_a_layer_that_was_not_used_in_the_last_step() -> None:
    model = Layers()
    model.begin()
    model.backward(1, 2)
    model.finish()
    assert model.layers[0].weight.grad is None
    model.begin()
    model.zero_grad()
    assert model.backward(1, 2) == 3
    assert not model.finish()
    assert model.layers[0].weight.grad is None
    model.begin()
    model.zero_grad()
    model.backward()
    assert model.finish(), "its bucket was sent without it"
    assert model.layers[0].weight.grad is not None


def test_all_buckets_of_a_step_that_the_script_drops_are_started() -> None:
    model = Layers()
    model.whole_step()
    model.begin()
    model.zero_grad()
    assert model.backward(1, 2) == 2
    before = len(model.group.started)
    model.begin()
    assert len(model.group.started) == before + 1


def test_a_generation_that_breaks_in_the_backward_pass_fails_the_step_and_not_the_pass() -> None:
    model = Layers()
    model.whole_step()
    model.begin()
    model.zero_grad()
    model.group.broken = True
    model.backward()
    with pytest.raises(Abandoned):
        model.finish()
    model.overlap.fail()
    model.group = Group()
    assert model.whole_step() == 0


def test_a_member_by_itself_and_a_training_that_has_ended_have_no_hooks() -> None:
    model = Layers()
    model.group = Group(world=1)
    model.begin()
    assert not model.layers[0].weight._post_accumulate_grad_hooks
    model.group = Group()
    model.begin()
    assert model.layers[0].weight._post_accumulate_grad_hooks
    model.overlap.end()
    assert not model.layers[0].weight._post_accumulate_grad_hooks


def test_buckets_have_one_kind_of_gradient_of_one_optimizer_and_a_limit() -> None:
    kinds = [torch.float32, torch.float64]
    parameters = [(i % 2, nn.Parameter(torch.zeros(i + 1, dtype=kinds[i // 3 % 2]))) for i in range(20)]
    buckets = bucketed(parameters)
    assert sorted(map(id, (p for _, bucket in buckets for p in bucket.parameters))) == sorted(
        id(p) for _, p in parameters
    )
    owner = {id(p): number for number, p in parameters}
    for number, bucket in buckets:
        assert {(owner[id(p)], p.dtype) for p in bucket.parameters} == {(number, bucket.buffer.dtype)}
        assert gradient_bytes(bucket.parameters) <= 64 or len(bucket.parameters) == 1
    assert buckets[0][1].parameters[0] is parameters[-1][1]
