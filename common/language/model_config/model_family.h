/* The families of models, by config.json's model_type: what each fixes, and which keys of
 * config.json would make something else of it. Whatever changes the forward pass and isn't built is
 * refused by its name. Part of model_config.h, which says how it fails. */
#ifndef BATON_LANGUAGE_MODEL_CONFIG_MODEL_FAMILY_H
#define BATON_LANGUAGE_MODEL_CONFIG_MODEL_FAMILY_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct json_value;

enum family_window {
    WINDOW_NEVER, /* the family has none */
    /* sliding_window counts wherever it is given; an absent key is the library's 4096 */
    WINDOW_ALWAYS,
    WINDOW_SWITCHED, /* use_sliding_window turns it on, from layer max_window_layers upwards */
};

struct model_family {
    const char *model_type, *architecture;
    bool qkv_bias, qk_norm;
    /* Keys that must be there, since libraries differ in what they take where they are absent: */
    bool needs_theta, needs_kv_heads, needs_head_dim;
    enum family_window window;
};

/* The family of a config.json; every key that another family or variant would have is looked at. */
enum status model_family_find(const struct json_value *root, const struct model_family **family,
                              struct error *err) WARN_UNUSED;

/* The window of all layers, 0: none; layers that differ are refused. */
enum status model_family_window(const struct model_family *family, const struct json_value *root,
                                uint32_t layers, uint32_t *window, struct error *err) WARN_UNUSED;

#endif
