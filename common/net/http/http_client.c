#include "common/net/http/http_client.h"

#include "common/base/assert.h"
#include "common/net/crypto/certificates.h"
#include "common/net/http/http_request.h"
#include "common/net/http/http_transfer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_POST_ANSWER_BYTES 65536
#define MAX_CALL_BYTES        2048 /* path, key and content type */

static bool given(const char *text)
{
    return text && *text;
}

static enum status read_remote(const struct http_remote *remote, struct http_url *url,
                               struct error *err)
{
    TRY(http_url_parse(remote->url, url, err));
    for (const char *c = remote->api_key; c && *c; c++)
        if (*c <= 0x20 || *c >= 0x7f)
            return error_set(err, STATUS_INVALID,
                             "the API key holds what no header can: blanks, or something else "
                             "than printable ASCII");
    if (!url->told)
        url->tls = remote->certificates != NULL;
    return http_url_check_tls(url, remote->url, remote->certificates != NULL, err);
}

enum status http_remote_check(const struct http_remote *remote, struct error *err)
{
    struct http_url url;
    return read_remote(remote, &url, err);
}

/* --- the answer, as libcurl hands it over --- */

static bool is_fine(const struct http_transfer *transfer)
{
    if (transfer->take)
        return true;
    return transfer->body ? transfer->status / 100 == 2 : transfer->status == 200;
}

/* Ends the transfer. */
static size_t fail(struct http_transfer *transfer, enum status status, const char *words)
{
    transfer->failed = error_set(transfer->err, status, "%s %s", transfer->url.authority, words);
    return 0;
}

/* "HTTP/1.1 200 OK". The reason is the server's text: bytes that a terminal might interpret become
 * "?". */
static bool read_status_line(struct http_transfer *transfer, const char *line, size_t count)
{
    char text[80];
    snprintf(text, sizeof text, "%.*s", (int)count, line);
    text[strcspn(text, "\r\n")] = 0;
    if (strncmp(text, "HTTP/1.", 7) != 0 || strlen(text) < 12 || text[9] < '1' || text[9] > '9')
        return false;
    for (char *c = text; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    transfer->status = strtol(text + 9, NULL, 10);
    str_copy(transfer->reason, sizeof transfer->reason, text + 9);
    transfer->chunked = false;
    return true;
}

/* True: "Transfer-Encoding: chunked". */
static bool says_chunked(const char *line, size_t count)
{
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)count, line);
    if (strncasecmp(text, "transfer-encoding:", 18) != 0)
        return false;
    const char *value = text + 18 + strspn(text + 18, " \t");
    return !strncasecmp(value, "chunked", 7) && !value[7 + strspn(value + 7, " \t\r\n")];
}

/* One line of a head, or of a trailer. An answer that isn't fine is over with its head. */
static size_t on_head(char *line, size_t one, size_t count, void *context)
{
    struct http_transfer *transfer = context;
    (void)one; /* 1 */
    transfer->head_bytes += count;
    if (transfer->head_bytes > HTTP_MAX_HEAD_BYTES)
        return fail(transfer, STATUS_LIMIT, "answers with a head that is too large");
    if (transfer->has_head)
        return count;
    if (count > 5 && !strncmp(line, "HTTP/", 5) && !read_status_line(transfer, line, count))
        return fail(transfer, STATUS_INVALID, "does not speak HTTP");
    transfer->chunked |= says_chunked(line, count);
    transfer->has_head = (*line == '\r' || *line == '\n') && transfer->status >= 200;
    return transfer->has_head && !is_fine(transfer) ? 0 : count;
}

