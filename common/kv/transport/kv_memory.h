/* Memory of a pool that no other process maps: zeroed as it is touched. From 2 MiB on it is in huge
 * pages if the kernel gives any. */
#ifndef BATON_KV_TRANSPORT_KV_MEMORY_H
#define BATON_KV_TRANSPORT_KV_MEMORY_H

#include "common/base/status.h"

#include <stdint.h>

enum status kv_memory_map(size_t bytes, uint8_t **memory, struct error *err) WARN_UNUSED;
void kv_memory_unmap(uint8_t *memory, size_t bytes); /* the same `bytes` */

#endif
