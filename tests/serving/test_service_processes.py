"""The processes of services, by their names in a recorded /proc."""

from costprobe.serving.device_costs import busy_by_service, service_pids
from costprobe.serving.settings import ServiceConfig


def service(name, *processes):
    return ServiceConfig.model_validate(
        {
            "name": name,
            "url": "http://a",
            "engine": "vllm",
            "devices": ["gpu0"],
            "processes": processes,
        }
    )


def test_processes_are_matched_by_truncated_names(tmp_path):
    for pid, comm in ((10, "VLLM::EngineCor"), (11, "tritonserver"), (12, "python3")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(f"{comm}\n")
    services = [
        service("chat", "VLLM::EngineCore"),
        service("rank", "tritonserver", "trtllm"),
        service("unnamed"),
    ]
    pids = service_pids(services, [10, 11, 12, 13], tmp_path)
    assert pids == {"chat": {10}, "rank": {11}}

    busy, other_s = busy_by_service({10: 5.0, 12: 2.0, 13: 1.0, 99: 0.5}, pids, frozenset({13}))
    assert busy == {"chat": 5.0, "rank": 0}
    # Without a process of the configured name, busy time is unknown rather than zero.
    assert busy_by_service({10: 5.0}, {"chat": frozenset()}, frozenset()) == ({"chat": None}, 5.0)
    assert other_s == 2.5
