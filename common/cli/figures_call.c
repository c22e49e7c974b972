#include "common/cli/figures_call.h"

static enum status check_url(const struct figures_settings *settings, struct error *err)
{
    struct http_url url;
    if (!*settings->http)
        return STATUS_OK;
    TRY(http_url_parse(settings->http, &url, err));
    return http_url_check_tls(&url, settings->http, *settings->credentials.ca != 0, err);
}

void figures_settings_check(const struct figures_settings *settings, struct str *mistakes)
{
    struct error err;
    config_mistake(mistakes, call_credentials_check(&settings->credentials, &err), &err);
    config_mistake(mistakes, check_url(settings, &err), &err);
}

enum status figures_call_open(const struct figures_settings *settings, struct figures_call *call,
                              struct error *err)
{
    *call = (struct figures_call){.file = {0}};
    TRY(call_credentials_open(&settings->credentials, &call->credentials, err));
    call->router = call_credentials_remote(&call->credentials, settings->http);
    if (*settings->http)
        return STATUS_OK;
    TRY(cluster_file_find("--http", &call->file, err));
    call->router.url = call->file.http;
    return STATUS_OK;
}

void figures_call_close(struct figures_call *call)
{
    call_credentials_close(&call->credentials);
}
