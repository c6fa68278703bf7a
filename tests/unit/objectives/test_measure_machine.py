"""What a machine has, read from folders that stand in for /proc and /sys; and what a process tree costs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from objectives.measure import host, proc
from objectives.measure.hardware import conditions, describe, list_devices

GIB = 1024**3


def write(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


MEMINFO = {"proc/meminfo": "MemTotal:       1055919360 kB\nMemFree: 1 kB\nMemAvailable:   900000000 kB\n"}


class TestMemoryLimit:
    @pytest.mark.case("E07")
    def test_the_containers_limit_counts_not_the_hosts_memory(self, tmp_path: Path) -> None:
        files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "96636764160\n"}
        assert host.memory_limit_bytes(write(tmp_path, MEMINFO | files)) == 90 * GIB

    def test_max_means_the_host(self, tmp_path: Path) -> None:
        files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}
        assert host.memory_limit_bytes(write(tmp_path, MEMINFO | files)) == 1055919360 * 1024

    def test_the_tightest_of_nested_groups(self, tmp_path: Path) -> None:
        files = {
            "proc/self/cgroup": "0::/user.slice/job.scope\n",
            "sys/fs/cgroup/user.slice/job.scope/memory.max": "max\n",
            "sys/fs/cgroup/user.slice/memory.max": str(8 * GIB),
            "sys/fs/cgroup/memory.max": str(64 * GIB),
        }
        assert host.memory_limit_bytes(write(tmp_path, MEMINFO | files)) == 8 * GIB

    def test_version_one_and_its_way_to_say_no_limit(self, tmp_path: Path) -> None:
        files = {
            "proc/self/cgroup": "9:name=systemd:/\n4:memory:/job/7\n0::/\n",
            "sys/fs/cgroup/memory/job/7/memory.limit_in_bytes": str(16 * GIB),
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        }
        assert host.memory_limit_bytes(write(tmp_path, MEMINFO | files)) == 16 * GIB

    def test_a_path_of_the_host_that_the_container_does_not_see(self, tmp_path: Path) -> None:
        files = {
            "proc/self/cgroup": "4:memory:/docker/0123\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str(4 * GIB),
        }
        assert host.memory_limit_bytes(write(tmp_path, MEMINFO | files)) == 4 * GIB

    def test_nothing_known_is_none(self, tmp_path: Path) -> None:
        assert host.memory_limit_bytes(str(tmp_path)) is None

    def test_what_is_free_is_the_groups_too(self, tmp_path: Path) -> None:
        files = {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": str(10 * GIB),
            "sys/fs/cgroup/memory.current": str(4 * GIB),
        }
        assert host.memory_available_bytes(write(tmp_path, MEMINFO | files)) == 6 * GIB

    def test_kills_by_the_kernel_are_counted(self, tmp_path: Path) -> None:
        files = {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.events": "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\n",
            "proc/vmstat": "pgmajfault 9\noom_kill 1\n",
        }
        assert host.kernel_kills(write(tmp_path, files)) == 2
        assert host.kernel_kills(str(tmp_path / "nowhere")) is None

    def test_this_machine_answers(self) -> None:
        limit, available = host.memory_limit_bytes(), host.memory_available_bytes()
        assert limit is not None
        assert available is not None
        assert 0 < available < limit


STATUS = {"proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-7,16\n"}


class TestCores:
    @pytest.mark.case("E01")
    def test_a_quota_bounds_below_the_affinity(self, tmp_path: Path) -> None:
        files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}
        assert host.cores(write(tmp_path, STATUS | files)) == 2

    @pytest.mark.parametrize(("quota", "expected"), [("max 100000", 9), ("150000 100000", 1), ("50000 100000", 1)])
    def test_whole_cores_and_at_least_one(self, tmp_path: Path, quota: str, expected: int) -> None:
        files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": quota}
        assert host.cores(write(tmp_path, STATUS | files)) == expected

    def test_the_cpuset_counts(self, tmp_path: Path) -> None:
        files = {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpuset.cpus.effective": "0-2,5\n"}
        assert host.cores(write(tmp_path, STATUS | files)) == 4

    def test_version_one_quota(self, tmp_path: Path) -> None:
        files = {
            "proc/self/cgroup": "3:cpu,cpuacct:/job\n",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "300000",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        }
        assert host.cores(write(tmp_path, STATUS | files)) == 3

    def test_this_machine_answers(self) -> None:
        assert 1 <= host.cores() <= len(os.sched_getaffinity(0))


class TestProcess:
    def test_sizes_of_this_process(self) -> None:
        sizes = proc.status_bytes()
        assert sizes["VmHWM"] >= sizes["RssAnon"] > 0
        assert proc.swap_bytes() is not None
        assert (proc.major_page_faults() or 0) >= 0

    def test_a_process_that_is_gone_has_none(self, tmp_path: Path) -> None:
        assert proc.status_bytes(2**22 + 1) == {}
        assert proc.swap_bytes(2**22 + 1) is None
        assert proc.major_page_faults(2**22 + 1) is None
        assert proc.cpu_times(root=str(tmp_path)) is None
        assert proc.proportional_bytes(2**22 + 1) is None

    def test_a_name_with_brackets_does_not_shift_the_fields(self, tmp_path: Path) -> None:
        fields = " ".join(["S", "1", *["0"] * 7, "42", "0", "100", "50", "10", "5"])
        write(tmp_path, {"proc/7/stat": f"7 (a) b (c)) {fields}"})
        assert proc.major_page_faults(7, str(tmp_path)) == 42
        assert proc.cpu_seconds(7, str(tmp_path)) == 165 / os.sysconf("SC_CLK_TCK")

    @pytest.mark.case("E03")
    def test_shared_pages_count_once_and_private_ones_are_added(self, tmp_path: Path) -> None:
        def process(pid: int, parent: int, pss: int) -> dict[str, str]:
            stat = f"{pid} (x) " + " ".join(["S", str(parent), *["0"] * 20])
            return {f"proc/{pid}/stat": stat, f"proc/{pid}/smaps_rollup": f"[rollup]\nRss: 900 kB\nPss: {pss} kB\n"}

        root = write(tmp_path, process(10, 1, 500) | process(11, 10, 300) | process(12, 11, 200) | process(20, 1, 9999))
        assert proc.tree(10, root) == (10, 11, 12)
        assert proc.proportional_bytes(10, root) == 1000 * 1024

    def test_neighbours_are_what_is_busy_and_not_ours(self) -> None:
        before = proc.CpuTimes(busy_seconds=100, stolen_seconds=1, total_seconds=1000, own_seconds=10)
        after = proc.CpuTimes(busy_seconds=115, stolen_seconds=2, total_seconds=1020, own_seconds=20)
        shares = proc.neighbours(before, after)
        assert shares == {"neighbour_share": pytest.approx(0.25), "stolen_share": pytest.approx(0.05)}
        assert proc.neighbours(before, before) == {"neighbour_share": None, "stolen_share": None}


class TestDescribing:
    def test_a_machine_without_a_gpu_lists_its_cpu(self) -> None:
        devices = list_devices()
        assert devices[-1]["kind"] == "cpu"
        assert devices[-1]["name"]
        assert devices[-1]["cores"] >= 1
        assert devices[-1]["visible"] is True

    def test_listing_needs_no_torch(self) -> None:
        look = "from objectives.measure.hardware import list_devices; list_devices()"
        code = f"import sys; {look}; assert 'torch' not in sys.modules"
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_a_description_names_the_software(self) -> None:
        found = describe("cpu")
        assert found["versions"]["torch"]
        assert found["uuid"] == ""

    def test_conditions_have_every_figure_or_none(self) -> None:
        found = conditions("cpu")
        assert found["sm_clock_megahertz"] is None
        assert found["throttled"] is None
        assert found["load_average"] >= 0
