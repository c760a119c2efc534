"""The page on templates as prompts: its prompts can be used."""

from __future__ import annotations

import pytest

import django_mcp as mcp
from django_mcp.declarations import server as servers
from tests.client import RpcError
from tests.shop.models import Customer

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/template-prompts.md"


@pytest.mark.django_db
def test_prompts_of_the_page_can_be_used(
    monkeypatch, server, settings, tmp_path, connect, alice, bob, invoice
):
    (text,) = blocks(PAGE, "django")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/reminder.txt").write_text(text, "utf-8")
    (tmp_path / "shop/welcome.txt").write_text("Welcome {{ customer.name }}!", "utf-8")
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path]}]

    class Customers(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["name"]

        def get_queryset(self, request):
            return super().get_queryset(request).filter(company__members=request.user)

    server.register(Customer, Customers)
    monkeypatch.setattr(servers, "default_server", server)
    namespace = {"__name__": "tests.shop.mcp", "__package__": "tests.shop"}
    for code in blocks(PAGE, "python"):
        exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)
    key = str(invoice.customer_id)
    client = connect(alice, server=server)

    def told(name, **arguments):
        (message,) = client.request("prompts/get", name=name, arguments=arguments)["messages"]
        return message["content"]["text"]

    assert told("reminder", customer=key) == (
        "Write a kind reminder to Carla, in the name of alice.\n\n- A-1: 12.50, since 2026-01-02\n"
    )
    assert told("welcome", customer=key) == "Welcome Carla!"
    with pytest.raises(RpcError, match="There is no customer"):
        connect(bob, server=server).request(
            "prompts/get", name="reminder", arguments={"customer": key}
        )
