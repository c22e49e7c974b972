/* A hash that tells models apart without reading them: names, types and shapes of all tensors, and
 * evenly spread samples of their bytes, for two checkpoints of one shape differ everywhere. The
 * same however the tensors are sharded. */
#ifndef BATON_ENGINE_MODEL_TENSOR_SAMPLE_H
#define BATON_ENGINE_MODEL_TENSOR_SAMPLE_H

#include "common/engine/model/safetensors.h"

uint64_t tensor_sample_hash(const struct safetensors *tensors);

#endif
