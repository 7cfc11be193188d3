"""A real S3 server on loopback with one bucket, for tests: `with Bucket() as bucket`."""

import logging
import os
from typing import Any, Final, Self
from unittest.mock import patch

NAME: Final = "coatcheck"


class Bucket:
    """A bucket; whatever asks for s3:// meanwhile, in this process or those it starts, finds it.

    Attributes:
        url: its address.
    """

    url = f"s3://{NAME}"

    def __enter__(self) -> Self:
        import boto3  # noqa: PLC0415 - of these tests only
        from moto.server import ThreadedMotoServer  # noqa: PLC0415 - so too

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        self._server.start()
        host, self._port = self._server.get_host_and_port()
        found = {
            "AWS_ENDPOINT_URL": f"http://{host}:{self._port}",
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "something",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        self._patch = patch.dict(os.environ, found)
        self._patch.start()
        self._client: Any = boto3.client("s3")
        self._client.create_bucket(Bucket=NAME)
        return self

    def names(self) -> list[str]:
        """List the names of all objects."""
        found = self._client.list_objects_v2(Bucket=NAME)
        return [one["Key"] for one in found.get("Contents", [])]

    def put(self, name: str, raw: bytes) -> None:
        """Put an object into the bucket, as another program would."""
        self._client.put_object(Bucket=NAME, Key=name, Body=raw)

    def get(self, name: str) -> bytes:
        """Return an object."""
        raw: bytes = self._client.get_object(Bucket=NAME, Key=name)["Body"].read()
        return raw

    def remove(self, name: str) -> None:
        """Remove an object."""
        self._client.delete_object(Bucket=NAME, Key=name)

    def stop(self) -> None:
        """Stop the server; its objects remain."""
        self._server.stop()

    def start(self) -> None:
        """Start the server again at the same address."""
        from moto.server import ThreadedMotoServer  # noqa: PLC0415 - of these tests only

        self._server = ThreadedMotoServer("127.0.0.1", self._port, verbose=False)
        self._server.start()

    def __exit__(self, *_: object) -> None:
        self._patch.stop()
        self._server.stop()