static size_t on_body(char *bytes, size_t one, size_t count, void *context)
{
    struct http_transfer *transfer = context;
    (void)one;                 /* 1 */
    if (!transfer->has_head) { /* HTTP/0.9, or no HTTP at all */
        bool record = count > 1 && bytes[0] == 0x15 && bytes[1] == 3;
        return fail(transfer, STATUS_INVALID,
                    record ? "answers in TLS: if TLS is what it speaks, call it with https://"
                           : "does not speak HTTP");
    }
    if (transfer->take)
        return transfer->take(transfer, bytes, count);
    str_append(transfer->payload, bytes, count);
    if (!transfer->payload->truncated)
        return count;
    transfer->failed = error_set(transfer->err, STATUS_LIMIT, "%s answers with more than %zu bytes",
                                 transfer->url.authority, transfer->payload->limit);
    return 0;
}

/* libcurl reports each alert as a text: "TLSv1.3 (IN), TLS alert, unknown (628):". The number is
 * 256 * level + description. Nothing else reports an alert that comes while the request is sent,
 * and the end that the server announced. */
static int on_debug(CURL *curl, curl_infotype type, char *text, size_t count, void *context)
{
    struct http_transfer *transfer = context;
    char line[128];
    (void)curl;
    if (type != CURLINFO_TEXT)
        return 0;
    snprintf(line, sizeof line, "%.*s", (int)count, text);
    const char *number = strrchr(line, '(');
    if (strncmp(line, "TLSv", 4) != 0 || !strstr(line, "(IN), TLS alert") || !number)
        return 0;
    unsigned description = (unsigned)strtoul(number + 1, NULL, 10) & 0xff;
    if (description)
        transfer->alert = description;
    else
        transfer->has_goodbye = true;
    return 0;
}

/* --- the options of libcurl --- */

static void start_libcurl(void)
{
    CURLcode failed = curl_global_init(CURL_GLOBAL_DEFAULT);
    ASSERT(!failed);
}

static void add_header(struct curl_slist **headers, const char *name, const char *value)
{
    char line[MAX_CALL_BYTES + HTTP_URL_BYTES];
    snprintf(line, sizeof line, "%s: %s", name, value);
    struct curl_slist *more = curl_slist_append(*headers, line);
    ASSERT(more);
    *headers = more;
    explicit_bzero(line, sizeof line); /* it may hold the key */
}

static struct curl_slist *make_headers(const struct http_transfer *transfer)
{
    struct curl_slist *headers = NULL;
    char bearer[MAX_CALL_BYTES + 8];
    add_header(&headers, "Host", transfer->url.authority);
    if (!transfer->take)
        add_header(&headers, "Connection", "close");
    for (size_t i = 0; i < transfer->header_count; i++)
        add_header(&headers, transfer->headers[i].name, transfer->headers[i].value);
    if (transfer->body) {
        add_header(&headers, "Content-Type", transfer->content_type);
        add_header(&headers, "Expect", ""); /* no round trip before a large body */
    }
    if (given(transfer->remote->api_key)) {
        snprintf(bearer, sizeof bearer, "Bearer %s", transfer->remote->api_key);
        add_header(&headers, "Authorization", bearer);
        explicit_bzero(bearer, sizeof bearer);
    }
    return headers;
}

/* Wipes the headers first: one may hold the key. */
static void free_headers(struct curl_slist *headers)
{
    for (struct curl_slist *header = headers; header; header = header->next)
        explicit_bzero(header->data, strlen(header->data));
    curl_slist_free_all(headers);
}

static struct curl_blob blob_of(const char *text)
{
    return (struct curl_blob){(void *)text, strlen(text), CURL_BLOB_NOCOPY};
}

