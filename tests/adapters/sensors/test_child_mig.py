"""The sensor child on a board whose MIG devices are destroyed and created again."""

GIB = 1 << 30


def names_of(devices):
    return sorted(device["name"] for device in devices)


def test_child_follows_the_mig_devices_of_its_board_without_a_fault(start_child, fake_nvml):
    fake = fake_nvml()
    gpu = fake.gpus[0]
    gpu.set(util_pct=64)
    gpu.split((3, 1, 2), 4)
    child = start_child(fake.env())
    handshake = child.known()
    assert names_of(handshake["devices"]) == ["gpu0", "gpu0.mig0", "gpu0.mig1", "gpu0.mig2"]
    child.wait_for("reading", device="gpu0.mig2")
    gpu.split(2, 5)
    since = len(child.messages)
    child.wait_for("slices", names=["gpu0.mig0", "gpu0.mig1"], since=since)
    devices = [
        child.wait_for("device", since=since, device=expected)["device"]["slices"]
        for expected in devices_of(2, 5)
    ]
    assert devices == [2, 5]
    reading = child.wait_for("reading", device="gpu0.mig1", since=len(child.messages))
    assert reading["fields"]["mem_total_bytes"] == 50 * GIB
    gpu.unsplit()
    child.wait_for("slices", names=[], since=len(child.messages))
    fields = [
        child.wait_for("reading", device="gpu0", since=since)["fields"]
        for since in (len(child.messages), len(child.messages) + 1)
    ][-1]
    assert fields["util_pct"] == 64.0
    assert [message for message in child.messages if message["type"] == "fault"] == []


def devices_of(*slices):
    """The devices that the child reports for a second partition."""
    return [
        {
            "name": f"gpu0.mig{i}",
            "kind": "mig",
            "uuid": f"MIG-00010000-{i:04d}-4000-8000-000000000000",
            "model": f"NVIDIA Fake 80GB MIG {count}g.{count * 10}gb",
            "memory_bytes": count * 10 * GIB,
            "parent": "gpu0",
            "slices": count,
            "slices_of": 7,
            "gpu_instance": i + 7,
            "is_persistent": None,
            "is_exclusive": False,
        }
        for i, count in enumerate(slices)
    ]
