"""The method: everything Eyrie computes. Knows neither Prefect nor MLflow.

``import xcore`` gives the names of `xcore.library.public`: ``xcore.Classifier``, ``xcore.Parabel``, ... They are
loaded when the first of them is used. Modules of the house import each other, never these names: the ids of steps
follow imports.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xcore.library.public import *  # noqa: F403
    from xcore.library.public import __all__ as __all__
else:  # a type checker that saw this function would believe any name

    def __getattr__(name: str) -> Any:
        # Only classes are public. Another name is a submodule that Python looks for: nothing is loaded for that.
        if name == "__all__" or name[:1].isupper():
            from importlib import import_module

            public = import_module("xcore.library.public")
            if name == "__all__" or name in public.__all__:
                return getattr(public, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from importlib import import_module

    return sorted({*globals(), *import_module("xcore.library.public").__all__})
