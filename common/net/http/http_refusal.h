/* Why a request isn't served: what the client is told. Pure. */
#ifndef BATON_NET_HTTP_HTTP_REFUSAL_H
#define BATON_NET_HTTP_HTTP_REFUSAL_H

#include "common/base/status.h"

struct http_refusal {
    int status;       /* 400 .. 505 */
    const char *code; /* stable, lower case with underscores: "malformed_request"; static text */
    struct error why; /* a sentence for whoever wrote the client */
};

#define HTTP_CODE_MALFORMED       "malformed_request" /* 400: no HTTP/1.1, or in doubt where it ends */
#define HTTP_CODE_TARGET_TOO_LONG "uri_too_long"      /* 414 */
#define HTTP_CODE_HEAD_TOO_LARGE  "headers_too_large"    /* 431 */
#define HTTP_CODE_BODY_TOO_LARGE  "body_too_large"       /* 413 */
#define HTTP_CODE_EXPECTATION     "expectation_failed"   /* 417 */
#define HTTP_CODE_VERSION         "http_version"         /* 505 */
#define HTTP_CODE_SLOW            "request_timeout"      /* 408 */
#define HTTP_CODE_NOT_FOUND       "not_found"            /* 404 */
#define HTTP_CODE_METHOD          "method_not_allowed"   /* 405 */
#define HTTP_CODE_NO_ROOM         "overloaded"           /* 503: bodies of all requests together */
#define HTTP_CODE_TOO_MANY        "too_many_connections" /* 503 */
#define HTTP_CODE_INTERNAL        "internal_error"       /* 500 */

/* Fills *why and returns STATUS_INVALID, so that `return http_refuse(...)` reads well. `code` is
 * static text. */
enum status http_refuse(struct http_refusal *why, int status, const char *code, const char *format,
                        ...) __attribute__((format(printf, 4, 5)));

#endif
