#include "common/cli/commands.h"

#include "common/base/config/config.h"
#include "common/base/domain/api_key.h"
#include "common/net/crypto/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define KEY_PREFIX "baton_" /* people and scanners of leaked keys recognize it */

struct settings {
    char id[API_KEY_NAME_BYTES], tenant[API_KEY_NAME_BYTES], priorities[64];
    char classes[API_KEY_CLASSES_BYTES];
    uint64_t requests, tokens, running;
};

static enum status check_id(const char *text, struct error *err)
{
    return api_key_name(text, strlen(text))
               ? STATUS_OK
               : error_set(err, STATUS_INVALID, "must be 1 to %d letters, digits, '-', '_' or '.'",
                           API_KEY_MAX_NAME_BYTES);
}

static enum status check_tenant(const char *text, struct error *err)
{
    return *text ? check_id(text, err) : STATUS_OK;
}

static enum status check_priorities(const char *text, struct error *err)
{
    bool allowed[PRIORITIES];
    return api_key_priorities(text, strlen(text), allowed)
               ? STATUS_OK
               : error_set(err, STATUS_INVALID,
                           "must be some of normal, high, offline, with commas, each once");
}

static enum status check_classes(const char *text, struct error *err)
{
    return api_key_classes(text, strlen(text))
               ? STATUS_OK
               : error_set(err, STATUS_INVALID,
                           "must be names of SLO classes, with commas, each once, of 1 to 32 "
                           "letters, digits, '-', '_' or '.'");
}

#define AT(field) CONFIG_AT(struct settings, field)
static const struct config_setting table[] = {
    {"id", CONFIG_STRING, AT(id), .required = true, .value = "NAME",
     .help = "Name of the key in the router's logs", .check = check_id},
    {"tenant", CONFIG_STRING, AT(tenant), "", .value = "NAME",
     .help = "Owner of the key: keys of one tenant share cached prompts; empty: the id",
     .check = check_tenant},
    {"requests-per-minute", CONFIG_U64, AT(requests), "0", "0", "1000000000",
     .help = "Requests a minute; 0: no limit"},
    {"tokens-per-minute", CONFIG_U64, AT(tokens), "0", "0", "1000000000", .unit = "tokens",
     .help = "Prompt and answer a minute; 0: no limit"},
    {"running", CONFIG_U64, AT(running), "0", "0", "1000000",
     .help = "Requests at once; 0: no limit"},
    {"priorities", CONFIG_STRING, AT(priorities), "normal,offline", .value = "NAME,...",
     .help = "Priorities that its requests may ask for, of normal, high and offline",
     .check = check_priorities},
    {"classes", CONFIG_STRING, AT(classes), "", .value = "NAME,...",
     .help = "SLO classes that its requests may use, each with its priority; empty: all, with the "
             "priorities above",
     .check = check_classes},
};
static const struct config_program program = {
    .name = "baton key new",
    .summary = "Makes an API key. The key is shown once, for the client; the line is for the "
               "router's file of\nkeys (--api-keys), which holds only a hash of it.",
    .settings = table,
    .setting_count = sizeof table / sizeof *table,
};

static void print_line(const struct settings *settings, const struct digest *digest)
{
    char hex[DIGEST_HEX_BYTES];
    digest_to_hex(digest, hex);
    printf("line id=%s sha256=%s tenant=%s", settings->id, hex,
           *settings->tenant ? settings->tenant : settings->id);
    if (settings->requests)
        printf(" requests=%" PRIu64, settings->requests);
    if (settings->tokens)
        printf(" tokens=%" PRIu64, settings->tokens);
    if (settings->running)
        printf(" running=%" PRIu64, settings->running);
    printf(" priorities=%s", settings->priorities);
    if (*settings->classes)
        printf(" classes=%s", settings->classes);
    printf("\n");
}

int cmd_key_new(int argc, char **argv)
{
    struct settings settings = {.id = ""};
    struct config_result result;
    struct error err;
    struct digest secret; /* as many random bytes as a digest has: 256 bits */
    config_load_or_exit(&program, argc, argv, &settings, &result);
    if (random_bytes(secret.bytes, sizeof secret.bytes, &err) != STATUS_OK) {
        fprintf(stderr, "baton key new: %s\n", err.text);
        return 1;
    }
    char key[sizeof KEY_PREFIX + DIGEST_HEX_BYTES] = KEY_PREFIX;
    digest_to_hex(&secret, key + strlen(KEY_PREFIX));
    struct digest digest = digest_of(key, strlen(key));
    printf("key  %s\n", key);
    print_line(&settings, &digest);
    return 0;
}
