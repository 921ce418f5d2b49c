"""Keys and certificates for libraries that read files only lie nowhere after us."""

import os
import tempfile
from pathlib import Path

import pytest

from controller.kube.private_files import PrivateFiles


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a temporary file would go."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def count_open() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_what_is_written_can_be_read_by_its_path_as_often_as_one_likes(temporary: Path) -> None:
    with PrivateFiles() as files:
        paths = {files.write(content): content for content in (b"one", b"two", b"")}

        for _ in range(2):
            assert {path: Path(path).read_bytes() for path in paths} == paths
        assert list(temporary.iterdir()) == []


def test_no_other_user_can_open_it(temporary: Path) -> None:
    with PrivateFiles() as files:
        path = Path(files.write(b"secret"))

        # The path is a link of /proc; what it leads to belongs to nobody's folder.
        assert str(path.readlink()).startswith("/memfd:")
        assert path.lstat().st_mode & 0o077 == 0


def test_no_child_inherits_it(temporary: Path) -> None:
    with PrivateFiles() as files:
        descriptor = int(Path(files.write(b"secret")).name)

        assert not os.get_inheritable(descriptor)


def test_it_is_gone_at_the_end_and_its_descriptor_too(temporary: Path) -> None:
    before = count_open()
    with PrivateFiles() as files:
        path = Path(files.write(b"secret"))
        assert count_open() == before + 1

    assert count_open() == before
    assert not path.exists()


@pytest.mark.parametrize("without", ["memfd_create", "its permission", "/proc"])
def test_where_there_is_no_such_memory_it_lies_in_a_private_folder_until_the_end(
    without: str, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_name: str) -> int:
        raise PermissionError

    match without:
        case "memfd_create":
            monkeypatch.delattr(os, "memfd_create")
        case "its permission":
            monkeypatch.setattr(os, "memfd_create", refuse)
        case "/proc":
            is_file = Path.is_file
            monkeypatch.setattr(Path, "is_file", lambda self: "/proc" not in str(self) and is_file(self))
    with PrivateFiles() as files:
        paths = [Path(files.write(content)) for content in (b"one", b"two")]

        assert [path.read_bytes() for path in paths] == [b"one", b"two"]
        assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
        (folder,) = temporary.iterdir()
        assert {path.parent for path in paths} == {folder}
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(temporary.iterdir()) == []
