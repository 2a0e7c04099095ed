"""Clients of boto3 for the embedded platform."""

from __future__ import annotations

import functools
import os
from typing import Any, Final

from uncia.errors import UnciaError
from uncia.platforms import wire

ROLE: Final = "arn:aws:iam::000000000000:role/uncia"
"""The API wants an account's role; this platform checks its form and uses none."""

# Above the longest time limit that a function can have on Lambda, 15 minutes.
_INVOKE_TIMEOUT_S: Final = 960


def client(address: str, service: str = "lambda") -> Any:
    """Return a boto3 client of a service for the embedded platform at ``address``.

    It ignores the user's AWS configuration, so that no region, credentials or profile of a real
    account reach a local test. At an address over TLS it shows what the environment has: see
    `wire`.

    Raises:
        UnciaError: the address is over TLS, and there are no credentials to show; or it is a unix
            socket, which boto3 cannot connect to.
    """
    if address.startswith(wire.UNIX):
        raise UnciaError(f"boto3 speaks to no unix socket such as {address}", "Name its address.")
    import boto3.session
    import botocore.session
    from botocore import UNSIGNED
    from botocore.config import Config

    token, pair = (wire.token(), wire.keys()) if address.startswith(wire.HTTPS) else (None, None)
    if address.startswith(wire.HTTPS) and token is None and pair is None:
        raise wire.no_credentials(address)

    nowhere = (None, None, os.devnull, None)
    base = botocore.session.Session(
        session_vars={
            "profile": (None, None, None, None),
            "config_file": nowhere,
            "credentials_file": nowhere,
        }
    )
    base.register_component("data_loader", _loader())
    key, secret, session_token = pair or ("uncia", "uncia", None)
    # Typed stubs know a client for each service, and none for its name.
    session: Any = boto3.session.Session(botocore_session=base)
    api = session.client(
        service,
        endpoint_url=wire.url_of(address),
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token=session_token,
        region_name=wire.REGION,
        config=Config(
            retries={"total_max_attempts": 1},
            read_timeout=_INVOKE_TIMEOUT_S,
            proxies={},
            # Else StartSyncExecution goes to a host of another name.
            inject_host_prefix=False,
            signature_version=UNSIGNED if token else None,
        ),
    )
    if token is not None:

        def authorize(request: Any, **_: object) -> None:
            request.headers["Authorization"] = f"Bearer {token}"

        api.meta.events.register("before-send", authorize)
    return api


@functools.cache
def _loader() -> Any:
    """Reads botocore's descriptions of services, each once for all clients of this process."""
    import botocore.loaders

    return botocore.loaders.create_loader()
