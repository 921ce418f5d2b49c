"""A port that cannot be listened on is explained by the settings that chose it."""

import asyncio
import socket

import pytest

from controller.cli.listening import name_settings
from controller.errors import AgentTerminalError


async def test_a_taken_port_names_the_settings_and_the_way_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(AgentTerminalError) as caught, name_settings(("A_ADDRESS", "A_PORT"), ("B", "C")):
            await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", port)

    said = str(caught.value)
    assert said.startswith("A_ADDRESS and A_PORT, or B and C cannot be used: ")
    assert str(port) in said
    assert "address already in use" in said
    assert said.endswith("Name an address of this machine and a port that is free; port 0 takes any.")


def test_a_reason_is_found_also_where_the_system_gave_a_number_alone() -> None:
    with pytest.raises(AgentTerminalError, match="Name an address"), name_settings(("A", "B")):
        raise OSError


def test_what_is_no_refusal_of_the_system_passes() -> None:
    with pytest.raises(ValueError, match=r"^other$"), name_settings(("A", "B")):
        raise ValueError("other")
