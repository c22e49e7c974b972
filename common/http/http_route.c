#include "common/http/http_route.h"

#include <stdio.h>
#include <string.h>

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

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && !strcmp(text + length - end_length, end);
}

const char *http_route_meant(const struct http_route *routes, size_t count, const char *path)
{
    for (size_t i = 0; i < count; i++) {
        const char *known = routes[i].path;
        if (path[0] == '/' && path[1] && known[1] && !ends_with(known, "/*") &&
            (ends_with(known, path) || ends_with(path, known)))
            return known;
    }
    return NULL;
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
