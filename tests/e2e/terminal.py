"""A program in a terminal of its own."""
import fcntl
import os
import pty
import re
import select
import subprocess
import tempfile
import termios

from harness import BATON, wait_until


class Terminal:
    def __init__(self, cluster, *command, program=BATON, **environment):
        self.master, slave = pty.openpty()
        self.state = tempfile.TemporaryDirectory()  # no test writes to the home of its user
        environment = {**cluster.environment, "TERM": "xterm", "NO_COLOR": "1", "XDG_STATE_HOME": self.state.name, **environment}
        self.process = subprocess.Popen(["setsid", "--ctty", str(program), *command], stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        self.text = ""

    def read_until(self, pattern, begin=0):
        def look():
            if select.select([self.master], [], [], 0)[0]:
                self.text += self.read()
            return re.search(pattern, self.text[begin:], re.S)
        wait_until(f"{pattern!r} is shown in {self.text[-500:]!r}", look, 60)

    def read(self):
        """Returns the bytes that are there; nothing: it is over."""
        try:
            return os.read(self.master, 65536).decode(errors="replace")
        except OSError:  # no process has the terminal any more
            return ""

    def type(self, text):
        os.write(self.master, text.encode())

    def takes_all(self):
        """Of what has reached it; what is shown of a text has, with all that was typed in one go."""
        with open(f"/proc/{self.process.pid}/fd/0", "rb", buffering=0, opener=lambda path, flags: os.open(path, flags | os.O_NOCTTY)) as slave:
            wait_until("all that was typed is read", lambda: fcntl.ioctl(slave, termios.FIONREAD, b"\0\0\0\0") == b"\0\0\0\0", 20)

    def takes_lines(self):
        """And shows what is typed."""
        return termios.tcgetattr(self.master)[3] & (termios.ICANON | termios.ECHO) == termios.ICANON | termios.ECHO

    def takes_keys(self):
        return not termios.tcgetattr(self.master)[3] & (termios.ICANON | termios.ECHO)
