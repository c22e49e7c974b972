#include "common/net/rpc/grpc/tls.h"

#include <grpc/grpc_security_constants.h>

#include <stdatomic.h>
#include <string.h>
#include <strings.h>

#define DOOR        "external:tls"
#define KNOWN_CORES "29." /* gRPC 1.51: the code below follows its sources */

/* --- server side --- */

/* grpc_core::TcpServerFdHandler as the C++ ABI of Linux lays it out: a pointer to its table of
 * virtual functions, in which the two destructors come before `virtual void Handle(int listener_fd,
 * int fd, grpc_byte_buffer *pending_read)`. */
struct fd_handler {
    const struct fd_handler_table {
        void (*destroy)(struct fd_handler *self);
        void (*destroy_and_free)(struct fd_handler *self);
        void (*handle)(struct fd_handler *self, int listener_fd, int fd,
                       grpc_byte_buffer *pending_read);
    } * table;
};

/* Core copies its arguments; this one is always the door's own pointer. */
static void *same_pointer(void *pointer)
{
    return pointer;
}

static void leave_pointer(void *pointer)
{
    (void)pointer;
}

static int compare_pointers(void *a, void *b)
{
    return (a > b) - (a < b);
}

void tls_door_prepare(struct tls_door *door, struct channel_args *args)
{
    static const grpc_arg_pointer_vtable vtable = {same_pointer, leave_pointer, compare_pointers};
    channel_args_add_pointer(args, DOOR, &door->handler, &vtable);
    channel_args_add(args, GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, TLS_MAX_HANDSHAKE_MS);
}

/* Core asks at every new connection, under a lock of its own. */
static grpc_ssl_certificate_config_reload_status fetch(void *context,
                                                       grpc_ssl_server_certificate_config **config)
{
    struct tls_door *door = context;
    if (atomic_load(&door->version) == certificates_version(door->certificates))
        return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const struct certificate_set *set = certificates_take(door->certificates);
    /* Core insists on CAs also if no client is asked for a certificate. It never looks at them
     * then, so any will do. */
    const grpc_ssl_pem_key_cert_pair pair = {set->key, set->cert};
    *config = grpc_ssl_server_certificate_config_create(set->ca ? set->ca : set->cert, &pair, 1);
    atomic_store(&door->version, set->version);
    certificate_set_give(set);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

static grpc_server_credentials *server_credentials(struct tls_door *door)
{
    const struct certificate_set *set = certificates_take(door->certificates);
    bool of_clients = set->ca != NULL;
    certificate_set_give(set);
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            of_clients ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                       : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
            fetch, door));
}

enum status tls_door_open(struct tls_door *door, grpc_server *core, struct error *err)
{
    const char *version = grpc_version_string();
    if (strncmp(version, KNOWN_CORES, strlen(KNOWN_CORES)) != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "TLS is made for gRPC core %sx, and this is %s: build with gRPC 1.51",
                         KNOWN_CORES, version);
    grpc_server_credentials *credentials = server_credentials(door);
    grpc_server_add_http2_port(core, DOOR, credentials); /* returns no number for such a port */
    grpc_server_credentials_release(credentials);
    if (door->handler)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "gRPC doesn't take the certificate; its line in the log says why");
}

void tls_door_enter(struct tls_door *door, int fd)
{
    struct fd_handler *handler = door->handler;
    handler->table->handle(handler, -1, fd, NULL);
}

bool tls_peer_has_name(grpc_call *core, const char *name)
{
    grpc_auth_context *context = grpc_call_auth_context(core);
    if (!context)
        return false;
    grpc_auth_property_iterator names =
        grpc_auth_context_find_properties_by_name(context, GRPC_PEER_DNS_PROPERTY_NAME);
    bool found = false;
    size_t length = strlen(name);
    for (const grpc_auth_property *one; (one = grpc_auth_property_iterator_next(&names));)
        found |= one->value_length == length && !strncasecmp(one->value, name, length);
    grpc_auth_context_release(context);
    return found;
}

/* --- client side --- */

grpc_channel_credentials *tls_channel_credentials(const struct certificate_set *set)
{
    grpc_ssl_pem_key_cert_pair pair = {set->key, set->cert};
    return grpc_ssl_credentials_create_ex(set->ca, set->cert ? &pair : NULL, NULL, NULL);
}
