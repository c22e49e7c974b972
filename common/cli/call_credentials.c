#include "common/cli/call_credentials.h"

#include "common/net/crypto/certificates.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* One line. */
static enum status read_api_key(const char *path, char key[GENERATE_MAX_KEY_BYTES + 1],
                                struct error *err)
{
    size_t size = GENERATE_MAX_KEY_BYTES + 1;
    if (!*path)
        return STATUS_OK;
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(err, STATUS_IO, "--api-key-file %s: %s", path, strerror(errno));
    size_t length = fread(key, 1, size, file);
    fclose(file);
    while (length && length < size && strchr("\r\n", key[length - 1]))
        length--;
    if (length == size)
        return error_set(err, STATUS_LIMIT, "--api-key-file %s holds over %d bytes: is it a key?",
                         path, GENERATE_MAX_KEY_BYTES);
    key[length] = 0;
    if (key[strcspn(key, "\r\n")])
        return error_set(err, STATUS_INVALID,
                         "--api-key-file %s holds several lines, but a key is one", path);
    return *key ? STATUS_OK
                : error_set(err, STATUS_INVALID, "--api-key-file %s holds no key", path);
}

static struct certificates_config config_of(const struct credential_settings *settings)
{
    return (struct certificates_config){.name = "tls",
                                        .paths = {settings->cert, settings->key, settings->ca}};
}

enum status call_credentials_check(const struct credential_settings *settings, struct error *err)
{
    const struct certificates_config config = config_of(settings);
    if (!*settings->ca && (*settings->cert || *settings->key || *settings->name))
        return error_set(err, STATUS_INVALID,
                         "--tls-ca is missing: without it nothing is encrypted");
    return certificates_check_paths(&config, err);
}

enum status call_credentials_open(const struct credential_settings *settings,
                                  struct call_credentials *credentials, struct error *err)
{
    const struct certificates_config config = config_of(settings);
    *credentials = (struct call_credentials){.peer_name = settings->name};
    TRY(call_credentials_check(settings, err));
    TRY(read_api_key(settings->api_key_file, credentials->api_key, err));
    return *settings->ca ? certificates_open(&config, &credentials->certificates, err) : STATUS_OK;
}

void call_credentials_close(struct call_credentials *credentials)
{
    certificates_close(credentials->certificates);
    explicit_bzero(credentials, sizeof *credentials);
}

struct generate_target call_credentials_target(const struct call_credentials *credentials,
                                               const char *server)
{
    return (struct generate_target){
        server, {credentials->certificates, credentials->peer_name}, credentials->api_key};
}

struct http_remote call_credentials_remote(const struct call_credentials *credentials,
                                           const char *url)
{
    return (struct http_remote){.url = url,
                                .certificates = credentials->certificates,
                                .peer_name = credentials->peer_name,
                                .api_key = credentials->api_key};
}
