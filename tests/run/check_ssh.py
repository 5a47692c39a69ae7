#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Starts jobs on hosts by a real sshd: check_ssh.py GRADUS_RUN PROGRAM

PROGRAM is tests/run/launched.cpp. The hosts are addresses of the loopback interface. mpiexec runs here, or on the first
host after a login; it reaches the hosts by ssh either way. Exits with 77 where OpenSSH or root is missing.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import time

from daemons import LIMIT, Ssh, require_tools, skip, wait_until

HOSTS = "127.0.0.2,127.0.0.3"
# A job that saves when it gets a signal. In words that have to be quoted on the way.
SAVING = """
import pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
def save(*_):
    (folder / f"saved by {time.monotonic_ns()}").touch()
    sys.exit(75)
signal.signal(signal.SIGUSR1, save)
signal.signal(signal.SIGTERM, save)
(folder / f"ready {time.monotonic_ns()}").touch()
time.sleep(60)
"""


def main():
    run, program = sys.argv[1:]
    require_tools(("sshd", "openssh-server"), ("ssh", "openssh-client"), ("ssh-keygen", "openssh-client"))
    if "HYDRA" not in subprocess.run(["mpiexec", "--version"], capture_output=True, text=True, check=False).stdout:
        skip("mpiexec is not that of MPICH")
    with tempfile.TemporaryDirectory() as folder, Ssh(folder) as ssh:
        work = pathlib.Path(folder) / "it's a job"
        work.mkdir()
        options = ["--hosts", HOSTS, "--ssh-config", str(ssh.config), "--grace", "5"]
        login = [*options, "--login", "root@127.0.0.1"]

        def finish(process, status):
            output, said = process.communicate(timeout=LIMIT)
            if process.returncode != status:
                sys.exit(f"status {process.returncode}, expected {status}: {output}{said}{ssh.log()}")
            return output, said

        def start(options, *words):
            return subprocess.Popen([run, *options, "--", *words], cwd=work, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        for name, how in (("mpiexec here", options), ("after a login", login)):
            output, said = finish(start([*how, "--bind", "core"], program), 0)
            if output.count("2 known") != 2 or len(re.findall(r"rank [01] on \S+: bound to 1 of", said)) != 2:
                sys.exit(f"{name}: {output}{said}")
            connections = (pathlib.Path(folder) / "sshd.log").read_text().count("Accepted publickey")
            print(f"{name}: two ranks; {connections} connections so far")
        if connections < 1 + 2 + 3:  # of the beginning, to two hosts, to the login and two hosts
            sys.exit(f"expected ssh to both hosts: {ssh.log()}")

        words = [sys.executable, "-c", SAVING, str(work)]
        for name, end in (("a signal", lambda process: process.send_signal(10)), ("a lost connection", None)):
            process = start(login, *words)
            wait_until(lambda: len(list(work.glob("ready*"))) == 2, f"no job: {ssh.log()}")
            if end:
                end(process)
                finish(process, 75)
            else:
                process.kill()
                process.communicate(timeout=LIMIT)
            wait_until(lambda: len(list(work.glob("saved*"))) == 2, f"{name}: the ranks have not saved")
            for each in work.iterdir():
                each.unlink()
            print(f"{name}: both ranks have saved")

        begin = time.monotonic()
        _, said = finish(start(["--hosts", "127.0.0.4", "--ssh-config", str(ssh.config), "--login", "127.0.0.4"], program), 1)
        if "ssh does not reach it" not in said or time.monotonic() - begin > 20:
            sys.exit(f"a host that does not answer: {said}")


if __name__ == "__main__":
    main()
