"""The tensors of PyTorch modules that gradients move, followed where the user's code puts others"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from operator import attrgetter, is_, itemgetter
from typing import Any, Final, final

import torch
from torch import nn

from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch.shared_memory import views_of_parameters
from d5ray.networks.executors.flat_buffers import Slot
from d5ray.operators.loss import Loss
from d5ray.training.arrays import NO_GRADIENT, is_negative_zero

GRADIENT: Final = attrgetter("grad")
IS_TRAINED: Final = attrgetter("requires_grad")
ADDRESS: Final = torch.Tensor.data_ptr
SIZE: Final = torch.Tensor.numel
IS_DENSE: Final = torch.Tensor.is_contiguous
WORDS: Final = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # integers by their bytes
Named = dict[str, torch.Tensor]


def learning_parts(loss: Loss) -> dict[str, nn.Module]:
    """The modules with parameters that a loss holds, by what the names of those begin with."""
    return {
        f"loss.{'' if attribute == 'function' else attribute + '.'}": held
        for attribute, held in vars(loss).items()
        if isinstance(held, nn.Module) and any(True for _ in held.parameters())
    }


def all_named(modules: Mapping[str, nn.Module]) -> Iterator[tuple[str, nn.Module, str, torch.Tensor]]:
    """Every parameter of modules, under each of its names: the name, its owner, the attribute, the tensor.

    modules: by what their parameters' names begin with.
    """
    for prefix, module in modules.items():
        for path, owner in module.named_modules(remove_duplicate=False):
            for key, tensor in owner.named_parameters(recurse=False):
                yield f"{prefix}{path}{'.' if path else ''}{key}", owner, key, tensor


@final
class TrainedTensors:
    """The parameters that are trained, by name; each of them lies in a flat buffer.

    As under PyTorch, the user's code may give a parameter other values by `.data`, put another
    `nn.Parameter` in its place, or take its gradient away: `adopt` brings what it finds into the buffer.
    A parameter without a gradient is `unused`; one that required none, and does now, is `released`. Complex
    numbers lie in the buffer as pairs of real ones, which is how PyTorch's rules treat them.
    """

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self._modules = modules
        self.unused: tuple[Slot, ...] = ()
        self.released = False
        self.holder = ""  # of the parameters, who does not learn what the user's code does to them
        self._sum = 0.0  # of all parameters, before a pass
        self._kept_views: list[tuple[torch.Tensor, str, int]] = []  # of a parameter, and from which element
        self.named: Named = {}
        self._check_given_out()
        self.take_released()
        if not self.named:
            raise ConfigurationError(
                "the model has no parameters to train: give it at least one layer with weights"
            )

    def _check_given_out(self) -> None:
        """Raise where a module's own `parameters` leaves out what requires gradients."""
        given = {id(each) for module in self._modules.values() for each in module.parameters()}
        for name, _, _, tensor in all_named(self._modules):
            if tensor.requires_grad and id(tensor) not in given:
                raise ConfigurationError(
                    f"the model's parameters() leaves {name!r} out, which requires gradients: call "
                    "requires_grad_(False) on what is not to be trained"
                )

    def take_released(self) -> None:
        """Have also what requires gradients now, in the order in which the modules name it."""
        held = {id(tensor) for tensor in self.named.values()}
        views = [pair for pair in views_of_parameters(self._modules.values()) if id(pair[1]) not in held]
        seen: set[int] = set()
        named: Named = {}
        for name, _, _, tensor in all_named(self._modules):
            if (id(tensor) in held or tensor.requires_grad) and id(tensor) not in seen:
                seen.add(id(tensor))
                named[name] = tensor
        gone = {name: tensor for name, tensor in self.named.items() if id(tensor) not in seen}
        self.named.clear()
        self.named.update(named | gone)
        names = {id(tensor): name for name, tensor in self.named.items()}
        self._kept_views += [
            (view, names[id(of)], int(view.storage_offset() - of.storage_offset()))
            for view, of in views
            if id(of) in names
        ]
        self.released = False

    @property
    def real(self) -> Mapping[str, torch.Tensor]:
        """The parameters by name, to be laid in a flat buffer of real numbers."""
        if not any(tensor.is_complex() for tensor in self.named.values()):
            return self.named  # whose tensors may be others when the buffers move
        return {
            name: torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor
            for name, tensor in self.named.items()
        }

    def lie_in(self, slots: tuple[Slot, ...], values: Named, gradients: Named, flat: torch.Tensor) -> None:
        """Take notice of the slots, and the views there, in which parameters and gradients lie.

        flat: the gradients (n,).
        """
        self.tensors = list(self.named.values())
        self._moved: Collection[int] = range(len(self.tensors))  # whose memory is another since the last pass
        self._slots, self._values, self._gradients = slots, dict(values), gradients
        self._views = [gradients[slot.name] for slot in slots]
        for at, (name, tensor) in enumerate(self.named.items()):
            if tensor.is_complex():
                self._values[name], self._views[at] = map(
                    torch.view_as_complex, (values[name], self._views[at])
                )
                tensor.data, tensor.grad = self._values[name], self._views[at]
        self._places = [view.detach() for view in self._views]  # `view.data` may be put anew, as by half()
        self._view_addresses = [*map(ADDRESS, self._views)]
        for view, name, first_element in self._kept_views:
            whole = self._values[name]
            at_element = whole.storage_offset() + first_element
            view.data = whole.as_strided(view.shape, view.stride(), at_element)
        words = flat.view(WORDS[flat.element_size()])
        self._mark = -(2 ** (8 * flat.element_size() - 1))  # the bits of -0.0
        offsets = [slot.offset if slot.size else 0 for slot in slots]
        if flat.device.type == "cpu":
            first = partial(itemgetter(*offsets, 0), words.numpy().data)  # a tuple also of one
        else:
            first = partial(_numbers_at, words, torch.tensor(offsets, device=flat.device))
        self._first_words: Callable[[], Any] = first
        self._look()

    # -- the parameters ----------------------------------------------------------------------------------

    def adopt(self) -> None:
        """Bring into the flat buffer what the user's code has put in the place of parameters.

        Raises `ConfigurationError` for what has another shape or type.
        """
        if self._as_they_were():
            return
        now = {name: tensor for name, _, _, tensor in all_named(self._modules)}
        there = {id(tensor) for tensor in now.values()}
        moved = set(self._moved)
        for at, (name, tensor) in enumerate(self.named.items()):
            found = tensor if id(tensor) in there else now.get(name, tensor)
            view = self._values[name]
            if found is not tensor or not _same_memory(found, view):
                _check_alike(name, view, found)
                if self.holder:
                    raise self._elsewhere(f"has put another value in the place of its parameter {name!r}")
                view.copy_(found.detach().clone())  # which may lie in the same memory, turned
                found.data = view
                self.named[name] = found
                moved.add(at)
        self._moved = moved
        self.tensors = list(self.named.values())
        self._look()

    def _as_they_were(self) -> bool:
        owners, keys, tensors = self._held
        if (
            not all(map(is_, map(dict.get, owners, keys), tensors))
            or [*map(ADDRESS, tensors)] != self._addresses
            or [*map(SIZE, tensors)] != self._sizes
            or not all(map(IS_DENSE, tensors))
        ):
            return False
        owners, keys, parts = self._parts
        if [*map(len, self._registers)] != self._counts or not all(
            map(is_, map(dict.get, owners, keys), parts)
        ):
            return False
        owners, keys, frozen = self._frozen
        same = not frozen or all(map(is_, map(dict.get, owners, keys), frozen))
        return self.released or (same and not any(map(IS_TRAINED, frozen)))

    def visit_fixed(self, visit: Callable[[str, torch.Tensor], None]) -> None:
        """Call visit with the name and the bytes (n,) of each frozen parameter; what it writes stays."""
        frozen = {id(tensor) for tensor in self._frozen[2]}
        for name, _, _, tensor in all_named(self._modules) if frozen else ():
            if id(tensor) not in frozen:
                continue
            frozen.discard(id(tensor))
            own = tensor.detach()
            values = own.contiguous()
            visit(name, values.reshape(-1).view(torch.uint8))
            if values is not own:
                own.copy_(values)

    def release(self, names: Collection[str]) -> None:
        """Let the parameters of these names require gradients."""
        for name, _, _, tensor in all_named(self._modules):
            if name in names:
                tensor.requires_grad_(True)
        self._look()

    def _elsewhere(self, what: str) -> ConfigurationError:
        return ConfigurationError(
            f"the model {what}, and {self.holder} hold the parameters, which do not learn of it: leave that "
            "out, or choose a distributed optimizer whose agents hold them, such as AllreduceSGD"
        )

    def _look(self) -> None:
        """Remember where all parameters are registered, and whether more of them require gradients."""
        own = {id(tensor) for tensor in self.tensors}
        held: list[tuple[Any, str, torch.Tensor]] = []
        frozen: list[tuple[Any, str, torch.Tensor]] = []
        for _, owner, key, tensor in all_named(self._modules):
            # Compiled by TorchScript, a module gives its parameters out through an object of its own, in
            # which Python puts no others.
            known = owner._parameters
            parameters = known if isinstance(known, dict) else {key: tensor}
            (held if id(tensor) in own else frozen).append((parameters, key, tensor))
        modules = [each for whole in self._modules.values() for each in whole.modules()]
        self._registers = [
            known
            for each in modules
            for known in (each._modules, each._parameters)
            if isinstance(known, dict)
        ]
        self._counts = [*map(len, self._registers)]
        registers: list[Any] = [each._modules for each in modules]
        scripted = not all(isinstance(each, dict) for each in registers)
        parts = [(known, key, part) for known in registers for key, part in known.items()]
        self._parts = _columns([] if scripted else parts)
        # By columns: after a pass, what Python does in loops of its own costs ten times what C's loops do.
        self._held = _columns(held)
        self._addresses = [*map(ADDRESS, self._held[2])]
        self._sizes = [*map(SIZE, self._held[2])]
        self._frozen = _columns(frozen)
        self.released = any(map(IS_TRAINED, self._frozen[2]))

    # -- their gradients ---------------------------------------------------------------------------------

    def begin_pass(self, flat: torch.Tensor, gradients: torch.Tensor) -> None:
        """Let no parameter have a gradient. flat, gradients: (n,), of all parameters.

        Where a gradient came in the pass before, the next one is added in place, to -0.0, which adds nothing.
        """
        if self.holder:
            self.adopt()
            self._sum = float(flat.sum())
        if [*map(ADDRESS, self._views)] != self._view_addresses:
            for view, place in zip(self._views, self._places, strict=True):
                view.data = place
        gradients.fill_(NO_GRADIENT)
        if self._moved or not all(map(is_, map(GRADIENT, self.tensors), self._views)):
            for at, (tensor, view) in enumerate(zip(self.tensors, self._views, strict=True)):
                if (own := tensor.grad) is not None and (own is not view or at in self._moved):
                    tensor.grad = None
            self._moved = ()

    def end_pass(self, flat: torch.Tensor) -> None:
        """Raise `ConfigurationError` where the pass has changed parameters that others hold."""
        if self.holder and (after := float(flat.sum())) != self._sum and after == after:
            raise self._elsewhere("changes its parameters in its forward pass")

    def gather(self, loss: torch.Tensor) -> None:
        """Have all gradients in their places in the flat buffer, after the backward pass of a loss."""
        firsts = self._first_words()
        in_place = [*map(ADDRESS, self._views)] == self._view_addresses
        if in_place and self._mark not in firsts and all(map(is_, map(GRADIENT, self.tensors), self._views)):
            self.unused = ()
            return
        missing, marked = [], []
        for at, (tensor, view) in enumerate(zip(self.tensors, self._views, strict=True)):
            if (own := tensor.grad) is None:  # it got none, or its own hook took it away
                self._gradients[self._slots[at].name].fill_(NO_GRADIENT)
                missing.append(at)
            elif own is not view or view.data_ptr() != self._view_addresses[at]:
                self.gather_one(at)
            elif firsts[at] == self._mark and view.numel():
                marked.append(at)
        self.note_unused(missing + self._untouched(marked, loss) if marked else missing)

    def _untouched(self, candidates: list[int], loss: torch.Tensor) -> list[int]:
        """Those of parameters whose gradient begins with -0.0 that got none, though they had one before."""
        reached: Collection[int] | None = None
        found = []
        for at in candidates:
            tensor, view = self.tensors[at], self._gradients[self._slots[at].name]
            if tensor.grad is None or not is_negative_zero(view):
                continue
            reached = reached_from(loss) if reached is None else reached
            if id(tensor) in reached:
                view.add_(0.0)  # it is -0.0 itself
            else:
                found.append(at)
        return found

    def gather_one(self, index: int) -> None:
        """Have one parameter's gradient in its place, as soon as it is complete."""
        tensor, view = self.tensors[index], self._views[index]
        if (own := tensor.grad) is None:
            return
        if own is view and view.data_ptr() != self._view_addresses[index]:  # a hook has put `grad.data` anew
            own = view.detach()
            view.data = self._places[index]
        if own is not view:
            torch.add(_dense(own), 0.0, out=view)
            tensor.grad = view

    def note_unused(self, missing: Collection[int]) -> None:
        """Take notice of the parameters that have got no gradient, by their places."""
        for at in missing:
            self.tensors[at].grad = None
        self.unused = tuple(self._slots[at] for at in sorted(missing))


