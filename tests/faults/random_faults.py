#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Does random harm to short trainings, and lets them go on: random_faults.py --program PROGRAM --work FOLDER --faults N
[--seed S] [--strategy NAME...] [--fault NAME...] [--jobs N] [--launch WORDS... RANKS ...]

A case is a training (strategy, ranks in threads or processes, how the processes are started) and one or two faults.
After each fault
  * the job ends within a limit,
  * each rank that is left says which rank is missing and in which operation, where it can: not where mpiexec kills it,
  * a save that failed is reported, and the job ends well,
and a restart with --resume reaches the weights of the undisturbed job, to the bit. Asynchronous servers have no such
weights: there the restart ends well.

One line for each case, with its number. `--case NUMBER` with the same seed repeats it.
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

STEPS = 48
ANY_RANKS = ("native", "ring", "halving_doubling", "sharded_update", "servers", "colocated_servers",
             "asynchronous_servers")
STRATEGIES = {**{name: (2, 3, 4) for name in ANY_RANKS}, "hierarchical_ring": (4,), "reproducible": (2, 4),
              "sharded_in_shared_memory": (2, 3, 4)}
ONLY_MPI = ("sharded_in_shared_memory",)
FAULTS = ("kill_one", "kill_all", "stop", "stall", "throw", "full", "small_files", "truncate")
# How processes are started. mpiexec kills all when it sees one die; `keeper`: it sees none (--keeper of the job);
# `no_cleanup`: MPICH's mpiexec is asked to let the others live (-disable-auto-cleanup), and kills them all the same when
# the dead process closes its connection, or not.
LAUNCHERS = ("keeper", "mpiexec", "no_cleanup")
# UCX aborts a process that copies from the memory of a dead one (cma_ep.c), and such a survivor cannot say anything: it
# copies so above this size of a message. (Without cma, MPI_Finalize of MPICH 4.0 hangs now and then.)
KEEPER_ENVIRONMENT = {"UCX_RNDV_THRESH": "inf"}
OPERATION = re.compile(r"comm::mpi|all_reduce|reduce_scatter|all_gather|broadcast|barrier|send|receive|duplicate|push of|"
                       r"parameter_server|values of|sharded_update|shared|the end of its program")
END_LIMIT = 90  # seconds after a fault that are a hang, on a machine that does much else


class Failed(Exception):
    pass


def checkpoints(folder):
    return sorted((folder / "saves").glob("step-*.safetensors"))


def descendants(root):
    """The processes that a process has started, and theirs."""
    children = collections.defaultdict(list)
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            children[parent].append(int(entry.name))
    found = [root]
    for each in found:
        found.extend(children[each])
    return found


