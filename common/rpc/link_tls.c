#include "common/rpc/link_tls.h"

#include "common/crypto/certificates.h"

enum status link_tls_open(const struct link_tls_settings *settings, struct rpc_tls *tls,
                          struct error *err)
{
    *tls = (struct rpc_tls){0};
    if (!*settings->cert && !*settings->key && !*settings->ca && !*settings->name)
        return STATUS_OK;
    if (!*settings->ca)
        return error_set(err, STATUS_INVALID,
                         "--internal-tls-ca is missing: certificates of the cluster's processes "
                         "are checked on both sides");
    struct certificates_config config = {
        .name = "internal-tls",
        .paths = {settings->cert, settings->key, settings->ca},
        .required = true,
    };
    TRY(certificates_open(&config, &tls->certificates, err));
    tls->peer_name = settings->name;
    return STATUS_OK;
}

void link_tls_close(struct rpc_tls *tls)
{
    certificates_close(tls->certificates);
    *tls = (struct rpc_tls){0};
}
