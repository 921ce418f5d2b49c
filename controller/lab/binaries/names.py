"""The programs of a control plane, and where in the Go module each is."""

from datetime import timedelta
from enum import StrEnum
from typing import assert_never


class Name(StrEnum):
    """A program, by the name of its file."""

    ETCD = "etcd"
    API_SERVER = "kube-apiserver"
    CONTROLLER_MANAGER = "kube-controller-manager"


def go_package(name: Name) -> str:
    """Return the package that Go builds; each is a `tool` of the module in `source/`."""
    match name:
        case Name.ETCD:
            return "go.etcd.io/etcd/server/v3"
        case Name.API_SERVER:
            return "k8s.io/kubernetes/cmd/kube-apiserver"
        case Name.CONTROLLER_MANAGER:
            return "k8s.io/kubernetes/cmd/kube-controller-manager"
        case _:
            assert_never(name)


def usual_build_time(name: Name) -> tuple[timedelta, timedelta]:
    """
    Return how long a build takes on two cores: on an idle machine, and on a busy one.

    Observed: 2026-11, Go 1.26.8, nothing compiled before, in the order of the members.
    """
    match name:
        case Name.ETCD:
            return timedelta(seconds=40), timedelta(seconds=80)
        case Name.API_SERVER:
            return timedelta(minutes=4), timedelta(minutes=8)
        case Name.CONTROLLER_MANAGER:
            return timedelta(minutes=2), timedelta(minutes=5)
        case _:
            assert_never(name)
