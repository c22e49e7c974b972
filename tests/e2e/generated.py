"""Python's side of a .proto, made from the published file and nothing else. The generated files are imported and deleted: a killed test
leaves nothing behind."""
import importlib
import pathlib
import sys
import tempfile

from grpc_tools import protoc

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"


def generated(name):
    """The modules NAME_pb2 and NAME_pb2_grpc."""
    with tempfile.TemporaryDirectory(prefix=f"baton-proto-{name}-") as folder:
        if protoc.main(["protoc", f"-I{PROTO}", f"--python_out={folder}", f"--grpc_python_out={folder}", f"{PROTO}/{name}.proto"]):
            raise RuntimeError(f"protoc refuses proto/{name}.proto")
        sys.path.insert(0, folder)
        try:
            return importlib.import_module(f"{name}_pb2"), importlib.import_module(f"{name}_pb2_grpc")
        finally:
            sys.path.remove(folder)
