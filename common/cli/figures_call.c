#include "common/cli/figures_call.h"

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
