/* generation_config.json -> end ids and sampling defaults. The file is optional: without it nothing
 * is changed. Part of model_config.h, which says how it fails. */
#ifndef BATON_LANGUAGE_MODEL_CONFIG_GENERATION_CONFIG_H
#define BATON_LANGUAGE_MODEL_CONFIG_GENERATION_CONFIG_H

#include "common/language/model_config/model_config.h"

/* end_ids: as config.json has them; replaced where this file names its own. */
enum status generation_config_read(const char *model_dir, uint32_t vocab, struct end_ids *end_ids,
                                   struct generation_defaults *defaults,
                                   struct error *err) WARN_UNUSED;

#endif