/* Returns nonzero if an option isn't taken. */
static unsigned set_tls(struct http_transfer *transfer)
{
    CURL *curl = transfer->curl;
    unsigned bad = 0;
    const char *file = getenv("SSL_CERT_FILE"), *folder = getenv("SSL_CERT_DIR");
    bad |= curl_easy_setopt(curl, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    bad |= curl_easy_setopt(curl, CURLOPT_SSL_CIPHER_LIST, "ECDHE+AESGCM:ECDHE+CHACHA20");
    bad |= curl_easy_setopt(curl, CURLOPT_SSL_SESSIONID_CACHE, 0L);
    bad |= curl_easy_setopt(curl, CURLOPT_DEBUGFUNCTION, on_debug);
    bad |= curl_easy_setopt(curl, CURLOPT_DEBUGDATA, transfer);
    bad |= curl_easy_setopt(curl, CURLOPT_VERBOSE, 1L);
    /* Closes before perform returns, and closing reads an alert that has come. */
    bad |= curl_easy_setopt(curl, CURLOPT_FORBID_REUSE, transfer->take ? 0L : 1L);
    if (transfer->set && transfer->set->ca) {
        struct curl_blob ca = blob_of(transfer->set->ca);
        bad |= curl_easy_setopt(curl, CURLOPT_CAINFO_BLOB, &ca);
        bad |= curl_easy_setopt(curl, CURLOPT_CAINFO, NULL);
        bad |= curl_easy_setopt(curl, CURLOPT_CAPATH, NULL); /* none of the machine's */
    } else {
        /* The machine's CAs are roots: a server's own certificate among them is no proof. A folder
         * is searched by name. libcurl's default, a file of all CAs, takes long to read. */
        folder = folder ? folder : curl_version_info(CURLVERSION_NOW)->capath;
        bad |= curl_easy_setopt(curl, CURLOPT_SSL_OPTIONS, (long)CURLSSLOPT_NO_PARTIALCHAIN);
        if (file || folder)
            bad |= curl_easy_setopt(curl, CURLOPT_CAINFO, file);
        if (folder)
            bad |= curl_easy_setopt(curl, CURLOPT_CAPATH, folder);
    }
    if (transfer->set && transfer->set->cert) {
        struct curl_blob cert = blob_of(transfer->set->cert), key = blob_of(transfer->set->key);
        bad |= curl_easy_setopt(curl, CURLOPT_SSLCERT_BLOB, &cert);
        bad |= curl_easy_setopt(curl, CURLOPT_SSLKEY_BLOB, &key);
    }
    return bad;
}

static void set_options(struct http_transfer *transfer, uint64_t timeout_us)
{
    CURL *curl = transfer->curl;
    unsigned bad = transfer->url.tls ? set_tls(transfer) : 0;
    bad |= curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, transfer->words);
    bad |= curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    bad |= curl_easy_setopt(curl, CURLOPT_PROXY, "");
    bad |= curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    bad |= curl_easy_setopt(curl, CURLOPT_REQUEST_TARGET, transfer->path);
    bad |= curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS,
                            timeout_us < 1000 ? 1L : (long)((timeout_us + 999) / 1000));
    bad |= curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    bad |= curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L); /* leaves a look-up that hangs alone */
    bad |= curl_easy_setopt(curl, CURLOPT_HTTP09_ALLOWED, 1L); /* on_body refuses it */
    bad |= curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_head);
    bad |= curl_easy_setopt(curl, CURLOPT_HEADERDATA, transfer);
    bad |= curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    bad |= curl_easy_setopt(curl, CURLOPT_WRITEDATA, transfer);
    if (transfer->body) {
        bad |= curl_easy_setopt(curl, CURLOPT_POSTFIELDS, transfer->body->data); /* isn't copied */
        bad |=
            curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)transfer->body->length);
    }
    ASSERT(!bad);
}

/* --- what went wrong --- */

/* The server's certificate is refused. libcurl's sentence is "SSL certificate problem: REASON"
 * unless the chain is good and the name is wrong. */
