/* The owner's side of tcp: a listener, and for every reader that connects an endpoint that answers its asks out of the pool. Serving costs
 * no memory beyond the fixed slots of a client: the bytes go out of the pool itself. */
#include "common/transport/ucx.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CLIENTS KV_TRANSPORT_MAX_PEERS
/* Connections that UCX reports in one poll; the ones above are turned away. */
#define MAX_WAITING 64
/* An answer's slot is free again when UCX says that it was sent, the reader's window when it arrived: leave room between. */
#define MAX_SENDS    (2 * UCX_WINDOW)
#define CLOSE_MAX_US 2000000

struct ucx_client;

struct ucx_send {
    struct ucx_client *client;
    bool busy;
    struct ucx_answer answer; /* UCX reads it until it was sent */
};

struct ucx_client {
    TAILQ_ENTRY(ucx_client) link;
    ucp_ep_h endpoint;
    bool failed; /* -> closed by the next progress */
    bool closing;
    ucs_status_ptr_t close_request;
    uint32_t sends; /* busy ones */
    struct ucx_send send[MAX_SENDS];
};

struct ucx_server {
    ucp_listener_h listener;
    TAILQ_HEAD(, ucx_client) clients;
    uint32_t client_count, waiting_count;
    ucp_conn_request_h waiting[MAX_WAITING];
};

/* -- answers -- */

static void answer_sent(void *request, ucs_status_t status, void *user_data)
{
    (void)status; /* one that failed is the endpoint's failure, which is reported */
    struct ucx_send *send = user_data;
    send->busy = false;
    send->client->sends--;
    ucp_request_free(request);
}

static void answer(struct ucx_transport *ucx, struct ucx_client *client, const struct ucx_ask *ask)
{
    struct ucx_send *send = client->send;
    while (send < client->send + MAX_SENDS && send->busy)
        send++;
    if (send == client->send + MAX_SENDS) {
        log_warn("transport", "msg=\"a reader asks for more at once than the window: closing it\"");
        client->failed = true;
        return;
    }
    *send = (struct ucx_send){.client = client, .busy = true, .answer = {.token = ask->token}};
    client->sends++;
    ucp_request_param_t params = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_EAGER,
        .cb.send = answer_sent,
        .user_data = send,
    };
    ucs_status_ptr_t got =
        ucp_am_send_nbx(client->endpoint, UCX_ANSWER, &send->answer, sizeof send->answer,
                        ucx->base.pool + ask->offset, ask->bytes, &params);
    if (UCS_PTR_IS_PTR(got))
        return;
    send->busy = false;
    client->sends--;
    client->failed = client->failed || UCS_PTR_IS_ERR(got);
}

static bool ask_is_good(const struct ucx_transport *ucx, const struct ucx_ask *ask)
{
    return ask->pool_id == ucx->pool_id && ask->bytes > 0 && ask->bytes <= UCX_PART_BYTES &&
           ask->bytes <= ucx->base.pool_bytes && ask->offset <= ucx->base.pool_bytes - ask->bytes;
}

static ucs_status_t ask_came(void *arg, const void *header, size_t header_bytes, void *data,
                             size_t bytes, const ucp_am_recv_param_t *param)
{
    (void)data;
    struct ucx_transport *ucx = arg;
    if (!(param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP))
        return UCS_OK;
    struct ucx_client *client;
    TAILQ_FOREACH(client, &ucx->server->clients, link)
    if (client->endpoint == param->reply_ep)
        break;
    if (!client || client->failed)
        return UCS_OK;
    struct ucx_ask ask = {0};
    if (header_bytes == sizeof ask && bytes == 0)
        memcpy(&ask, header, sizeof ask);
    if (ask_is_good(ucx, &ask)) {
        answer(ucx, client, &ask);
    } else {
        log_warn("transport",
                 "msg=\"a reader asks for bytes outside the pool: closing it\" "
                 "offset=%llu bytes=%llu",
                 (unsigned long long)ask.offset, (unsigned long long)ask.bytes);
        client->failed = true;
    }
    return UCS_OK;
}

/* -- connections -- */

static void connection_came(ucp_conn_request_h request, void *arg)
{
    struct ucx_server *server = arg;
    if (server->waiting_count < MAX_WAITING)
        server->waiting[server->waiting_count++] = request;
    else
        ucp_listener_reject(server->listener, request);
}

static void endpoint_failed(void *arg, ucp_ep_h endpoint, ucs_status_t status)
{
    (void)endpoint;
    (void)status; /* readers come and go */
    ((struct ucx_client *)arg)->failed = true;
}

static void client_accept(struct ucx_transport *ucx, ucp_conn_request_h request)
{
    struct ucx_server *server = ucx->server;
    struct ucx_client *client =
        server->client_count < MAX_CLIENTS ? calloc(1, sizeof *client) : NULL;
    if (!client) {
        log_warn("transport", "msg=\"too many readers: one is turned away\" readers=%u",
                 server->client_count);
        ucp_listener_reject(server->listener, request);
        return;
    }
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .conn_request = request,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = endpoint_failed, .arg = client},
    };
    ucs_status_t got = ucp_ep_create(ucx->tcp.worker, &params, &client->endpoint);
    if (got != UCS_OK) { /* it has gone again; UCX has said so */
        free(client);
        return;
    }
    TAILQ_INSERT_TAIL(&server->clients, client, link);
    server->client_count++;
}

