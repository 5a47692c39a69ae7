#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Writes a made-up trace in the format that gradus records: make_trace.py FILE [options]

The training of ResNet-50: its 54 layers with parameters forward and backward, gradients in buckets behind backward, one rank
whose input is slow, evaluations, copies. With --servers parameters travel between workers and servers as messages with
arrows. With --stages the network is cut into stages of which each rank of a replica runs one. The same options make the same
file.
"""

import argparse
import json
import random


def layer_names():
    """The layers with parameters, and their bytes."""
    names = [("conv1", 64 * 3 * 49)]
    for stage, (blocks, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)], 1):
        for block in range(1, blocks + 1):
            inside = width * 4 if block > 1 else max(64, width * 2)
            names += [(f"stage{stage}.block{block}.conv1", inside * width),
                      (f"stage{stage}.block{block}.conv2", width * width * 9),
                      (f"stage{stage}.block{block}.conv3", width * width * 4)]
            if block == 1:
                names.append((f"stage{stage}.block1.shortcut", inside * width * 4))
    names.append(("scores", 2048 * 1000))
    return [(name, 4 * count) for name, count in names]


class Recording:
    def __init__(self):
        self.events = []
        self.flows = 0

    def span(self, rank, track, category, name, begin, end, **args):
        args = {("for" if key == "wait_for" else key): value for key, value in args.items() if value is not None}
        self.events.append({"ph": "X", "pid": rank, "tid": track, "ts": round(begin, 3), "dur": round(end - begin, 3),
                            "cat": category, "name": name, "args": args})

    def arrow(self, sender, sent, receiver, received):
        self.flows += 1
        common = {"cat": "flow", "name": "message", "id": self.flows, "tid": 2}
        self.events.append({**common, "ph": "s", "pid": sender, "ts": round(sent, 3)})
        self.events.append({**common, "ph": "f", "bp": "e", "pid": receiver, "ts": round(received, 3)})


def buckets_of(layers, most):
    """Layers in the order of backward, joined to buckets of at most `most` bytes."""
    result = [[]]
    size = 0
    for index in reversed(range(len(layers))):
        if size and size + layers[index][1] > most:
            result.append([])
            size = 0
        result[-1].append(index)
        size += layers[index][1]
    return result


def phases(options, noise, rank):
    """Milliseconds of input, forward, backward and update of a step."""
    slow = options.slow_input if rank == options.slow_rank else 1.0
    return slow * abs(noise.gauss(1, 0.2)), noise.gauss(38, 1), noise.gauss(74, 2), 4.0


def record(options):
    noise = random.Random(options.seed)
    recording = Recording()
    span = recording.span
    layers = layer_names()
    buckets = buckets_of(layers, options.bucket_bytes)
    ranks = range(options.ranks)
    servers = range(options.servers)
    work = sum(size ** 0.5 for _, size in layers)
    for rank in ranks:
        recording.events.append({"ph": "M", "pid": rank, "tid": 0, "name": "process_name",
                                 "args": {"name": f"rank {rank} (node{rank // 4})"}})
        for track, name in enumerate(["step", "compute", "communicate", "input", "copy"]):
            recording.events.append({"ph": "M", "pid": rank, "tid": track, "name": "thread_name", "args": {"name": name}})
    now = {rank: 1000.0 * rank / options.ranks for rank in ranks}
    network_free = 0.0
    for step in range(options.steps):
        begin = dict(now)
        ready = {}  # bucket -> {rank: when its gradients are there}
        compute_end = {}
        updates = {}
        for rank in ranks:
            if rank in servers and options.servers:
                continue
            wait, forward, backward, update = [1000 * t * (4 if step == 0 else 1) for t in phases(options, noise, rank)]
            t = begin[rank]
            span(rank, 0, "input", "input", t, t + wait, step=step)
            span(rank, 3, "input", "decode batch", t, t + wait + 0.6 * forward, step=step)
            t += wait
            if options.copy_bytes:
                span(rank, 4, "copy", "copy to columns", t, t + options.copy_bytes / 1e4, bytes=options.copy_bytes)
            span(rank, 0, "forward", "forward", t, t + forward + options.copy_bytes / 1e4, step=step)
            t += options.copy_bytes / 1e4
            for name, size in layers:
                took = forward * size ** 0.5 / work
                span(rank, 1, "forward", name, t, t + 0.97 * took, layer=name, step=step)
                t += took
            span(rank, 0, "backward", "backward", t, t + backward, step=step)
            for number, bucket in enumerate(buckets):
                for index in bucket:
                    name, size = layers[index]
                    took = backward * size ** 0.5 / work
                    span(rank, 1, "backward", name, t, t + 0.97 * took, layer=name, step=step)
                    t += took
                ready.setdefault(number, {})[rank] = t
            compute_end[rank] = t
            updates[rank] = update
        if options.servers:
            done = exchange_by_servers(options, recording, buckets, layers, ready, begin, step)
        else:
            done = {rank: 0.0 for rank in ranks}
            for number, bucket in enumerate(buckets):
                size = sum(layers[index][1] for index in bucket)
                arrived = max(ready[number].values())
                last = max(ready[number], key=ready[number].get)
                network_free = max(network_free, arrived) + 60 + size / options.bytes_per_us
                for rank in ranks:
                    span(rank, 2, "communicate", f"all_reduce gradients {number}", ready[number][rank], network_free,
                         operation="all_reduce", bytes=size, bucket=f"gradients {number}", step=step,
                         all_arrived_us=round(arrived, 3), last_rank=last)
                    done[rank] = network_free
        for rank in compute_end:
            t = compute_end[rank]
            if done[rank] > t:
                span(rank, 0, "wait", f"wait gradients {len(buckets) - 1}", t, done[rank],
                     wait_for=f"gradients {len(buckets) - 1}")
                t = done[rank]
            span(rank, 0, "update", "update", t, t + updates[rank], step=step)
            t += updates[rank]
            span(rank, 0, "step", "step", begin[rank], t + 20, step=step)
            now[rank] = t + 25
        if options.evaluate_every and (step + 1) % options.evaluate_every == 0:
            for rank in compute_end:
                span(rank, 0, "evaluate", "evaluate", now[rank], now[rank] + options.evaluate_ms * 1000)
                now[rank] += options.evaluate_ms * 1000
    return recording.events


def exchange_by_servers(options, recording, buckets, layers, ready, begin, step):
    """Workers send each bucket to its server and receive the parameters; returns when each worker has them."""
    span = recording.span
    done = {}
    free = dict(begin)
    workers = sorted(ready[0])
    for number, bucket in enumerate(buckets):
        server = number % options.servers
        size = sum(layers[index][1] for index in bucket)
        took = size / options.bytes_per_us
        for worker in workers:
            sent = ready[number][worker]
            arrived = max(free[server], sent) + took
            span(worker, 2, "communicate", f"send gradients {number}", sent, arrived, operation="send", bytes=size,
                 peer=server, step=step)
            span(server, 2, "communicate", f"receive gradients {number}", max(free[server], sent - 200), arrived,
                 operation="receive", bytes=size, peer=worker, step=step)
            recording.arrow(worker, sent, server, arrived)
            free[server] = arrived
        for worker in workers:
            sent = free[server]
            arrived = sent + took
            span(server, 2, "communicate", f"send parameters {number}", sent, arrived, operation="send", bytes=size,
                 peer=worker, step=step)
            span(worker, 2, "communicate", f"receive parameters {number}", ready[number][worker] + 1, arrived,
                 operation="receive", bytes=size, peer=server, step=step)
            recording.arrow(server, sent, worker, arrived)
            free[server] = arrived
            done[worker] = max(done.get(worker, 0), arrived)
    return done


def stages_of(options, layers):
    """The layers of each stage: about as much work in each."""
    work = sum(size ** 0.5 for _, size in layers)
    result = [[] for _ in range(options.stages)]
    done = 0.0
    for layer in layers:
        done += layer[1] ** 0.5
        result[min(options.stages - 1, int((done - 0.5 * layer[1] ** 0.5) / work * options.stages))].append(layer)
    return result


def order_of(options, stage):
    """The passes of a stage, one forward and one backward by turns: (is forward, micro-batch)."""
    warm_up = min(options.stages - stage - 1, options.micro_batches)
    passes = [(True, number) for number in range(warm_up)]
    for number in range(options.micro_batches):
        if warm_up + number < options.micro_batches:
            passes.append((True, warm_up + number))
        passes.append((False, number))
    return passes


def record_stages(options):
    """Ranks 0 to stages - 1 are the first replica. The gradients of each stage are summed over the replicas."""
    noise = random.Random(options.seed)
    recording = Recording()
    span = recording.span
    layers = layer_names()
    stages = stages_of(options, layers)
    work = sum(size ** 0.5 for _, size in layers)
    replicas = options.ranks // options.stages
    now = [0.0] * options.ranks
    for step in range(options.steps):
        begin = list(now)
        ended = {}  # of passes: (replica, stage, is forward, micro-batch)
        left = {rank: order_of(options, rank % options.stages) for rank in range(options.ranks)}
        first = list(now)
        while any(left.values()):
            for rank, passes in left.items():
                replica, stage = divmod(rank, options.stages)
                while passes:
                    forward, number = passes[0]
                    source = stage - 1 if forward else stage + 1
                    known = 0 <= source < options.stages
                    if known and (replica, source, forward, number) not in ended:
                        break
                    passes.pop(0)
                    t = now[rank]
                    if known:
                        peer = replica * options.stages + source
                        name = ("values of" if forward else "gradients of") + f" '{stages[min(stage, source)][-1][0]}'"
                        sent = ended[replica, source, forward, number]
                        arrived = sent + options.cut_bytes / options.bytes_per_us
                        common = {"bucket": name, "bytes": options.cut_bytes, "step": step}
                        span(peer, 2, "communicate", f"send {name}", sent, arrived, operation="send", peer=rank, **common)
                        span(rank, 2, "communicate", f"receive {name}", min(first[rank], sent), arrived,
                             operation="receive", peer=peer, **common)
                        recording.arrow(peer, sent, rank, arrived - 0.005)
                        if arrived > t:
                            span(rank, 0, "exchange", "exchange", t, arrived, step=step)
                            span(rank, 0, "wait", f"wait {name}", t, arrived, wait_for=name, step=step)
                            t = arrived
                    pass_begin = t
                    for layer, size in stages[stage] if forward else reversed(stages[stage]):
                        took = (38e3 if forward else 74e3) * size ** 0.5 / work / options.micro_batches * noise.gauss(1, 0.02)
                        span(rank, 1, "forward" if forward else "backward", layer, t, t + 0.97 * took, layer=layer, step=step)
                        t += took
                    what = "forward" if forward else "backward"
                    span(rank, 0, what, what, pass_begin, t, stage=stage, micro_batch=number, step=step)
                    ended[replica, stage, forward, number] = now[rank] = t
        for rank in range(options.ranks):
            stage = rank % options.stages
            t = now[rank]
            if replicas > 1:
                peers = range(stage, options.ranks, options.stages)
                size = sum(size for _, size in stages[stage])
                arrived, last = max((now[peer], peer) for peer in peers)
                done = arrived + size / options.bytes_per_us
                span(rank, 2, "communicate", f"all_reduce gradients {stage}", t, done, operation="all_reduce", bytes=size,
                     bucket=f"gradients {stage}", step=step, all_arrived_us=round(arrived, 3), last_rank=last)
                span(rank, 0, "wait", f"wait gradients {stage}", t, done, wait_for=f"gradients {stage}", step=step)
                t = done
            span(rank, 0, "update", "update", t, t + 1500, step=step)
            begin[rank], first[rank] = t + 1520, begin[rank]
            span(rank, 0, "step", "step", first[rank], t + 1510, step=step)
        now = begin
    return recording.events


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--servers", type=int, default=0, help="number of ranks, from rank 0 on, that serve parameters")
    parser.add_argument("--stages", type=int, default=0, help="ranks of a pipeline; the number of ranks is a multiple of it")
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--cut-bytes", type=int, default=400_000, help="of what a micro-batch sends to the next stage")
    parser.add_argument("--slow-rank", type=int, default=1)
    parser.add_argument("--slow-input", type=float, default=60, help="milliseconds of its input")
    parser.add_argument("--evaluate-every", type=int, default=20)
    parser.add_argument("--evaluate-ms", type=float, default=1500)
    parser.add_argument("--copy-bytes", type=int, default=60_000_000)
    parser.add_argument("--bucket-bytes", type=int, default=8_000_000)
    parser.add_argument("--bytes-per-us", type=float, default=1200)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    events = record_stages(options) if options.stages else record(options)
    other = {"gradus": "1", "ranks": options.ranks, "threads": 4, "hosts": [f"node{r // 4}" for r in range(options.ranks)],
             "model": options.model, "batch_size": 64, "clock_error_us": [0.0] + [7.5] * (options.ranks - 1),
             "dropped": [0] * options.ranks}
    with open(options.file, "w") as file:
        file.write('{"traceEvents":[\n')
        file.write(",\n".join(json.dumps(event, separators=(",", ":")) for event in events))
        file.write('\n],"displayTimeUnit":"ms","otherData":' + json.dumps(other) + "}\n")
    print(f"{sum(event['ph'] == 'X' for event in events)} spans")


if __name__ == "__main__":
    main()
