"""Certificates of a test's own, made by the openssl command."""
import os
import subprocess


def openssl(*arguments):
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Authority:
    """A CA in a folder: .cert is its certificate; issue() makes others."""

    def __init__(self, folder, name="ca"):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.cert, self.key = folder, folder / f"{name}.pem", folder / f"{name}.key"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2, "-subj", f"/CN={name}",
                "-keyout", self.key, "-out", self.cert)

    def issue(self, name, names):
        """name.pem and name.key, replaced one after the other as a whole; names: "DNS:baton,IP:127.0.0.1"."""
        beside, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\n")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{beside}.key", "-out", beside)
        openssl("x509", "-req", "-in", beside, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial", "-days", 2, "-extfile", extensions, "-out", f"{beside}.pem")
        os.rename(f"{beside}.pem", self.folder / f"{name}.pem")
        os.rename(f"{beside}.key", self.folder / f"{name}.key")
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def issue_between(self, name, names, begin, end):
        """The same for another time: "20200101000000Z"."""
        cert, key = self.issue(name, names)
        config, beside = self.folder / f"{name}.conf", self.folder / f"{name}.csr"
        (self.folder / "index.txt").write_text("")
        config.write_text(f"[ca]\ndefault_ca=a\n[a]\ndatabase={self.folder}/index.txt\nrand_serial=yes\nnew_certs_dir={self.folder}\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n")
        openssl("ca", "-batch", "-notext", "-config", config, "-cert", self.cert, "-keyfile", self.key, "-in", beside, "-extfile", self.folder / f"{name}.ext",
                "-startdate", begin, "-enddate", end, "-out", cert)
        return cert, key


def key_of(cert):
    """The public key of a certificate's file, in PEM."""
    return subprocess.run(["openssl", "x509", "-in", str(cert), "-noout", "-pubkey"], capture_output=True, text=True).stdout


def s_client(address, *arguments, said=""):
    return subprocess.run(["openssl", "s_client", "-connect", address, *map(str, arguments)], input=said, capture_output=True, text=True, errors="replace", timeout=30)


def shown_by(address, *arguments):
    """The public key that a server shows."""
    return subprocess.run(["openssl", "x509", "-noout", "-pubkey"], input=s_client(address, *arguments).stdout, capture_output=True, text=True).stdout