void ucx_server_progress(struct ucx_transport *ucx)
{
    struct ucx_server *server = ucx->server;
    for (uint32_t i = 0; i < server->waiting_count; i++)
        client_accept(ucx, server->waiting[i]);
    server->waiting_count = 0;
    ucx->base.unfinished = false;
    struct ucx_client *client;
    for (struct ucx_client *next = TAILQ_FIRST(&server->clients); (client = next);) {
        next = TAILQ_NEXT(client, link);
        if (client->failed && !client->closing) {
            client->closing = true;
            client->close_request = ucx_endpoint_close(client->endpoint);
        }
        if (!client->closing)
            continue;
        if (ucx_endpoint_is_closed(&client->close_request) && client->sends == 0) {
            TAILQ_REMOVE(&server->clients, client, link);
            server->client_count--;
            free(client);
        } else {
            ucx->base.unfinished = true;
        }
    }
}

/* -- open, close -- */

/* The interface's first IPv4 address, else its first IPv6 address that is not link-local. */
static bool interface_address(const char *interface, struct sockaddr_storage *out)
{
    struct ifaddrs *list;
    if (getifaddrs(&list) != 0)
        return false;
    int best = 0;
    for (const struct ifaddrs *at = list; at; at = at->ifa_next) {
        if (!at->ifa_addr || strcmp(at->ifa_name, interface) != 0)
            continue;
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)at->ifa_addr;
        if (at->ifa_addr->sa_family == AF_INET && best < 2) {
            best = 2;
            memcpy(out, at->ifa_addr, sizeof(struct sockaddr_in));
        } else if (at->ifa_addr->sa_family == AF_INET6 && best < 1 &&
                   !IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr)) {
            best = 1;
            memcpy(out, at->ifa_addr, sizeof *in6);
        }
    }
    freeifaddrs(list);
    return best > 0;
}

static enum status listen_on(struct ucx_transport *ucx, const struct sockaddr_storage *at,
                             struct kv_address *address, struct error *err)
{
    struct ucx_server *server = ucx->server;
    ucp_listener_params_t params = {
        .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr = {.addr = (const struct sockaddr *)at,
                     .addrlen = at->ss_family == AF_INET ? sizeof(struct sockaddr_in)
                                                         : sizeof(struct sockaddr_in6)},
        .conn_handler = {.cb = connection_came, .arg = server},
    };
    ucs_status_t got = ucp_listener_create(ucx->tcp.worker, &params, &server->listener);
    if (got != UCS_OK)
        return error_set(err, ucx_status(got), "UCX can't listen: %s", ucs_status_string(got));
    ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    got = ucp_listener_query(server->listener, &attr);
    if (got != UCS_OK)
        return error_set(err, ucx_status(got), "UCX doesn't say where it listens: %s",
                         ucs_status_string(got));
    const struct sockaddr_in *in4 = (const struct sockaddr_in *)&attr.sockaddr;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&attr.sockaddr;
    if (attr.sockaddr.ss_family == AF_INET) {
        address->ip_version = 4;
        address->port = ntohs(in4->sin_port);
        memcpy(address->ip, &in4->sin_addr, sizeof in4->sin_addr);
    } else {
        address->ip_version = 6;
        address->port = ntohs(in6->sin6_port);
        memcpy(address->ip, &in6->sin6_addr, sizeof in6->sin6_addr);
    }
    return STATUS_OK;
}

enum status ucx_server_open(struct ucx_transport *ucx, const char *interface,
                            struct kv_address *address, struct error *err)
{
    struct sockaddr_storage at = {0};
    if (!interface_address(interface, &at))
        return error_set(err, STATUS_INVALID, "the network interface %s has no address", interface);
    ucx->server = calloc(1, sizeof *ucx->server);
    if (!ucx->server)
        return error_set(err, STATUS_LIMIT, "no memory for a transport");
    TAILQ_INIT(&ucx->server->clients);
    ucp_am_handler_param_t params = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = UCX_ASK,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = ask_came,
        .arg = ucx,
    };
    ucs_status_t got = ucp_worker_set_am_recv_handler(ucx->tcp.worker, &params);
    if (got != UCS_OK)
        return error_set(err, ucx_status(got), "UCX takes no handler: %s", ucs_status_string(got));
    return listen_on(ucx, &at, address, err);
}

void ucx_server_close(struct ucx_transport *ucx)
{
    struct ucx_server *server = ucx->server;
    if (!server)
        return;
    if (server->listener)
        ucp_listener_destroy(server->listener); /* with what waits */
    server->waiting_count = 0;
    struct ucx_client *client;
    TAILQ_FOREACH(client, &server->clients, link)
    client->failed = true;
    for (uint64_t start = clock_now_us();
         !TAILQ_EMPTY(&server->clients) && clock_now_us() - start < CLOSE_MAX_US;) {
        ucx_server_progress(ucx);
        ucp_worker_progress(ucx->tcp.worker);
    }
    if (TAILQ_EMPTY(&server->clients))
        free(server);
    else
        log_error("transport", "msg=\"UCX does not close its endpoints: leaving them\" readers=%u",
                  server->client_count);
    ucx->server = NULL;
}
