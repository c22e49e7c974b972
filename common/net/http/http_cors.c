#include "common/net/http/http_cors.h"

#include "common/net/http/http_server.h"

#include <string.h>

/* One of the list, without the blanks around it; NULL: no more. */
static const char *next_origin(const char **list, size_t *length)
{
    const char *begin = *list + strspn(*list, " ,");
    *length = strcspn(begin, ",");
    *list = begin + *length;
    while (*length && begin[*length - 1] == ' ')
        --*length;
    return *length ? begin : NULL;
}

bool http_cors_allows_all(const char *origins)
{
    size_t length;
    if (!origins)
        return false;
    for (const char *one; (one = next_origin(&origins, &length));)
        if (length == 1 && *one == '*')
            return true;
    return false;
}

const char *http_cors_allowed(const char *origins, const char *origin)
{
    size_t length;
    if (!origins || !origin)
        return NULL;
    if (http_cors_allows_all(origins))
        return "*";
    for (const char *one; (one = next_origin(&origins, &length));)
        if (length == strlen(origin) && !memcmp(one, origin, length))
            return origin;
    return NULL;
}

bool http_cors_by_origin(const char *origins)
{
    return origins && *origins && !http_cors_allows_all(origins);
}

/* "https://app.example", with a port or without. */
static bool is_origin(const char *text, size_t length)
{
    const char *scheme = memchr(text, ':', length);
    size_t begin = scheme ? (size_t)(scheme - text) + strlen("://") : 0;
    if (!scheme || scheme == text || length > HTTP_CORS_MAX_ORIGIN || begin >= length ||
        memcmp(scheme, "://", strlen("://")) != 0)
        return false;
    for (size_t i = 0; i < length; i++)
        if (text[i] <= ' ' || text[i] > '~' || (i >= begin && strchr("/?#*", text[i])))
            return false;
    return true;
}

static bool has_usual_port(const char *text, size_t length)
{
    static const char *const usual[][2] = {{"http://", ":80"}, {"https://", ":443"}};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        size_t begin = strlen(usual[i][0]), port = strlen(usual[i][1]);
        if (length > begin + port && !memcmp(text, usual[i][0], begin) &&
            !memcmp(text + length - port, usual[i][1], port))
            return true;
    }
    return false;
}

static enum status check_origin(const char *text, size_t length, struct error *err)
{
    int shown = length < 100 ? (int)length : 100;
    if (!is_origin(text, length))
        return error_set(err, STATUS_INVALID,
                         "'%.*s' is no origin: give * for all, or those of the pages, like "
                         "https://app.example or http://localhost:3000, divided by commas",
                         shown, text);
    for (size_t i = 0; i < length; i++)
        if (text[i] >= 'A' && text[i] <= 'Z')
            return error_set(err, STATUS_INVALID,
                             "'%.*s' is an origin that no browser sends: they write it in lower "
                             "case",
                             shown, text);
    if (has_usual_port(text, length))
        return error_set(err, STATUS_INVALID,
                         "'%.*s' is an origin that no browser sends: they leave out the port that "
                         "is usual for its scheme",
                         shown, text);
    return STATUS_OK;
}

enum status http_check_origins(const char *origins, struct error *err)
{
    size_t length;
    for (const char *one; (one = next_origin(&origins, &length));)
        if (!(length == 1 && *one == '*'))
            TRY(check_origin(one, length, err));
    return STATUS_OK;
}

bool http_cors_is_preflight(const struct http_exchange *exchange)
{
    return http_exchange_method(exchange) == HTTP_OPTIONS &&
           http_exchange_header(exchange, "access-control-request-method");
}

void http_cors_answer(void *context, struct http_exchange *exchange)
{
    (void)context;
    struct http_reply reply;
    const char *wanted = http_exchange_header(exchange, "access-control-request-headers");
    http_reply_init(&reply, 0);
    reply.status = 204;
    reply.content_type = NULL;
    (void)http_reply_add_header(&reply, "Access-Control-Allow-Methods", "GET, POST");
    /* Whatever a client sets: the package of OpenAI names some of its own. Too many are not
     * allowed. */
    if (wanted)
        (void)http_reply_add_header(&reply, "Access-Control-Allow-Headers", wanted);
    (void)http_reply_add_header(&reply, "Access-Control-Max-Age", "600");
    (void)http_exchange_reply(exchange, &reply);
    http_reply_deinit(&reply);
}
