"""API keys of a test's own, and a client that shows one."""
import re
import subprocess

from client import Client, request
from harness import BATON


def command(*arguments):
    return subprocess.run([str(BATON), *map(str, arguments)], capture_output=True, text=True, timeout=60)


def new_key(name, **flags):
    """(key, line), as `baton key new` gives them."""
    arguments = [word for flag, value in flags.items() for word in ("--" + flag.replace("_", "-"), value)]
    done = command("key", "new", "--id", name, *arguments)
    assert done.returncode == 0, done.stderr
    return re.fullmatch(r"key  (\S+)\nline (.*)\n", done.stdout).groups()


class Keyed(Client):
    """A client that sends a key with every call."""

    def __init__(self, address, key):
        super().__init__(address)
        self.metadata = (("authorization", f"Bearer {key}"),)

    def start(self, prompt, timeout=120, **options):
        return self.stub.Generate(request(prompt, **options), timeout=timeout, metadata=self.metadata)
