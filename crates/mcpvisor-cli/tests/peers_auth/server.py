"""A protected MCP server on PyPI's `fastmcp`.

Usage: server.py ISSUER [SCOPE...] verifies the tokens of that issuer, which must have these scopes.
Without arguments it is its own issuer (`InMemoryOAuthProvider`), redirects at once and rotates.

It prints its URL. Its own issuer prints `refresh` for each refresh, and obeys lines on stdin, which it
confirms by `done` and the number of its refresh tokens: `forget` removes all access tokens, `revoke`
all refresh tokens too. It ends with its stdin.
"""

import os
import socket
import sys
import threading

import uvicorn
from fastmcp import FastMCP
from fastmcp.server.auth import RemoteAuthProvider
from fastmcp.server.auth.auth import ClientRegistrationOptions, RevocationOptions
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from fastmcp.server.auth.providers.jwt import JWTVerifier

# The scopes of its own issuer, which a token must have.
SCOPES = ["mcp", "mcp:write"]


class Issuer(InMemoryOAuthProvider):
    async def exchange_refresh_token(self, *args):
        print("refresh", flush=True)
        return await super().exchange_refresh_token(*args)


def own_issuer(url):
    return Issuer(
        base_url=url,
        client_registration_options=ClientRegistrationOptions(
            enabled=True, valid_scopes=SCOPES, default_scopes=SCOPES
        ),
        revocation_options=RevocationOptions(enabled=True),
        required_scopes=SCOPES,
    )


def other_issuer(url, issuer, scopes):
    verifier = JWTVerifier(
        jwks_uri=issuer + "/jwks",
        issuer=issuer,
        audience=url + "/mcp",
        required_scopes=scopes,
    )
    return RemoteAuthProvider(verifier, [issuer], base_url=url)


def obey(auth):
    for line in sys.stdin:
        auth.access_tokens.clear()
        if line.strip() == "revoke":
            auth.refresh_tokens.clear()
        print("done", len(auth.refresh_tokens), flush=True)
    os._exit(0)


listener = socket.socket()
listener.bind(("127.0.0.1", 0))
url = f"http://127.0.0.1:{listener.getsockname()[1]}"
if len(sys.argv) > 1:
    auth = other_issuer(url, sys.argv[1], sys.argv[2:])
else:
    auth = own_issuer(url)
mcp = FastMCP("peer", auth=auth)


@mcp.tool
def echo(message: str) -> str:
    return "Echo: " + message


threading.Thread(target=obey, args=[auth], daemon=True).start()
# Requests that arrive before the server accepts them wait in the backlog.
listener.listen(128)
print(url + "/mcp", flush=True)
config = uvicorn.Config(mcp.http_app(), log_level="error")
uvicorn.Server(config).run(sockets=[listener])
