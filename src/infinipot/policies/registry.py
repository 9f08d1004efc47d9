"""Every policy by name: a module of this folder is one, and so is an entry point of another package.

A module here declares one `Policy` class; the policy's name is the module's, with dashes.
"""

import inspect
import warnings
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules

import infinipot.policies
from infinipot.policies.base import Policy

GROUP = "infinipot.policies"
_NOT_POLICIES = {"base", "registry"}


@cache
def registry() -> dict[str, type[Policy]]:
    """Every installed policy by name; ours win over those of other packages."""
    found = _others()
    for module in iter_modules(infinipot.policies.__path__):
        if module.name not in _NOT_POLICIES:
            found[module.name.replace("_", "-")] = _declared(f"infinipot.policies.{module.name}")
    return dict(sorted(found.items()))


def _declared(name: str) -> type[Policy]:
    """The one policy class that a module of ours defines."""
    module = import_module(name)
    classes = [cls for _, cls in inspect.getmembers(module, inspect.isclass) if cls.__module__ == name]
    (policy,) = (cls for cls in classes if issubclass(cls, Policy))
    return policy


def _others() -> dict[str, type[Policy]]:
    """Policies of other packages; one that cannot be used is told and left out."""
    found: dict[str, type[Policy]] = {}
    for point in entry_points(group=GROUP):
        try:
            cls = point.load()
            cls()  # a recipe must work without settings
        except Exception as error:  # another package's fault must not stop ours
            package = point.dist.name if point.dist else "an unknown package"
            warnings.warn(f"policy '{point.name}' of {package} cannot be used: {error}", stacklevel=2)
        else:
            found[point.name] = cls
    return found
