"""The verifiers of the project: one by the keys of an issuer, one by introspection."""

import os

from django.contrib.auth.models import User

from django_mcp.verifiers import IntrospectedTokens, JWTTokens


def by_name(claims):
    return User.objects.get(username=claims.get("sub") or claims["username"])


if "ISSUER" in os.environ:
    signed = JWTTokens(os.environ["ISSUER"], user=by_name, scopes=["mcp"])
if "INTROSPECTS" in os.environ:
    asked = IntrospectedTokens(
        os.environ["INTROSPECTS"],
        client_id="the shop",
        client_secret="s3cret: of the shop",
        endpoint=f"{os.environ['INTROSPECTS']}/introspect",
        user=by_name,
    )
