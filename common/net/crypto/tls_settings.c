#include "common/net/crypto/tls_settings.h"

#include <stddef.h>

static struct certificates_config config_of(const struct tls_settings *settings, const char *name)
{
    return (struct certificates_config){
        .name = name,
        .ca_name = "client-ca",
        .paths = {settings->cert, settings->key, settings->client_ca},
        .required = *settings->cert || *settings->key || *settings->client_ca,
    };
}

enum status tls_settings_check(const struct tls_settings *settings, const char *name,
                               struct error *err)
{
    const struct certificates_config config = config_of(settings, name);
    return certificates_check_paths(&config, err);
}

enum status tls_settings_open(const struct tls_settings *settings, const char *name,
                              struct certificates **certificates, struct error *err)
{
    const struct certificates_config config = config_of(settings, name);
    *certificates = NULL;
    return config.required ? certificates_open(&config, certificates, err) : STATUS_OK;
}

static struct certificates_config client_config_of(const struct tls_client_settings *settings,
                                                   const char *name)
{
    return (struct certificates_config){
        .name = name,
        .paths = {settings->cert, settings->key, settings->ca},
    };
}

static bool has_files(const struct tls_client_settings *settings)
{
    return *settings->cert || *settings->key || *settings->ca;
}

enum status tls_client_settings_check(const struct tls_client_settings *settings, const char *name,
                                      struct error *err)
{
    const struct certificates_config config = client_config_of(settings, name);
    if (*settings->name && !has_files(settings))
        return error_set(err, STATUS_INVALID,
                         "--%s-name is given without --%s-ca: no certificate would be "
                         "checked for it",
                         name, name);
    return certificates_check_paths(&config, err);
}

enum status tls_client_settings_open(const struct tls_client_settings *settings, const char *name,
                                     struct certificates **certificates, struct error *err)
{
    const struct certificates_config config = client_config_of(settings, name);
    *certificates = NULL;
    TRY(tls_client_settings_check(settings, name, err));
    return has_files(settings) ? certificates_open(&config, certificates, err) : STATUS_OK;
}
