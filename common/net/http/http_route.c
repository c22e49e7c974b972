#include "common/net/http/http_route.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#define MAX_ORIGIN_BYTES 256
#define MAX_HOST_BYTES   256

static bool takes_path(const struct http_route *route, const char *path)
{
    size_t length = strlen(route->path);
    if (length < 2 || strcmp(route->path + length - 2, "/*"))
        return !strcmp(route->path, path);
    return !strncmp(route->path, path, length - 1) && path[length - 1];
}

static unsigned with_head(unsigned methods)
{
    return methods & HTTP_GET ? methods | HTTP_HEAD : methods;
}

const struct http_route *http_route_find(const struct http_route *routes, size_t count,
                                         enum http_method method, const char *path,
                                         unsigned *allowed)
{
    *allowed = 0;
    for (size_t i = 0; i < count; i++) {
        if (!takes_path(&routes[i], path))
            continue;
        *allowed |= with_head(routes[i].methods);
        if (with_head(routes[i].methods) & method)
            return &routes[i];
    }
    return NULL;
}

static bool ends_with(const char *text, size_t length, const char *end, size_t end_length)
{
    return length >= end_length && !memcmp(text + length - end_length, end, end_length);
}

static size_t apart(size_t a, size_t b)
{
    return a < b ? b - a : a - b;
}

/* Returns whether one of them is the other with an "s" behind it. */
static bool is_plural(const char *path, size_t length, const char *known, size_t known_length)
{
    const char *longer = length > known_length ? path : known;
    size_t common = length < known_length ? length : known_length;
    return apart(length, known_length) == 1 && longer[common] == 's' &&
           !memcmp(path, known, common);
}

const char *http_route_meant(const struct http_route *routes, size_t count, const char *path)
{
    size_t length = strlen(path);
    const char *nearest = NULL; /* in length: "/completions" isn't the chat's */
    while (length && path[length - 1] == '/')
        length--;
    for (size_t i = 0; i < count && length > 1 && path[0] == '/'; i++) {
        const char *known = routes[i].path;
        size_t known_length = strlen(known);
        if (known_length < 2 || ends_with(known, known_length, "/*", 2))
            continue;
        if (nearest && apart(known_length, length) >= apart(strlen(nearest), length))
            continue;
        if (ends_with(known, known_length, path, length) ||
            ends_with(path, length, known, known_length) ||
            is_plural(path, length, known, known_length))
            nearest = known;
    }
    return nearest;
}

void http_route_allow(unsigned methods, char text[HTTP_ALLOW_BYTES])
{
    static const struct {
        unsigned method;
        const char *name;
    } names[] = {
        {HTTP_GET, "GET"}, {HTTP_HEAD, "HEAD"}, {HTTP_POST, "POST"}, {HTTP_OPTIONS, "OPTIONS"}};
    *text = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (methods & names[i].method) {
            size_t used = strlen(text);
            snprintf(text + used, HTTP_ALLOW_BYTES - used, "%s%s", used ? ", " : "", names[i].name);
        }
}

bool http_is_json(const char *type)
{
    static const char kind[] = "application/", json[] = "json";
    if (!type || strncasecmp(type, kind, strlen(kind)) != 0)
        return false;
    type += strlen(kind);
    size_t length = strcspn(type, "; \t");
    const char *behind = type + length + strspn(type + length, " \t");
    if (*behind && *behind != ';')
        return false;
    if (length < strlen(json) || strncasecmp(type + length - strlen(json), json, strlen(json)))
        return false;
    length -= strlen(json);
    return length == 0 || (length > 1 && type[length - 1] == '+');
}

/* --- lists --- */

/* Returns the next entry of the list, without the blanks around it. NULL: no more. */
static const char *next_entry(const char **list, size_t *length)
{
    const char *begin = *list + strspn(*list, " ,");
    *length = strcspn(begin, ",");
    *list = begin + *length;
    while (*length && begin[*length - 1] == ' ')
        --*length;
    return *length ? begin : NULL;
}

/* --- names of this machine --- */

static bool is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, host, &v6) != 1)
        return false;
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

static bool is_listed(const char *hosts, const char *host)
{
    size_t length;
    for (const char *one; hosts && (one = next_entry(&hosts, &length));)
        if ((length == 1 && *one == '*') ||
            (length == strlen(host) && !strncasecmp(one, host, length)))
            return true;
    return false;
}

/* Copies the host of "host", "host:80", "[::1]" or "[::1]:80", without brackets or a dot at its
 * end. False: it is something else. */
static bool cut_host(const char *text, char host[MAX_HOST_BYTES])
{
    bool bracketed = *text == '[';
    text += bracketed;
    size_t length = strcspn(text, bracketed ? "]" : ":");
    const char *port = text + length + bracketed;
    if (!length || length >= MAX_HOST_BYTES || (bracketed && text[length] != ']') ||
        (*port && (*port != ':' || port[1 + strspn(port + 1, "0123456789")])))
        return false;
    memcpy(host, text, length);
    host[length - (!bracketed && length > 1 && text[length - 1] == '.')] = 0;
    return true;
}

bool http_host_is_own(const char *text, const char *hosts)
{
    static const char local[] = "localhost";
    char host[MAX_HOST_BYTES] = {0};
    if (!cut_host(text, host))
        return false;
    size_t length = strlen(host), end = strlen(local);
    bool is_local = length >= end && !strcasecmp(host + length - end, local) &&
                    (length == end || host[length - end - 1] == '.');
    return is_local || is_loopback(host) || is_listed(hosts, host);
}

bool http_origin_is_own(const char *origin, const char *hosts, const char *origins)
{
    const char *host = strstr(origin, "://");
    return http_cors_allowed(origins, origin) ||
           (host && http_host_is_own(host + strlen("://"), hosts));
}

enum status http_check_hosts(const char *hosts, struct error *err)
{
    size_t length;
    for (const char *one; (one = next_entry(&hosts, &length));) {
        struct in6_addr v6;
        char entry[MAX_HOST_BYTES] = {0}, host[MAX_HOST_BYTES];
        if (length < sizeof entry)
            memcpy(entry, one, length);
        bool is_name = cut_host(entry, host) && !strcmp(entry, host) && !strpbrk(entry, "/[] \t");
        if (strcmp(entry, "*") != 0 && !is_name && inet_pton(AF_INET6, entry, &v6) != 1)
            return error_set(err, STATUS_INVALID,
                             "'%.*s' is no host: give * for all, or names and addresses without "
                             "scheme and port, like api.example.com, divided by commas",
                             length < 100 ? (int)length : 100, one);
    }
    return STATUS_OK;
}

/* --- pages of other origins --- */

bool http_cors_allows_all(const char *origins)
{
    size_t length;
    if (!origins)
        return false;
    for (const char *one; (one = next_entry(&origins, &length));)
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
    for (const char *one; (one = next_entry(&origins, &length));)
        if (length == strlen(origin) && !memcmp(one, origin, length))
            return origin;
    return NULL;
}

/* Returns whether it is like "https://app.example", with a port or without. */
static bool is_origin(const char *text, size_t length)
{
    const char *scheme = memchr(text, ':', length);
    size_t begin = scheme ? (size_t)(scheme - text) + strlen("://") : 0;
    if (!scheme || scheme == text || length > MAX_ORIGIN_BYTES || begin >= length ||
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
    for (const char *one; (one = next_entry(&origins, &length));)
        if (!(length == 1 && *one == '*'))
            TRY(check_origin(one, length, err));
    return STATUS_OK;
}