static enum status explain_certificate(const struct http_transfer *transfer, struct error *err)
{
    static const char problem[] = "certificate problem: ";
    const char *who = transfer->url.authority, *reason = strstr(transfer->words, problem),
               *name = given(transfer->remote->peer_name) ? transfer->remote->peer_name
                                                          : transfer->url.host;
    if (!reason)
        return error_set(err, STATUS_INVALID,
                         "the certificate of %s does not hold the name \"%.120s\": call it by a "
                         "name that it holds, or say which with --%s-name",
                         who, name, transfer->setting);
    if (strstr(reason, "has expired"))
        return error_set(err, STATUS_INVALID,
                         "the certificate of %s has expired: renew it there (or set this "
                         "machine's clock)",
                         who);
    if (strstr(reason, "not yet valid"))
        return error_set(err, STATUS_INVALID,
                         "the certificate of %s is not valid yet: look at both machines' clocks",
                         who);
    return error_set(err, STATUS_INVALID,
                     "the certificate of %s is not one to trust: %s (--%s-ca names the CAs "
                     "that are trusted)",
                     who, reason + strlen(problem), transfer->setting);
}

/* The alerts of a server that refuses the client's certificate, or its absence. NULL: another
 * one. */
static const char *certificate_alert(unsigned alert)
{
    switch (alert) {
    case 40: return "handshake failure";
    case 42: return "bad certificate";
    case 43: return "unsupported certificate";
    case 44: return "certificate revoked";
    case 45: return "certificate expired";
    case 46: return "certificate unknown";
    case 48: return "unknown CA";
    case 116: return "certificate required";
    default: return NULL;
    }
}

/* The server has sent an alert, or what it sent isn't TLS: "error:0A00010B:SSL routines::wrong
 * version number, errno 0". */
static enum status explain_tls(struct http_transfer *transfer, struct error *err)
{
    const char *who = transfer->url.authority, *setting = transfer->setting,
               *refused = certificate_alert(transfer->alert),
               *reason = strstr(transfer->words, "::");
    char *end = strstr(transfer->words, ", errno");
    reason = reason ? reason + 2 : transfer->words;
    if (end)
        *end = 0;
    if (refused && transfer->set && transfer->set->cert)
        return error_set(err, STATUS_INVALID,
                         "%s does not take the certificate of --%s-cert: %s (one of its clients' "
                         "CAs must have signed it)",
                         who, setting, refused);
    if (refused)
        return error_set(err, STATUS_INVALID,
                         "%s wants a client's certificate: %s (give --%s-cert and --%s-key)", who,
                         refused, setting, setting);
    if (transfer->alert == 70 || strstr(reason, "unsupported protocol"))
        return error_set(err, STATUS_INVALID, "%s speaks no TLS of 1.2 or later: %s", who, reason);
    if (strstr(reason, "wrong version") || strstr(reason, "packet length") ||
        strstr(reason, "http request"))
        return error_set(err, STATUS_INVALID,
                         "%s answers, but not in TLS: call it with http:// and without --%s-ca",
                         who, setting);
    return error_set(err, STATUS_UNAVAILABLE, "TLS with %s failed: %s", who, reason);
}

/* The connection ended before the answer did. */
static enum status explain_end(const struct http_transfer *transfer, struct error *err)
{
    const char *who = transfer->url.authority;
    if (transfer->head_bytes)
        return error_set(err, STATUS_UNAVAILABLE, "%s broke off in the middle of its answer", who);
    return error_set(err, STATUS_UNAVAILABLE, "%s closed the connection without an answer%s", who,
                     transfer->url.tls ? "" : ": if TLS is what it speaks, call it with https://");
}

