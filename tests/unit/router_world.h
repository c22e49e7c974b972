/* For test_router*: a real router in this process, fake workers that register with it over
 * loopback, and a real client. */
#ifndef BATON_TESTS_ROUTER_WORLD_H
#define BATON_TESTS_ROUTER_WORLD_H

#include "common/net/http/http_client.h"
#include "router/router.h"
#include "router_client.h"

struct world {
    struct router *router;
    struct rpc_runtime *runtime; /* for the fakes and the client */
    struct rpc_channel *channel;
};

static inline struct router_config world_config(void)
{
    struct router_config config = router_config_default();
    snprintf(config.models, sizeof config.models, "%s", WORLD_MODEL);
    snprintf(config.model_name, sizeof config.model_name, "tested");
    return config;
}

static inline void world_start(struct world *world, const struct router_config *config)
{
    struct error err;
    if (router_start(config, &world->router, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(rpc_runtime_create(2, &world->runtime, &err), STATUS_OK);
    struct rpc_channel_config channel = {.target = router_address(world->router)};
    assert_int_equal(rpc_channel_create(world->runtime, &channel, &world->channel, &err),
                     STATUS_OK);
}

/* Stop workers and clients before. */
static inline void world_stop(struct world *world)
{
    if (world->router)
        router_stop(world->router);
    rpc_channel_destroy(world->channel);
    rpc_runtime_destroy(world->runtime);
}

static inline void fake_start_with(struct world *world, struct fake *fake, struct fake_plan plan)
{
    plan.runtime = world->runtime;
    plan.router_address = router_address(world->router);
    fake_start_as(fake, &plan);
}

static inline void fake_start(struct world *world, struct fake *fake, const char *name,
                              enum worker_role role)
{
    fake_start_with(world, fake, (struct fake_plan){.name = name, .role = role});
}

/* Sends a GET to the router's metrics server. */
static inline enum status world_get(const struct world *world, const char *path, struct str *body)
{
    struct error err;
    str_clear(body);
    return http_get(&(struct http_remote){.url = router_metrics_address(world->router)}, path,
                    WORLD_LIMIT_US, body, &err);
}

static inline void client_start(struct world *world, struct client *client, const struct ask *ask)
{
    client_start_at(world->channel, client, "/baton.v1.Baton/Generate", ask);
}

/* Registers a worker. `newer` than 0: it speaks one version of the protocol alone, so much newer
 * than ours. The answer comes to `client`. */
static inline void register_start(struct world *world, struct client *client,
                                  const struct worker_info *info, uint32_t newer)
{
    Baton__Worker__V1__WorkerInfo message = worker_message_of(info);
    Baton__Worker__V1__RegisterRequest request = BATON__WORKER__V1__REGISTER_REQUEST__INIT;
    request.info = &message;
    message.version += newer;
    if (newer)
        message.version_min = message.version;
    memset(client, 0, sizeof *client);
    assert_int_equal(ring_create(16, &client->events), STATUS_OK);
    assert_int_equal(rpc_call_start(world->channel, "/baton.worker.v1.Registry/RegisterWorker",
                                    &client_handlers, client, 0, true, &client->call),
                     STATUS_OK);
    assert_int_equal(rpc_call_send_message(client->call, &request.base), STATUS_OK);
    rpc_call_half_close(client->call);
}

/* One prefill and one decode worker, and a client that has asked. */
struct cluster {
    struct world world;
    struct fake prefill, decode;
    struct client client;
};

static inline void cluster_start_with(struct cluster *c, const struct router_config *config)
{
    world_start(&c->world, config);
    fake_start(&c->world, &c->prefill, "prefill-0", ROLE_PREFILL);
    fake_start(&c->world, &c->decode, "decode-0", ROLE_DECODE);
}

static inline void cluster_start(struct cluster *c)
{
    struct router_config config = world_config();
    cluster_start_with(c, &config);
}

static inline void cluster_stop(struct cluster *c)
{
    fake_stop(&c->prefill);
    fake_stop(&c->decode);
    world_stop(&c->world);
}

/* Runs up to the moment when the decode worker has its command. */
static inline void cluster_to_decode(struct cluster *c, const struct ask *ask, struct seen *prefill,
                                     struct seen *decode)
{
    client_start(&c->world, &c->client, ask);
    *prefill = fake_expect(&c->prefill, SEEN_PREFILL);
    fake_opened(&c->prefill, prefill, 1);
    *decode = fake_expect(&c->decode, SEEN_DECODE);
}

/* The decode worker has reported the end, so it needs no message about it. */
static inline void cluster_finished(struct cluster *c, const struct seen *job)
{
    struct seen p = fake_expect(&c->prefill, SEEN_RELEASE);
    assert_int_equal(p.request, job->request);
    assert_int_equal(p.attempt, job->attempt);
}

static inline void cluster_release(struct cluster *c, const struct seen *job)
{
    struct seen p = fake_expect(&c->prefill, SEEN_RELEASE);
    struct seen d = fake_expect(&c->decode, SEEN_RELEASE);
    assert_int_equal(p.request, job->request);
    assert_int_equal(d.request, job->request);
    assert_int_equal(p.attempt, job->attempt);
    assert_int_equal(d.attempt, job->attempt);
}

#endif
