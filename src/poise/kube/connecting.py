"""From a kubeconfig, or the files that every pod has, to a client: lightkube reads them and signs the requests."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from urllib.request import getproxies

import httpx2
import msgspec
import yaml
from lightkube.config.client_adapter import ConnectionParams
from lightkube.config.kubeconfig import DEFAULT_KUBECONFIG, SERVICE_ACCOUNT, KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError

from poise.errors import InvalidSpec, invalid
from poise.kube.client import Client
from poise.kube.transport import Transport

CONNECTIONS_MAX = 200
_KEPT_S = 60.0


def connect(
    kubeconfig: str | Path | None = None,
    *,
    context: str | None = None,
    account: str | Path = SERVICE_ACCOUNT,
    request_s: float = 10.0,
) -> Client:
    """Give a client; without a kubeconfig it is the pod's own account, else `KUBECONFIG`, else ~/.kube/config.

    Nothing is sent yet. `request_s` is the longest that one request may take, waiting for its turn included.
    """
    try:
        config = _read(kubeconfig, context, account)
        made = ConnectionParams(timeout=httpx2.Timeout(request_s)).httpx_params(config)
    except (ConfigError, LookupError, OSError, ssl.SSLError, ValueError, TypeError, AttributeError) as error:
        # lightkube lets through whatever a broken file makes it stumble on.
        raise _unusable(kubeconfig, error) from error
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise _unusable(kubeconfig, error) from error
    limits = httpx2.Limits(
        max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX, keepalive_expiry=_KEPT_S
    )
    made["auth"] = None if made["auth"] is None else Signing(made["auth"])
    if not getproxies():
        # Where the environment names a proxy, the transport that knows how to use one is taken.
        made["transport"] = Transport(made["verify"], limits)
    return Client(httpx2.AsyncClient(**made, limits=limits), namespace=config.namespace, request_s=request_s)


class Signing(httpx2.Auth):
    """Signs requests as lightkube does; whatever a plugin's answer makes it stumble on is one error."""

    def __init__(self, inner: httpx2.Auth) -> None:
        """Sign by this."""
        self._inner = inner

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Sign a request, once more after a refusal where the credentials can be renewed."""
        flow = self._inner.async_auth_flow(request)
        try:
            signed = await anext(flow)
            while True:
                signed = await flow.asend((yield signed))
        except StopAsyncIteration:
            return
        except (LookupError, TypeError, ValueError) as error:
            raise ConfigError(f"the credentials cannot be read: {type(error).__name__}: {error}") from error
        finally:
            await flow.aclose()


def _read(kubeconfig: str | Path | None, context: str | None, account: str | Path) -> SingleConfig:
    one = _own_account(account) if kubeconfig is None else KubeConfig.from_file(kubeconfig)
    config = _from_files(context) if one is None else one.get(context)
    if config is None:
        raise ConfigError("no context is chosen")
    return config if config.user is not None else config._replace(user=User())


def _own_account(account: str | Path) -> KubeConfig | None:
    """Read what every Pod has; None outside of one."""
    with suppress(ConfigError):
        return KubeConfig.from_service_account(account)
    return None


def _from_files(context: str | None) -> SingleConfig | None:
    """Give the context of the first file that has it, of those that the environment lists; None where none is chosen.

    As for kubectl files may be missing, and the first current context counts. A context must be whole in one file.
    """
    files = [each for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each] or [DEFAULT_KUBECONFIG]
    if len(files) == 1:
        return KubeConfig.from_file(files[0]).get(context)
    read = [KubeConfig.from_file(each) for each in files if Path(each).is_file()]
    chosen = context or next((each.current_context for each in read if each.current_context), None)
    if chosen is None:
        return None
    found = next((each for each in read if chosen in each.contexts), None)
    if found is None:
        raise ConfigError(f"none of the files of KUBECONFIG ({', '.join(files)}) has the context {chosen}")
    return found.get(chosen)


def _unusable(kubeconfig: str | Path | None, error: Exception) -> InvalidSpec:
    where = "the environment" if kubeconfig is None else str(kubeconfig)
    told = " ".join(f"{type(error).__name__}: {error}".split())
    return invalid(where, f"no usable configuration of Kubernetes: {told}")
