#include "common/crypto/tls_settings.h"

#include <stddef.h>

enum status tls_settings_open(const struct tls_settings *settings, const char *name,
                              struct certificates **certificates, struct error *err)
{
    const struct certificates_config config = {
        .name = name,
        .paths = {settings->cert, settings->key, settings->client_ca},
        .required = true,
    };
    *certificates = NULL;
    if (!*settings->cert && !*settings->key && !*settings->client_ca)
        return STATUS_OK;
    return certificates_open(&config, certificates, err);
}

enum status tls_client_settings_open(const struct tls_client_settings *settings, const char *name,
                                     struct certificates **certificates, struct error *err)
{
    const struct certificates_config config = {
        .name = name,
        .paths = {settings->cert, settings->key, settings->ca},
    };
    *certificates = NULL;
    if (*settings->cert || *settings->key || *settings->ca)
        return certificates_open(&config, certificates, err);
    return *settings->name
               ? error_set(err, STATUS_INVALID,
                           "--%s-name is given without --%s-ca: no certificate would be "
                           "checked for it",
                           name, name)
               : STATUS_OK;
}
