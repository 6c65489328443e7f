"""An S3 server in a process of its own, reached over HTTP, and a line to it that breaks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import boto3

from tests.support.processes import running

LISTED_AT_ONCE = 5
"""So many objects are in one answer to a listing; the others have to be asked for. (Amazon's has 1,000.)"""

_SERVER = """
import logging, os, sys

os.environ["MOTO_S3_DEFAULT_MAX_KEYS"] = sys.argv[1]
from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1])
sys.stdin.read()
"""


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of a server with nothing in it."""
    with running(_SERVER, LISTED_AT_ONCE) as script:
        yield f"http://127.0.0.1:{script.line()}"


def environment(endpoint: str) -> dict[str, str]:
    """What somebody sets who keeps archives there."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "archiver",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def is_of_s3(name: str) -> bool:
    """Whether a variable of the environment steers how S3 is reached."""
    return name.startswith(("AWS_", "FSSPEC_"))


def without_s3() -> dict[str, str]:
    """The environment of a process that knows of no S3."""
    return {name: value for name, value in os.environ.items() if not is_of_s3(name)}


@dataclass
class Bucket:
    """A bucket, looked at by another client than the product's."""

    endpoint: str
    name: str

    @cached_property
    def client(self) -> Any:
        given = environment(self.endpoint)
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=given["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
        )

    @property
    def url(self) -> str:
        """The folder that archives go to."""
        return f"s3://{self.name}/threads"

    def keys(self) -> list[str]:
        """All objects."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        return [each["Key"] for page in pages for each in page.get("Contents", ())]

    def archives(self) -> list[str]:
        """The addresses of the objects that have the name of an archive."""
        return [f"s3://{self.name}/{key}" for key in self.keys() if "/.partial-" not in key]

    def clear(self) -> None:
        """Removes all objects."""
        for key in self.keys():
            self.client.delete_object(Bucket=self.name, Key=key)

    def deny(self, *actions: str) -> None:
        """Denies actions to everybody."""
        statement = ", ".join(
            f'{{"Effect": "Deny", "Principal": "*", "Action": "s3:{action}", "Resource": "arn:aws:s3:::{self.name}/*"}}'
            for action in actions
        )
        policy = f'{{"Version": "2012-10-17", "Statement": [{statement}]}}'
        self.client.put_bucket_policy(Bucket=self.name, Policy=policy)

    def allow(self) -> None:
        """Takes that back."""
        self.client.delete_bucket_policy(Bucket=self.name)


class Line:
    """A line to a server, which breaks for good after some bytes.

    Attributes:
        endpoint: How to reach the server through it.
        passed: How many bytes the server was sent after each piece.
        bytes_max: After so many bytes to the server every connection is closed, and no new one is let in.
    """

    def __init__(self, target: str) -> None:
        self._port = int(target.rpartition(":")[2])
        self._writers: list[asyncio.StreamWriter] = []
        self.endpoint = ""
        self.passed = [0]
        self.bytes_max: float = float("inf")

    def mend(self, bytes_max: float) -> None:
        """Lets so many bytes through from now on."""
        self.passed, self.bytes_max = [0], bytes_max

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_broken:
            writer.close()
            return
        there, server = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, server]
        await asyncio.gather(self._send(reader, server), self._answer(there, writer))

    @property
    def _is_broken(self) -> bool:
        return self.passed[-1] >= self.bytes_max

    async def _send(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                piece = data[: int(min(len(data), self.bytes_max - self.passed[-1]))]
                target.write(piece)
                await target.drain()
                self.passed.append(self.passed[-1] + len(piece))
                if self._is_broken:
                    self.close()
        target.close()

    async def _answer(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        target.close()

    def close(self) -> None:
        """Closes every connection."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()


@asynccontextmanager
async def line_to(endpoint: str) -> AsyncIterator[Line]:
    """A line to a server."""
    line = Line(endpoint)
    server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    line.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield line
    finally:
        line.close()
        server.close()
        await server.wait_closed()
