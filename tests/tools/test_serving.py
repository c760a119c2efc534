from tools import serving


def test_demo_server_listens_on_loopback_only():
    assert serving.command(8001)[-1] == "127.0.0.1:8001"
    assert serving.environment(8001)["ATLAS_URL"] == "http://127.0.0.1:8001"
