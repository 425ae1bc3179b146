"""The base of all modules, and parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import ops
from .._enums import ClikaRTError, ClikaRTTypeError, ClikaRTValueError
from .._library import ffi, lib
from ..tensor import Tensor, release, tensor


class Parameter(Tensor):
    """A tensor that a module owns and lists among its parameters."""

    __slots__ = ()

    def __init__(self, data: Tensor) -> None:
        if not isinstance(data, Tensor):
            raise ClikaRTTypeError(f"Parameter: expected a tensor, got {type(data).__name__}")
        self._rebind(data)

    def __del__(self) -> None:
        """The handle releases itself."""

    def _rebind(self, data: Tensor) -> None:
        """Takes another tensor's value; whoever refers to this parameter sees it."""
        handle = data._handle  # once: data may be a parameter that is just taking another value
        lib.clikart_tensor_retain(handle)
        # Releases itself when the last who looks at it is done: another thread may just be computing with the old one.
        self._handle = ffi.gc(ffi.cast("clikart_tensor*", handle), release)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (tensor(self._read("pickle")),)

    def __copy__(self) -> Parameter:
        return type(self)(ops.copy(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        return type(self)(ops.copy(self))


class Module:
    """A piece of a model.  Assign parameters and modules to attributes and override ``forward``.

    What is in a list, or a tensor that is no :class:`Parameter`, is not part of the state.
    """

    _parameters: dict[str, Parameter | None]
    _modules: dict[str, Module]

    def __init__(self) -> None:
        object.__setattr__(self, "_parameters", {})
        object.__setattr__(self, "_modules", {})

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}.forward is not defined")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__}: call super().__init__() before assigning '{name}'")
        if name in self._parameters and not (value is None or isinstance(value, Parameter)):
            raise ClikaRTTypeError(f"{type(self).__name__}: '{name}' is a parameter; assign nn.Parameter(...) or None, not {type(value).__name__}")
        if value is None and name in self._parameters:
            self._parameters[name] = None
            return
        if isinstance(value, (Parameter, Module)) and hasattr(type(self), name):
            raise ClikaRTValueError(f"{type(self).__name__}: '{name}' is an attribute of the class, which would hide what is assigned")
        for registry in (self._parameters, self._modules, self.__dict__):
            registry.pop(name, None)
        if isinstance(value, Parameter):
            self._parameters[name] = value
        elif isinstance(value, Module):
            self._modules[name] = value
        else:
            object.__setattr__(self, name, value)

    def register_parameter(self, name: str, parameter: Parameter | None) -> None:
        """Adds a parameter under a name; None says that the module goes without it.

        Raises:
            TypeError: a name that is no str, or something else than a Parameter.
            ValueError: a name that is empty, has a dot, or is taken.
        """
        if not isinstance(name, str) or not (parameter is None or isinstance(parameter, Parameter)):
            raise ClikaRTTypeError(f"register_parameter: expected a str and a Parameter, got {name!r} and {type(parameter).__name__}")
        if not name or "." in name or (hasattr(self, name) and name not in self._parameters):
            raise ClikaRTValueError(f"register_parameter: {name!r} cannot be the name of a parameter of {type(self).__name__}")
        self._parameters[name] = parameter

    def __getattr__(self, name: str) -> Any:
        for registry in ("_parameters", "_modules"):
            found = self.__dict__.get(registry, {})
            if name in found:
                return found[name]
        raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")

    def __delattr__(self, name: str) -> None:
        for registry in (self._parameters, self._modules):
            if name in registry:
                del registry[name]
                return
        object.__delattr__(self, name)

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module, then those below it, each once, with their dotted names."""
        seen: set[int] = set()
        pending: list[tuple[str, Module]] = [(prefix, self)]
        while pending:
            name, module = pending.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield name, module
            pending += reversed([(f"{name}.{child}" if name else child, m) for child, m in module._modules.items()])

    def _named(self, prefix: str = "") -> Iterator[tuple[str, Module, str, Parameter]]:
        """Every slot that holds a parameter, ties included: dotted name, module, attribute, parameter."""
        for name, parameter in self._parameters.items():
            if parameter is not None:
                yield prefix + name, self, name, parameter
        for name, module in self._modules.items():
            yield from module._named(f"{prefix}{name}.")

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """The parameters with their dotted names; one that is used twice comes once."""
        seen: set[int] = set()
        for name, _, _, parameter in self._named():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield name, parameter

    def parameters(self) -> Iterator[Parameter]:
        """The parameters, each once."""
        for _, parameter in self.named_parameters():
            yield parameter

    def state_dict(self) -> dict[str, Tensor]:
        """The parameters by dotted name; one that is used twice is listed under both names."""
        return {name: parameter for name, _, _, parameter in self._named()}

    def load_state_dict(self, state_dict: Mapping[str, Tensor], strict: bool = True, assign: bool = False) -> None:
        """Takes the parameters' values from a mapping by dotted name.

        Args:
            state_dict: the tensors.
            strict: refuse names that are missing or not known.
            assign: bind the given tensors themselves, instead of copies in the parameters' dtypes.

        Raises:
            ValueError: names that do not fit (strict) or wrong shapes; nothing is changed then.
            TypeError: a value that is no tensor.
        """
        slots = list(self._named())
        known = {name for name, *_ in slots}
        problems = []
        if strict:
            problems += [f"missing: {name}" for name in known - state_dict.keys()]
            problems += [f"unexpected: {name}" for name in state_dict if name not in known]
        for name, _, _, parameter in slots:
            value = state_dict.get(name, parameter)
            if not isinstance(value, Tensor):
                raise ClikaRTTypeError(f"load_state_dict: '{name}' is no tensor but {type(value).__name__}")
            if value.shape != parameter.shape:
                problems.append(f"{name}: shape {list(value.shape)} instead of {list(parameter.shape)}")
        if problems:
            raise ClikaRTValueError(f"load_state_dict: {type(self).__name__}: {'; '.join(sorted(problems))}")
        slots = [slot for slot in slots if slot[0] in state_dict]
        if assign:
            bound: dict[int, Parameter] = {}
            for name, module, attribute, _ in slots:
                value = state_dict[name]
                module._parameters[attribute] = value if isinstance(value, Parameter) else bound.setdefault(id(value), Parameter(value))
            return
        values = []  # all of them first: a dtype that cannot be cast must not leave half a module behind
        for name, _, _, parameter in slots:
            value = state_dict[name]
            values.append(ops.copy(value) if value.dtype is parameter.dtype else ops.cast(value, parameter.dtype))
            if lib.clikart_tensor_is_stand_in(values[-1]._handle):
                raise ClikaRTError("load_state_dict: values cannot be loaded while a graph is recorded")
        for (_, _, _, parameter), value in zip(slots, values, strict=True):
            parameter._rebind(value)

    def __repr__(self) -> str:
        children = [f"  ({name}): {module!r}".replace("\n", "\n  ") for name, module in self._modules.items()]
        if not children:
            return f"{type(self).__name__}({self.extra_repr()})"
        return f"{type(self).__name__}(\n" + "\n".join(children) + "\n)"

    def extra_repr(self) -> str:
        """What ``repr`` shows between the parentheses of a module without children."""
        return ""
