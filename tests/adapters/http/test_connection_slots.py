"""Slots of connections: limits, a reserve for this host, displacement and deadlines."""

import json

from costprobe.adapters.http.server import ConnectionSlots, HttpLimits, site_of
from record.record_files import check_outcomes

LIMITS = HttpLimits(total=6, per_address=3, reserve=2, request_s=10.0, response_s=60.0)
LOCAL, REMOTE, OTHER = "127.0.0.1", "192.0.2.1", "198.51.100.7"


def with_connections(*addresses, answering=0):
    """Connections of these addresses, of which the first have sent their requests."""
    slots = ConnectionSlots(LIMITS)
    for key, address in enumerate(addresses):
        assert slots.admit(key, address, 0.0)[0]
        if key < answering:
            slots.has_request(key, 0.0)
    return slots


def test_addresses_of_this_host_and_of_one_ipv6_network_are_one_client():
    assert {site_of(text) for text in ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1")} == {""}
    assert site_of("2001:db8::1") == site_of("2001:db8::ffff:1") != site_of("2001:db8:0:1::1")
    assert site_of("::ffff:192.0.2.1") == site_of("192.0.2.1") == "192.0.2.1"
    assert site_of("fe80::1%eth0") == "fe80::/64"
    assert site_of("") == "?"


def test_full_slots_displace_who_sends_no_request_and_keep_a_reserve_for_this_host():
    """Of connections, how many of them have sent their requests, and the next address."""

    def admitted(text):
        _, addresses, answering, address = json.loads(text)
        return with_connections(*addresses, answering=answering).admit("new", address, 1.0)

    check_outcomes("connection_slots.json", admitted)


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
    slots = with_connections(REMOTE, REMOTE, REMOTE, answering=3)
    slots.release(1)
    slots.release("unknown")
    slots.has_request("unknown", 1.0)
    slots.awaits_request("unknown", 1.0)
    assert slots.admit("new", REMOTE, 1.0) == (True, None)
