/* Serialized FileDescriptorSets for reflection, made at build time from the .proto files beside
 * this header. */
#ifndef BATON_PROTO_DESCRIPTORS_H
#define BATON_PROTO_DESCRIPTORS_H

extern const unsigned char baton_descriptors[], worker_descriptors[], health_descriptors[],
    reflection_descriptors[], reflection_v1alpha_descriptors[];
extern const unsigned long baton_descriptors_size, worker_descriptors_size, health_descriptors_size,
    reflection_descriptors_size, reflection_v1alpha_descriptors_size;

#endif
