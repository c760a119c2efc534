import pickle

import pytest

from django_mcp.protocol.connection import Answered, Cancelled, ClientCall, Notice
from django_mcp.protocol.revisions import LATEST


@pytest.mark.parametrize(
    "event",
    [
        ClientCall(1, "tools/call", {"name": "t"}, LATEST),
        Notice("notifications/initialized", {}),
        Cancelled("a", "r"),
        Answered("a", {}),
    ],
)
def test_events_are_values(event):
    assert pickle.loads(pickle.dumps(event)) == event
    (name, *_) = event.__slots__
    with pytest.raises(AttributeError):
        setattr(event, name, 2)
