"""terminal.py SECONDS_STOPPED COMMAND...: runs it on a terminal of 60 columns and prints what the terminal got. With
SECONDS_STOPPED above 0 Ctrl-S is typed at once and Ctrl-Q so much later, when "stopped N" is printed with the bytes that
came in between."""
import fcntl, os, pty, select, struct, sys, termios, time

stop = float(sys.argv[1])
pid, fd = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
data = b""


def read_for(seconds):
    global data
    until, n = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        if select.select([fd], [], [], max(0, until - time.monotonic()))[0]:
            try:
                part = os.read(fd, 65536)
            except OSError:
                return n
            if not part:
                return n
            data += part
            n += len(part)
    return n


if stop:
    while b"\n" not in data:
        read_for(0.1)
    os.write(fd, b"\x13")
    read_for(0.3)
    print("stopped", read_for(stop))
    os.write(fd, b"\x11")
read_for(60)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
if stop:
    print("lines", data.count(b"\n"), "status", status)
else:
    sys.stdout.buffer.write(data)
    print("status", status)
