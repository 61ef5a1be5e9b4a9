"""Slots of connections: limits, a reserve for this host, displacement and deadlines."""

from costprobe.adapters.http.server import ConnectionSlots, HttpLimits, site_of

LIMITS = HttpLimits(total=6, per_address=3, reserve=2, request_s=10.0, response_s=60.0)
LOCAL, REMOTE, OTHER = "127.0.0.1", "192.0.2.1", "198.51.100.7"


def with_connections(*addresses, at_s=0.0, answering=False):
    slots = ConnectionSlots(LIMITS)
    for key, address in enumerate(addresses):
        assert slots.admit(key, address, at_s)[0]
        if answering:
            slots.has_request(key, at_s)
    return slots


def test_addresses_of_this_host_and_of_one_ipv6_network_are_one_client():
    assert {site_of(text) for text in ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1")} == {""}
    assert site_of("2001:db8::1") == site_of("2001:db8::ffff:1") != site_of("2001:db8:0:1::1")
    assert site_of("::ffff:192.0.2.1") == site_of("192.0.2.1") == "192.0.2.1"
    assert site_of("fe80::1%eth0") == "fe80::/64"
    assert site_of("") == "?"


def test_one_address_displaces_only_its_own_connections():
    slots = with_connections(OTHER, REMOTE, REMOTE, REMOTE)
    assert slots.admit("new", REMOTE, 1.0) == (True, 1)


def test_address_with_complete_requests_is_refused_beyond_its_limit():
    slots = with_connections(REMOTE, REMOTE, REMOTE, answering=True)
    assert slots.admit("new", REMOTE, 1.0) == (False, None)
    assert slots.admit("new", OTHER, 1.0) == (True, None)


def test_full_server_displaces_the_oldest_of_the_busiest_address_without_a_request():
    slots = with_connections(OTHER, REMOTE, REMOTE, REMOTE)
    assert slots.admit("new", "203.0.113.9", 1.0) == (True, 1)


def test_only_this_host_uses_the_reserve():
    slots = with_connections(REMOTE, REMOTE, REMOTE, OTHER, answering=True)
    assert slots.admit("remote", "203.0.113.9", 1.0) == (False, None)
    assert [slots.admit(key, LOCAL, 1.0) for key in "ab"] == [(True, None)] * 2
    assert slots.admit("c", LOCAL, 2.0) == (True, "a")


def test_connection_is_late_without_a_request_and_without_a_response():
    slots = with_connections(REMOTE, OTHER)
    slots.has_request(0, 5.0)
    # Further bytes of the request do not extend the deadline of its response.
    slots.has_request(0, 30.0)
    assert slots.take_late(10.0) == []
    assert slots.take_late(10.1) == [1]
    assert slots.take_late(65.1) == [0]
    assert slots.take_late(100.0) == []


def test_kept_connection_has_a_deadline_for_its_next_request():
    slots = with_connections(REMOTE)
    slots.has_request(0, 1.0)
    slots.awaits_request(0, 20.0)
    # A connection that sends nothing does not extend its deadline.
    slots.awaits_request(0, 29.0)
    assert slots.take_late(30.0) == []
    assert slots.take_late(30.1) == [0]


def test_released_and_unknown_connections_are_ignored():
    slots = with_connections(REMOTE, REMOTE, REMOTE, answering=True)
    slots.release(1)
    slots.release("unknown")
    slots.has_request("unknown", 1.0)
    slots.awaits_request("unknown", 1.0)
    assert slots.admit("new", REMOTE, 1.0) == (True, None)
