#include "common/net/http/http_url.h"

#include "common/base/str.h"

#include <stdio.h>
#include <string.h>

static enum status refuse(const char *text, const char *why, struct error *err)
{
    return error_set(err, STATUS_INVALID,
                     "\"%.120s\" is not host:port of a server, nor http://HOST or https://HOST: %s",
                     text, why);
}

/* Returns the text behind the scheme. *port: the scheme's default port, or NULL. */
static const char *take_scheme(const char *text, struct http_url *url, const char **port)
{
    static const char http[] = "http://", https[] = "https://";
    *port = NULL;
    if (!strncmp(text, https, strlen(https))) {
        url->told = url->tls = true;
        *port = "443";
        return text + strlen(https);
    }
    if (strncmp(text, http, strlen(http)) != 0)
        return text;
    url->told = true;
    *port = "80";
    return text + strlen(http);
}

/* Returns whether the characters are those of a name, an IPv4 address, or in brackets an IPv6
 * address (with its zone). */
static bool is_host(const char *host, size_t length, bool bracketed)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    for (size_t i = 0; i < length; i++)
        if (!host[i] || !(strchr(letters, host[i]) || (bracketed && strchr(":%", host[i]))))
            return false;
    return length > 0 && length <= HTTP_URL_MAX_HOST_BYTES;
}

/* `text`: ":80", or nothing: then the port is `usual`. NULL: there is no default. */
static enum status take_port(const char *text, size_t length, const char *usual, const char *whole,
                             struct http_url *url, struct error *err)
{
    uint64_t port;
    char digits[8] = "";
    if (!length && !usual)
        return refuse(whole, "the port is missing", err);
    if (!length)
        snprintf(digits, sizeof digits, "%s", usual);
    else if (length <= sizeof digits)
        snprintf(digits, sizeof digits, "%.*s", (int)length - 1, text + 1);
    if (!str_to_u64(digits, 1, 65535, &port))
        return refuse(whole, "a port is a number from 1 to 65535, and nothing stands behind it",
                      err);
    snprintf(url->port, sizeof url->port, "%u", (unsigned)port);
    return STATUS_OK;
}

enum status http_url_parse(const char *text, struct http_url *out, struct error *err)
{
    struct http_url url = {.told = false};
    const char *port, *host = take_scheme(text, &url, &port);
    bool bracketed = *host == '[';
    host += bracketed;
    size_t length = strcspn(host, bracketed ? "]" : ":/?#");
    if (!is_host(host, length, bracketed) || (bracketed && host[length] != ']'))
        return refuse(text, strchr(host, '@') ? "it holds a user" : "the host is none", err);
    const char *rest = host + length + bracketed;
    size_t count = strlen(rest);
    count -= url.told && count && rest[count - 1] == '/';
    if (count && *rest != ':')
        return refuse(text, "nothing may stand behind the host but a port", err);
    TRY(take_port(rest, count, port, text, &url, err));
    memcpy(url.host, host, length);
    snprintf(url.authority, sizeof url.authority, "%s%s%s:%s", bracketed ? "[" : "", url.host,
             bracketed ? "]" : "", url.port);
    *out = url;
    return STATUS_OK;
}

enum status http_url_check_tls(const struct http_url *url, const char *text, bool certificates,
                               struct error *err)
{
    if (!certificates || !url->told || url->tls)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "%.120s is called without TLS, but CAs or a certificate are given for it: "
                     "write https://, or leave them out",
                     text);
}

enum status http_check_url(const char *text, struct error *err)
{
    struct http_url url;
    return http_url_parse(text, &url, err);
}
