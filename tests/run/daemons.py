# SPDX-License-Identifier: BSL-1.0
"""Daemons of a test: Slurm's and ssh's, on the loopback interface, with folders, ports and keys of their own."""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

SKIPPED = 77
LIMIT = 60  # seconds


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def require_tools(*tools):
    """Skips the test where a program is missing that scripts/install_packages --optional installs."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for tool, package in tools:
        if shutil.which(tool) is None:
            skip(f"there is no {tool} (Debian: {package})")
    if os.geteuid() != 0:
        skip("the daemons take root")


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def wait_until(condition, what, limit=LIMIT, pause=0.05):
    """What `condition` returns, when it is true."""
    begin = time.monotonic()
    while not (found := condition()):
        if time.monotonic() - begin > limit:
            sys.exit(f"after {limit} s: {what}")
        time.sleep(pause)
    return found


class Daemons(contextlib.AbstractContextManager):
    """Started ones are killed in the end."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.processes = []

    def start(self, *words, **variables):
        with open(self.folder / f"{pathlib.Path(words[0]).name}.log", "wb") as log:
            process = subprocess.Popen(words, env=os.environ | variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       start_new_session=True)
        self.processes.append(process)
        return process

    def log(self):
        return "\n".join(f"{each.name}:\n{each.read_text(errors='replace')[-3000:]}"
                         for each in self.folder.glob("*.log"))

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


SLURM_CONF = """ClusterName=t
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.pid
MpiDefault=none
JobRequeue=1
KillWait=5
SchedulerParameters=batch_sched_delay=1,sched_interval=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={processors} State=UNKNOWN
PartitionName=p Nodes=ALL Default=YES State=UP
"""


class Slurm(Daemons):
    """A cluster of this machine. Without munge, cgroups and a database: who can reach its port can use it."""

    def __init__(self, folder):
        super().__init__(folder)
        host = socket.gethostname().split(".")[0]
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        configuration = self.folder / "slurm.conf"
        configuration.write_text(SLURM_CONF.format(host=host, ports=free_ports(2), folder=self.folder,
                                                   processors=max(2, os.cpu_count())))
        os.environ["SLURM_CONF"] = str(configuration)
        self.start("slurmctld", "-D", "-c")
        self.start("slurmd", "-D", "-N", host)
        try:
            wait_until(lambda: "idle" in self.ask("sinfo", "-h", "-o", "%t"), "Slurm does not start", pause=0.2)
        except SystemExit:
            print(self.log())
            self.__exit__()
            raise

    @staticmethod
    def ask(*words):
        return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              check=False, timeout=LIMIT).stdout

    def job(self, number):
        """What Slurm knows of a job: name to text."""
        words = self.ask("scontrol", "--oneliner", "show", "job", str(number)).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def __exit__(self, *_):
        self.ask("scancel", "--user=root")
        with contextlib.suppress(SystemExit):
            wait_until(lambda: not self.ask("squeue", "-h").strip(), "jobs are left", limit=10)
        super().__exit__()


SSHD_CONFIG = """Port {port}
ListenAddress 127.0.0.1
ListenAddress 127.0.0.2
ListenAddress 127.0.0.3
HostKey {folder}/host_key
PidFile {folder}/sshd.pid
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
SetEnv "HYDRA_LAUNCHER_EXTRA_ARGS=-F {folder}/config"
"""
SSH_CONFIG = """Host *
  Port {port}
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking accept-new
  BatchMode yes
  LogLevel ERROR
"""


class Ssh(Daemons):
    """A server for 127.0.0.1, 127.0.0.2 and 127.0.0.3: hosts of different addresses."""

    def __init__(self, folder):
        super().__init__(folder)
        port, = free_ports(1)
        for key in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / key], check=True)
        self.config = self.folder / "config"
        self.config.write_text(SSH_CONFIG.format(port=port, folder=self.folder))
        server = self.folder / "sshd_config"
        server.write_text(SSHD_CONFIG.format(port=port, folder=self.folder))
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)  # sshd insists on it
        self.start(shutil.which("sshd"), "-D", "-e", "-f", str(server))
        words = ["ssh", "-F", str(self.config), "127.0.0.1", "true"]
        try:
            wait_until(lambda: subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False,
                                              timeout=LIMIT).returncode == 0, "sshd does not answer")
        except SystemExit:
            print(self.log())
            self.__exit__()
            raise