def processes_of(folder):
    """The processes that have the folder among their words."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except (OSError, IndexError):
                continue
            if str(folder).encode() in words and state != "Z":
                found.append(int(entry.name))
    return found


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Training:
    """What is trained, and how its ranks are started."""

    def __init__(self, options, strategy, launcher, ranks):
        self.options = options
        self.strategy = strategy
        self.launcher = launcher
        self.ranks = ranks

    def name(self):
        return f"{self.strategy}, {self.ranks} ranks, {self.launcher}"

    def words(self, folder, limit, more):
        words = []
        if self.launcher != "threads":
            words = [str(self.ranks) if word == "RANKS" else word for word in self.options.launch]
            if self.launcher == "no_cleanup":
                words.insert(words.index(str(self.ranks)) + 1, "-disable-auto-cleanup")
        words += [self.options.program, "--strategy", self.strategy, "--folder", str(folder), "--weights",
                  str(folder / "weights"), "--ranks", str(self.ranks), "--time-limit", str(limit)]
        if self.launcher == "keeper":
            words.append("--keeper")
        return words + more


class Job:
    """One job of a training."""

    def __init__(self, training, folder, limit, more):
        self.training = training
        self.folder = folder
        for name in ("training", "weights", *[f"{what}_{rank}" for what in ("rank", "said", "ended") for rank in range(4)]):
            (folder / name).unlink(missing_ok=True)
        self.output = folder / "output"
        self.saves_changed = (folder / "saves").stat().st_mtime_ns if (folder / "saves").exists() else 0
        environment = {**os.environ, **(KEEPER_ENVIRONMENT if training.launcher == "keeper" else {})}
        with open(self.output, "w") as output:
            self.process = subprocess.Popen(training.words(folder, limit, more), stdout=output, env=environment,
                                            stderr=subprocess.STDOUT, start_new_session=True)

    def said(self):
        """What ranks have said at their end: rank to text."""
        return {rank: file.read_text() for rank in range(4) if (file := self.folder / f"said_{rank}").exists()}

    def text(self):
        return self.output.read_text(errors="replace") + "".join(f"rank {rank}: {text}"
                                                                 for rank, text in self.said().items())

    def wait_until_it_trains(self):
        """Until the writer of checkpoints has tried its folder; false if the job has ended before."""
        saves = self.folder / "saves"
        return self.wait_until(lambda: (self.folder / "training").exists()
                               and saves.stat().st_mtime_ns != self.saves_changed)

    def wait_until_all_ranks_begin(self):
        """Until every rank has its environment and makes its first communicators; false if the job has ended before."""
        ranks = 1 if self.training.launcher == "threads" else self.training.ranks
        return self.wait_until(lambda: all((self.folder / f"rank_{rank}").exists() for rank in range(ranks)))

    def wait_until(self, condition):
        begin = time.monotonic()
        while not condition():
            if self.process.poll() is not None:
                return False
            if time.monotonic() - begin > END_LIMIT:
                raise Failed(f"does not begin: {self.kill()}")
            time.sleep(0.003)
        return True

    def pid_of(self, rank):
        if self.training.launcher == "threads":
            rank = 0
        return int((self.folder / f"rank_{rank}").read_text())

    def kill_all(self):
        for pid in descendants(self.process.pid):
            send(pid, signal.SIGKILL)

    def kill(self):
        self.kill_all()
        for pid in processes_of(self.folder):
            send(pid, signal.SIGKILL)
        self.process.wait()
        return self.text()

    def end(self):
        """The exit status. No process is left."""
        try:
            status = self.process.wait(timeout=END_LIMIT)
        except subprocess.TimeoutExpired:
            raise Failed(f"HANGS: {self.kill()}") from None
        begin = time.monotonic()
        while left := processes_of(self.folder):
            if time.monotonic() - begin > 10:
                states = [pathlib.Path(f"/proc/{pid}/status").read_text().split("\n")[2] for pid in left]
                self.kill()
                raise Failed(f"processes are left: {states}: {self.text()}")
            time.sleep(0.02)
        return status


class Case:
    """A training and its faults, drawn by a number."""

    def __init__(self, options, number):
        self.options = options
        self.number = number
        self.draw = random.Random(f"{options.seed} {number}")
        draw = self.draw
        strategy = draw.choice(options.strategy)
        with_mpi = bool(options.launch) and (strategy in ONLY_MPI or draw.random() < 0.7)
        if with_mpi:
            launchers = [each for each in LAUNCHERS if each != "no_cleanup" or options.no_cleanup]
            launcher = draw.choices(launchers, [4, 1, 2][:len(launchers)])[0]
        else:
            launcher = "threads"
        self.training = Training(options, strategy, launcher, draw.choice(STRATEGIES[strategy]))
        self.faults = [draw.choice(options.fault) for _ in range(2 if draw.random() < 0.3 else 1)]
        self.folder = options.work / f"case_{number}"
        self.mounted = False
        self.damaged = []  # names of files
        self.told = []  # what happened
        self.longest = 0.0  # seconds from a fault to the end of its job
        self.hits = collections.Counter()
        self.misnamed = False  # asynchronous workers have named no rank

    def title(self):
        return f"case {self.number}: {self.training.name()}: {', '.join(self.faults)}"

    def run(self, undisturbed):
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "saves").mkdir(parents=True)
        try:
            for i, fault in enumerate(self.faults):
                self.do_harm(fault, ["--resume"] if i > 0 else [], undisturbed)
            self.go_on(undisturbed)
        finally:
            if self.mounted:
                subprocess.run(["umount", "--lazy", str(self.folder / "saves")], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def same_weights(self, undisturbed):
        if self.training.strategy != "asynchronous_servers":
            if (self.folder / "weights").read_bytes() != undisturbed:
                raise Failed("OTHER WEIGHTS than those of the undisturbed job")

    def go_on(self, undisturbed):
        files = [each.name for each in checkpoints(self.folder)]
        job = Job(self.training, self.folder, 60, ["--resume"])
        status = job.end()
        text = job.text()
        if status != 0:
            raise Failed(f"the restart ends with {status}: {text}")
        if self.failed_saves(text):
            raise Failed(f"a save of the restart fails: {text}")
        if set(files) - set(self.damaged) and "the newest valid checkpoint is" not in text:
            raise Failed(f"the restart takes no checkpoint of {files}: {text}")
        self.same_weights(undisturbed)

    def failed_saves(self, text):
        """The lines about saves that failed, except where a damaged file stays at their name."""
        return [line for line in re.findall(r"^.* is not saved: .*$", text, re.M)
                if "is there and is of an unknown job" not in line or not any(name in line for name in self.damaged)]

    # -- faults

    def victim(self, trains=False):
        """A rank; one that makes steps, if it has to do itself harm at one."""
        served = trains and self.training.strategy in ("servers", "asynchronous_servers")  # the last rank only serves
        return self.draw.randrange(self.training.ranks - (1 if served else 0))

    def do_harm(self, fault, more, undisturbed):
        if fault == "truncate":
            return self.truncate(more, undisturbed)
        if fault == "full":
            return self.fill(more, undisturbed)
        if fault == "small_files":
            return self.inner(fault, more, undisturbed)
        if fault in ("stall", "throw"):
            return self.inner(fault, more, undisturbed)
        if fault == "kill_all":
            return self.kill_all(more, undisturbed)
        if self.draw.random() < 0.5:
            return self.inner("kill" if fault == "kill_one" else "stop", more, undisturbed)
        return self.outer(fault, more, undisturbed)

    def came(self, what, begin):
        self.hits[what] += 1
        self.longest = max(self.longest, time.monotonic() - begin)
        self.told.append(what)

    def too_late(self, undisturbed):
        """The job had ended before the fault came."""
        self.told.append("too late")
        self.same_weights(undisturbed)

    def inner(self, fault, more, undisturbed):
        victim = self.victim(trains=True)
        step = self.draw.randrange(1, STEPS)
        if fault == "small_files":
            victim = self.draw.choice([0, victim])
        delay = self.draw.choice([0, self.draw.randrange(0, 6000)])
        job = Job(self.training, self.folder, self.options.time_limit,
                  [*more, "--fault", fault, "--fault-rank", str(victim), "--fault-step", str(step), "--fault-delay",
                   str(delay)])
        begin = time.monotonic()
        if job.wait_until_it_trains():
            begin = time.monotonic()
        if fault == "stop":
            self.let_go_on(job, victim)
        status = job.end()
        if fault == "small_files":
            if status == 0 and not self.failed_saves(job.text()):
                return self.too_late(undisturbed)
        elif status == 0:
            stopped_all = fault == "stop" and self.training.launcher == "threads"
            if not stopped_all:
                return self.too_late(undisturbed)
        self.came(f"{fault} of rank {victim} at step {step}", begin)
        self.judge(fault, victim, status, job, undisturbed)

    def outer(self, fault, more, undisturbed):
        victim = self.victim()
        job = Job(self.training, self.folder, self.options.time_limit, more)
        early = self.draw.random() < 0.5  # while ranks make communicators
        if not (job.wait_until_all_ranks_begin() if early else job.wait_until_it_trains()):
            raise Failed(f"ends before the fault: {job.end()}, {job.text()}")
        time.sleep(self.draw.uniform(0, 0.1 if early else 0.3))
        begin = time.monotonic()
        pid = job.pid_of(victim)
        send(pid, signal.SIGKILL if fault == "kill_one" else signal.SIGSTOP)
        if fault == "stop":
            self.let_go_on(job, victim)
        status = job.end()
        if status == 0 and not (fault == "stop" and self.training.launcher == "threads"):
            return self.too_late(undisturbed)
        kind = "kill" if fault == "kill_one" else "stop"
        self.came(f"{'early ' if early else ''}{kind} of rank {victim} from outside", begin)
        self.judge(kind, victim, status, job, undisturbed)

    def let_go_on(self, job, victim):
        """SIGCONT after more than the time limit, before or after the others have ended."""
        limit = self.options.time_limit
        end = time.monotonic() + limit + self.draw.choice([self.draw.uniform(0.3, 2), self.draw.uniform(3, 6)])
        while time.monotonic() < end and job.process.poll() is None:
            time.sleep(0.02)
        if job.process.poll() is None and (self.folder / "rank_0").exists():
            send(job.pid_of(victim), signal.SIGCONT)

    def kill_all(self, more, undisturbed):
        job = Job(self.training, self.folder, self.options.time_limit, more)
        if not job.wait_until_it_trains():
            raise Failed(f"ends before the fault: {job.end()}, {job.text()}")
        time.sleep(self.draw.uniform(0, 0.35))
        begin = time.monotonic()
        job.kill_all()
        if job.end() == 0:
            return self.too_late(undisturbed)
        self.came("kill of all", begin)

    def truncate(self, more, undisturbed):
        """A job that is killed, or not, and then a newest checkpoint that has lost its end."""
        job = Job(self.training, self.folder, self.options.time_limit, more)
        begin = time.monotonic()
        if self.draw.random() < 0.6 and job.wait_until_it_trains():
            time.sleep(self.draw.uniform(0.1, 0.35))
            job.kill_all()
            job.end()
        elif job.end() != 0:
            raise Failed(f"ends without a fault: {job.text()}")
        if not (files := checkpoints(self.folder)):
            self.told.append("nothing to truncate")
            return
        size = files[-1].stat().st_size
        kept = self.draw.choice([0, self.draw.randrange(1, 200), self.draw.randrange(size), size - 1])
        if self.draw.random() < 0.2:  # of the right size, with an end of zeros
            os.truncate(files[-1], kept)
            os.truncate(files[-1], size)
            if kept == size - 1:  # the last byte may have been 0
                return
        else:
            os.truncate(files[-1], kept)
        self.damaged.append(files[-1].name)
        self.came(f"{files[-1].name} has {kept} of {size} bytes", time.monotonic())

    def fill(self, more, undisturbed):
        """A file system of its own that gets full while the job trains."""
        saves = self.folder / "saves"
        if not self.options.may_mount:
            return self.inner("small_files", more, undisturbed)
        if not self.mounted:
            kept = {each.name: each.read_bytes() for each in checkpoints(self.folder)}
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(saves)], check=True)
            self.mounted = True
            for name, content in kept.items():
                (saves / name).write_bytes(content)
        job = Job(self.training, self.folder, self.options.time_limit, more)
        if not job.wait_until_it_trains():
            raise Failed(f"ends before the fault: {job.end()}, {job.text()}")
        time.sleep(self.draw.uniform(0.02, 0.3))
        begin = time.monotonic()
        fillers = []
        while job.process.poll() is None:  # again and again: the job deletes what it keeps no longer
            try:
                with open(saves / f"filler_{len(fillers)}", "wb", buffering=0) as filler:
                    fillers.append(filler.name)
                    while filler.write(bytes(4096)):
                        pass
            except OSError:
                time.sleep(0.005)
        status = job.end()
        text = job.text()
        for name in fillers:
            os.unlink(name)
        if status == 0 and not self.failed_saves(text):
            return self.too_late(undisturbed)
        self.came("full file system", begin)
        self.judge("full", None, status, job, undisturbed)

    # -- what is promised

    def judge(self, fault, victim, status, job, undisturbed):
        text = job.text()
        own = job.said()
        left = [rank for rank in range(self.training.ranks) if rank != victim]
        threads = self.training.launcher == "threads"
        if fault in ("full", "small_files"):
            refused = "a folder that can be written" in text  # full before the first save
            if status != 0 and not refused:
                raise Failed(f"ends with {status} although only saves fail: {text}")
            if status == 0:
                self.same_weights(undisturbed)
                if ("No space left on device" if fault == "full" else "File too large") not in text:
                    raise Failed(f"does not say why a save failed: {text}")
            return
        if status == 0:
            if fault == "stop" and threads:  # no rank has missed another
                self.same_weights(undisturbed)
                return
            raise Failed(f"ends well in spite of the fault: {text}")
        if fault == "stop" and threads:
            return  # all ranks have been stopped: their waits end by the clock, or go on
        if fault == "kill" and threads:
            return  # no rank is left
        if fault == "kill" and self.training.launcher != "keeper":
            return  # mpiexec kills the others
        if "cma_ep.c" in text:  # UCX has aborted a rank
            self.told.append("UCX aborts a rank")
            return
        if self.training.strategy == "asynchronous_servers":
            # Workers go on without one that is lost. Where they wait for it, at a checkpoint, the server may count them
            # as lost too, and leave: what they say names an operation, and not always the first rank.
            if not own:  # a server that has counted its workers as lost ends as if they had left
                self.misnamed = True
            if not all(OPERATION.search(own[rank]) and "rank" in own[rank] for rank in left if rank in own):
                raise Failed(f"a rank names no operation and no rank: {text}")
            return
        # Ranks at the end of their program throw nothing: one of them writes what it misses.
        named_by = 1 if re.search(r"gradus: rank \d is at (the end of its program|MPI_Finalize): ", text) else 0
        for rank in left:
            if rank not in own:
                if (self.folder / f"ended_{rank}").exists():
                    continue
                raise Failed(f"rank {rank} says nothing: {text}")
            if fault == "throw":
                named = re.search(rf"rank {victim} failed: the disk of this rank is on fire", own[rank])
            else:
                named = re.search(rf"(no answer from )?\branks? [\d, and]*\b{victim}\b", own[rank])
            named_by += 1 if named else 0
            # Threads cannot be asked: a rank may name one that itself waits for the one that stands still.
            if not named and not (threads and fault == "stall"):
                raise Failed(f"rank {rank} does not name rank {victim}: {text}")
            if not OPERATION.search(own[rank]):
                raise Failed(f"rank {rank} does not name the operation: {text}")
        if left and named_by == 0:
            raise Failed(f"no rank names rank {victim}: {text}")


def may_mount():
    """True in a mount namespace of our own."""
    return os.environ.get("GRADUS_FAULTS_MOUNT") == "1"


def enter_namespace():
    """Begins this program again where it may mount file systems that no other process sees, if the system allows it."""
    if "GRADUS_FAULTS_MOUNT" in os.environ:
        return
    os.environ["GRADUS_FAULTS_MOUNT"] = "0"
    try:
        allowed = subprocess.run(["unshare", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /tmp"], check=False,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        allowed = False
    if allowed:
        os.environ["GRADUS_FAULTS_MOUNT"] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, "-B", *sys.argv])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--faults", type=int, default=8, help="cases; some have two faults")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--case", type=int, help="only this one; its folder stays if it fails")
    parser.add_argument("--strategy", nargs="*", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--fault", nargs="*", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument("--time-limit", type=float, default=2.5, help="of the ranks that miss one, in seconds")
    parser.add_argument("--launch", nargs=argparse.REMAINDER, default=[],
                        help="the words that start a program on RANKS ranks; without them: ranks in threads")
    options = parser.parse_args()
    enter_namespace()
    options.may_mount = may_mount()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    options.no_cleanup = False
    if options.launch:
        version = subprocess.run([*options.launch[:options.launch.index("RANKS") - 1], "--version"], check=False,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        options.no_cleanup = "HYDRA" in version
    else:
        options.strategy = [each for each in options.strategy if each not in ONLY_MPI]

    numbers = [options.case] if options.case is not None else range(options.first, options.first + options.faults)
    results = {}
    lock = threading.Lock()

    def undisturbed_weights(training):
        key = (training.strategy, training.launcher == "threads", training.ranks)
        with lock:
            entry = results.setdefault(key, [threading.Lock(), None])
        with entry[0]:
            if entry[1] is None:
                folder = options.work / "_".join(["undisturbed", *[str(each) for each in key]])
                shutil.rmtree(folder, ignore_errors=True)
                (folder / "saves").mkdir(parents=True)
                job = Job(training, folder, 60, [])
                status = job.end()
                if status != 0:
                    raise Failed(f"the undisturbed job ends with {status}: {job.text()}")
                entry[1] = (folder / "weights").read_bytes()
                shutil.rmtree(folder)
        return entry[1]

    def run(number):
        case = Case(options, number)
        begin = time.monotonic()
        try:
            case.run(undisturbed_weights(case.training))
            complaint = None
        except Exception as failure:  # pylint: disable=broad-except
            complaint = str(failure) if isinstance(failure, Failed) else f"{type(failure).__name__}: {failure}"
        with lock:
            print(f"{'FAILED ' if complaint else ''}{case.title()}: {'; '.join(case.told)} "
                  f"({time.monotonic() - begin:.1f} s, {case.longest:.1f} s to the end)", flush=True)
            if complaint:
                print(f"  {complaint}\n  repeat with --seed {options.seed} --case {number}", flush=True)
        return case, complaint

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        done = list(pool.map(run, numbers))

    by_strategy = collections.Counter()
    by_fault = collections.Counter()
    for case, _ in done:
        hits = sum(case.hits.values())
        by_strategy[case.training.strategy] += hits
        for what, count in case.hits.items():
            by_fault[re.split(r" at | has | from ", re.sub(r"(of rank) \d", r"\1", what))[0]
                     if not what.startswith("step-") else "truncated"] += count
    print("faults by strategy: " + ", ".join(f"{name} {count}" for name, count in sorted(by_strategy.items())))
    print("faults by kind: " + ", ".join(f"{name} {count}" for name, count in sorted(by_fault.items())))
    print(f"asynchronous servers whose workers named no rank: {sum(case.misnamed for case, _ in done)} cases")
    failed = [case.number for case, complaint in done if complaint]
    print(f"{len(done)} cases, {sum(by_fault.values())} faults that came in time, "
          f"{max((case.longest for case, _ in done), default=0):.1f} s from a fault to the end of its job at most, "
          f"{len(failed)} failed{': ' + ', '.join(map(str, failed)) if failed else ''}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
