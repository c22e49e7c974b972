"""Python's side of a .proto, made from the published file and nothing else. The build folder keeps what was made of each text of it."""
import hashlib
import importlib
import os
import pathlib
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]
PROTO = TOP / "proto"
KEPT = pathlib.Path(os.environ.get("BATON_BUILD", TOP / "build/debug")) / "python"


def made(name):
    """The folder that has NAME_pb2.py and NAME_pb2_grpc.py. Processes that make it at once make the same: the first one's stays."""
    from grpc import __version__ as version
    text = (PROTO / f"{name}.proto").read_bytes()
    folder = KEPT / f"{name}-{hashlib.sha256(version.encode() + text).hexdigest()[:16]}"
    if not folder.exists():
        from grpc_tools import protoc
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"new-{name}-", dir=KEPT) as new:
            if protoc.main(["protoc", f"-I{PROTO}", f"--python_out={new}", f"--grpc_python_out={new}", f"{PROTO}/{name}.proto"]):
                raise RuntimeError(f"protoc refuses proto/{name}.proto")
            whole = pathlib.Path(new) / "whole"
            whole.mkdir()
            for file in pathlib.Path(new).glob("*.py"):
                file.rename(whole / file.name)
            try:
                whole.rename(folder)
            except OSError:  # another process was first
                assert folder.exists()
    return folder


def generated(name):
    """The modules NAME_pb2 and NAME_pb2_grpc."""
    folder = str(made(name))
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(f"{name}_pb2"), importlib.import_module(f"{name}_pb2_grpc")
    finally:
        sys.path.remove(folder)