static enum status explain(struct http_transfer *transfer, CURLcode result, struct error *err)
{
    const char *who = transfer->url.authority;
    const char *reason = *transfer->words ? transfer->words : curl_easy_strerror(result);
    bool of_tls = transfer->alert || strstr(reason, "routines::");
    bool cut = strstr(reason, "unexpected eof");
    long error = 0;
    curl_off_t answered_us = 0;
    switch (result) {
    case CURLE_COULDNT_RESOLVE_HOST:
        return error_set(err, STATUS_UNAVAILABLE,
                         "%s: no address is known for this name: is it right, and do this "
                         "machine's name servers answer?",
                         who);
    case CURLE_COULDNT_CONNECT:
        curl_easy_getinfo(transfer->curl, CURLINFO_OS_ERRNO, &error);
        return error_set(err, STATUS_UNAVAILABLE, "cannot connect to %s: %s", who,
                         error ? strerror((int)error) : reason);
    case CURLE_OPERATION_TIMEDOUT:
        return error_set(err, STATUS_TIMEOUT,
                         strstr(reason, "Resolving") ? "%s: its address was not found in time"
                                                     : "%s did not answer in time",
                         who);
    case CURLE_PEER_FAILED_VERIFICATION: return explain_certificate(transfer, err);
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CLIENTCERT:
        if (of_tls && !cut)
            return explain_tls(transfer, err);
        return error_set(err, STATUS_UNAVAILABLE,
                         "%s closed the connection in the middle of the TLS handshake: is TLS "
                         "what it speaks there?",
                         who);
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
        return error_set(err, STATUS_INVALID,
                         "%s can't be called: the files of --%s-... (or this machine's store of "
                         "CAs) can't be used: %s",
                         who, transfer->setting, reason);
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
        return of_tls && !cut ? explain_tls(transfer, err) : explain_end(transfer, err);
    case CURLE_OK: /* without a head */
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE: return explain_end(transfer, err);
    case CURLE_OUT_OF_MEMORY: /* older ones: also a head's line over libcurl's limit */
        curl_easy_getinfo(transfer->curl, CURLINFO_STARTTRANSFER_TIME_T, &answered_us);
        if (transfer->has_head || !answered_us)
            return error_set(err, STATUS_LIMIT, "the call of %s failed: out of memory", who);
        __attribute__((fallthrough));
    case (CURLcode)100: /* CURLE_TOO_LARGE */
        return error_set(err, STATUS_LIMIT, "%s answers with a head that is too large", who);
    case CURLE_BAD_CONTENT_ENCODING:
        return error_set(err, STATUS_INVALID, "%s answers in an encoding that can't be read: %s",
                         who, reason);
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
        return error_set(err, STATUS_INVALID, "%s does not speak HTTP: %s", who, reason);
    default: return error_set(err, STATUS_UNAVAILABLE, "the call of %s failed: %s", who, reason);
    }
}

