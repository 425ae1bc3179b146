"""Modules: parameters in a tree, and a forward function."""

from .linear import Linear
from .module import Module, Parameter

__all__ = ["Linear", "Module", "Parameter"]
