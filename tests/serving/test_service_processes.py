"""Busy time of a device by service, from the names of its processes."""

from costprobe.serving.device_costs import MAX_PIDS, ProcessOwners, busy_by_service
from costprobe.serving.settings import ServiceConfig


def service(name, processes=()):
    return ServiceConfig.model_validate(
        {
            "name": name,
            "url": "http://127.0.0.1:8000",
            "engine": "vllm",
            "devices": ["gpu0"],
            "processes": list(processes),
        }
    )


def test_processes_belong_to_services_by_their_truncated_names(tmp_path):
    for pid, comm in {11: "VLLM::EngineCor\n", 12: "python3\n", 13: "tritonserver\n"}.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(comm)
    services = [
        service("chat", ["VLLM::EngineCore"]),
        service("rank", ["tritonserver"]),
        service("other"),
    ]
    owners = ProcessOwners(services, tmp_path)
    owners.find_owners([11, 12, 13, 14])
    names = [each.name for each in services]
    assert owners.pids_of(names, [11, 12, 13, 14]) == {
        "chat": frozenset({11}),
        "rank": frozenset({13}),
        "other": frozenset(),
    }
    # Of very many the last ones are known.
    owners.find_owners([12] + [11] * MAX_PIDS)
    assert owners.pids_of(["chat"], [11]) == {"chat": frozenset({11})}


def test_busy_time_is_divided_among_services_probes_and_the_rest():
    busy_s = {1: 10.0, 2: 5.0, 3: 2.0, 4: 1.0}
    pids = {"chat": frozenset({1, 2}), "gone": frozenset()}
    assert busy_by_service(busy_s, pids, frozenset({3})) == ({"chat": 15.0, "gone": None}, 1.0)
