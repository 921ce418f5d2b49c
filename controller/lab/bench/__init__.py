"""
What the operator costs, measured from outside on a real API server.

Problem: an operator that keeps its word for three terminals may fall behind with ten thousand, and its own metrics
cannot say what it cost the machine or the API server. Promise: the operator, the Sprites emulator, etcd and the API
server are processes of their own, and the loader is one more; CPU and memory are the kernel's figures, writes the API
server's, calls and their times of arrival the emulator's. A bench reports; it never judges whether a build may pass.
Source: how the figures come about, and what others reach, is told in docs/performance.md.
"""

from controller.lab.bench.errors import BenchFailed
from controller.lab.bench.report import render_json, render_report
from controller.lab.bench.running import list_disturbed, run_bench
from controller.lab.bench.sizes import Scenario, Size, SizeName, build_size
from controller.lab.bench.stage import StageSettings

__all__ = [
    "BenchFailed",
    "Scenario",
    "Size",
    "SizeName",
    "StageSettings",
    "build_size",
    "list_disturbed",
    "render_json",
    "render_report",
    "run_bench",
]
