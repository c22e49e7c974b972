/* What is wrong with a cluster's models, told by one sentence before anything is started, and not
 * by the first process that can't start. */
#ifndef BATON_CLI_UP_MODELS_H
#define BATON_CLI_UP_MODELS_H

#include "common/cli/up_plan.h"

/* Of each of settings->list: its folder, config.json, weights' files and their type, its name, and
 * where its packed weights are kept. Codes as of the functions that find it; the sentence names the
 * folder. */
enum status up_models_check(const struct up_settings *settings, struct error *err) WARN_UNUSED;

#endif
