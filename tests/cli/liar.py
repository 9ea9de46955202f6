"""liar.py WHAT AGENT: an agent that is sound until its first rank is started, and then lies. It passes on what a real
AGENT and the front end say to each other, and puts frames of its own behind the first STARTED."""
import os
import struct
import subprocess
import sys
import threading

HEAD = struct.Struct("<IBI")  # length of what follows it, type, epoch: launcher/msg.h
STARTED, OUTPUT, EXIT, METRIC, FENCE, WANT = 2, 3, 4, 5, 11, 14


def frame(kind, epoch, body):
    return HEAD.pack(5 + len(body), kind, epoch) + body


def lies(what, epoch, rank):
    out = frame(OUTPUT, epoch, struct.pack("<IB", rank, 1) + b"x" * 65535 + b"\n")
    name = b"f" * 1000000
    return {
        "credit": out * 200,
        "epoch": frame(OUTPUT, epoch + 7, struct.pack("<IB", rank, 1) + b"x\n"),
        "old": frame(STARTED, epoch - 1, struct.pack("<I", rank) + b"too short"),
        "fence": b"".join(frame(FENCE, epoch, struct.pack("<I", 1000004) + b"%04d" % i + name + struct.pack("<I", 1))
                          for i in range(300)),
        "stdin": frame(WANT, epoch, struct.pack("<II", rank, 1 << 30)),
        "short": frame(EXIT, epoch, struct.pack("<I", rank)),
        "code": frame(EXIT, epoch, struct.pack("<IIIdBIQ", rank, 256, 0, 0, 0, 0, 0)),
        "long": frame(EXIT, epoch, struct.pack("<IIIdBIQ", rank, 0, 0, 0, 0, 0, 0) + b"and more"),
        "whose": frame(EXIT, epoch, struct.pack("<IIIdBIQ", rank + 9, 0, 0, 0, 0, 0, 0)),
        "metric": frame(METRIC, epoch, struct.pack("<I", rank) + b"{" * 1000),
    }[what]


def whole(f, n):
    data = f.read(n)
    if len(data) < n:
        raise EOFError
    return data


def pour(source, sink):
    while data := os.read(source, 65536):
        sink.write(data)
        sink.flush()
    sink.close()


agent = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
threading.Thread(target=pour, args=(0, agent.stdin), daemon=True).start()
out = sys.stdout.buffer
lied = False
try:
    out.write(agent.stdout.readline() + agent.stdout.readline())  # the magic: \r\n, and the name
    while True:
        head = whole(agent.stdout, HEAD.size)
        length, kind, epoch = HEAD.unpack(head)
        body = whole(agent.stdout, length - 5)
        out.write(head + body)
        if kind == STARTED and not lied:
            lied = True
            out.write(lies(sys.argv[1], epoch, struct.unpack_from("<I", body)[0]))
        out.flush()
except (EOFError, BrokenPipeError):
    pass
agent.kill()
os._exit(agent.wait() and 0)
