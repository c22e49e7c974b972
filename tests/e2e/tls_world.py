"""A cluster with TLS on all links and client certificates, with CAs of its own."""
import re
import ssl

import grpc
from certificates import Authority
from client import Client, pb_grpc


class World:
    """A CA for clients and one for the cluster, with a cluster that uses them."""

    def __init__(self, folder, start_cluster, of_clients=True, **options):
        self.public, self.internal = Authority(folder / "public"), Authority(folder / "internal")
        self.cert, self.key = self.public.issue("router", "DNS:router.test,IP:127.0.0.1")
        self.client_cert, self.client_key = self.public.issue("client", "DNS:client.test")
        cert, key = self.internal.issue("member", "DNS:baton.test")
        flags = ["--tls-cert", self.cert, "--tls-key", self.key, "--internal-tls-cert", cert, "--internal-tls-key", key,
                 "--internal-tls-ca", self.internal.cert, "--internal-tls-name", "baton.test"]
        if of_clients:
            flags += ["--tls-client-ca", self.public.cert]
        self.cluster = start_cluster(flags=flags, **options)
        log = (self.cluster.folder / "logs/router.log").read_text()
        self.registry = re.search(r"registry=(\S+)", log)[1]

    def flags(self):
        return dict(tls_ca=self.public.cert, tls_cert=self.client_cert, tls_key=self.client_key)

    def channel(self, address=None, ca=None, cert=None, key=None):
        credentials = grpc.ssl_channel_credentials((ca or self.public.cert).read_bytes(), key and key.read_bytes(), cert and cert.read_bytes())
        return grpc.secure_channel(address or self.cluster.grpc, credentials, options=[("grpc.use_local_subchannel_pool", 1)])

    def client(self):
        client = Client(self.cluster.grpc)
        client.channel.close()
        client.channel = self.channel(cert=self.client_cert, key=self.client_key)
        client.stub = pb_grpc.BatonStub(client.channel)
        return client

    def https(self, cert=None, key=None, ca=None):
        """The side of a client over HTTP; cert None: without a certificate."""
        context = ssl.create_default_context(cafile=str(ca or self.public.cert))
        context.check_hostname = False
        if cert:
            context.load_cert_chain(cert, key)
        return context