enum status http_transfer_judge(struct http_transfer *transfer, CURLcode result, struct error *err)
{
    bool lone_post = transfer->body && !transfer->take;
    if (transfer->failed != STATUS_OK)
        return transfer->failed;
    if (transfer->has_head && !is_fine(transfer)) {
        const char *why = "";
        if (transfer->status == 401)
            why = given(transfer->remote->api_key) ? ": it doesn't know this API key"
                                                   : ": it asks for an API key";
        return error_set(err, transfer->status == 404 ? STATUS_NOT_FOUND : STATUS_INVALID,
                         "%s answered %s%s", transfer->url.authority, transfer->reason, why);
    }
    if (!transfer->has_head)
        return explain(transfer, result, err);
    if (result == CURLE_RECV_ERROR && strstr(transfer->words, "chunk"))
        return error_set(err, STATUS_INVALID, "%s answers in broken chunks",
                         transfer->url.authority);
    if (lone_post && (result == CURLE_RECV_ERROR || result == CURLE_PARTIAL_FILE))
        return STATUS_OK; /* the head of an answer to a POST says all */
    /* The server must have said where its answer ends. Without TLS that is unknown. */
    curl_off_t length = -1;
    curl_easy_getinfo(transfer->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    bool ends = lone_post || length >= 0 || transfer->chunked || transfer->has_goodbye ||
                !transfer->url.tls;
    return result == CURLE_OK && ends ? STATUS_OK : explain(transfer, result, err);
}

/* --- a call --- */

/* The URL holds the name that is checked, and the connection goes to the host's address. */
static enum status set_addresses(const struct http_transfer *transfer,
                                 struct curl_slist **connect_to, struct error *err)
{
    const char *name = transfer->remote->peer_name;
    struct http_url named = transfer->url;
    char text[2 * HTTP_URL_BYTES];
    struct error ignored;
    bool is_6 = given(name) && strchr(name, ':');
    if (transfer->url.tls && given(name)) {
        snprintf(text, sizeof text, "https://%s%.*s%s:%s", is_6 ? "[" : "", HTTP_URL_BYTES, name,
                 is_6 ? "]" : "", transfer->url.port);
        if (http_url_parse(text, &named, &ignored) != STATUS_OK)
            return error_set(err, STATUS_INVALID, "\"%.120s\" is no name for --%s-name", name,
                             transfer->setting);
        snprintf(text, sizeof text, "::%s", transfer->url.authority);
        *connect_to = curl_slist_append(NULL, text);
        ASSERT(*connect_to);
    }
    snprintf(text, sizeof text, "%s://%s/", transfer->url.tls ? "https" : "http", named.authority);
    CURLcode bad = curl_easy_setopt(transfer->curl, CURLOPT_URL, text);
    ASSERT(!bad);
    return STATUS_OK;
}

enum status http_transfer_open(struct http_transfer *transfer, uint64_t timeout_us,
                               struct error *err)
{
    const char *key = transfer->remote->api_key;
    TRY(read_remote(transfer->remote, &transfer->url, err));
    if (strlen(transfer->path) + strlen(transfer->content_type) + (key ? strlen(key) : 0) >
        MAX_CALL_BYTES)
        return error_set(err, STATUS_LIMIT, "path '%.64s...' and key are too long", transfer->path);
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_libcurl);
    struct certificates *certificates = transfer->remote->certificates;
    transfer->lines = make_headers(transfer);
    transfer->setting = certificates ? certificates_name(certificates) : "tls";
    transfer->set = certificates ? certificates_take(certificates) : NULL;
    transfer->curl = curl_easy_init();
    ASSERT(transfer->curl);
    set_options(transfer, timeout_us);
    enum status status = set_addresses(transfer, &transfer->connect_to, err);
    if (status == STATUS_OK) {
        CURLcode bad = curl_easy_setopt(transfer->curl, CURLOPT_HTTPHEADER, transfer->lines);
        bad =
            bad ? bad : curl_easy_setopt(transfer->curl, CURLOPT_CONNECT_TO, transfer->connect_to);
        ASSERT(!bad);
        return STATUS_OK;
    }
    http_transfer_close(transfer);
    return status;
}

void http_transfer_close(struct http_transfer *transfer)
{
    curl_easy_cleanup(transfer->curl);
    free_headers(transfer->lines);
    curl_slist_free_all(transfer->connect_to);
    if (transfer->set)
        certificate_set_give(transfer->set);
}

static enum status perform(struct http_transfer *transfer, uint64_t timeout_us, struct error *err)
{
    TRY(http_transfer_open(transfer, timeout_us, err));
    enum status status = http_transfer_judge(transfer, curl_easy_perform(transfer->curl), err);
    http_transfer_close(transfer);
    return status;
}

enum status http_get(const struct http_remote *remote, const char *path, uint64_t timeout_us,
                     struct str *body, struct error *err)
{
    struct http_transfer transfer = {
        .remote = remote, .path = path, .content_type = "", .payload = body, .err = err};
    size_t before = body->length;
    enum status status = perform(&transfer, timeout_us, err);
    if (status != STATUS_OK) {
        body->length = before;
        body->data[before] = 0;
    }
    return status;
}

enum status http_post(const struct http_remote *remote, const char *path, const char *content_type,
                      const struct str *body, uint64_t timeout_us, struct error *err)
{
    struct str answer;
    str_init(&answer, MAX_POST_ANSWER_BYTES);
    struct http_transfer transfer = {.remote = remote,
                                     .path = path,
                                     .content_type = content_type,
                                     .body = body,
                                     .payload = &answer,
                                     .err = err};
    enum status status = perform(&transfer, timeout_us, err);
    str_deinit(&answer);
    return status;
}
