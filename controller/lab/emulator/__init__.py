"""A stand-in for the Sprites API, written from its documentation, with real processes behind it."""

from controller.lab.emulator.server import Emulator
from controller.lab.emulator.settings import EmulatorSettings, Isolation
from controller.lab.emulator.switches import Switches
from controller.lab.emulator.world import NamespacesMissing

__all__ = ["Emulator", "EmulatorSettings", "Isolation", "NamespacesMissing", "Switches"]
