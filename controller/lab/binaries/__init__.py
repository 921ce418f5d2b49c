"""
Where the binaries of a control plane come from.

Problem: etcd and kube-apiserver come with no package index, and a stranger who typed one word should not have to read
about that. Promise: they are looked for in four places, in this order, and what is found is whole and of a version
that works: `$KUBEBUILDER_ASSETS`, our cache folder, setup-envtest, a build with Go from the module beside this file.
What was built or downloaded lies in the cache folder and is found there at the next start.
"""

from controller.lab.binaries.errors import BinariesMissing
from controller.lab.binaries.finding import Binaries, Origin, find_binaries
from controller.lab.binaries.helm_finding import find_helm
from controller.lab.binaries.progress import PlainProgress, Progress, build_progress
from controller.lab.binaries.settings import BinariesSettings, read_binaries_settings

__all__ = [
    "Binaries",
    "BinariesMissing",
    "BinariesSettings",
    "Origin",
    "PlainProgress",
    "Progress",
    "build_progress",
    "find_binaries",
    "find_helm",
    "read_binaries_settings",
]
