#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Runs programs with bench/cluster/run_on_cluster and sees to it that nothing is left behind.

    check_cluster.py --launcher RUN_ON_CLUSTER --program EXCHANGE --case {2,3,failures,options}
    check_cluster.py --launcher RUN_ON_CLUSTER --program FAULTS_JOB --case memory
    check_cluster.py --launcher RUN_ON_CLUSTER --program GRADUS_BENCH --case network

Exits with 77 ("skipped"), and the launcher's reason, where the launcher cannot make a cluster.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

CANNOT_RUN = 77
complaints = []


def expect(condition, complaint):
    if not condition:
        complaints.append(complaint)


class Run:
    """One run of the launcher."""

    def __init__(self, launcher, *arguments):
        self.process = subprocess.Popen([sys.executable, str(launcher), *map(str, arguments)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.output = ""

    def wait_for(self, text):
        """Until the program has printed a line with the text, or ends."""
        for line in self.process.stdout:
            self.output += line
            if text in line:
                return

    def finish(self, limit=60):
        try:
            output, self.errors = self.process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGTERM)
            output, self.errors = self.process.communicate()
            complaints.append(f"not at its end after {limit} s")
        self.output += output
        self.status = self.process.returncode
        if self.status == CANNOT_RUN:
            print(self.errors, end="")
            sys.exit(CANNOT_RUN)
        left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
        expect(f"gradus-cluster-{self.process.pid}-" not in left, f"namespaces are left: {left}")
        return self


def check_exchange(options, hosts):
    """Every rank is on a host of its own, and the sum cannot be faster than the wire."""
    run = Run(options.launcher, "--hosts", hosts, "--rate", "200mbit", "--time-limit", 50, "--",
              options.program).finish()
    expect(run.status == 0, f"status {run.status}: {run.errors}")
    for host in range(1, hosts + 1):
        expect(f"rank {host - 1} on host{host} 10.77.0.{host}\n" in run.output, f"host {host} is not in: {run.output}")
    seconds = re.search(r"sum of 4 MiB in ([\d.]+) s", run.output)
    # Each rank has to send (p-1)/p of the array twice; 2 MiB may go at once, in the buckets and queues on the way.
    least = (2 * (hosts - 1) / hosts * 4 - 2) * 2**20 * 8 / 200e6
    expect(seconds and float(seconds[1]) > least, f"less than {least:.3f} s at 200 Mbit/s: {run.output}")


def check_failures(options):
    """A signal, a host that dies, and a program that does not end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        run = Run(options.launcher, "--time-limit", 50, "--", options.program, "--wait")
        run.wait_for("sum of")
        run.process.send_signal(number)
        run.finish()
        expect(run.status == 128 + number, f"{number!r}: status {run.status}: {run.errors}")
    run = Run(options.launcher, "--kill", "2@2.5", "--time-limit", 30, "--", options.program, "--wait").finish()
    expect("kill of host 2 after 2.5 s" in run.errors, f"kill: {run.errors}")
    expect("no answer from rank 1" in run.errors, f"kill: the other rank does not notice: {run.errors}")
    expect(run.status not in (0, 124), f"kill: status {run.status}")
    begin = time.monotonic()
    run = Run(options.launcher, "--time-limit", 2, "--", options.program, "--wait").finish()
    expect(run.status == 124 and time.monotonic() - begin < 20, f"time limit: status {run.status}: {run.errors}")
    # A link that comes back in time: TCP sends again, and the program goes on.
    run = Run(options.launcher, "--link-down", "2@1.5", "--link-up", "2@2.1", "--time-limit", 7, "--", options.program,
              "--wait").finish()
    expect(run.status == 124 and "link-up of host 2 after 2.1 s" in run.errors and "not complete" not in run.errors,
           f"link: status {run.status}: {run.errors}")
    run = Run(options.launcher, "--congestion-control", "reno", "--", "cat",
              "/proc/sys/net/ipv4/tcp_congestion_control").finish()
    expect(run.output == "reno\n" * 2, f"congestion control: {run.output}{run.errors}")
    refused = subprocess.run([options.launcher, "--congestion-control", "nosuch", "--", "true"], capture_output=True,
                             text=True)
    expect(refused.returncode == 77 and "no congestion control 'nosuch'" in refused.stderr,
           f"congestion control: {refused.stderr}")
    run = Run(options.launcher, "--", "nproc").finish()
    processors = len(os.sched_getaffinity(0))
    expect(run.output == f"{max(processors // 2, 1)}\n" * 2, f"processors of two hosts: {run.output}{run.errors}")
    run = Run(options.launcher, "--", "grep", "Cpus_allowed_list", "/proc/self/status").finish()
    expect(processors < 2 or len(set(run.output.splitlines())) == 2, f"hosts share processors: {run.output}{run.errors}")
    run = Run(options.launcher, "--", "/bin/false").finish()
    expect(run.status == 1, f"a program that fails: status {run.status}")


# $1 is the folder of the test. Each host has a disk of its own at the same path, and on it a memory folder of its own name.
OWN_DISK = '''
set -e
host=$(hostname)
base=$1
shift
mount --bind "$base/disk_of_$host" "$base/disk"
exec "$@" --memory "$base/disk/memory_of_$host"
'''


def check_memory(options):
    """A job goes on from memory folders that are not the same path on two hosts, and that no other host sees."""
    with tempfile.TemporaryDirectory(prefix="gradus-memory-") as name:
        base = pathlib.Path(name)
        for folder in ("disk_of_host1", "disk_of_host2", "disk"):
            (base / folder).mkdir()
        try:
            subprocess.run(["unshare", "--mount", "mount", "--bind", base / "disk_of_host1", base / "disk"], check=True,
                           capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as reason:
            print(f"check_cluster: cannot run here: mount --bind: {getattr(reason, 'stderr', '') or reason}")
            sys.exit(CANNOT_RUN)

        def train(job, *arguments):
            (base / job).mkdir(exist_ok=True)
            # The job saves on the common disk in its last step only, every 4 steps in memory.
            return Run(options.launcher, "--time-limit", 60, "--", "unshare", "--mount", "sh", "-c", OWN_DISK, "sh", base,
                       options.program, "--folder", base / job, "--weights", base / job / "weights.safetensors",
                       "--every", 48, "--memory-every", 4, "--pause", 20, *arguments).finish(90)

        def memory_of(host):
            return sorted(path.name for path in (base / f"disk_of_host{host}" / f"memory_of_host{host}").iterdir()
                          if path.suffix == ".safetensors")

        whole = train("whole")
        expect(whole.status == 0, f"a job without a fault: status {whole.status}: {whole.errors}")
        for host in (1, 2):
            shutil.rmtree(base / f"disk_of_host{host}" / f"memory_of_host{host}", ignore_errors=True)
        killed = train("killed", "--fault", "kill", "--fault-rank", 1, "--fault-step", 22)
        expect(killed.status != 0, f"a rank is killed: status {killed.status}")
        for host in (1, 2):
            expect("step-000000016.safetensors" in memory_of(host), f"memory of host {host}: {memory_of(host)}")
        expect(not list((base / "killed").glob("saves/step-*.safetensors")), "a save on the common disk")
        for each in (base / "killed").glob("said_*"):
            each.unlink()
        resumed = train("killed", "--resume")
        said = [each.read_text() for each in sorted((base / "killed").glob("said_*"))]
        expect(resumed.status == 0, f"resumed: status {resumed.status}: {said} {resumed.errors}")
        expect(re.search(rf"resume: .*{re.escape(str(base))}/disk/memory_of_host1/step-0000000(16|20)", resumed.errors),
               f"where it goes on: {resumed.errors}")
        ends = [base / job / "weights.safetensors" for job in ("whole", "killed")]
        expect(all(end.exists() for end in ends) and ends[0].read_bytes() == ends[1].read_bytes(),
               "other weights than without a fault")


def check_network(options):
    """gradus_bench network measures what the links were given, and predict reads it."""
    with tempfile.TemporaryDirectory(prefix="gradus-network-") as name:
        file = pathlib.Path(name) / "network.txt"

        def measure(megabits, *arguments):
            run = Run(options.launcher, "--rate", f"{megabits}mbit", *arguments, "--time-limit", 50, "--",
                      options.program, "network", "--output", file).finish()
            expect(run.status == 0, f"network: status {run.status}: {run.errors}")
            return run.output

        # Of each 1514 bytes on the wire 1448 are a message's. The buckets of the queues let the first megabytes pass;
        # a busy processor may carry half.
        for megabits in (100, 400):
            said = measure(megabits, "--hosts", 2)
            rate = re.match(r"([\d.]+)Gbit/s [\d.]+us message [\d.]+us adding [\d.]+GB/s (carried [\d.]+GB/s )?"
                            r"(stolen [\d.]+ )?uncertain \d+%\n$", file.read_text())
            expect(rate and 0.5 < float(rate[1]) * 1000 / megabits < 1.1, f"{megabits} Mbit/s: {said}")
            expect("2 ranks on 2 hosts" in said and f'--network "{file.read_text().strip()}"' in said, said)
        said = measure(400, "--hosts", 3)
        expect(re.search(r"2 hosts to rank 0 at once: [\d.]+ Gbit/s", said), f"three hosts: {said}")
        said = measure(400, "--hosts", 2, "--ranks-per-host", 2)
        expect("rank 1 (same host)" in said and " inside " in file.read_text(), f"two ranks a host: {said}")
        said = subprocess.run([options.program, "predict", "--model", "lenet", "--ranks", "4", "--network", file,
                               "--strategy", "ring"], capture_output=True, text=True)
        expect(said.returncode == 0 and "images/s" in said.stdout, f"predict: {said.stdout}{said.stderr}")
        file.unlink()
        for command, words in (([options.program, "network"], "expected ranks of mpiexec"),
                               ([options.program, "network", "--output", f"{name}/no/file"], "expected ranks of mpiexec")):
            said = subprocess.run(command, capture_output=True, text=True)
            expect(said.returncode == 1 and words in said.stderr, f"{command}: {said.returncode} {said.stderr}")


def check_options(options):
    """What is refused before anything is started, by any user."""
    for arguments, words in ((["--hosts", 5, "--", "true"], "2 to 4 hosts"), ([], "no program"),
                             (["--kill", "1@3", "--", "true"], "not one of its hosts"),
                             (["--link-down", "3@1", "--", "true"], "not one of its hosts"),
                             (["--kill", "2", "--", "true"], "is not HOST@SECONDS"),
                             (["--ranks-per-host", 0, "--", "true"], "at least 1 rank")):
        run = Run(options.launcher, *arguments).finish()
        expect(run.status == 2 and words in run.errors, f"{arguments}: {run.status} {run.errors}")
    nobody = ["setpriv", "--reuid", "65534", "--clear-groups"] if os.geteuid() == 0 else []
    try:
        if subprocess.run([*nobody, sys.executable, "-c", ""], capture_output=True).returncode != 0:
            return  # the user nobody may not run this Python
    except FileNotFoundError:
        return
    refused = subprocess.run([*nobody, sys.executable, str(options.launcher), "--", "true"], capture_output=True,
                             text=True)
    expect(refused.returncode == CANNOT_RUN and "as root or with sudo" in refused.stderr,
           f"as nobody: {refused.returncode} {refused.stderr}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launcher", type=pathlib.Path, required=True)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--case", choices=["2", "3", "failures", "options", "memory", "network"], required=True)
    options = parser.parse_args()
    options.program = options.program.resolve()
    if options.case == "memory":
        check_memory(options)
    elif options.case == "network":
        check_network(options)
    elif options.case == "failures":
        check_failures(options)
    elif options.case == "options":
        check_options(options)
    else:
        check_exchange(options, int(options.case))
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
