"""Configured: objects that remember their constructor's arguments, and so can be saved as JSON and rebuilt."""

import inspect
import math
from functools import cache
from typing import Any, ClassVar

import aenp


class Configured:
    """Remembers its constructor's arguments. Arguments are JSON values, or Configured themselves."""

    classes: ClassVar[dict[str, type["Configured"]]] = {}
    mutable: ClassVar[tuple[str, ...]] = ()
    "Arguments that may be changed later, as attributes of the same name."
    arguments: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Configured.classes[_name(cls)] = cls

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        # bind_partial: copying calls __new__ without arguments, and errors are left to __init__.
        signature = _signature(cls.__init__)
        try:
            bound = signature.bind_partial(self, *args, **kwargs)
        except TypeError:
            return self
        arguments: dict[str, Any] = {}
        for name, value in list(bound.arguments.items())[1:]:
            passed_on = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
            arguments.update(value if passed_on else {name: value})
        # Bypasses nn.Module.__setattr__, which refuses submodules before its own __init__.
        self.__dict__["arguments"] = arguments
        return self

    def configuration(self) -> dict[str, Any]:
        """The class's name and the arguments it was built with, as JSON values."""
        arguments = self.arguments | {name: getattr(self, name) for name in self.mutable}
        return {"class": _name(type(self)), **{name: _encode(value) for name, value in arguments.items()}}


_signature = cache(inspect.signature)


def _name(cls: type) -> str:
    """The name a class is saved under: its own, prefixed by its module if it is not from this library."""
    return cls.__name__ if cls.__module__.startswith("aenp.") else f"{cls.__module__}.{cls.__qualname__}"


def build(configuration: dict[str, Any]) -> Any:
    """The object that `configuration()` came from, with fresh parameters."""
    arguments = dict(configuration)
    return _class(arguments.pop("class"))(**{key: _decode(value) for key, value in arguments.items()})


def _class(name: str) -> type[Configured]:
    """The class of this name; those of the library are imported by their public names."""
    if name not in Configured.classes and name in aenp.__all__:
        getattr(aenp, name)
    if name not in Configured.classes:
        known = ", ".join(sorted(Configured.classes))
        raise ValueError(f"unknown class {name!r}; known classes: {known}. If it is your own, import it first")
    return Configured.classes[name]


def _encode(value: Any) -> Any:
    if isinstance(value, Configured):
        return value.configuration()
    if isinstance(value, float) and math.isinf(value):
        return None  # as a bound of a domain: unbounded
    if isinstance(value, list | tuple):
        return [_encode(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "tolist"):
        return _encode(value.tolist())
    raise TypeError(f"a saved model's arguments must be numbers, strings, sequences or None; got {value!r}")


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        return build(value)
    return [_decode(item) for item in value] if isinstance(value, list) else value
