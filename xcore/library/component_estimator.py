"""What all estimators share: a component as one parameter, with its options as nested parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator

from xcore.components import Component
from xcore.errors import ArgumentError, ConfigError


class ComponentEstimator(BaseEstimator):
    """A scikit-learn estimator around one component of a family.

    The component is a parameter. It is given as a component or as the name of its kind, and is stored as given. Its
    options are nested parameters: ``model__n_trees``, ``model__tree__dimensions``.
    """

    _role: ClassVar[str]  # name of the parameter that holds the component
    _kinds: ClassVar[Mapping[str, type[Component]]]  # the family
    _family: ClassVar[type[Component]]  # base class of its members

    def _component(self) -> Any:
        """The component with its options, whether it was given as such or by name."""
        return component_of(getattr(self, self._role), self._kinds, self._family, self._role)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of the estimator.

        Parameters
        ----------
        deep : bool
            Include the options of the component, as ``<parameter>__<option>``.
        """
        params: dict[str, Any] = super().get_params(deep=False)
        if deep:
            try:
                nested = _nested_options(self._component())
            except ArgumentError:  # fit says what is wrong
                nested = {}
            params |= {f"{self._role}__{name}": value for name, value in nested.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Change parameters; options of the component as ``<parameter>__<option>``.

        Raises
        ------
        ValueError
            A parameter or option that does not exist, or an option that is out of its bounds. Nothing is changed then.
        """
        own = {name: value for name, value in params.items() if "__" not in name}
        nested = {name: value for name, value in params.items() if "__" in name}
        known = self.get_params(deep=False)
        for name in params:
            if name not in known and not name.startswith(f"{self._role}__"):
                raise ArgumentError(
                    f"{type(self).__name__} has no parameter {name!r}: use one of {', '.join(known)}, or an option of "
                    f"the component as {self._role}__NAME"
                )
        if nested:
            given = component_of(own.get(self._role, getattr(self, self._role)), self._kinds, self._family, self._role)
            own[self._role] = with_options(given, {name.partition("__")[2]: value for name, value in nested.items()})
        for name, value in own.items():
            setattr(self, name, value)
        return self


def component_of(given: Any, kinds: Mapping[str, type[Component]], family: type[Component], role: str) -> Component:
    """A component that was given as such, or by the name of its kind and then with default options."""
    if isinstance(given, family):
        return given
    if isinstance(given, str) and given in kinds:
        return kinds[given]()
    raise ArgumentError(f"{role} must be a {family.__name__} or one of {', '.join(sorted(kinds))}, got {given!r}")


def with_options(component: Component, changes: Mapping[str, Any]) -> Component:
    """A component with some options changed and all bounds checked; ``tree__dimensions`` is an option of an option."""
    fields = [name for name in type(component).model_fields if name != "kind"]
    values, nested = {name: getattr(component, name) for name in fields}, dict[str, dict[str, Any]]()
    for path, value in changes.items():
        name, _, rest = path.partition("__")
        if name not in fields or (rest and not isinstance(values[name], Component)):
            raise ArgumentError(f"{type(component).__name__} has no option {path!r}: use one of {', '.join(fields)}")
        if rest:
            nested.setdefault(name, {})[rest] = value
        else:
            # a search draws numpy scalars, and pydantic takes no numpy integer for an int
            values[name] = value.item() if isinstance(value, np.generic) else value
    for name, inner in nested.items():
        values[name] = with_options(values[name], inner)
    return type(component).model_validate(values)


def _nested_options(component: Component) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name in type(component).model_fields:
        if name != "kind":
            options[name] = value = getattr(component, name)
            if isinstance(value, Component):
                options |= {f"{name}__{inner}": part for inner, part in _nested_options(value).items()}
    return options


@contextmanager
def value_errors() -> Iterator[None]:
    """Raise wrong data and options as `ArgumentError`: callers of scikit-learn expect a `ValueError`."""
    try:
        yield
    except ArgumentError:
        raise
    except ConfigError as error:
        raise ArgumentError(str(error)) from error
