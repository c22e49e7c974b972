"""API keys of a test's own, and a client that shows one."""
import re
import subprocess

import grpc
from client import Client, pb, reason_of, request
from harness import BATON, wait_until


def command(*arguments):
    return subprocess.run([str(BATON), *map(str, arguments)], capture_output=True, text=True, timeout=60)


def new_key(name, **flags):
    """(key, line), as `baton key new` gives them."""
    arguments = [word for flag, value in flags.items() for word in ("--" + flag.replace("_", "-"), value)]
    done = command("key", "new", "--id", name, *arguments)
    assert done.returncode == 0, done.stderr
    return re.fullmatch(r"key  (\S+)\nline (.*)\n", done.stdout).groups()


def grow(path, keys):
    """Adds new keys, {"a": {flags}, ...}, to a file that a router may read already; returns {"a": key, ...}. Their ids are new in the file."""
    before = path.read_text() if path.exists() else "# of tests\n"
    made = {name: new_key(f"{name}-{len(before)}", **flags) for name, flags in keys.items()}
    new = path.with_suffix(".new")
    new.write_text(before + "".join(line + "\n" for _, line in made.values()))
    new.rename(path)
    return {name: key for name, (key, _) in made.items()}


class Keyed(Client):
    """A client that sends a key with every call."""

    def __init__(self, address, key):
        super().__init__(address)
        self.metadata = (("authorization", f"Bearer {key}"),)

    def start(self, prompt, timeout=120, **options):
        return self.stub.Generate(request(prompt, **options), timeout=timeout, metadata=self.metadata)

    def is_known(self):
        """True: the router has read the key, which it looks for once a second."""
        try:
            self.stub.ListModels(pb.ListModelsRequest(), timeout=60, metadata=self.metadata)
        except grpc.RpcError as error:
            assert reason_of(error) == "invalid_api_key"
            return False
        return True

    def wait_known(self):
        wait_until("the key is known", self.is_known, 20)
        return self
