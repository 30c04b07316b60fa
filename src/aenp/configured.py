"""Configured: what remembers the arguments it was built with can be saved as JSON and built again."""

import inspect
import math
from typing import Any, ClassVar


class Configured:
    """Remembers its constructor's arguments. Arguments are JSON values, or Configured themselves."""

    classes: ClassVar[dict[str, type["Configured"]]] = {}
    arguments: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Configured.classes[cls.__name__] = cls

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        # bind_partial: copying calls __new__ without arguments, and an error is __init__'s to raise.
        try:
            bound = inspect.signature(cls.__init__).bind_partial(self, *args, **kwargs)
        except TypeError:
            return self
        options = bound.arguments.pop("options", {})  # where a constructor passes keywords on
        # Past nn.Module.__setattr__, which would refuse a submodule before its own __init__.
        self.__dict__["arguments"] = dict(list(bound.arguments.items())[1:]) | options
        return self

    def configuration(self) -> dict[str, Any]:
        """The class's name and the arguments it was built with, as JSON values."""
        return {
            "class": type(self).__name__,
            **{name: _encode(value) for name, value in self.arguments.items()},
        }


def build(configuration: dict[str, Any]) -> Any:
    """The object that `configuration()` came from, with fresh parameters."""
    arguments = dict(configuration)
    name = arguments.pop("class")
    if name not in Configured.classes:
        known = ", ".join(sorted(Configured.classes))
        raise ValueError(f"unknown class {name!r}; known are {known}. If it is your own, import it first")
    return Configured.classes[name](**{key: _decode(value) for key, value in arguments.items()})


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