def _numbers_at(words: torch.Tensor, places: torch.Tensor) -> Any:
    return words[places].tolist()


def _columns(rows: list[tuple[Any, str, Any]]) -> tuple[list[Any], list[str], list[Any]]:
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


def reached_from(loss: torch.Tensor) -> Mapping[int, torch.Tensor]:
    """The parameters that a backward pass from the loss reaches, by their numbers."""
    found: dict[int, torch.Tensor] = {}
    seen: set[Any] = set()
    ahead: list[Any] = [loss.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (variable := getattr(node, "variable", None)) is not None:
            found[id(variable)] = variable
        ahead += [each for each, _ in node.next_functions]
    return found


def _dense(gradient: Any) -> Any:
    return gradient.to_dense() if gradient.is_sparse else gradient


def _same_memory(tensor: torch.Tensor, view: torch.Tensor) -> bool:
    alike = tensor.shape == view.shape and tensor.stride() == view.stride()
    return alike and tensor.data_ptr() == view.data_ptr()


def _check_alike(name: str, own: torch.Tensor, found: torch.Tensor) -> None:
    """Raise if the user's code has put in a parameter's place what is not of its shape, type and device."""
    if (found.shape, found.dtype, found.device) != (own.shape, own.dtype, own.device):
        raise ConfigurationError(
            f"the model's parameter {name!r} was {tuple(own.shape)}, {own.dtype} on {own.device}, and is "
            f"{tuple(found.shape)}, {found.dtype} on {found.device} now: what agents exchange keeps shape "
            "and type while they train; change it before, where the model is made"
        )
