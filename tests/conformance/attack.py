"""Attacks on the doors of a cluster, by name. Each is a function of an Attacker: it makes one connection, attacks until the server ends the
connection (Ended), and is called again until the runner says stop. grpc_attacks.py and its neighbours fill the table; `attacks` runs it.

An attack runs in a process of its own, on several threads, so that it takes no time from the client that measures."""
import socket
import threading
import types

ATTACKS = {}
THREADS = 3  # three connections were enough
STRANGER = "127.0.0.2"  # its places are counted; those of the clients beside it are not


class Ended(Exception):
    """The server has ended the connection, or the attack is over."""


def attack(door, reason=None, threads=THREADS, ends=True, quick=False, count="baton_router_grpc_connections_ended_total", world="open", large=False):
    """door: for the table; the honest load comes by the same one. reason: the label of `count` that the server's ends must have. ends: the
    server must end connections; otherwise the attack need only be harmless. quick: in the run of every day. world: the cluster, "open", "keyed"
    (its clients need keys) or "tls" (all of its doors for clients speak TLS). large: a large body of the other client must be read beside it, too."""
    def add(function):
        assert function.__name__ not in ATTACKS
        ATTACKS[function.__name__] = types.SimpleNamespace(run=function, door=door, reason=reason, threads=threads, ends=ends, quick=quick, count=count, world=world, large=large)
        return function
    return add


class Attacker:
    """The cluster's addresses, and what the attack has done so far. grpc, front, metrics: HOST:PORT of the router; workers: {name: HOST:PORT};
    logs: the folder of their logs. key: one of another tenant than the client that measures has, where clients need keys."""

    def __init__(self, grpc, front, metrics, workers, logs, key=None):
        self.grpc, self.front, self.metrics, self.workers, self.logs, self.key = grpc, front, metrics, workers, logs, key
        self.stop, self.lock = threading.Event(), threading.Lock()
        self.sent = self.connections = self.ended = 0
        self.harm = ""  # an attack that got more than it may fails, and says so here

    def connect(self, address, source="127.0.0.1"):
        """A Line to one of the addresses, from an address of this machine."""
        try:
            return Line(self, address, source)
        except OSError:  # the door is full for a moment
            self.stop.wait(0.01)
            raise Ended from None

    def keep(self, function):
        """Attacks until it is stopped."""
        while not self.stop.is_set():
            try:
                function(self)
            except Ended:
                pass
            except Exception as error:
                self.harm = f"{type(error).__name__}: {str(error)[:200]}"
                return

    def figures(self):
        return {"sent": self.sent, "connections": self.connections, "ended": self.ended, "harm": self.harm}


class Line:
    """A connection that counts what it sends, reads nothing unless told, and raises Ended when the server has closed it."""

    def __init__(self, attacker, address, source):
        host, port = address.rsplit(":", 1)
        self.attacker = attacker
        self.socket = socket.create_connection((host, int(port)), timeout=20, source_address=(source, 0))
        self.socket.settimeout(0.2)
        with attacker.lock:
            attacker.connections += 1

    def over(self):
        """Counts the end."""
        with self.attacker.lock:
            self.attacker.ended += 1
        self.close()
        raise Ended

    def close(self):
        self.socket.close()

    def send(self, data):
        """All of the bytes; raises Ended when the server or the attack ends before."""
        view = memoryview(data)
        while view:
            if self.attacker.stop.is_set():
                self.close()
                raise Ended
            try:
                count = self.socket.send(view)
            except TimeoutError:  # the server holds us back
                self.look()
                continue
            except OSError:
                self.over()
            view = view[count:]
            with self.attacker.lock:
                self.attacker.sent += count

    def look(self):
        """Reads what is there, and notices the end."""
        self.socket.setblocking(False)
        try:
            while self.socket.recv(65536):
                pass
            self.over()
        except BlockingIOError:
            pass
        except OSError:
            self.over()
        self.socket.settimeout(0.2)

    def some(self):
        """The next bytes that come."""
        while not self.attacker.stop.is_set():
            try:
                piece = self.socket.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                piece = b""
            if not piece:
                self.over()
            return piece
        self.close()
        raise Ended

    def hear(self, text):
        """Reads until this has come."""
        heard = b""
        while text not in heard:
            heard += self.some()

    def wait(self):
        """Sends nothing more until the server ends the connection, or the attack is over."""
        while not self.attacker.stop.is_set():
            try:
                if not self.socket.recv(65536):
                    self.over()
            except TimeoutError:
                pass
            except OSError:
                self.over()
        self.close()
        raise Ended
