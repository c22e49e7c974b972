"""A single program of the cluster, started by hand: a router without workers refuses, tokenizes and lists, which is what limits need."""
import json
import os
import subprocess

from harness import BUILD, SHAKESPEARE


class Bare:
    def __init__(self, program, *flags, model=SHAKESPEARE, stderr=None, environment=None, prefix=("setpriv", "--pdeathsig", "KILL")):
        """prefix: a command that becomes the program, as prlimit does. stderr: as in Popen."""
        ready, told = os.pipe()
        command = [*prefix, BUILD / "bin" / program, "--model", model, "--ready-fd", told, *flags]
        self.process = subprocess.Popen([str(c) for c in command], pass_fds=[told], stderr=stderr,
                                        env=dict(os.environ, **(environment or {})))
        os.close(told)
        with os.fdopen(ready) as stream:
            line = stream.readline()
        assert line, f"{program} ended with {self.process.wait(60)}"
        told = json.loads(line)
        self.grpc, self.http, self.pid = told["address"], told["metrics"], self.process.pid
        self.front = told.get("http")  # a router's, with --http-listen
        self.registry = told.get("registry")  # a router's: where workers come

    def cpu_seconds(self):
        fields = open(f"/proc/{self.pid}/stat").read().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self):
        return int(open(f"/proc/{self.pid}/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self):
        self.process.terminate()
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()
