#include "common/net/rpc/link_tls.h"

#include "common/net/crypto/certificates.h"

static bool given(const struct link_tls_settings *settings)
{
    return *settings->cert || *settings->key || *settings->ca || *settings->name;
}

static struct certificates_config config_of(const struct link_tls_settings *settings)
{
    return (struct certificates_config){
        .name = "internal-tls",
        .paths = {settings->cert, settings->key, settings->ca},
        .required = true,
    };
}

enum status link_tls_check(const struct link_tls_settings *settings, struct error *err)
{
    const struct certificates_config config = config_of(settings);
    if (!given(settings))
        return STATUS_OK;
    if (!*settings->ca)
        return error_set(err, STATUS_INVALID,
                         "--internal-tls-ca is missing: certificates of the cluster's processes "
                         "are checked on both sides");
    return certificates_check_paths(&config, err);
}

enum status link_tls_open(const struct link_tls_settings *settings, struct rpc_tls *tls,
                          struct error *err)
{
    const struct certificates_config config = config_of(settings);
    *tls = (struct rpc_tls){0};
    TRY(link_tls_check(settings, err));
    if (!given(settings))
        return STATUS_OK;
    TRY(certificates_open(&config, &tls->certificates, err));
    tls->peer_name = settings->name;
    return STATUS_OK;
}

void link_tls_close(struct rpc_tls *tls)
{
    certificates_close(tls->certificates);
    *tls = (struct rpc_tls){0};
}
