"""A model as a chain of layers, and the module of any span of them.

The layers of an `nn.Sequential` are its children. Any other module is traced with torch.fx: every call of a submodule
starts a layer, to which the functions around it belong. All tensors that a later layer still needs cross a cut as extra
outputs, so a skip connection is carried through the stages between its ends.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from offcut.errors import InputError


class LayerChain:
    """The layers of one model. `names[i]` is layer i; `carried[i]` names the values that cross a cut after it."""

    names: list[str]
    carried: list[tuple[str, ...]]

    def stage(self, first: int, end: int) -> nn.Module:
        """Return layers `[first, end)` as a module.

        It takes what crosses the cut before and returns what crosses the next.

        Parameters are shared with the model, under the model's own names. Raises InputError where the span cannot
        be cut out.
        """
        raise NotImplementedError

    def parameters_of(self, first: int, end: int) -> dict[str, nn.Parameter]:
        """Return the parameters of those layers, by the model's own names."""
        raise NotImplementedError

    def buffers_of(self, first: int, end: int) -> dict[str, torch.Tensor]:
        """Return the buffers of those layers, by the model's own names."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.names)

    def _check(self, first: int, end: int) -> None:
        if not 0 <= first < end <= len(self):
            raise InputError(
                f"the plan asks for layers {first} to {end - 1}, the model has {len(self)}.",
                next_step="Plan again from a profile of this model.",
            )


class _SequentialChain(LayerChain):
    def __init__(self, model: nn.Sequential) -> None:
        self._model = model
        self.names = [f"{name}: {type(child).__name__}" for name, child in model.named_children()]
        self.carried = [(name,) for name in self.names]

    def stage(self, first: int, end: int) -> nn.Module:
        self._check(first, end)
        children = list(self._model.named_children())
        _refuse_shared([dict(children[i][1].named_parameters()) for i in range(len(children))], first, end, self.names)
        part = nn.Sequential()
        for name, child in children[first:end]:
            part.add_module(name, child)
        return part

    def parameters_of(self, first: int, end: int) -> dict[str, nn.Parameter]:
        return dict(self.stage(first, end).named_parameters())

    def buffers_of(self, first: int, end: int) -> dict[str, torch.Tensor]:
        return dict(self.stage(first, end).named_buffers())


class _TracedChain(LayerChain):
    def __init__(self, model: nn.Module, traced: fx.GraphModule) -> None:
        self._model, self._traced = model, traced
        self._groups: list[list[fx.Node]] = []
        self._placeholders = [node for node in traced.graph.nodes if node.op == "placeholder"]
        self._output = next(node for node in traced.graph.nodes if node.op == "output")
        for node in traced.graph.nodes:
            if node.op in ("placeholder", "output", "get_attr"):
                continue
            if node.op == "call_module" or not self._groups:
                self._groups.append([])
            self._groups[-1].append(node)
        self._layer_of = {node: i for i, group in enumerate(self._groups) for node in group}
        self.names = [f"{group[0].name}: {self._what(group[0])}" for group in self._groups]
        self.carried = [tuple(node.name for node in self._live(i + 1)) for i in range(len(self._groups))]

    def _what(self, node: fx.Node) -> str:
        if node.op == "call_module":
            return type(self._traced.get_submodule(str(node.target))).__name__
        return getattr(node.target, "__name__", str(node.target))

    def _live(self, cut: int) -> list[fx.Node]:
        """Return the values made before `cut` that are needed after it."""
        made = [*(self._placeholders if cut == 0 or self._late_inputs(cut) else []), *self._before(cut)]
        return [node for node in made if any(self._use(user) >= cut for user in node.users)]

    def _late_inputs(self, cut: int) -> bool:
        return any(self._use(user) >= cut for node in self._placeholders for user in node.users)

    def _before(self, cut: int) -> Iterator[fx.Node]:
        for group in self._groups[:cut]:
            yield from group

    def _use(self, user: fx.Node) -> int:
        return self._layer_of.get(user, len(self._groups))

    def stage(self, first: int, end: int) -> nn.Module:
        self._check(first, end)
        parameters = [self._named(i) for i in range(len(self))]
        _refuse_shared(parameters, first, end, self.names)
        graph = fx.Graph()
        values: dict[fx.Node, fx.Node] = {}
        for node in self._placeholders if first == 0 else self._live(first):
            values[node] = graph.placeholder(node.name)

        def value(node: fx.Node) -> fx.Node:
            if node not in values and node.op == "get_attr":
                values[node] = graph.get_attr(str(node.target))
            return values[node]

        for group in self._groups[first:end]:
            for node in group:
                for argument in node.all_input_nodes:
                    value(argument)
                values[node] = graph.node_copy(node, value)
        if end == len(self):
            graph.output(fx.node.map_arg(self._output.args[0], value))
        else:
            live = self._live(end)
            graph.output(values[live[0]] if len(live) == 1 else tuple(values[node] for node in live))
        part = fx.GraphModule(self._traced, graph)
        part.delete_all_unused_submodules()
        return part

    def _named(self, layer: int) -> dict[str, nn.Parameter]:
        found: dict[str, nn.Parameter] = {}
        for node in self._groups[layer]:
            if node.op == "call_module":
                target = str(node.target)
                for name, parameter in self._traced.get_submodule(target).named_parameters():
                    found[f"{target}.{name}"] = parameter
            for argument in node.all_input_nodes:
                if argument.op == "get_attr":
                    tensor = _attribute(self._traced, str(argument.target))
                    if isinstance(tensor, nn.Parameter):
                        found[str(argument.target)] = tensor
        return found

    def parameters_of(self, first: int, end: int) -> dict[str, nn.Parameter]:
        self._check(first, end)
        return {name: parameter for i in range(first, end) for name, parameter in self._named(i).items()}

    def buffers_of(self, first: int, end: int) -> dict[str, torch.Tensor]:
        self._check(first, end)
        targets = [str(node.target) for i in range(first, end) for node in self._groups[i] if node.op == "call_module"]
        return {
            f"{target}.{name}": buffer
            for target in targets
            for name, buffer in self._traced.get_submodule(target).named_buffers()
        }


def _attribute(module: nn.Module, target: str) -> object:
    path, _, name = target.rpartition(".")
    return getattr(module.get_submodule(path), name)


def _refuse_shared(parameters: list[dict[str, nn.Parameter]], first: int, end: int, names: list[str]) -> None:
    """Raise InputError if layers on both sides of a cut use one parameter: cut apart, they would have two."""
    inside = {id(p): (i, name) for i in range(first, end) for name, p in parameters[i].items()}
    for i in [*range(first), *range(end, len(parameters))]:
        for p in parameters[i].values():
            if id(p) in inside:
                mine, name = inside[id(p)]
                raise InputError(
                    f"parameter {name} is used by layer {mine} ({names[mine]}) and by layer {i} ({names[i]}), "
                    "which the plan puts on different stages.",
                    next_step="Untie the weights, or plan with fewer stages.",
                )


def layer_chain(model: nn.Module) -> LayerChain:
    """Return the chain of `model`. Raises InputError if it can neither be listed nor traced."""
    if isinstance(model, nn.Sequential):
        if not len(model):
            raise InputError("the model has no layers.", next_step="Build an nn.Sequential with at least one child.")
        return _SequentialChain(model)
    try:
        traced = fx.symbolic_trace(model)
    except Exception as error:
        raise InputError(
            f"the model cannot be cut into layers: tracing it failed ({type(error).__name__}: {error}).",
            next_step="Make it an nn.Sequential, or keep data-dependent control flow inside its submodules.",
        ) from None
    chain = _TracedChain(model, traced)
    if not len(chain):
        raise InputError("the model computes nothing.", next_step="Check its forward.")
    return chain


def load_model(where: str) -> nn.Module:
    """Build the model that `file.py:function` returns. Raises InputError if that fails."""
    path, _, name = where.rpartition(":")
    if not path or not name:
        raise InputError(f"'{where}' does not name a function.", next_step="Write it as model.py:build.")
    function = load_function(Path(path), name)
    model = function()
    if not isinstance(model, nn.Module):
        raise InputError(
            f"{path}: {name}() returned {type(model).__name__}, not an nn.Module.", next_step="Return the model."
        )
    return model


def load_function(path: Path, name: str) -> Callable[..., Any]:
    """Return the function `name` from the Python file at `path`."""
    if not path.is_file():
        raise InputError(f"{path}: no such file.", next_step="Check the path.")
    module_name = f"offcut_user_{path.stem}"
    if module_name in sys.modules and getattr(sys.modules[module_name], "__file__", "") == str(path):
        module = sys.modules[module_name]
    else:
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise InputError(
                f"{path}: importing it failed ({type(error).__name__}: {error}).", next_step="Fix the file."
            ) from None
    function: Any = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"{path}: no function '{name}'.", next_step="Check the name after the colon.")
    found: Callable[..., Any] = function
    return found


def as_tuple(value: object) -> tuple[torch.Tensor, ...]:
    """Return a stage's output as a tuple of tensors. InputError names anything else, which cannot cross a cut."""
    values = value if isinstance(value, tuple | list) else (value,)
    for v in values:
        if not isinstance(v, torch.Tensor):
            raise InputError(
                f"a value of type {type(v).__name__} crosses a cut between stages.",
                next_step="Only tensors can: compute the value again after the cut, or cut elsewhere.",
            )
    return tuple(values)
